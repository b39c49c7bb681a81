"""A full disk or a failed sync: writes are rejected, reads work, and no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import Misconf, StoreError
from rillet.store.transports.in_process import InProcessTransport
from tests.forked import ran
from tests.persistence.state import Opened
from tests.store.process import repeat
from tests.variants import covering

# In a separate process, because the file size limit applies to the whole process.
FULL = """
import resource, signal, sys, warnings
import rillet
from rillet.errors import Misconf
warnings.simplefilter("ignore")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # a .pyc file that ends at the limit would stay
path, fsync, door = sys.argv[1:]
owner = rillet.open(path, appendfsync=fsync)
store = rillet.open(path) if door == "attached" else owner
stream = store.stream("s")
group = stream.group("g")
group.create()
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
count = 0
try:
    while True:
        stream.add({"n": count, "pad": "x" * 100})
        count += 1
except Misconf as error:
    print(error)
except rillet.StoreError:
    assert door == "attached"
refused = 0
for call in (lambda: stream.add({"n": -1}), lambda: store.execute("SET", "a", 1), lambda: group.consumer("c").read(),
             lambda: stream.add_many([{"a": 1}] * 3), lambda: store.execute("PING")):
    try:
        call()
    except Misconf as error:
        assert str(error) == "MISCONF Errors writing to the AOF file: File too large", error
        refused += 1
print(refused)
entries = stream.range()
print(count, len(entries) - count, entries[count - 1]["n"], store.execute("EXISTS", "s"))
print(store.redis().xlen("s") >= count)
store.close()
owner.close()
print("closed")
"""


@pytest.mark.parametrize(("fsync", "door"), covering(["always", "everysec", "no"], ["owner", "attached"]))
def test_a_full_disk_rejects_writes_and_loses_none(tmp_path: Path, fsync: str, door: str) -> None:
    path = tmp_path / "store"
    status, output, errors = ran(FULL, path, fsync, door)
    lines = output.splitlines()
    assert status == 0, output + errors
    if lines[0].startswith("MISCONF"):
        assert lines.pop(0) == "MISCONF Errors writing to the AOF file: File too large"
    assert lines[0] == "5"
    assert lines[-1] == "closed"
    assert lines[2] == "True"
    count, unacknowledged, last, exists = lines[1].split()
    assert int(count) > 50
    assert unacknowledged in ("0", "1")
    assert last == str(int(count) - 1)
    assert exists == "1"
    # After reopening, all acknowledged writes exist, no rejected one does, and there is no torn end.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with rillet.open(path) as store:
            assert [entry["n"] for entry in store.stream("s")] == [str(n) for n in range(int(count))]
            assert store.stream("s").add({"n": "again"}) is not None


@pytest.fixture
def full_device(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, if root can mount one."""
    folder = tmp_path / "mount"
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode
    ):
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_file_system_rejects_writes(full_device: Path) -> None:
    with rillet.open(full_device / "store", appendfsync="always") as store:
        stream = store.stream("s")
        told = pytest.warns(RuntimeWarning, match="No space left on device; writes are refused from now on")
        with told, pytest.raises(Misconf, match="^MISCONF Errors writing to the AOF file: No space left on device$"):
            repeat(lambda: stream.add({"pad": "x" * 5000}))
        count = len(stream) - 1  # the last write was rejected, but stays visible until the store is closed
        assert count > 100
        assert len(stream.range(count=count)) == count
        with pytest.raises(Misconf):
            store.execute("DEL", "s")
        assert store.execute("EXISTS", "s") == 1
    with rillet.open(full_device / "store") as store:
        assert len(store.stream("s")) == count


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_failed_sync_rejects_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str) -> None:
    opened = Opened(tmp_path, fsync)
    opened("SET", "before", "1")

    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    if fsync == "always":
        with pytest.raises(Misconf, match="^MISCONF Errors writing to the AOF file: Input/output error$"):
            opened("SET", "during", "1")
    else:
        opened.log.sync_soon()
        while opened.log.syncer.error is None:
            threading.Event().wait(0.002)
        opened.log.tick(0)
    monkeypatch.undo()
    assert opened.failures == ["Errors writing to the AOF file: Input/output error"]
    for _ in range(2):  # the disk works again, but the lost data is unknown: writes stay rejected
        assert str(opened("SET", "after", "1")) == "MISCONF Errors writing to the AOF file: Input/output error"
        assert opened("GET", "before") == b"1"
    opened.__exit__()
    with Opened(tmp_path) as again:
        assert again("GET", "before") == b"1"
        assert again("GET", "after") is None


def test_closing_raises_if_the_sync_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(tmp_path, "no")
    opened("SET", "a", "1")

    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Misconf, match="Input/output error"):
        opened.__exit__()
    opened.__exit__()


class Writes:
    """Replaces os.write before a file is opened, because an open file keeps the function; `now` is what a call does."""

    def __init__(self) -> None:
        self.real: Any = os.write
        self.now: Any = self.real

    def __call__(self, file: int, data: bytes) -> int:
        written: int = self.now(file, data)
        return written


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    writes = Writes()
    monkeypatch.setattr(os, "write", writes)
    return writes


def test_a_partly_written_command_is_cut_off(tmp_path: Path, writes: Writes) -> None:
    with Opened(tmp_path) as opened:
        opened("SET", "a", "1")
        size = opened.log.size
        real = writes.real

        def write_a_little(file: int, data: bytes) -> int:
            if len(data) < 20:
                raise OSError(28, "No space left on device")
            return real(file, bytes(data[:15]))

        writes.now = write_a_little
        with pytest.raises(Misconf, match="No space left"):
            opened("SET", "b", "2")
        writes.now = writes.real
        assert (tmp_path / "appendonly.aof.1.incr.aof").stat().st_size == size


def test_partial_writes_are_completed(tmp_path: Path, writes: Writes) -> None:
    real = writes.real
    with Opened(tmp_path) as opened:
        writes.now = lambda file, data: real(file, bytes(data[:7]))
        opened("SET", "a", "x" * 100)
        writes.now = writes.real
        before = opened.state()
    with Opened(tmp_path) as again:
        assert again.state() == before


def test_a_directory_on_a_full_device_cannot_become_a_store(full_device: Path) -> None:
    with open(full_device / "fill", "wb") as out:
        try:
            while out.write(b"x" * 65536):
                out.flush()
        except OSError:
            pass
    (full_device / "store").mkdir()
    with pytest.raises(StoreError, match="No space left on device"):
        rillet.open(full_device / "store")


DOORS: dict[str, Callable[[Store], Any]] = {
    "thread": lambda store: store.execute("BLPOP", "l", 0),
    "task": lambda store: asyncio.run(store.aio().execute("BLPOP", "l", 0)),
    "redis-py": lambda store: store.redis().execute_command("BLPOP", "l", 0),
}


def _fail(_file: int, _data: bytes) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("disk", ["works", "fails"])
@pytest.mark.parametrize("door", DOORS)
def test_a_blocked_client_receives_nothing_that_the_log_lacks(
    tmp_path: Path, writes: Writes, door: str, disk: str
) -> None:
    """A client of the owner's socket adds an entry; its thread releases the lock before it flushes the log."""
    with rillet.open(tmp_path / "store", appendfsync="always") as store, ThreadPoolExecutor(1) as pool:
        link = store.transport
        assert isinstance(link, InProcessTransport)
        log = link.engine.log
        call = pool.submit(DOORS[door], store)
        while b"l" not in link.engine.databases[0].blocking_keys:
            threading.Event().wait(0.002)
        if disk == "fails":
            writes.now = _fail
        with link.lock:
            link.engine.execute(link.engine.session(), [b"RPUSH", b"l", b"v"])
            assert log.feed.used
        if disk == "works":
            assert list(call.result(60)) == [b"l", b"v"]
        else:
            with pytest.warns(RuntimeWarning, match="writes are refused"), pytest.raises(Exception, match="MISCONF"):
                call.result(60)
            writes.now = writes.real
        assert not log.feed.used


@pytest.mark.parametrize("door", DOORS)
def test_a_blocked_client_is_rejected_if_another_thread_met_the_failure(
    tmp_path: Path, writes: Writes, door: str
) -> None:
    """The serving thread writes the log and fails before the blocked thread checks the result."""
    with rillet.open(tmp_path / "store", appendfsync="always") as store, ThreadPoolExecutor(1) as pool:
        link = store.transport
        assert isinstance(link, InProcessTransport)
        call = pool.submit(DOORS[door], store)
        while b"l" not in link.engine.databases[0].blocking_keys:
            threading.Event().wait(0.002)
        writes.now = _fail
        with link.lock:
            link.engine.execute(link.engine.session(), [b"RPUSH", b"l", b"v"])
            with pytest.warns(RuntimeWarning, match="writes are refused"):
                link.engine.log.write()
        with pytest.raises(Exception, match="MISCONF"):
            call.result(60)
        writes.now = writes.real
