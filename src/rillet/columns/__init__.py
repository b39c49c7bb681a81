"""Entries into Arrow columns, without a Python object for each value.

    text.py     bytes of a field -> long, double, boolean, timestamp, date              COMPILED
    column.py   one column under construction: data, offsets, validity                  COMPILED
    builder.py  Rows: all columns of one batch, and which field goes where              COMPILED
    resp.py     XRANGE replies, as they come off a socket -> Rows                        COMPILED
    nodes.py    listpack nodes of an embedded stream -> Rows                             COMPILED
    pack.py     Arrow columns -> XADD commands                                           COMPILED
    nested.py   JSON texts -> values of struct, array and map columns
    arrow.py    Rows <-> pyarrow: the only module here that imports pyarrow, when called

Each docstring draws the bytes that its module reads or writes; start with column.py.
"""
