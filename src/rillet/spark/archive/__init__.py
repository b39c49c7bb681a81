"""The Parquet archive of streams, in two formats.

    backends.py         chooses the format
    layout.py           rillet's own: a folder, with locks, commits and the steps that remain after a kill
    manifest.py         the list of the folder's files, as a base and increments
    delta.py            a Delta Lake table, in a folder or an object store
    partitions.py       the columns by which folders divide the files
    targets.py          where tasks write files
    merging.py          which small files to merge
    parquet_reader.py   reads archived rows in any schema of the source
    files.py            operations of the file system
"""
