"""Writes an archive, a half-committed archive and a checkpoint with the installed rillet, for test_made_earlier.py.

    python -m tests.spark.made_earlier tests/spark/earlier/format-1        run with the version whose files are wanted

The entries are generated: numbers with IDs six hours apart. The files of a version stay in the repository, so that
later versions are tested with them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from rillet.protocol.command_parser import pack_command

ENTRIES = 12
HOURS = 6


def entry_id(number: int) -> str:
    """Return the ID of an entry: six hours after the previous one."""
    return f"{1_700_000_000_000 + number * HOURS * 3_600_000}-{number % 3}"


def fill(port: int, numbers: range, stream: str = "events") -> None:
    """Append entries to a stream."""
    from rillet.client.address import Address
    from rillet.client.connection import Connection

    with Connection(Address(port=port), 30) as connection:
        for n in numbers:
            words = [b"XADD", stream.encode(), entry_id(n).encode(), b"n", b"%d" % n, b"user", b"u%d" % (n % 3)]
            connection.send(pack_command(words))
            assert connection.reply() == entry_id(n).encode()


def follow(spark: Any, url: str, checkpoint: Path, table: Path) -> None:
    """Copy the new entries of the stream into Parquet files."""
    source = spark.readStream.format("rillet").schema("id string, n long").options(url=url, stream="events").load()
    query = source.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start(str(table)).awaitTermination()


def main(folder: Path) -> None:
    from rillet.spark import session
    from rillet.spark.archive.layout import Archive
    from rillet.spark.pipelines import archive
    from tests.judge import running_redis

    shutil.rmtree(folder, ignore_errors=True)
    with running_redis() as server:
        url = f"redis://127.0.0.1:{server.port}"
        spark = session("local[1]")
        options: dict[str, Any] = {"url": url, "stream": "events"}
        fill(server.port, range(ENTRIES // 2))
        archive(spark, folder / "archive", small_files=2, **options)
        shutil.copytree(folder / "archive", folder / "killed")
        fill(server.port, range(ENTRIES // 2, ENTRIES))
        archive(spark, folder / "archive", small_files=99, **options)
        follow(spark, url, folder / "checkpoint", folder / "table")
        shutil.rmtree(folder / "table")

        def killed(self: Archive, manifest: Any, again: bool = False) -> None:
            if any((self.path / staged).exists() for staged in manifest.place.values()):
                raise KeyboardInterrupt  # after the commit, before the files have their names

        setattr(Archive, "settle", killed)  # noqa: B010
        try:
            archive(spark, folder / "killed", small_files=99, **options)
        except KeyboardInterrupt:
            pass
        spark.stop()
    for needless in (*folder.rglob("*.crc"), *folder.rglob("lock")):
        needless.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
