"""Real faults: a full disk, a file size limit, a removed folder, a read-only file system, and jumps of the clock.

Tests that mount a small file system are skipped if the user may not. tests/persistence/test_faults.py lets every call
fail on a simulated disk.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import rillet
from rillet.errors import Misconf, StoreError
from tests.persistence.power_loss import FOLDERS, Opened, Plan, settings_of
from tests.persistence.simulated_disk import SimulatedDisk
from tests.persistence.workload import state
from tests.server.harness import Running, launch, running
from tests.waiting import until

LOG = ("--appendonly", "yes", "--save", "", "--auto-aof-rewrite-percentage", "0")
REFUSED = b"-MISCONF Errors writing to the AOF file: "


@pytest.fixture
def small_device(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, if root can mount one."""
    folder = tmp_path / "mount"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def _takes(server: Running, command: str = "SET again 1") -> bool:
    """Return whether the server accepts a write from a new client."""
    with server.client() as client:
        return not client.call(command).startswith(b"-")


def _fill(server: Running) -> int:
    """Add entries until one is rejected; return the number of accepted ones."""
    count = 0
    with server.client() as client:
        while (reply := client.call("XADD s * pad " + "x" * 5000)).startswith(b"$"):
            count += 1
    assert reply.startswith(REFUSED), reply
    return count


def _is_refused(server: Running, count: int) -> None:
    """Verify that writes are rejected and reads work; the rejected entry is visible."""
    with server.client() as client:
        assert client.call("SET a 1").startswith(REFUSED)
        assert client.call("DEL s").startswith(REFUSED)
        assert client.call("XLEN s") in (b":%d\r\n" % count, b":%d\r\n" % (count + 1))
        assert client.call("INFO persistence").count(b"aof_last_write_status:err") == 1


def _restarted(folder: Path, server: Running, count: int) -> None:
    """Verify the data after a kill: the acknowledged entries, and the rejected one, which was logged later."""
    server.stop(signal.SIGKILL)
    with running(folder, *LOG) as again, again.client() as client:
        assert client.call("XLEN s") == b":%d\r\n" % (count + 1)
        assert client.call("GET again") == b"$1\r\n1\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_a_server_recovers_from_a_full_disk(small_device: Path, fsync: str) -> None:
    filler = small_device / "filler"
    filler.write_bytes(bytes(400_000))
    with running(small_device, *LOG, "--appendfsync", fsync) as server:
        count = _fill(server)
        assert count > 50
        _is_refused(server, count)
        filler.unlink()
        until(lambda: _takes(server))
        _restarted(small_device, server, count)


@pytest.mark.slow
def test_a_server_recovers_from_a_file_size_limit(tmp_path: Path) -> None:
    limit = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    limit += "; sys.dont_write_bytecode = True"  # a .pyc file that ends at the limit would stay
    limit += "; resource.setrlimit(resource.RLIMIT_FSIZE, (50000, -1))"
    with running(tmp_path, *LOG, "--appendfsync", "always", before=limit) as server:
        count = _fill(server)
        assert 5 < count < 10
        _is_refused(server, count)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        until(lambda: _takes(server))
        _restarted(tmp_path, server, count)


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_server_whose_folder_is_removed_writes_a_new_one(tmp_path: Path, fsync: str) -> None:
    with running(tmp_path, *LOG, "--appendfsync", fsync) as server:
        with server.client() as client:
            for number in range(10):
                assert client.call(f"XADD s {number + 1}-1 a b").startswith(b"$")
        folder = tmp_path / "appendonlydir"
        shutil.rmtree(folder)
        manifest = folder / "appendonly.aof.manifest"
        until(manifest.exists)
        until(lambda: _takes(server))
        with server.client() as client:
            assert client.call("XADD s 11-1 a b").startswith(b"$")
        _restarted(tmp_path, server, 10)


def test_a_store_recovers_from_a_full_disk(small_device: Path) -> None:
    filler = small_device / "filler"
    filler.write_bytes(bytes(400_000))
    with rillet.open(small_device / "store", appendfsync="always") as store:
        stream = store.stream("s")

        def taken() -> bool:
            try:
                return bool(stream.add({"pad": "x" * 5000}))
            except Misconf:
                return False

        with pytest.warns(RuntimeWarning, match="No space left on device; writes are refused"):
            until(lambda: not taken())
        count = len(stream)  # the last write was rejected, but is visible
        assert count > 50
        assert not taken()
        assert len(stream) == count
        filler.unlink()
        until(taken)
    with rillet.open(small_device / "store") as store:
        assert len(store.stream("s")) == count + 1


def test_a_read_only_file_system_is_an_error(small_device: Path) -> None:
    with rillet.open(small_device / "store") as store:
        store.execute("SET", "a", 1)
    with running(small_device, *LOG) as server, server.client() as client:
        assert client.call("SET a 1") == b"+OK\r\n"
    subprocess.run(["mount", "-o", "remount,ro", small_device], check=True)
    with pytest.raises(StoreError, match="cannot be written"):
        rillet.open(small_device / "store")
    with launch(["--port", "0", "--dir", str(small_device), *LOG]) as process:
        said, errors = process.communicate(timeout=60)
    assert process.returncode
    assert f"{small_device} cannot be" in said + errors
    assert "Traceback" not in errors
    subprocess.run(["mount", "-o", "remount,rw", small_device], check=True)
    with rillet.open(small_device / "store") as store:
        assert store.execute("GET", "a") == b"1"


# -- clocks that jump ----------------------------------------------------------------------------------

HOUR = 3_600_000


@pytest.mark.parametrize("jump", [-HOUR, HOUR, -50_000 * HOUR, 50_000 * HOUR])
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_clock_that_jumps_causes_no_damage(fsync: str, jump: int) -> None:
    """IDs still rise, keys expire by the current clock, and the log is replayed unchanged."""
    disk = SimulatedDisk(folders=FOLDERS)
    plan = Plan(1, fsync)
    now = 2_000_000_000_000
    opened = Opened(disk, settings_of(plan), plan, now)
    session = opened.engine.session()

    def run(*words: str) -> bytes:
        opened.engine.execute(session, [word.encode() for word in words])
        opened.engine.log.flush()
        return session.out.take_bytes()

    first = run("XADD", "s", "*", "n", "1")
    run("XGROUP", "CREATE", "s", "g", "0")
    run("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    run("SET", "k", "v", "PX", str(HOUR // 2))
    opened.log.tick(1000.0)
    opened.clock.advance(jump)
    second = run("XADD", "s", "*", "n", "2")
    assert _id(second) > _id(first)
    assert run("GET", "k") == (b"$-1\r\n" if jump > 0 else b"$1\r\nv\r\n")
    run("XAUTOCLAIM", "s", "g", "d", "0", "0")
    run("XADD", "s", "*", "n", "3")
    # The log has a clock of its own that is not set back; one that is all the same costs no sync.
    before = disk.calls
    opened.log.tick(1000.0 + jump / 1000)
    assert fsync == "always" or disk.calls > before and opened.log.synced == opened.log.size
    opened.engine.check()
    again = Opened(disk.copy(), settings_of(plan), plan, now + jump)
    again.engine.check()
    assert state(again.engine) == state(opened.engine)
    assert not again.repairs
    session = again.engine.session()
    again.engine.execute(session, [b"XADD", b"s", b"*", b"n", b"4"])
    assert _id(session.out.take_bytes()) > _id(second)


def _id(reply: bytes) -> tuple[int, int]:
    ms, seq = reply.split(b"\r\n")[1].split(b"-")
    return int(ms), int(seq)
