"""Copies data between files, stores and servers, and reads RDB files as tables.

    backup, server_backup                  whole stores and servers, to a directory or an RDB file
    key_transfer                           all keys from files or a server, with DUMP and RESTORE
    rdb_tables, rdb_elements,              an RDB file as Arrow batches: keys, elements, stream entries,
    rdb_stream_tables                      the entries of streams
    rdb_parts, dumped_values,              changes of a server, applied to a part of its keys
    touched_keys, batch_engine

Its users are the CLI and Spark. The store does not import this package.
"""
