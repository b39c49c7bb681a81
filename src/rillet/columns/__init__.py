"""Entries into Arrow columns, without a Python object for each value.

    text.py     bytes of a field -> long, double, decimal, boolean, timestamp, date      COMPILED
    column.py   one column under construction: data, offsets, validity                  COMPILED
    builder.py  Rows: all columns of one batch, and which field goes where              COMPILED
    resp.py     XRANGE replies, as they come off a socket -> Rows                        COMPILED
    nodes.py    listpack nodes of an embedded stream -> Rows                             COMPILED
    pack.py     Arrow columns -> XADD commands                                           COMPILED
    nested.py   JSON texts -> values of struct, array and map columns
    texts.py    Arrow arrays -> columns of texts for pack.py
    arrow.py    Rows <-> pyarrow: a schema's columns, the hand-over of the buffers

pyarrow is imported when a function is called, never when a module is. Each docstring draws the bytes that its module
reads or writes; start with column.py.
"""
