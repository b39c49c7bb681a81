"""A table with the value of every key of a server, which changes keep up to date (docs/pipelines.md, Changes).

    touched     the keys that a batch of changes reads and writes, and what it does to whole databases
    engine      applies a batch to those keys
    files       the table's files: rows of keys, lookup and merge as tasks
    table       StateTable: the commits, and the reader
"""
