"""`spark.readStream.format("rillet.changes")`: every change of a server as a row (docs/spark-changes.md).

    options     the options; all mistakes are reported in one error
    storage     the folder that keeps received bytes until their batch is committed
    receiver    the driver's thread that receives the stream and writes it to the folder
    offsets     the offset of a micro-batch
    rows        changes and snapshots into record batches (rillet.transfer.rdb_parts divides a snapshot,
                rillet.transfer.dumped_values makes commands of values)
    source      ChangesDataSource, and its streaming reader
"""
