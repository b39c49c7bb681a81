"""Archiving a stream of redis-server to Parquet, against Spark writing the same rows from its memory.

The peer starts with the rows already in Spark's cache, columnar, in two partitions. It writes them to the same layout
(a folder per date and stream) with the same compression. The archive also reads the stream, syncs its files and
commits. Two cases: the map `fields`, and typed columns. The figures are seconds. The two ways alternate; the first turn
is a warm-up.

A second measurement is the commit of one file to an archive that has many: the peer writes the whole list of files as
JSON and renames it, which is what a commit would cost without increments.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT, Figure, redis_server
from benchmarks.memory import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rillet.spark.archive.manifest import ArchiveManifest

CASES = {
    "map of fields": None,
    "typed columns": "device string, temperature double, humidity double, status string, session string",
}
MOST = 1.3  # the target: at most this many times the peer's time


def _cached(spark: SparkSession, port: int, schema: str | None, entries: int) -> DataFrame:
    """Return the stream's rows, with an archive's columns, cached in Spark."""
    from rillet.spark.pipelines.archive import OWN

    source = spark.read.format("rillet").option("url", f"redis://127.0.0.1:{port}").option("stream", "stream")
    source = source.option("minPartitions", "2")
    frame = (source if schema is None else source.schema(f"{OWN}, {schema}")).load()
    frame = frame.selectExpr("*", "date(timestamp) date").cache()
    assert frame.count() == entries
    return frame


def _took(write: Callable[[str], object], folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()  # writes of earlier steps must not count
    began = time.perf_counter()
    write(str(folder))
    return time.perf_counter() - began


def measure(rounds: int = 3, entries: int = 1_000_000) -> dict[str, tuple[float, float]]:
    """Return (seconds of the peer, seconds of the archive) by case."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(ROOT))))
    from rillet.spark import session

    spark = session("local[2]", "rillet benchmark", spark_driver_memory="2g")
    found: dict[str, tuple[float, float]] = {}
    try:
        spark.sparkContext.setLogLevel("ERROR")
        with redis_server() as (port, _), tempfile.TemporaryDirectory(prefix="rillet-bench-") as scratch:
            fill(port, "stream", entries)
            for case, schema in CASES.items():
                found[case] = _case(spark, port, schema, entries, rounds, Path(scratch))
    finally:
        spark.stop()
        os.environ["PYTHONPATH"] = before
    return found


def _case(
    spark: SparkSession, port: int, schema: str | None, entries: int, rounds: int, scratch: Path
) -> tuple[float, float]:
    from rillet.spark.pipelines import archive

    frame = _cached(spark, port, schema, entries)

    def peer(folder: str) -> None:
        frame.write.partitionBy("date", "stream").option("compression", "zstd").parquet(folder)

    def ours(folder: str) -> None:
        options: dict[str, Any] = {"url": f"redis://127.0.0.1:{port}", "stream": "stream"}
        done = archive(spark, folder, schema=schema, **options)
        assert done.entries == entries, f"{done.entries} of {entries} entries were archived"

    peers, own = [], []
    for turn in range(rounds + 1):
        took = _took(peer, scratch / "peer"), _took(ours, scratch / "ours")
        if turn:
            peers.append(took[0])
            own.append(took[1])
    frame.unpersist()
    return statistics.median(peers), statistics.median(own)


FILES = 100_000
LIMIT = 20.0  # ms: the target for a commit at FILES files


def _write_whole(path: Path, text: bytes) -> None:
    """Write a file as an archive writes its base: synced, in one step, with its folder."""
    draft = path.with_name("draft")
    with open(draft, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def commits(files: int = FILES, count: int = 40) -> tuple[float, float, float]:
    """Return milliseconds: the whole list written as JSON (median), a commit (median), the slowest commit."""
    from rillet.spark.archive.layout import MANIFEST, Archive, folder_of
    from rillet.spark.archive.manifest import Part, base_text
    from rillet.types.stream.id import StreamID

    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as scratch:
        archive = Archive(Path(scratch) / "a")

        def append(manifest: ArchiveManifest, number: int) -> ArchiveManifest:
            folder, ms = archive.stage(), 1_800_000_000_000 + number
            (archive.path / folder / "one.part").write_bytes(b"x")
            part = Part(f"{folder}/one.part", "events:7", 20_833, StreamID(ms, 0), StreamID(ms, 9), 10, 1)
            streams = {f"events:{stream}": f"{ms}-9" for stream in range(200)}
            return archive.append(manifest, [part], {"streams": streams, "added": dict.fromkeys(streams, number)}, "s")

        with archive.writing() as manifest:
            manifest = append(manifest, 0)
            day = 86_400_000
            manifest.files.add(
                Part(f"{folder_of(stream, ms // day)}/{ms}-0_{ms}-9_c1.parquet", stream, ms // day, StreamID(ms, 0),
                     StreamID(ms, 9), 1000, 100_000)
                for stream, ms in ((f"events:{n % 200}", 1_500_000_000_000 + n // 200 * day) for n in range(files))
            )  # fmt: skip
            (archive.path / MANIFEST).write_bytes(base_text(manifest))
        whole, own = [], []
        with archive.writing() as manifest:
            for number in range(1, count + 1):
                begun = time.perf_counter()
                manifest = append(manifest, number)
                own.append((time.perf_counter() - begun) * 1000)
                if number % 8 == 0:
                    begun = time.perf_counter()
                    _write_whole(archive.path / "whole.json", base_text(manifest))
                    whole.append((time.perf_counter() - begun) * 1000)
        assert len(Archive(archive.path).manifest().files) == files + 1 + count
    return statistics.median(whole), statistics.median(own), max(own)


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    return [
        Figure(
            f"Spark archive to Parquet, {case}, local[2]", "cached rows by Spark", peer, own, "s", 1 / MOST,
            less_is_better=True,
        )
        for case, (peer, own) in measure(rounds, max(int(1_000_000 * scale), 20_000)).items()
    ] + [_commit_figure(max(int(FILES * scale), 1000))]  # fmt: skip


def _commit_figure(files: int) -> Figure:
    whole, own, _ = commits(files)
    return Figure(
        f"Archive, a commit at {files:,} files", "the whole list as JSON", whole, own, "ms", round(whole / LIMIT, 1),
        less_is_better=True,
    )  # fmt: skip


if __name__ == "__main__":
    for size in (1000, 10_000, 100_000):
        whole, median, slowest = commits(size)
        print(f"{size:7} files: the whole list {whole:7.1f} ms   a commit {median:5.1f} ms, at most {slowest:5.1f} ms")
    for name, (cached, archived) in measure().items():
        print(f"{name:16} Spark's memory {cached:6.2f} s   archive {archived:6.2f} s   {archived / cached:5.2f} times")
