"""Payload formats in Spark local[2]: rows of five columns, two of them double, as fields and as one field.

    python -m benchmarks.spark_payloads --rows N     rows/s of writing and of reading each format, from redis-server
    python -m benchmarks.spark_payloads --parts      processor time of the conversion alone, without Spark

The formats alternate; the medians of three rounds, after a turn as a warm-up. The rows are cached in Spark in two
partitions. Reading evaluates all columns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import ROOT, redis_server
from benchmarks.spark_write import COLUMNS, ask

ROUNDS = 3
TASKS = 2
TYPES = {"device": "string", "temperature": "double", "humidity": "double", "status": "string", "session": "string"}
AVRO = {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()]}
SUMS = ("count(*) n", "sum(temperature) t", "sum(humidity) h", "sum(length(device)) d", "sum(length(status)) s",
        "sum(length(session)) x")  # fmt: skip


def descriptor_set(folder: Path) -> str:
    """Write the descriptors of a message with the columns; return the path."""
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        FileDescriptorSet,
    )

    fields = [FieldDescriptorProto(name=name, number=number, type=f"TYPE_{kind.upper()}", label="LABEL_OPTIONAL")
              for number, (name, kind) in enumerate(TYPES.items(), 1)]  # fmt: skip
    file = FileDescriptorProto(
        name="row.proto", syntax="proto3", message_type=[DescriptorProto(name="Row", field=fields)]
    )
    path = folder / "row.desc"
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    return str(path)


def formats_in(folder: str) -> dict[str, dict[str, str]]:
    """Return the options of each format; none: the columns are fields."""
    return {
        "fields": {}, "json": {"payload": "json"}, "avro": {"payload": "avro", "payloadSchema": json.dumps(AVRO)},
        "protobuf": {"payload": "protobuf", "payloadMessage": "Row", "payloadSchema": descriptor_set(Path(folder))},
    }  # fmt: skip


def parts(rows: int = 20_000) -> None:
    """Print the processor time for a row: from Arrow to payloads, and back."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    from rillet.spark.options import parse
    from rillet.spark.payload.columns import PayloadDecoder
    from rillet.spark.payload.encoder import PayloadEncoder
    from rillet.spark.spark_versions import arrow_schema

    batch = pa.RecordBatch.from_pydict({
        "device": [f"sensor-{row:05}" for row in range(rows)], "temperature": [row * 0.7 for row in range(rows)],
        "humidity": [row * 0.3 for row in range(rows)], "status": ["degraded"] * rows,
        "session": ["0123456789abcdef"] * rows,
    })  # fmt: skip
    schema = from_arrow_schema(batch.schema)
    print("| µs for a row | write | read |\n|---|---|---|")
    with TemporaryDirectory() as folder:
        for name, options in list(formats_in(folder).items())[1:]:
            parsed = parse({"url": "redis://x", "stream": "x", **options})
            encoder = PayloadEncoder(parsed, {one: one for one in TYPES}, schema)
            read = PayloadDecoder("x", encoder.format, schema).reader()
            kind = pa.struct(list(arrow_schema(schema)))
            times = []
            for _ in range(5):
                began = time.process_time()
                payloads = encoder.payloads(batch)
                middle = time.process_time()
                found = pa.array(map(read, payloads.to_pylist()), kind)
                times.append((middle - began, time.process_time() - middle))
            assert found.field("session")[rows - 1].as_py() == "0123456789abcdef"
            write, back = (min(times, key=lambda pair: pair[place])[place] / rows * 1e6 for place in (0, 1))
            print(f"| {name} | {write:.1f} | {back:.1f} |")


def main(rows: int) -> None:
    """Print a table."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), str(ROOT))))
    from rillet.spark import session

    spark = session("local[2]", "rillet benchmark", spark_driver_memory="2g")
    spark.sparkContext.setLogLevel("ERROR")
    schema = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    speeds: dict[tuple[str, str], list[float]] = {}
    try:
        frame = spark.range(0, rows, 1, TASKS).selectExpr(*COLUMNS).cache()
        assert frame.count() == rows
        with redis_server() as (port, _), TemporaryDirectory() as folder:
            formats = formats_in(folder)
            for turn in range(ROUNDS + 1):
                for name, options in formats.items():
                    ask(port, b"FLUSHALL")
                    options = {**options, "url": f"redis://127.0.0.1:{port}", "stream": "rows"}
                    began = time.perf_counter()
                    frame.write.format("rillet").mode("append").options(**options).save()
                    middle = time.perf_counter()
                    (row,) = (
                        spark.read.format("rillet").schema(schema).options(**options).load().selectExpr(*SUMS).collect()
                    )
                    ended = time.perf_counter()
                    assert row.n == rows
                    assert row.x
                    if turn:
                        speeds.setdefault((name, "write"), []).append(rows / (middle - began))
                        speeds.setdefault((name, "read"), []).append(rows / (ended - middle))
    finally:
        spark.stop()
    print(f"{rows:,} rows of five columns, local[{TASKS}], redis-server, rows/s\n\n| | write | read |\n|---|---|---|")
    for name in formats:
        write, read = (statistics.median(speeds[name, what]) for what in ("write", "read"))
        print(f"| {name} | {write:,.0f} | {read:,.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--parts", action="store_true")
    given = parser.parse_args()
    if given.parts:
        parts()
    else:
        main(given.rows)
