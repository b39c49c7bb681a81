"""Frames: a changed byte is detected, a torn end is cut off, redis-server reads and continues such a log."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import LogCorrupt
from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.frames import FrameReader, frame
from rillet.persistence.aof.loader import LoadResult, replay
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.judge import redis_binary, running_redis
from tests.persistence.workload import state

pytestmark = pytest.mark.both

NOW = 1_700_000_000_000
FILE = "appendonly.aof.1.incr.aof"


class Store:
    """An engine with a log of frames."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.engine = Engine(Settings(compat="7.0"), ManualClock(NOW))
        self.log = AppendOnlyLog(folder, fsync="always", threads=False, **options)
        self.log.checksums = True
        self.replayed: LoadResult = self.log.open(self.engine)
        self.session = self.engine.session()

    def run(self, *lines: str) -> None:
        """Run commands, each in a separate write."""
        for line in lines:
            self.engine.execute(self.session, line.encode().split())
            self.engine.log.flush()
            assert not self.session.out.take_bytes().startswith(b"-"), line

    def close(self) -> int:
        """Close the log and return the state."""
        self.engine.log = None
        self.log.close()
        return state(self.engine)


LINES = ("SET a 1", "XADD s 1-1 field value", "SELECT 2", "RPUSH l a b c", "MULTI", "INCR n", "INCR n", "EXEC")


def _log(folder: Path, *lines: str) -> int:
    store = Store(folder)
    store.run(*(lines or LINES))
    return store.close()


def _state_of(folder: Path, torn: str = "") -> int:
    """Return the state of the log; `torn` is part of the sentence about its torn end, "" if the end is complete."""
    store = Store(folder)
    assert torn in store.replayed.torn
    assert bool(torn) == bool(store.replayed.torn)
    return store.close()


def _read(data: bytes) -> tuple[bytes, FrameReader]:
    reader = FrameReader(io.BytesIO(data), len(data))
    pieces = []
    while piece := reader.read():
        pieces.append(piece)
    return b"".join(pieces), reader


@given(parts=st.lists(st.binary(max_size=300), max_size=6), at=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_changed_byte_of_a_frame_is_detected(parts: list[bytes], at: int, flip: int) -> None:
    made = frame(b"", offset=0, synced=0, seq=7)
    starts = [0]
    for part in parts:
        starts.append(len(made))
        made += frame(part, offset=len(made), synced=len(made), seq=7)
    assert _read(made)[0] == made
    assert _read(made)[1].break_at == -1
    at %= len(made)
    changed = made[:at] + bytes((made[at] ^ flip,)) + made[at + 1 :]
    got, reader = _read(changed)
    broken = max(start for start in starts if start <= at)
    if broken == 0:
        assert not reader.ours or got == b""
    else:
        assert got == made[:broken]
        assert reader.break_at == broken
        assert reader.was_synced() == (broken != starts[-1])
    # A missing part is detected, whatever follows it.
    got, reader = _read(made[:at])
    assert at < starts[0] + len(frame(b"", offset=0, synced=0, seq=7)) or got == made[: max(
        start for start in [*starts, len(made)] if start <= at)]  # fmt: skip


def test_a_frame_at_another_offset_is_invalid() -> None:
    head = frame(b"", offset=0, synced=0, seq=1)
    moved = frame(b"*1\r\n$4\r\nPING\r\n", offset=0, synced=0, seq=1)
    other = frame(b"*1\r\n$4\r\nPING\r\n", offset=len(head), synced=0, seq=2)
    for one in (moved, other):
        got, reader = _read(head + one)
        assert got == head
        assert reader.break_at == len(head)


def test_a_large_frame_is_read() -> None:
    head = frame(b"", offset=0, synced=0, seq=1)
    data = head + frame(b"x" * 5_000_000, offset=len(head), synced=0, seq=1)
    assert _read(data)[0] == data


@pytest.mark.slow
def test_damage_is_rejected_and_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    before = _log(tmp_path)
    assert _state_of(tmp_path) == before
    path = tmp_path / FILE
    whole = path.read_bytes()
    starts = [at for at in range(len(whole)) if whole.startswith(b"#RILLET:", at)]
    assert len(starts) == len(LINES) - 2  # SELECT is no change, MULTI to EXEC are one; the beginning and the end
    for at in range(starts[1], len(whole), 7):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x20,)) + whole[at + 1 :])
        start = max(one for one in starts if one <= at)
        if start == starts[-1]:  # it only states that everything before it is on the disk
            assert _state_of(tmp_path, f"of an unfinished frame were dropped at offset {start}") == before
        else:
            with pytest.raises(LogCorrupt, match=f"{FILE}: offset {start}: "):
                Store(tmp_path)
            assert path.stat().st_size == len(whole)
    path.write_bytes(whole[: starts[3] + 40])
    _state_of(tmp_path, f"40 bytes of an unfinished frame were dropped at offset {starts[3]}")
    _state_of(tmp_path)


def test_opening_and_closing_does_not_extend_a_log(tmp_path: Path) -> None:
    _log(tmp_path)
    size = (tmp_path / FILE).stat().st_size
    _state_of(tmp_path)
    assert (tmp_path / FILE).stat().st_size == size


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_redis_reads_and_continues_a_log_with_frames(tmp_path: Path) -> None:
    folder = tmp_path / "appendonlydir"
    before = _log(folder)
    checked = shutil.which("redis-check-aof")
    if checked is not None:
        said = subprocess.run([checked, str(folder / "appendonly.aof.manifest")], capture_output=True, text=True)
        assert said.returncode == 0, said.stdout
    with running_redis("--dir", str(tmp_path), "--appendonly", "yes") as judge, judge.client() as client:
        assert client.get("a") == b"1"
        assert client.xlen("s") == 1
        client.execute_command("SELECT", 2)
        assert client.lrange("l", 0, -1) == [b"a", b"b", b"c"]
        assert client.get("n") == b"2"
        client.execute_command("SELECT", 0)
        client.set("by-redis", "x" * 1000)
        client.execute_command("CONFIG", "SET", "appendfsync", "always")
        client.append("by-redis", "y")
    store = Store(folder)
    assert store.engine.databases[0].peek(b"by-redis").value() == b"x" * 1000 + b"y"
    # Redis writes no checksums, so the next write starts a new file.
    assert [file.seq for file in store.log.manifest.incrs] == [1, 2]
    store.run("DEL by-redis")
    assert store.close() == before
    assert _state_of(folder) == before
    with running_redis("--dir", str(tmp_path), "--appendonly", "yes") as judge, judge.client() as client:
        assert client.get("by-redis") is None
        assert client.get("a") == b"1"


@pytest.mark.parametrize("inside", [b"*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nPING\r\n", b"*2\r\n$4\r\nINCR\r\n$1\r\n"])
@pytest.mark.parametrize("behind", [b"", b"torn", b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n"])
def test_a_frame_that_ends_inside_a_transaction_or_command_is_damage(
    tmp_path: Path, inside: bytes, behind: bytes
) -> None:
    _log(tmp_path)
    path = tmp_path / FILE
    whole = path.read_bytes()
    made = frame(b"*2\r\n$4\r\nINCR\r\n$1\r\nm\r\n" + inside, offset=len(whole), synced=0, seq=1)
    path.write_bytes(whole + made + behind)
    # A cut in the middle would make the next opening treat the whole frame as torn, including the INCR.
    with pytest.raises(LogCorrupt, match=f"{FILE}: offset {len(whole + made) - len(inside)}: "):
        Store(tmp_path)
    assert path.read_bytes() == whole + made + behind


def test_commands_of_a_redis_server_after_a_torn_frame_are_kept(tmp_path: Path) -> None:
    """redis-server cuts a torn frame at a command and continues; the loader cannot verify that, but keeps a copy."""
    before = _log(tmp_path / "a", "SET a 1")
    store = Store(tmp_path / "log")
    store.run("SET a 1")
    for key in (b"b", b"c"):
        store.engine.execute(store.session, [b"SET", key, b"1"])
    store.engine.log.flush()
    store.close()
    log = tmp_path / "log" / FILE
    whole = log.read_bytes()
    second = whole.index(b"*3\r\n$3\r\nSET\r\n$1\r\nc")
    written_on = whole[:second] + b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\nr\r\n$1\r\n1\r\n"
    log.write_bytes(written_on)
    # A replay without repairs, as in `rillet check`, changes no file.
    assert "unfinished frame" in replay(Engine(), [log], repairs=False).torn
    assert log.read_bytes() == written_on
    assert not list(log.parent.glob("*.torn-*"))
    assert _state_of(tmp_path / "log", "a copy of it is kept: ") == before
    (kept,) = (tmp_path / "log").glob("*.torn-*")
    assert kept.read_bytes() == written_on
    # Nothing remains to be repaired, and the kept copy has no effect.
    assert _state_of(tmp_path / "log") == before
    assert kept.exists()
