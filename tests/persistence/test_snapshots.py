"""Save points, counted changes, and rejected writes after a failed snapshot, with a manual clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rillet.errors import CommandError
from rillet.keyspace.clock import ManualClock
from rillet.persistence.fork import ChildOutcome, Children
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.snapshots import Snapshots, draft_name
from rillet.persistence.write_gate import LOG, SNAPSHOT, WriteGate
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.engine_services import DefaultServices
from rillet.runtime.settings.settings import Settings
from tests.commands.ends import CreepingClock


class Kept:
    """An engine with an RDB file, for single commands; `said` has the log lines."""

    def __init__(self, folder: Path, clock: type[ManualClock] = ManualClock, **settings: Any) -> None:
        self.clock = clock(1_700_000_000_000)
        self.engine = Engine(Settings(**settings), self.clock)
        self.children = Children()
        self.refusals = WriteGate(self.engine)
        self.said: list[str] = []
        self.snapshots = Snapshots(self.engine, folder, children=self.children, refusals=self.refusals, say=self._say)
        self.session = self.engine.session()

    def _say(self, text: str, *, warning: bool = False) -> None:
        self.said.append(text)

    def __call__(self, command: str) -> Any:
        self.engine.execute(self.session, command.encode().split())
        return parse_all(self.session.out.take_bytes())[0]

    def tick(self, seconds: float = 0) -> bool:
        """Advance the time and run the cron; return whether a child started, and wait for it."""
        self.clock.advance(round(seconds * 1000))
        before = self.children.forks
        self.snapshots.cron()
        self.snapshots.cron_scheduled()
        if self.children.forks == before:
            return False
        self.end()
        return True

    def end(self) -> None:
        """Wait for the child."""
        assert self.children.active is not None
        self.children.active.wait()
        self.children.poll()

    @property
    def info(self) -> dict[str, Any]:
        return {**self.children.info(), **self.snapshots.info()}


def test_a_save_point_needs_its_changes_and_more_than_its_seconds(tmp_path: Path) -> None:
    kept = Kept(tmp_path, save=((60, 3), (10, 100)))
    assert not kept.tick(1000)  # no changes
    kept = Kept(tmp_path, save=((60, 3), (10, 100)))
    for at in range(3):
        kept(f"SET key{at} 1")
    assert not kept.tick(60.9)
    assert kept.tick(0.1)
    assert kept.said[0] == "3 changes in 60 seconds. Saving..."
    assert kept.info["rdb_changes_since_last_save"] == 0
    assert kept.info["rdb_last_save_time"] == 1_700_000_061
    for at in range(99):
        kept(f"SET key{at} 1")
    assert not kept.tick(11)
    kept("SET last 1")
    assert kept.tick()
    assert kept.info["rdb_saves"] == 2
    assert "100 changes in 10 seconds. Saving..." in kept.said
    assert kept.snapshots.loaded.keys == 0
    assert load_rdb(kept.snapshots.path, Engine(Settings())).keys == 100


def test_a_clock_that_is_set_back_does_not_delay_a_save(tmp_path: Path) -> None:
    class Wall(ManualClock):
        """A clock whose time of day jumps while its ticks do not."""

        back = 0

        def now_ms(self) -> int:
            return super().now_ms() - self.back

    kept = Kept(tmp_path, save=((60, 1),))
    wall = Wall(1_700_000_000_000)
    kept.engine.clock = kept.clock = wall
    kept("SET k v")
    wall.back = 10**9
    assert kept.tick(61)
    assert kept.info["rdb_last_save_time"] == 1_699_000_061


def test_changes_while_a_child_writes_are_not_in_its_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept("SET a 1")
    assert kept.snapshots.background()
    kept("SET b 1")
    kept("SET c 1")
    assert kept.info["rdb_changes_since_last_save"] == 3
    assert kept.info["rdb_bgsave_in_progress"] == 1
    assert kept.info["rdb_current_bgsave_time_sec"] == 0
    assert kept.info["current_save_keys_total"] == 1
    for again in (kept.snapshots.save, kept.snapshots.background, lambda: kept.snapshots.background(schedule=True)):
        with pytest.raises(CommandError, match="Background save already in progress"):
            again()
    kept.end()
    assert kept.info["rdb_changes_since_last_save"] == 2
    assert kept.info["rdb_bgsave_in_progress"] == 0
    assert kept.info["rdb_last_bgsave_time_sec"] == 0
    assert kept.info["rdb_last_cow_size"] > 0
    assert load_rdb(kept.snapshots.path, Engine(Settings())).keys == 1
    assert kept.said[-1] == "Background saving terminated with success"


def test_a_snapshot_waits_for_another_child(tmp_path: Path) -> None:
    kept = Kept(tmp_path, save=((1, 1),))
    kept("SET a 1")
    ends: list[ChildOutcome] = []
    kept.children.start("something else", lambda _report: None, ends.append)
    assert not kept.tick(10)
    with pytest.raises(CommandError, match=r"^ERR Another child process is active \(AOF\?\): can't BGSAVE right now"):
        kept.snapshots.background()
    assert not kept.snapshots.background(schedule=True)
    assert kept.snapshots.scheduled
    kept.snapshots.save()  # no fork
    assert not kept.tick()
    kept.end()
    assert ends[0].ok
    assert kept.tick()
    assert not kept.snapshots.scheduled
    assert not kept.tick()
    assert not kept.snapshots.background(later=True)
    assert kept.snapshots.scheduled
    assert kept.tick()


def test_a_failed_snapshot_is_retried_after_a_delay(tmp_path: Path) -> None:
    kept = Kept(tmp_path, save=((10, 1),), dbfilename="dump.rdb")
    (tmp_path / "dump.rdb").mkdir()
    kept("SET a 1")
    assert kept.tick(11)
    assert kept.info["rdb_last_bgsave_status"] == "err"
    assert kept.said[-2:] == ["Write error saving DB on disk: Is a directory", "Background saving error"]
    assert [path.name for path in tmp_path.iterdir()] == ["dump.rdb"]
    refused = str(kept("SET a 2"))
    assert refused.startswith("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist")
    assert kept("GET a") == b"1"
    assert kept.info["rdb_changes_since_last_save"] == 1
    assert not kept.tick(5)
    assert kept.tick(0.1)
    assert not kept.tick()
    assert not kept.snapshots.background(later=True)
    assert not kept.tick(4)  # a scheduled save waits too
    (tmp_path / "dump.rdb").rmdir()
    assert kept.tick(2)
    assert kept.info["rdb_last_bgsave_status"] == "ok"
    assert kept("SET a 2") == b"OK"


def test_a_failed_save_command_does_not_reject_writes(tmp_path: Path) -> None:
    kept = Kept(tmp_path, save=((10, 1),))
    (tmp_path / "dump.rdb").mkdir()
    with pytest.raises(CommandError, match="the RDB file cannot be written: Is a directory"):
        kept.snapshots.save()
    assert kept.info["rdb_last_bgsave_status"] == "ok"
    assert kept.info["rdb_saves"] == 1
    assert kept("SET a 1") == b"OK"


def test_a_failed_fork_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    kept = Kept(tmp_path, save=((10, 1),))
    kept("SET a 1")
    monkeypatch.setattr(os, "fork", none_left)
    with pytest.raises(CommandError, match="^ERR Can't save in background: fork: Resource temporarily unavailable$"):
        kept.snapshots.background()
    assert kept.info["rdb_last_bgsave_status"] == "err"
    assert kept.info["rdb_saves"] == 1
    assert not kept.tick(11)
    assert kept.info["rdb_saves"] == 2  # it was tried
    assert str(kept("SET a 2")).startswith("MISCONF ")
    monkeypatch.undo()
    assert kept.tick(6)
    assert kept("SET a 2") == b"OK"


def test_a_killed_child_is_a_failed_snapshot(tmp_path: Path) -> None:
    kept = Kept(tmp_path, CreepingClock, rdb_key_save_delay=10**8, latency_monitor_threshold=1)
    kept("SET a 1")
    for by_us in (True, False):
        assert kept.snapshots.background()
        assert kept.children.active is not None
        pid = kept.children.active.pid
        while not (tmp_path / draft_name(pid)).exists():
            os.sched_yield()
        if by_us:
            kept.snapshots.stop_child()
        else:
            os.kill(pid, 15)
            kept.end()
        assert not list(tmp_path.iterdir())
        assert kept.children.active is None
        assert kept.info["rdb_last_bgsave_status"] == ("ok" if by_us else "err")
    assert kept.said[-1] == "Background saving terminated by signal 15"
    assert b"rdb-unlink-temp-file" in kept.engine.latency.events
    kept.snapshots.stop_child()


def test_flushall_kills_the_child_and_writes_an_empty_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path, rdb_key_save_delay=10**8)

    class FileServices(DefaultServices):
        def flushed(self) -> bool:
            return kept.snapshots.flushed()

    kept.engine.services = FileServices(kept.engine)
    kept("SET a 1")
    kept.snapshots.background()
    assert kept("FLUSHALL") == b"OK"
    kept.end()
    assert not list(tmp_path.iterdir())
    assert kept.info["rdb_changes_since_last_save"] == 2
    kept.engine.settings.set_text("save", "900 1")
    kept("SET a 1")
    kept.snapshots.background()
    assert kept("FLUSHALL") == b"OK"
    assert kept.info["rdb_changes_since_last_save"] == 0
    assert kept.children.active is None
    assert load_rdb(tmp_path / "dump.rdb", Engine(Settings())).keys == 0
    (tmp_path / "dump.rdb").unlink()
    (tmp_path / "dump.rdb").mkdir()
    kept.engine.settings.set_text("rdb-key-save-delay", "0")
    kept("SET a 1")
    assert kept("FLUSHALL") == b"OK"
    assert kept.info["rdb_changes_since_last_save"] == 2


def test_causes_for_rejecting_writes_are_independent() -> None:
    engine = Engine(Settings())
    refusals = WriteGate(engine)
    refusals.set(LOG, "the log")
    assert engine.refusal == "the log"
    refusals.set(SNAPSHOT, "the snapshot")
    assert engine.refusal == "the snapshot"
    assert refusals.reason(LOG) == "the log"
    refusals.set(LOG, None)
    refusals.set(SNAPSHOT, None)
    refusals.set(SNAPSHOT, None)
    assert engine.refusal is None
    assert refusals.reason(LOG) is None
