"""A trigger of a query over many streams: 10,000 streams, of which 100 get an entry each, and of which none does.

    python -m benchmarks.spark_streams            processor time of a trigger, size of the offset, share while idle
    python -m benchmarks.spark_streams --sink     processor time of a row that a task writes to one of 10,000 streams
    python -m benchmarks.spark_streams --rillet   with a rillet server instead of redis-server
    python -m benchmarks.spark_streams --profile  where the time goes

Without Spark: the benchmark calls the reader as Spark does. A trigger is latestOffset, reportLatestOffset and
partitions; the time is the processor time of the planning process, without the server's. `idle` is the share of a core
that triggers without new entries take for 15 seconds, one after the other as Spark calls them.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import statistics
import sys
import time
from typing import Any

from benchmarks.harness import redis_server, rillet_server
from rillet.client.address import Address
from rillet.client.connection import Connection
from rillet.protocol.command_parser import pack_command

STREAMS = 10_000
CHANGED = 100
ROUNDS = 7
IDLE_SECONDS = 15


def measure(profile: bool = False) -> dict[str, float]:
    """Return the processor time of a trigger in ms, the offset in kB, and the share of a core while idle."""
    from pyspark.sql.types import StructType

    from rillet.spark.options import parse
    from rillet.spark.source import RangePartition, StreamingReader
    from rillet.spark.spark_versions import ReadAllAvailable

    schema = StructType().add("stream", "string").add("n", "long")
    server = rillet_server() if "--rillet" in sys.argv else redis_server()
    with server as (port, _), Connection(Address(port=port), 60) as connection:

        def add(numbers: range) -> None:
            for first in range(numbers.start, numbers.stop, 1000):
                part = range(first, min(first + 1000, numbers.stop))
                connection.send(b"".join(pack_command([b"XADD", b"session:%d:events" % (i % STREAMS), b"*", b"n", b"1"])
                                         for i in part))  # fmt: skip
                for _ in part:
                    connection.reply()

        add(range(STREAMS))
        reader = StreamingReader(parse({"url": f"redis://127.0.0.1:{port}", "streamPattern": "session:*"}), schema, 2)
        start: dict[str, Any] = reader.initialOffset()
        start = reader.latestOffset(start, ReadAllAvailable())
        spent, sizes = [], []
        profiler = cProfile.Profile()
        for number in range(ROUNDS):
            add(range(number * CHANGED, (number + 1) * CHANGED))
            begun = time.process_time()
            if profile:
                profiler.enable()
            text = json.dumps(start)
            end = reader.latestOffset(json.loads(text), ReadAllAvailable())
            reader.reportLatestOffset()
            tasks = reader.partitions(json.loads(text), json.loads(json.dumps(end)))
            profiler.disable()
            spent.append((time.process_time() - begun) * 1000)
            assert sum(len(part.ranges) for part in tasks if isinstance(part, RangePartition)) == CHANGED
            sizes.append(len(json.dumps(end)) / 1000)
            start = end
        clock, begun = time.monotonic(), time.process_time()
        while time.monotonic() - clock < IDLE_SECONDS:
            assert reader.latestOffset(json.loads(json.dumps(start)), ReadAllAvailable()) == start
            reader.reportLatestOffset()
        idle = (time.process_time() - begun) / (time.monotonic() - clock)
        if profile:
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(35)
        reader.stop()
    return {"trigger, ms": statistics.median(spent), "offset, kB": statistics.median(sizes),
            "idle, share of a core": idle}  # fmt: skip


def measure_sink(profile: bool = False) -> dict[str, float]:
    """Return the processor time of a written row in us, for two numbers of rows of a task, and the keys of records."""
    import pyarrow as pa

    from tests.spark.writing import in_task, writer_of

    found: dict[str, float] = {}
    server = rillet_server() if "--rillet" in sys.argv else redis_server()
    with server as (port, _), Connection(Address(port=port), 60) as connection:
        options = {"url": f"redis://127.0.0.1:{port}", "streamColumn": "to"}
        batch = 0
        for rows in (STREAMS, 10 * STREAMS):
            columns = {"n": pa.array(range(rows), pa.int64()), "status": ["degraded"] * rows,
                       "to": [f"session:{i * 7919 % STREAMS}:events" for i in range(rows)]}  # fmt: skip
            table = pa.table(columns)
            writer = writer_of(table, options)
            spent, committing = [], []
            profiler = cProfile.Profile()
            for _ in range(ROUNDS):
                in_task(0, batch)
                begun = time.process_time()
                if profile:
                    profiler.enable()
                message = writer.write(iter(table.to_batches(max_chunksize=10_000)))
                profiler.disable()
                spent.append((time.process_time() - begun) * 1e6 / rows)
                begun = time.process_time()
                writer.commit([message], batch)
                committing.append((time.process_time() - begun) * 1e6 / rows)
                batch += 1
            found[f"a row of {rows}, us"] = statistics.median(spent)
            found[f"its commit of {rows}, us"] = statistics.median(committing)
            if profile:
                pstats.Stats(profiler).sort_stats("cumulative").print_stats(35)
        connection.send(pack_command([b"DBSIZE"]))
        found["keys of records"] = connection.reply() - STREAMS
    return found


if __name__ == "__main__":
    for what, value in (measure_sink if "--sink" in sys.argv else measure)("--profile" in sys.argv).items():
        print(f"{what:24} {value:10.3f}")
