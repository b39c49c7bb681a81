"""Payload formats: one field of an entry holds a whole record, as JSON, Avro or Protobuf (docs/spark-payloads.md).

    XADD flights * payload <bytes>

    no registry     the record alone: JSON text, Avro's binary encoding, a Protobuf message
    a registry      0 | schema ID, 4 bytes, big endian | the record              Avro
                    0 | schema ID | message indexes | the record                 Protobuf

Reading. The driver (columns.py) puts the columns of the schema that the payload fills into one column, a struct, which
the tasks read as they read JSON: RowBuilder calls a function that converts bytes to a dict, or raises ValueError. So
modes, badRecords and the column of bad entries work as for all types. When a batch is complete, the struct's fields
become columns.

Writing. RowEncoder writes one column in place of several: encoder.py encodes each row of a batch.

    columns.py      the columns of a schema that a payload fills, and whether their types fit it
    encoder.py      the format of the options; the encoder of rows
    formats.py      what all formats have in common; JSON
    avro.py         by fastavro: schemas, resolution of the writer's schema by the reader's
    protobuf.py     by Google's protobuf: descriptors, without generated code
    registry.py     the client of a schema registry, by confluent-kafka

The driver fetches the schemas and pickles them with the reader or the writer. A task imports the libraries of its
format. It asks the registry for schemas that the driver has not seen, once for each worker process.

Rejected: `from_avro` and `from_protobuf` of Spark, which need JARs and no registry; Confluent's deserializers, which
copy each record once more and have no interface for a reader's types.
"""
