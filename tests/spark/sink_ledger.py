"""The ledger of a sink: its server is killed and loses its last writes; each missing row was reported, none is doubled.

    python -m tests.spark.sink_ledger --loss everysec --sink ordered --kills 50 --seed 1

A query writes numbered rows in batches. At random sends of its tasks and commits, its server is killed and comes back
with less than it had:

    rdb        the last snapshot, which is written now and then
    everysec   its log, cut off somewhere behind the end of an earlier batch, as a power failure would do; but not in a
               transaction: Redis would leave its beginning there, and lose all that follows at the next start
    always     its log: nothing is missing
    failover   the data of a replica that stopped following some batches ago, at the address of the master

The query is restarted as Spark does it: a failed batch is repeated with the same rows. If committed batches are lost,
the query continues with failOnDataLoss=false, and the batches that the error names may lack rows. All others must be
there, each row once. Batches that are lost while it continues are counted; a warning names them.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import select
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rillet.client.connection import Connection
from rillet.client.errors import ConnectorError
from rillet.spark.write.query_record import BatchesLost
from tests import waiting
from tests.judge import required_binary
from tests.spark.sink_server import SINKS, SinkQuery, SinkServer

LOSSES = ("rdb", "everysec", "always", "failover")
ROWS = 100  # in a batch
LOSSES_COUNTED = logging.getLogger("rillet.spark")  # warns of them
_LOST = re.compile(r"the sink lost the batch(?:es)? ([0-9]+)(?: to ([0-9]+))?:")


class Killer:
    """Kills a server before a send of this process, after it, or after the answer, and brings it back with less."""

    def __init__(self, server: SinkServer, loss: str, source: random.Random) -> None:
        self.server = server
        self.loss = loss
        self.source = source
        self.kills = 0
        self.left = 0  # sends until the next kill; 0: none
        self.log_sizes: list[tuple[Path, int]] = []  # at the ends of batches
        self.replica: SinkServer | None = None

    def sent(self) -> None:
        """Count a send, and strike if it is the one."""
        self.left -= 1
        if self.left == 0:
            self.strike()

    def strike(self) -> None:
        """Kill the server and start it again."""
        self.kills += 1
        self.server.kill()
        if self.loss == "everysec":
            self._cut_log()
        elif self.replica is not None:
            self.replica.kill()
            (self.replica.folder / "dump.rdb").replace(self.server.folder / "dump.rdb")
            self.replica = None
        self.server.start()

    def _cut_log(self) -> None:
        path, size = self._log()
        earlier = [before for old, before in self.log_sizes[-3:] if old == path and before <= size]
        if earlier:
            ends = [end for end in ends_in(path.read_bytes()) if end >= earlier[0]]
            with path.open("r+b") as file:
                file.truncate(self.source.choice([*ends, size]))

    def _log(self) -> tuple[Path, int]:
        path = max(self.server.folder.glob("appendonlydir/*.incr.aof"))
        return path, path.stat().st_size

    def between(self) -> None:
        """Do what happens to the server's files between batches."""
        if self.loss == "rdb" and self.source.random() < 0.3:
            self.server.run("SAVE")
        elif self.loss == "everysec":
            self.log_sizes.append(self._log())
        elif self.loss == "failover" and self.replica is None:
            self._copy()

    def _copy(self) -> None:
        """Make a replica that follows up to here."""
        folder = self.server.folder.with_name(f"replica{self.kills}")
        replica = SinkServer(folder, self.server.binary)
        replica.run("REPLICAOF", "127.0.0.1", str(self.server.port))
        waiting.until(lambda: b"master_link_status:up" in replica.run("INFO", "replication"), "the replica to follow")
        replica.run("REPLICAOF", "NO", "ONE")
        replica.run("SAVE")
        self.replica = replica

    def end(self) -> None:
        """Stop all servers."""
        for server in (self.server, self.replica):
            if server is not None:
                server.kill()


def ends_in(log: bytes) -> Iterator[int]:
    """Yield the ends of the commands in a log, and of whole transactions."""
    at, inside = 0, False
    while at < len(log):
        stop = log.index(b"\r\n", at)
        words, at = int(log[at + 1 : stop]), stop + 2
        name = b""
        for _ in range(words):
            stop = log.index(b"\r\n", at)
            size, at = int(log[at + 1 : stop]), stop + 2
            name = name or log[at : at + size].upper()
            at += size + 2
        inside = name == b"MULTI" or (inside and name != b"EXEC")
        if not inside:
            yield at


@dataclass
class Result:
    """What happened."""

    kills: int = 0
    batches: int = 0
    repeated: int = 0
    lost: set[int] = field(default_factory=set)  # batches that errors have named
    incomplete: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills in {self.batches} batches; {self.repeated} repeated; {len(self.lost)} reported as "
            f"lost, of which {len(self.incomplete)} lack rows; no row is missing without a report, none is there twice"
        )


@contextmanager
def struck(killer: Killer) -> Iterator[None]:
    """Let a killer count the sends of this process."""
    send = Connection.send

    def sending(connection: Connection, data: bytes | bytearray) -> None:
        when = killer.source.choice(("before", "after", "answered"))
        if when == "before":
            killer.sent()
        send(connection, data)
        if when == "answered":
            select.select([connection._socket], [], [], 0.1)
        if when != "before":
            killer.sent()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "send", sending)
        yield


def run(loss: str, sink: str, kills: int, seed: int, folder: Path, kind: str = "7.0") -> Result:
    """Write batches until the server was killed so often; AssertionError if a row is missing in silence, or doubled."""
    source = random.Random(seed)
    log = ("--appendonly", "yes", "--appendfsync", loss) if loss in ("everysec", "always") else ()
    binary = None if kind == "rillet" else required_binary(kind)
    killer = Killer(SinkServer(folder / "server", binary, *log), loss, source)
    try:
        counted = _Counted()
        LOSSES_COUNTED.addHandler(counted)
        try:
            with struck(killer):
                result = _play(killer, SinkQuery(killer.server.url, sink), kills)
        finally:
            LOSSES_COUNTED.removeHandler(counted)
        result.lost |= counted.lost
        _settle(result, killer.server.numbers())
    finally:
        killer.end()
    return result


def _play(killer: Killer, query: SinkQuery, kills: int) -> Result:
    result = Result()
    while killer.kills < kills:
        killer.left = killer.source.randint(1, 40)
        _batch(query, result)
        killer.left = 0
        killer.between()
    _batch(query, result)  # it finds what the last kill has lost
    result.kills, result.batches = killer.kills, query.number
    return result


def _batch(query: SinkQuery, result: Result) -> None:
    """Run a batch until it is committed."""
    number = query.number
    while query.number == number:
        try:
            query.hundred()
        except BatchesLost as error:
            result.lost |= _named(error)
            query.options["failOnDataLoss"] = "false"
        except ConnectorError:
            result.repeated += 1
    query.options.pop("failOnDataLoss", None)


class _Counted(logging.Handler):
    """Collects the batches that warnings name, which were counted with failOnDataLoss=false."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Read a warning."""
        if _LOST.search(record.getMessage()):
            self.lost |= _named(record.getMessage())


def _named(text: object) -> set[int]:
    """Return the batches that an error or a warning names."""
    found = _LOST.search(str(text))
    assert found is not None, text
    return set(range(int(found[1]), int(found[2] or found[1]) + 1))


def _settle(result: Result, found: Counter[int]) -> None:
    doubled = [n for n, times in found.items() if times > 1]
    missing = {n // ROWS for n in range(ROWS * result.batches) if n not in found}
    assert not doubled, f"{len(doubled)} rows are there twice: {doubled[:5]}"
    silent = sorted(missing - result.lost)
    assert not silent, f"batches lack rows without a report: {silent}"
    result.incomplete = missing


def main() -> None:
    """Play the ledger that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loss", choices=LOSSES, default="rdb")
    parser.add_argument("--sink", choices=sorted(SINKS), default="stream")
    parser.add_argument("--kind", default="7.0", help="of the server, as in tests/judge.py, or rillet")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rillet-sink-ledger-") as folder:
        print(run(given.loss, given.sink, given.kills, given.seed, Path(folder), given.kind))


if __name__ == "__main__":
    main()
