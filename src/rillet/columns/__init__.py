"""Stream entries into Arrow columns and back, without a Python object for each value.

    value_parsing.py     text of a field -> long, double, decimal, boolean, timestamp, date     COMPILED
    column.py            one column under construction: data, offsets, validity                 COMPILED
    row_builder.py       the columns of a batch, and the column of each field                   COMPILED
    receive_buffer.py    received bytes that a decoder reads in place                           COMPILED
    resp_decoder.py      replies to XRANGE -> rows                                              COMPILED
    node_decoder.py      listpack nodes of a stream -> rows                                     COMPILED
    node_pages.py        replies to RILLET.XNODES (whole nodes) -> rows                         COMPILED
    value_formatting.py  numbers, moments and days -> text                                      COMPILED
    row_packing.py       Arrow columns -> XADD commands                                         COMPILED
    string_column.py     Arrow arrays -> the buffers that row_packing.py reads
    json_column.py       JSON texts -> values of struct, array and map columns
    arrow_batch.py       Arrow schema -> columns; columns -> record batch

Functions import pyarrow when they are called; no module imports it. Start with column.py.
"""
