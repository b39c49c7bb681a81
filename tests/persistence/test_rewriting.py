"""Rewriting a log during writes: in every state of its files, rillet and Redis load the same data."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rillet.errors import Misconf
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.manifest import read_manifest
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.rewrite_format import Ended, InlineBaseWriter, SpawnedBaseWriter
from rillet.persistence.aof.rewrite_process import compact, exit_with_parent
from rillet.persistence.aof.states import OFF, ON, WAIT_REWRITE
from rillet.persistence.disk import Disk, DiskFile
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.judge import redis_binary, running_redis
from tests.persistence.state import WORK, Opened, state_of

NAME = "appendonly.aof"


class Slow:
    """A writer that writes when the test triggers it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.started: tuple[Path, list[Path], Ended] | None = None
        self.refusal: OSError | None = None

    def start(self, path: Path, sources: list[Path], ended: Ended) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.started = path, sources, ended
        # What the data are now is what counts: a fork would have them.
        write_base(path, self.engine)

    def poll(self) -> None: ...

    def stop(self) -> None:
        self.started = None

    def end(self, error: str = "") -> None:
        assert self.started is not None
        _, _, ended = self.started
        self.started = None
        ended(error, "rdb")


class Rewritten(Opened):
    """An engine whose log is rewritten without threads, by a manual clock."""

    def __init__(self, folder: Path, fsync: str = "everysec", **options: Any) -> None:
        super().__init__(folder, fsync, threads=False, on_recovery=self._recovered, **options)
        self.writer = Slow(self.engine)
        self.said: list[str] = []
        self.rewriting = Rewriting(self.log, self.engine, self.writer, say=self.said.append)
        self.now = 0.0

    def _recovered(self) -> None:
        self.engine.refusal = None

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.rewriting.tick(self.now)

    def fact(self, name: str) -> object:
        return self.rewriting.info()[name]

    def __exit__(self, *_: object) -> None:
        self.rewriting.abort()
        super().__exit__()


class FailingDisk(Disk):
    """The real disk; selected kinds of calls fail."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}

    def _call(self, kind: str) -> None:
        if kind in self.failing:
            raise OSError(self.failing[kind], "No luck")

    def create(self, path: Path) -> DiskFile:
        self._call("create")
        return _File(super().create(path), self)

    def append_to(self, path: Path) -> DiskFile:
        return _File(super().append_to(path), self)

    def rename(self, old: Path, new: Path) -> None:
        self._call("rename")
        if new.name.endswith(".manifest"):
            self._call("manifest")
        super().rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        self._call("sync_folder")
        super().sync_folder(folder)


class _File:
    def __init__(self, file: DiskFile, disk: FailingDisk) -> None:
        self.file = file
        self.disk = disk
        self.short = False  # whether some of what is being written is there

    def write(self, data: bytes | bytearray | memoryview) -> int:
        if "write" in self.disk.failing and not self.short:
            self.short = True
            return self.file.write(data[:5])
        self.short = False
        self.disk._call("write")
        return self.file.write(data)

    def sync(self) -> None:
        self.disk._call("sync")
        self.file.sync()

    def truncate(self, size: int) -> None:
        self.disk._call("truncate")
        self.file.truncate(size)

    def close(self) -> None:
        self.file.close()

    def fileno(self) -> int:
        return self.file.fileno()

    def size_at(self, path: Path) -> int:
        return self.file.size_at(path)

    def is_removed(self) -> bool:
        return self.file.is_removed()


def _names(folder: Path) -> list[str]:
    names = (path.name.removeprefix(f"{NAME}.") for path in folder.iterdir())
    return sorted("temp base" if name.startswith("temp-") and name.endswith(".base") else name for name in names)


@contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    yield copy
    shutil.rmtree(copy)


def _same_after_a_crash(opened: Opened, folder: Path, judged: bool = False) -> None:
    """Verify that the files on the disk lead to the data in memory, also in redis-server."""
    expected = opened.state()
    with _copied(folder) as copy:
        shutil.copytree(copy, folder.parent / "again" / "appendonlydir")
        with Opened(copy) as again:
            assert again.state() == expected
            again.engine.check()
        if judged:
            with running_redis("--dir", str(folder.parent / "again"), "--appendonly", "yes") as judge:
                client = judge.client()
                while client.execute_command("INFO", "persistence").find(b"loading:1") >= 0:
                    threading.Event().wait(0.01)
                assert _strings(client.execute_command) == _strings(opened)
        shutil.rmtree(folder.parent / "again")


def _strings(run: Any) -> dict[bytes, object]:
    found = {}
    for key in sorted(run("KEYS", "*")):
        kind = run("TYPE", key)
        found[key] = run("XRANGE", key, "-", "+") if kind in (b"stream", "stream") else run("GET", key)
    return found


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_every_state_of_the_files_leads_to_the_same_data(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Rewritten(folder) as opened:
        for line in WORK:
            opened(*line.split())
        opened.rewriting.begin()
        assert opened.rewriting.in_progress
        _same_after_a_crash(opened, folder, judged=True)
        opened("XADD", "s", "*", "while", "written")
        opened("SET", "k", "in the new file")
        assert _names(folder) == ["1.incr.aof", "2.incr.aof", "manifest", "temp base"]
        _same_after_a_crash(opened, folder, judged=True)
        opened.writer.end()
        _same_after_a_crash(opened, folder, judged=True)
        opened.tick()
        assert not opened.rewriting.in_progress
        assert opened.fact("aof_last_bgrewrite_status") == "ok"
        assert _names(folder) == ["1.base.rdb", "2.incr.aof", "manifest"]
        opened("SET", "k", "after it")
        _same_after_a_crash(opened, folder, judged=True)
        assert opened.fact("aof_rewrites") == 1
        files = read_manifest(folder / f"{NAME}.manifest").files
        assert opened.log.current_size == sum((folder / file.name).stat().st_size for file in files)


def test_a_failed_writer_leaves_the_log_valid(tmp_path: Path) -> None:
    with Rewritten(tmp_path / "log") as opened:
        for n in range(3):
            opened("SET", "n", n)
            opened.rewriting.begin()
            opened("APPEND", "n", "more")
            opened.writer.end("no more memory")
            assert opened.fact("aof_rewrites_consecutive_failures") == n + 1
            assert opened.fact("aof_last_bgrewrite_status") == "err"
            _same_after_a_crash(opened, tmp_path / "log")
        assert _names(tmp_path / "log") == ["1.incr.aof", "2.incr.aof", "3.incr.aof", "4.incr.aof", "manifest"]
        opened.rewriting.begin()
        opened.writer.end()
        opened.tick()
        assert _names(tmp_path / "log") == ["1.base.rdb", "5.incr.aof", "manifest"]
        assert opened.fact("aof_rewrites_consecutive_failures") == 0
        _same_after_a_crash(opened, tmp_path / "log")


@pytest.mark.parametrize("kind", ["create", "sync", "sync_folder", "rename", "manifest"])
@pytest.mark.parametrize("when", ["rotating", "finishing"])
def test_a_failed_change_of_the_manifest_leaves_the_log_valid(tmp_path: Path, kind: str, when: str) -> None:
    disk = FailingDisk()
    folder = tmp_path / "log"
    with Rewritten(folder, "always", disk=disk) as opened:
        opened("SET", "a", "1")
        if when == "rotating":
            disk.failing[kind] = errno.EIO
            with pytest.raises(OSError, match="No luck"):
                opened.rewriting.begin()
        else:
            opened.rewriting.begin()
            opened("SET", "b", "2")
            disk.failing[kind] = errno.EIO
            opened.writer.end()
            opened.tick(0.001)
        disk.failing.clear()
        assert not opened.rewriting.in_progress
        assert opened.fact("aof_last_bgrewrite_status") == "err"
        _same_after_a_crash(opened, folder)
        opened("SET", "c", "3")
        _same_after_a_crash(opened, folder)
        opened.rewriting.begin()
        opened("SET", "d", "4")
        opened.writer.end()
        opened.tick(0.001)
        assert opened.fact("aof_last_bgrewrite_status") == "ok"
        _same_after_a_crash(opened, folder)
    assert len(_names(folder)) == 3


def test_a_log_enabled_later_gets_a_first_base(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    opened = Rewritten(folder)
    opened("SET", "a", "1")
    opened.engine.log = None
    opened.log.close()
    shutil.rmtree(folder)
    opened("SET", "before", "1")
    opened.log.start_waiting(opened.engine)
    opened("SET", "nowhere", "but in the base")
    assert opened.log.state == WAIT_REWRITE
    assert opened.log.settled(opened.log.position)
    opened.rewriting.begin()
    opened("SET", "collected", "1")
    assert _names(folder) == ["temp base", "temp-appendonly.aof.incr"]
    with _copied(folder) as copy, Opened(copy) as again:  # after a crash here, no data is guaranteed
        assert again.state() == {}
        assert _names(copy) == ["1.incr.aof", "manifest"]
    opened.writer.end("killed")
    assert _names(folder) == []
    assert opened.rewriting.scheduled
    opened.tick()
    assert opened.rewriting.in_progress
    assert not opened.rewriting.scheduled
    opened("SET", "collected", "again")
    opened.log.write()
    with opened.log.syncer.lock:
        opened.log.syncer.sync()
    # A crash would lose the synced bytes: WAITAOF and the replica's REPLCONF ACK ... FACK must not count them.
    assert opened.log.synced == 0
    opened.writer.end()
    opened.tick()
    assert opened.log.state == ON
    assert opened.log.synced == opened.log.position
    assert _names(folder) == ["1.base.rdb", "1.incr.aof", "manifest"]
    opened("SET", "after", "1")
    _same_after_a_crash(opened, folder)
    opened.__exit__()
    assert opened.log.state == OFF


def test_a_failed_write_is_retried(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Rewritten(tmp_path / "log", disk=disk) as opened:
        opened("SET", "a", "1")
        opened("SET", "t", "1", "PX", 10)
        size = opened.log.file_size
        disk.failing["write"] = errno.ENOSPC
        with pytest.raises(Misconf, match="^MISCONF Errors writing to the AOF file: No luck$"):
            opened("SET", "b", "2")
        assert (tmp_path / "log" / f"{NAME}.1.incr.aof").stat().st_size == size
        opened.clock.advance(20)
        for _ in range(3):
            opened.tick()
            assert str(opened("SET", "c", "3")).startswith("MISCONF ")
            assert opened("GET", "b") == b"2"
            assert opened("GET", "t") is None  # the expiry stays in the buffer for the log
        assert opened.fact("aof_last_write_status") == "err"
        assert len(opened.failures) == 1
        disk.failing.clear()
        assert str(opened("SET", "c", "3")).startswith("MISCONF ")
        opened.tick()
        assert opened("SET", "c", "3") == b"OK"
        assert opened.fact("aof_last_write_status") == "ok"
        assert opened.log.unwritten == 0
        _same_after_a_crash(opened, tmp_path / "log")


def test_a_partial_write_that_cannot_be_undone_is_handled(tmp_path: Path) -> None:
    disk = FailingDisk()
    with Rewritten(tmp_path / "log", disk=disk) as opened:
        disk.failing.update(write=errno.ENOSPC, truncate=errno.EIO)
        with pytest.raises(Misconf):
            opened("SET", "b", "2")
        opened.tick()
        disk.failing.clear()
        opened.tick()
        assert opened("GET", "b") == b"2"
        assert opened("INCR", "b") == 3
        _same_after_a_crash(opened, tmp_path / "log")


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_after_a_failed_sync_the_data_is_written_to_new_files(tmp_path: Path, fsync: str) -> None:
    disk = FailingDisk()
    folder = tmp_path / "log"
    with Rewritten(folder, fsync, disk=disk) as opened:
        opened("SET", "a", "1")
        disk.failing["sync"] = errno.EIO
        if fsync == "always":
            with pytest.raises(Misconf, match="No luck"):
                opened("SET", "a", "2")
        else:
            opened("SET", "a", "2")
            opened.tick()
            opened.tick()
        assert opened.failures == ["Errors writing to the AOF file: No luck"]
        assert str(opened("SET", "a", "3")).startswith("MISCONF ")
        assert opened("GET", "a") == b"2"
        opened.tick()  # a base is started, and its file cannot be synced either
        if opened.writer.started:
            opened.writer.end()
            opened.tick(0.01)
        assert str(opened("SET", "a", "3")).startswith("MISCONF ")
        assert opened.log.needs_base
        disk.failing.clear()
        opened.tick(5)
        opened.writer.end()
        opened.tick(0.01)
        assert not opened.log.needs_base
        assert opened("SET", "a", "4") == b"OK"
        assert _names(folder)[-1] == "manifest"
        history = read_manifest(folder / f"{NAME}.manifest").history
        assert "1.incr.aof" not in {file.name for file in history}
        _same_after_a_crash(opened, folder)


def test_a_removed_folder_is_recreated(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Rewritten(folder) as opened:
        opened("SET", "a", "1")
        shutil.rmtree(folder)
        folder.write_bytes(b"in the way")
        opened.tick()
        gone = f"{folder}/appendonly.aof.1.incr.aof was removed"
        assert opened.failures == [f"Errors writing to the AOF file: No such file or directory: {gone}"]
        assert str(opened("SET", "a", "3")).startswith("MISCONF ")
        assert opened("GET", "a") == b"1"
        opened.tick()
        assert opened.log.needs_base
        folder.unlink()
        opened.tick()
        opened.writer.end()
        opened.tick()
        assert not opened.log.needs_base
        assert _names(folder) == ["1.base.rdb", "2.incr.aof", "manifest"]
        opened("SET", "a", "4")
        _same_after_a_crash(opened, folder)


def test_a_rewrite_starts_automatically(tmp_path: Path) -> None:
    with Rewritten(tmp_path / "log") as opened:
        settings = opened.engine.settings
        settings.set_text("auto-aof-rewrite-min-size", "10kb")
        while opened.log.current_size <= 10 * 1024:
            opened.tick(0.1)
            assert not opened.rewriting.in_progress
            opened("SET", "a", "x" * 1000)
        opened.tick(0.1)
        assert opened.rewriting.in_progress
        opened.writer.end()
        opened.tick(0.1)
        base = opened.log.base_size
        assert base == opened.log.current_size
        assert not opened.rewriting.in_progress
        settings.set_text("auto-aof-rewrite-min-size", "0")
        while opened.log.current_size < 2 * base:
            opened.tick(0.1)
            assert not opened.rewriting.in_progress
            opened("SET", "a", "x" * 100)
        settings.set_text("auto-aof-rewrite-percentage", "0")
        opened.tick(0.1)
        assert not opened.rewriting.in_progress
        settings.set_text("auto-aof-rewrite-percentage", "100")
        # Three failures are allowed before the next attempt waits.
        for _ in range(3):
            opened.tick(0.1)
            opened.writer.end("again")
        for minutes in (1, 2, 4, 8, 16, 32, 60, 60):
            opened.tick(0.1)
            assert opened.said[-1].endswith(f"will retry in {minutes} minutes")
            opened.tick(60 * minutes - 1)
            assert not opened.rewriting.in_progress
            opened.tick(1.1)
            opened.writer.end("again")
        opened.rewriting.begin()  # an explicit request does not wait
        opened.writer.end()
        opened.tick(0.1)
        assert opened.rewriting.failures == 0


def test_a_rewrite_waits_for_another_child(tmp_path: Path) -> None:
    busy = [True]
    with Rewritten(tmp_path / "log") as opened:
        opened.rewriting = Rewriting(opened.log, opened.engine, opened.writer, busy=lambda: busy[0])
        opened.rewriting.scheduled = True
        opened.tick()
        assert not opened.rewriting.in_progress
        assert opened.fact("aof_rewrite_scheduled") == 1
        busy.clear()
        busy.append(False)
        opened.tick()
        assert opened.rewriting.in_progress
        assert opened.fact("aof_rewrite_scheduled") == 0


def test_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    with Rewritten(tmp_path) as opened:
        opened("SET", "a", "1")
    for name in ("temp-appendonly.aof.base", "temp-appendonly.aof.base.part", "temp-appendonly.aof.incr",
                 "temp-appendonly.aof.manifest"):  # fmt: skip
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "temp-appendonly.aof2.base").write_bytes(b"another log's")
    with Opened(tmp_path) as again:
        assert again("GET", "a") == b"1"
    assert _names(tmp_path) == ["1.incr.aof", "manifest", "temp base"]


def test_history_is_removed_at_the_next_opening(tmp_path: Path) -> None:
    with Rewritten(tmp_path) as opened:
        opened.log.keep_history = True
        opened("SET", "a", "1")
        for _ in range(2):
            opened.rewriting.begin()
            opened.writer.end()
            opened.tick()
        assert [file.line() for file in read_manifest(tmp_path / f"{NAME}.manifest").files] == [
            "file appendonly.aof.2.base.rdb seq 2 type b\n", "file appendonly.aof.2.incr.aof seq 2 type h\n",
            "file appendonly.aof.1.base.rdb seq 1 type h\n", "file appendonly.aof.1.incr.aof seq 1 type h\n",
            "file appendonly.aof.3.incr.aof seq 3 type i\n",
        ]  # fmt: skip
    with Opened(tmp_path) as again:
        assert again("GET", "a") == b"1"
    assert _names(tmp_path) == ["2.base.rdb", "3.incr.aof", "manifest"]


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_separate_process_writes_the_base(tmp_path: Path, preamble: str) -> None:
    with Opened(tmp_path) as opened:
        opened.engine.settings.set_text("aof-use-rdb-preamble", preamble)
        opened.engine.settings.set_text("stream-node-max-entries", "7")
        for line in WORK:
            opened(*line.split())
        spawned = SpawnedBaseWriter(opened.engine.settings)
        rewriting = Rewriting(opened.log, opened.engine, spawned, from_memory=InlineBaseWriter(opened.engine))
        rewriting.begin()
        opened("SET", "meanwhile", "1")
        while rewriting.in_progress:
            rewriting.tick(0)
            threading.Event().wait(0.01)
        assert rewriting.info()["aof_last_bgrewrite_status"] == "ok"
        before = opened.state()
    kind = "rdb" if preamble == "yes" else "aof"
    assert _names(tmp_path) == [f"1.base.{kind}", "2.incr.aof", "manifest"]
    with Opened(tmp_path, now=1_700_000_000_000) as again:
        assert again.state() == before  # the times of consumers, too: the logged deliveries contain them


def test_a_process_that_cannot_read_the_log_reports_an_error(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        opened("SET", "a", "1")
        said: list[str] = []
        rewriting = Rewriting(opened.log, opened.engine, SpawnedBaseWriter(opened.engine.settings), say=said.append)
        opened.log.rotation.rotate()
        (tmp_path / f"{NAME}.1.incr.aof").write_bytes(b"!")
        rewriting.begin()
        while rewriting.in_progress:
            rewriting.tick(0)
            threading.Event().wait(0.01)
        assert rewriting.info()["aof_last_bgrewrite_status"] == "err"
        assert "a command expected" in said[-1]
        rewriting.begin()
        rewriting.abort()
        assert not rewriting.in_progress
        assert opened("INCR", "a") == 2


def test_the_writing_process_writes_a_base_and_ends_with_its_parent(tmp_path: Path) -> None:
    with Opened(tmp_path / "log") as opened:
        opened("SET", "a", "1")
    request = {"path": str(tmp_path / "base"), "sources": [str(tmp_path / "log" / f"{NAME}.1.incr.aof")],
               "settings": {"rdbcompression": "no"}}  # fmt: skip
    assert compact(request) == "rdb"
    assert (tmp_path / "base").read_bytes().startswith(b"REDIS")
    ended: list[int] = []
    with open("/dev/null", "rb") as leash:
        exit_with_parent(leash, ended.append)
    assert ended == [1]


def test_the_single_file_log_of_an_older_server_is_adopted(tmp_path: Path) -> None:
    command = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"
    folder = tmp_path / "appendonlydir"
    (tmp_path / NAME).write_bytes(command + command[:-5])
    with Opened(folder) as opened:
        assert "bytes of an unfinished command" in opened.replayed.torn
        assert opened("INCR", "a") == 2
        assert opened.replayed.dropped == len(command) - 5
        assert opened.replayed.offset == len(command)
        before = state_of(opened)
    assert _names(folder) == ["1.incr.aof", NAME, "manifest"]
    assert not (tmp_path / NAME).exists()
    with Opened(folder) as again:
        assert state_of(again) == before
    # Interrupted before the file was moved.
    (folder / NAME).rename(tmp_path / NAME)
    (folder / f"{NAME}.manifest").write_text(f"file {NAME} seq 1 type b\n")
    (folder / f"{NAME}.1.incr.aof").unlink()
    with Opened(folder) as again:
        assert again("GET", "a") == b"1"
    # A file beside an existing log is ignored.
    (tmp_path / NAME).write_bytes(b"anything")
    with Opened(folder) as again:
        assert again("GET", "a") == b"1"
    assert (tmp_path / NAME).exists()


def test_the_relevant_settings_reach_the_writing_process() -> None:
    settings = Settings(compat="7.0", requirepass="secret", save="60 1", rdbcompression="no")
    from rillet.persistence.aof.rewrite_format import _texts

    assert _texts(settings) == {"compat": "7.0", "rdbcompression": "no"}


def test_a_torn_end_is_rejected_if_the_settings_require_it(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        opened("SET", "a", "1")
    path = tmp_path / f"{NAME}.1.incr.aof"
    path.write_bytes(path.read_bytes()[:-3])
    log = AppendOnlyLog(tmp_path)
    log.load_truncated = False
    with pytest.raises(Exception, match="offset 23: Unexpected end of file reading the append only file"):
        log.load(Engine())


def test_the_temporary_file_has_valid_checksums_after_a_retry(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    opened = Rewritten(folder)
    opened.engine.log = None
    opened.log.close()
    shutil.rmtree(folder)
    opened.log.checksums = True
    opened.log.start_waiting(opened.engine)
    opened.rewriting.begin()
    opened("SET", "a", "1")
    opened.writer.end("killed")
    opened.tick()
    assert opened.rewriting.in_progress
    opened("SET", "a", "2")
    opened("SET", "b", "1")
    opened.writer.end()
    opened.tick()
    assert opened.log.state == ON
    opened("SET", "after", "1")
    _same_after_a_crash(opened, folder)
    opened.__exit__()
    with Opened(folder) as again:
        assert _strings(again) == {b"a": b"2", b"b": b"1", b"after": b"1"}


def test_a_failure_rejects_all_replies_that_were_not_sent_yet(tmp_path: Path) -> None:
    """One write of the log covers all pending replies; BGREWRITEAOF or another thread may have caused it."""
    disk = FailingDisk()
    with Rewritten(tmp_path / "log", "always", disk=disk) as opened:
        log = opened.log
        opened("SET", "before", "1")
        answered = log.position
        opened.engine.execute(opened.session, [b"SET", b"a", b"1"])
        disk.failing["write"] = errno.ENOSPC
        log.write()
        assert log.failure is not None
        position = log.write(answered)
        with pytest.raises(Misconf):
            log.settled(position)
        assert log.write(log.position) == 0  # who only reads from then on has nothing to wait for
        disk.failing.clear()
        opened.tick()
        assert log.failure is None
        assert not log.settled(position)
        log.wait(position)
        opened.engine.execute(opened.session, [b"SET", b"a", b"2"])
        answered = log.synced
        log.write()
        disk.failing["sync"] = errno.EIO
        log.sync_soon()
        log.write()
        assert log.state == WAIT_REWRITE
        with pytest.raises(Misconf):
            log.settled(log.write(answered))
        assert log.write(log.position) == 0
        disk.failing.clear()
        opened.tick(5)
        opened.writer.end()
        opened.tick()
        assert log.state == ON
        _same_after_a_crash(opened, tmp_path / "log")


def test_a_waiting_thread_sees_the_failure_of_a_log(tmp_path: Path) -> None:
    """Log positions include data that is given up, so the failure must be visible before they advance."""
    disk = FailingDisk()
    with Rewritten(tmp_path / "log", "always", disk=disk) as opened:
        log = opened.log
        opened.engine.execute(opened.session, [b"SET", b"a", b"1"])
        position = log.write()
        disk.failing["sync"] = errno.EIO
        log.sync_soon()
        told: list[object] = []

        class Asking:
            """The lock of the log; another thread checks the log at the moment of its release."""

            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None:
                with pytest.raises(Misconf):
                    told.append(log.settled(position))
                told.append("refused")

        log.syncer.lock = Asking()  # type: ignore[assignment]
        log.write()
        log.syncer.lock = threading.RLock()
        assert told == ["refused"]
        assert log.needs_base
        disk.failing.clear()


def test_the_rewriting_process_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    with Opened(tmp_path / "log") as opened:
        opened("SET", "a", "1")
        rewriting = Rewriting(opened.log, opened.engine, SpawnedBaseWriter(opened.engine.settings))
        rewriting.begin()
        while rewriting.in_progress:
            rewriting.tick(0)
            threading.Event().wait(0.01)
        assert rewriting.info()["aof_last_bgrewrite_status"] == "ok"
