"""The end of a copied log: after the last whole command or at a time, in frames, files and transactions."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rillet.errors import LogCorrupt, StoreError
from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.end import LogEnd, cut, find_end
from rillet.persistence.aof.frames import frame
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.scan import CommandScan
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.persistence.workload import state

START = 1_700_000_000
FILE = "appendonly.aof.1.incr.aof"
CHECK_AOF = shutil.which("redis-check-aof")


def resp(*lines: str) -> bytes:
    """Return commands in RESP; a line that begins with # is an annotation."""
    words = [line.encode() for line in lines]
    return b"".join(one + b"\r\n" if one.startswith(b"#") else pack_command(one.split()) for one in words)


class Writer:
    """An engine that logs with times."""

    def __init__(self, folder: Path, *, checksums: bool, base: bool = False) -> None:
        self.clock = ManualClock(START * 1000)
        self.engine = Engine(Settings(compat="7.0"), self.clock)
        self.log = AppendOnlyLog(folder, fsync="always", threads=False)
        self.log.checksums = checksums
        self.log.feed.timestamps = True
        self.log.load(self.engine)
        self.log.start(self.engine, (lambda path: write_base(path, self.engine)) if base else None)
        self.session = self.engine.session()

    def run(self, *lines: str, write: bool = True) -> None:
        for line in lines:
            self.engine.execute(self.session, line.encode().split())
            assert not self.session.out.take_bytes().startswith(b"-"), line
            if write and not self.session.in_exec:
                self.engine.log.flush()

    def close(self) -> None:
        self.engine.log = None
        self.log.close()


def loaded(paths: list[Path]) -> Engine:
    engine = Engine(Settings(compat="7.0"), ManualClock(START * 1000))
    found = replay(engine, paths, truncates=False)
    assert not found.dropped
    return engine


def copied(paths: list[Path], folder: Path, to: int = -1) -> tuple[LogEnd, list[Path]]:
    """Return the end of a log, and the files of a copy that ends there."""
    folder.mkdir()
    copies = [Path(shutil.copy(path, folder / path.name)) for path in paths]
    end = find_end(copies, to)
    kept = copies[: end.file + 1]
    cut(kept[-1], end)
    return end, kept


def test_the_scan_finds_the_same_in_pieces_of_any_size() -> None:
    data = resp("#TS:100", "SELECT 0", "SET k multi", "multi", "SET a exec", "#TS:101", "INCR n", "EXEC",
                "#RILLET:00000000 3 0 1", "#TS:102", "SET exec multi", "#other", "MULTI", "INCR n")  # fmt: skip
    ends = {100: data.index(b"*1\r\n$5\r\nmulti"), 101: data.index(b"#TS:102"), -1: data.index(b"*1\r\n$5\r\nMULTI")}
    ends[102] = ends[-1]
    for limit, expected in ends.items():
        for size in (1, 2, 3, 7, 50, len(data)):
            scan = CommandScan("x", 0, limit)
            for at in range(0, len(data), size):
                if not scan.feed(data[at : at + size]):
                    break
            assert scan.good == expected
            assert scan.beyond == (-1 if limit in (-1, 102) else limit + 1)
            assert scan.commands == {100: 2, 101: 4}.get(limit, 5)
            assert scan.first == 100
            # The time 101 is inside the transaction: it was read, but belongs to what was left out.
            assert scan.last == {100: 100, 101: 101}.get(limit, 102)


@pytest.mark.parametrize("data", [
    b"PING\r\n", b"*0\r\n", b"*-1\r\n", b"*1\r\nx", b"*1\r\n$-1\r\n", b"*1\r\n$3\r\nSETx\r\n", b"*1\n$3\r\nSET\r\n",
    b"\0" * 40, b"*2\r\n$3\r\nGET\r\n:1\r\n", b"*" + b"1" * 30 + b"\r\n", b"*1\r\n" + b"$" * 5000,
    b"*1\r\n$3\r\nSETx", b"#TS:1\0\r\n",
])  # fmt: skip
def test_bytes_that_are_no_commands(data: bytes) -> None:
    before = resp("SET a 1")
    scan = CommandScan("name", 0, -1)
    with pytest.raises(LogCorrupt, match="name: offset") as caught:
        scan.feed(before + data)
    assert caught.value.offset >= len(before)
    assert scan.good == len(before)


@pytest.mark.parametrize("checksums", [False, True])
def test_a_log_is_cut_after_its_last_whole_command(tmp_path: Path, checksums: bool) -> None:
    writer = Writer(tmp_path / "log", checksums=checksums)
    writer.run("SET a 1", "MULTI", "INCR n", "INCR n", "EXEC")
    before = state(writer.engine)
    path = tmp_path / "log" / FILE
    size = path.stat().st_size
    writer.run("MULTI", "SET b 1", "SET c 1", "EXEC")
    writer.close()
    whole = path.read_bytes()
    last = whole.index(b"$1\r\nc\r\n1") if b"$1\r\nc\r\n1" in whole else whole.index(b"EXEC\r\n", size)
    for at in range(size + 1, last, 11):
        path.write_bytes(whole[:at])
        end, kept = copied([path], tmp_path / f"copy-{at}")
        assert end.torn == at - size
        assert state(loaded(kept)) == before
        assert kept[0].stat().st_size == size


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_every_second_of_a_random_log(tmp_path: Path, checksums: bool, seed: int) -> None:
    """Writes of several seconds share a frame; transactions, rotations, and a base at the start."""
    chance = random.Random(seed)
    writer = Writer(tmp_path / "log", checksums=checksums, base=bool(seed % 2))
    states: dict[int, int] = {}
    for second in range(START, START + 8):
        writer.clock.advance(second * 1000 + chance.randrange(1000) - writer.clock.now_ms())
        for _ in range(chance.randrange(4)):
            lines = [f"XADD s * n {second}", f"SET k{chance.randrange(4)} {second}", "INCR n"]
            chosen = lines[: chance.randrange(1, 4)]
            writer.run(*(["MULTI", *chosen, "EXEC"] if chance.random() < 0.4 else chosen), write=chance.random() < 0.5)
        if chance.random() < 0.2:
            writer.log.rotation.rotate()
        states[second] = state(writer.engine)
    writer.close()
    paths = writer.log.files.loaded_paths()
    first = find_end(paths).oldest
    for second, expected in states.items():
        if second < first:
            with pytest.raises(StoreError):
                find_end(paths, second)
            continue
        end, kept = copied(paths, tmp_path / str(second), second)
        assert state(loaded(kept)) == expected
        assert end.beyond == -1 or end.beyond > second >= end.last


def test_a_cut_inside_a_frame(tmp_path: Path) -> None:
    """The frame is written again, without what follows; the log can be continued."""
    path = tmp_path / FILE
    head = frame(b"", offset=0, synced=0, seq=1)
    one = frame(resp("#TS:100", "SELECT 0", "SET a 1"), offset=len(head), synced=len(head), seq=1)
    body = resp("SET b 1", "#TS:101", "SET c 1", "#TS:102", "SET d 1")
    two = frame(body, offset=len(head + one), synced=len(head), seq=1)
    path.write_bytes(head + one + two)
    for second, keys in ((100, {b"a", b"b"}), (101, {b"a", b"b", b"c"}), (102, {b"a", b"b", b"c", b"d"})):
        end, kept = copied([path], tmp_path / str(second), second)
        assert set(loaded(kept).databases[0].keys) == keys
        assert end.commands == len(keys) + 1
        again = kept[0].read_bytes()
        assert again.startswith(head + one)
        more = frame(resp("SET e 1"), offset=len(again), synced=0, seq=1)
        kept[0].write_bytes(again + more)
        assert set(loaded(kept).databases[0].keys) == {*keys, b"e"}


@pytest.mark.parametrize(("lines", "to", "reason"), [
    (["SET a 1"], 100, "has no times, so only its end"),
    (["SET a 1", "#TS:100", "SET a 2"], 99, "its first time is 1970-01-01 00:01:40 UTC, after 1 commands"),
    (["#TS:100", "SET a 1"], 99, "nothing at or before 1970-01-01 00:01:39 UTC: it begins at 1970-01-01 00:01:40 UTC"),
])  # fmt: skip
def test_times_that_a_log_does_not_have(tmp_path: Path, lines: list[str], to: int, reason: str) -> None:
    (tmp_path / FILE).write_bytes(resp(*lines))
    with pytest.raises(StoreError, match=re.escape(reason)):
        find_end([tmp_path / FILE], to)


def test_damage(tmp_path: Path) -> None:
    """Damage before the end is reported with its offset; damage after the requested second does no harm."""
    data = resp("#TS:100", "SET a 1", "#TS:101", "SET b 1")
    path = tmp_path / FILE
    path.write_bytes(data + b"garbage" + data)
    with pytest.raises(LogCorrupt, match=f"offset {len(data)}: expected a command, found b'garbage"):
        find_end([path])
    assert find_end([path], 100).at == len(resp("#TS:100", "SET a 1"))
    writer = Writer(tmp_path / "log", checksums=True, base=True)
    writer.run("SET a 1", "SET b 2")
    writer.close()
    base, incr = writer.log.files.loaded_paths()
    sound = incr.read_bytes()
    incr.write_bytes(sound.replace(b"SET\r\n$1\r\na\r\n$1\r\n1", b"SET\r\n$1\r\na\r\n$1\r\n7"))
    with pytest.raises(LogCorrupt, match="the checksum of a frame is"):
        find_end([base, incr])
    incr.write_bytes(sound)
    whole = base.read_bytes()
    for at, reason in ((12, "RDB CRC error"), (len(whole) - 9, "ends too early"), (0, "not an RDB file")):
        base.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        with pytest.raises(LogCorrupt, match=reason):
            find_end([base, incr])


def test_an_earlier_file_must_end_with_a_command(tmp_path: Path) -> None:
    paths = [tmp_path / FILE, tmp_path / "appendonly.aof.2.incr.aof"]
    paths[0].write_bytes(resp("SET a 1", "SET b 1")[:-3])
    paths[1].write_bytes(resp("SET c 1"))
    with pytest.raises(LogCorrupt, match="ends inside a command and is not the log's last"):
        find_end(paths)
    paths[1].write_bytes(b"")
    assert find_end(paths).torn > 0


def test_the_single_file_of_an_old_server(tmp_path: Path) -> None:
    """An RDB preamble, then commands."""
    engine = Engine(Settings())
    session: Any = engine.session()
    engine.execute(session, [b"SET", b"old", b"1"])
    write_base(tmp_path / "base", engine)
    path = tmp_path / "appendonly.aof"
    later = 4_000_000_000
    path.write_bytes((tmp_path / "base").read_bytes() + resp(f"#TS:{later}", "SET a 1", f"#TS:{later + 1}", "SET b 1"))
    end, kept = copied([path], tmp_path / "copy", later)
    assert (end.commands, end.beyond) == (1, later + 1)
    assert set(loaded(kept).databases[0].keys) == {b"old", b"a"}


@pytest.mark.skipif(CHECK_AOF is None, reason="redis-check-aof is not installed")
def test_the_same_bytes_as_redis_check_aof(tmp_path: Path) -> None:
    assert CHECK_AOF is not None
    path = tmp_path / FILE
    (tmp_path / "appendonly.aof.manifest").write_text(f"file {FILE} seq 1 type i\n")
    lines = [line for second in range(100, 110)
             for line in (f"#TS:{second}", "SELECT 0", "MULTI", f"SET k {second}", "INCR n", "EXEC")]  # fmt: skip
    for to in (100, 104, 109, 500):
        path.write_bytes(resp(*lines))
        end = find_end([path], to)
        shutil.copy(path, tmp_path / "ours")
        cut(tmp_path / "ours", end)
        subprocess.run([CHECK_AOF, "--truncate-to-timestamp", str(to), str(tmp_path / "appendonly.aof.manifest")],
                       check=True, capture_output=True)  # fmt: skip
        assert (tmp_path / "ours").read_bytes() == path.read_bytes()
