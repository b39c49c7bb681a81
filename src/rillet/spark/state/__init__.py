"""A table with the value of every key of a server, which changes keep up to date (docs/pipelines.md, Changes).

    batches     the commands of a batch of changes
    files       the table's files: rows of keys, lookup and merge as tasks
    parquet     a table in rillet's own format
    delta       a table in Delta Lake, with a MERGE for each batch
    table       StateTable: the commits, and the reader

rillet.transfer.touched_keys finds the keys that a batch reads and writes;
rillet.transfer.batch_engine applies it to them.
"""
