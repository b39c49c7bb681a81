"""Hashes, strings, lists, sets, sorted sets, JSON values and keys as tables: read, write and look up.

    schema.py     the columns of each type, and the commands that read them
    reader.py     the batch reader: parts of the keys, pipelines, Arrow batches
    lookup.py     `read_keys` and `enrich`: look-ups of keys that a DataFrame contains
    commands.py   the commands that write a row of each type
    writer.py     the writers; `foreach_batch` for the results of streaming aggregations
"""
