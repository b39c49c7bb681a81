"""The append-only log: its content, and replays that restore the same data byte by byte."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import rillet
from rillet.errors import LogCorrupt, NewerFormat
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.session import Session
from tests.persistence.state import WORK, Opened, content_of


def _bytes(folder: Path) -> bytes:
    return (folder / "appendonly.aof.1.incr.aof").read_bytes()


def _work(opened: Opened) -> None:
    for line in WORK:
        opened(*line.split())


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_reopening_gives_the_same_dump_of_every_key(tmp_path: Path, fsync: str) -> None:
    with Opened(tmp_path, fsync) as first:
        _work(first)
        before = first.state()
    assert len(before) >= 10
    size = len(_bytes(tmp_path))
    for _ in range(2):
        with Opened(tmp_path, fsync) as again:
            assert again.state() == before
            again.engine.check()
            assert again.replayed.bytes == size
            assert again.replayed.dropped == 0
    assert len(_bytes(tmp_path)) == size  # a replay appends nothing
    with Opened(tmp_path, fsync) as more:
        more("XADD", "s", "*", "later", "1")
        after = more.state()
    with Opened(tmp_path, fsync) as again:
        assert again.state() == after != before


def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    """Only flush() was called: the file is complete after every reply."""
    first = Opened(tmp_path)
    try:
        for line in WORK:
            first(*line.split())
            database = first.session.db.index
            with Opened(_copy(tmp_path)) as again:
                again("SELECT", database)
                assert content_of(again) == content_of(first)
    finally:
        first.__exit__()


def _copy(folder: Path) -> Path:
    import shutil
    import tempfile

    copy = Path(tempfile.mkdtemp(dir=folder.parent)) / "copy"
    shutil.copytree(folder, copy)
    return copy


def test_the_log_contains_exact_effects(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        made = opened("XADD", "s", "*", "a", "1")
        opened("XADD", "s", "MAXLEN", "~", "100", "*", "a", "1")
        opened("SELECT", "2")
        opened("SET", "k", "v", "EX", "100")
    log = _bytes(tmp_path)
    assert log.startswith(
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$%d\r\n%s\r\n" % (len(made), made)
    )
    assert b"MAXLEN\r\n$1\r\n=\r\n$1\r\n2\r\n" in log
    assert b"$1\r\n*\r\n" not in log
    assert log.count(b"SELECT") == 2
    assert b"$1\r\n2\r\n*5\r\n$3\r\nSET\r\n" in log
    assert b"PXAT" in log


NOTHING = """PING
GET none
XADD none NOMKSTREAM * a b
DEL none
XRANGE s - +
XACK s g 1
NOSUCH
XADD s 1
SET a
EXPIRE none 5
XTRIM none MAXLEN 0
SELECT 4
XDEL none 1
PERSIST none
XREAD COUNT 1 STREAMS none 0
MULTI
GET none
EXEC"""


def test_commands_that_change_nothing_are_not_logged(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        for line in NOTHING.splitlines():
            opened(*line.split())
    assert _bytes(tmp_path) == b""


def test_a_transaction_is_one_unit(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        for line in ("MULTI", "SET a 1", "XADD s * b 2", "INCR a", "EXEC"):
            opened(*line.split())
        before = opened.state()
    log = _bytes(tmp_path)
    assert log.count(b"MULTI") == 1
    assert log.rstrip().endswith(b"EXEC")
    with Opened(tmp_path) as again:
        assert again.state() == before
        assert again("GET", "a") == b"2"
    # If it is cut anywhere inside, none of it is loaded.
    start = log.index(b"*1\r\n$5\r\nMULTI")
    for end in (start + 1, log.index(b"INCR"), len(log) - 1, len(log) - 14):
        (tmp_path / "appendonly.aof.1.incr.aof").write_bytes(log[:end])
        with Opened(tmp_path) as again:
            assert again.state() == {}
            assert f"were dropped at offset {start}" in again.replayed.torn
        assert _bytes(tmp_path) == log[:start]


def test_a_log_torn_at_any_byte_of_the_last_command_loads(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        opened("SET", "kept", "1")
        opened("XADD", "s", "1-1", "field", "value")
        before = opened.state()
        kept = len(_bytes(tmp_path))
        opened("XADD", "s", "2-1", "another", "value \r\n*1\r\n$4\r\nPING")
    whole = _bytes(tmp_path)
    path = tmp_path / "appendonly.aof.1.incr.aof"
    for end in range(kept + 1, len(whole)):
        path.write_bytes(whole[:end])
        with Opened(tmp_path) as opened:
            dropped = f"{end - kept} bytes of an unfinished command were dropped at offset {kept}"
            assert opened.replayed.torn == f"{path}: {dropped}"
            assert opened.state() == before
            assert opened.replayed.dropped == end - kept
            opened("SET", "after", "1")
        with Opened(tmp_path) as again:
            assert again("GET", "after") == b"1"
            assert again("XLEN", "s") == 1
    path.write_bytes(whole)
    with Opened(tmp_path) as opened:
        assert opened("XLEN", "s") == 2


def test_keys_do_not_expire_during_a_replay(tmp_path: Path) -> None:
    """The log contains the deletions, and earlier commands must find the keys."""
    with Opened(tmp_path) as opened:
        opened("SET", "k", "10", "PX", "50")
        opened("SET", "t", "5", "PX", "100000")
        opened.clock.advance(51)
        opened("INCR", "k")  # a new key, without an expiry
        opened("INCR", "t")
        before = opened.state()
    log = _bytes(tmp_path)
    assert b"$3\r\nDEL\r\n$1\r\nk\r\n" in log
    for later in (0, 51):
        with Opened(tmp_path, now=1_700_000_000_000 + later) as again:
            assert again.state() == before
            assert again("GET", "k") == b"1"
            assert again("PTTL", "k") == -1

    # Without its DEL (the process was killed before an access), the key is deleted at the next access.
    with Opened(tmp_path / "other") as opened:
        opened("SET", "k", "10", "PX", "50")
        opened("APPEND", "k", "0")
    with Opened(tmp_path / "other", now=1_700_000_000_051) as again:
        assert again("GET", "k") is None
        assert again("DBSIZE") == 0


def test_blocked_consumers_are_logged_when_they_are_served(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store", appendfsync="no") as store:
        consumer = store.stream("s").group("g").consumer("c")
        thread = threading.Thread(target=consumer.read, kwargs={"block": 20})
        thread.start()
        while store.info()["blocked_clients"] != "1":
            threading.Event().wait(0.002)
        store.stream("s").add({"n": 1})
        thread.join()
        before = consumer.group.stream.info(full=True)["groups"]
        assert consumer.group.pending_count() == 1
    with rillet.open(tmp_path / "store") as store:
        after = store.stream("s").info(full=True)["groups"]
        # The seen-time and active-time of consumers are not logged: they become the time of the replay.
        for one in (before, after):
            del one[0]["consumers"][0]["seen-time"], one[0]["consumers"][0]["active-time"]
        assert after == before


def test_everysec_syncs_in_the_background(tmp_path: Path) -> None:
    with Opened(tmp_path, "everysec") as opened:
        synced = threading.Event()
        real = opened.log.syncer.sync
        opened.log.syncer.sync = lambda: (real(), synced.set())  # type: ignore[assignment,func-returns-value]
        opened("SET", "a", "1")
        assert opened.log.synced < opened.log.size
        assert synced.wait(60)
        assert opened.log.synced == opened.log.size


def test_always_syncs_before_the_reply(tmp_path: Path) -> None:
    with Opened(tmp_path, "always") as opened:
        for n in range(3):
            opened("SET", "a", n)
            assert opened.log.synced == opened.log.size == len(_bytes(tmp_path)) > 0


def test_a_replay_reports_its_progress_and_counts(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        for _ in range(2000):
            opened("XADD", "s", "*", "n", "x" * 1000)
    seen: list[tuple[int, int]] = []
    from rillet.runtime.engine import Engine

    engine = Engine()
    log = AppendOnlyLog(tmp_path, fsync="no")
    replayed = log.open(engine, lambda done, total: seen.append((done, total)))
    log.close()
    log.close()
    total = len(_bytes(tmp_path))
    assert len(seen) >= 3
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)
    assert replayed.commands == 2001
    assert replayed.bytes == total
    assert replayed.seconds > 0


def test_a_command_of_a_newer_server_is_named(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        opened("SET", "a", "1")
    size = len(_bytes(tmp_path))
    with open(tmp_path / "appendonly.aof.1.incr.aof", "ab") as out:
        out.write(b"*3\r\n$4\r\nHADD\r\n$1\r\nh\r\n$1\r\nf\r\n")
    told = rf"appendonly.aof.1.incr.aof: offset {size}: Unknown command 'HADD' reading the append only file: this"
    with pytest.raises(NewerFormat, match=told):
        Opened(tmp_path)


def test_a_missing_manifest_or_file_is_not_an_empty_log(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        opened("SET", "a", "1")
    manifest = tmp_path / "appendonly.aof.manifest"
    kept = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(LogCorrupt, match=r"the manifest is missing, but appendonly.aof.1.incr.aof exists"):
        Opened(tmp_path)
    manifest.write_bytes(kept)
    (tmp_path / "appendonly.aof.1.incr.aof").rename(tmp_path / "away")
    with pytest.raises(LogCorrupt, match=r"the file appendonly.aof.1.incr.aof is missing"):
        Opened(tmp_path)


def test_several_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    def command(*words: str) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)

    (tmp_path / "b.aof").write_bytes(command("SELECT", "2") + command("SET", "a", "base"))
    (tmp_path / "i1.aof").write_bytes(b"#TS:1700000000\r\n" + command("APPEND", "a", "1") + command("SELECT", "3"))
    (tmp_path / "i2.aof").write_bytes(command("APPEND", "a", "2") + b"#TS:1700000001\r\n")
    (tmp_path / "appendonly.aof.manifest").write_text(
        "file i1.aof seq 1 type i\nfile i2.aof seq 2 type i\nfile old.aof seq 9 type h\nfile b.aof seq 1 type b\n"
    )
    with Opened(tmp_path) as opened:
        # Each file starts with database 0.
        assert opened("GET", "a") == b"12"
        opened("SELECT", "2")
        assert opened("GET", "a") == b"base"
        opened("SET", "new", "1")
    assert b"new" in (tmp_path / "i2.aof").read_bytes()
    (tmp_path / "i1.aof").write_bytes(command("APPEND", "a", "1")[:-3])
    with pytest.raises(LogCorrupt, match=r"i1.aof: offset 0: the file ends inside a command and is not the log's last"):
        Opened(tmp_path)


def test_a_base_without_an_incremental_file_gets_one(tmp_path: Path) -> None:
    (tmp_path / "appendonly.aof.1.base.aof").write_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n")
    manifest = tmp_path / "appendonly.aof.manifest"
    manifest.write_text("file appendonly.aof.1.base.aof seq 1 type b\n")
    with Opened(tmp_path) as opened:
        opened("INCR", "a")
    assert manifest.read_text().endswith("file appendonly.aof.1.incr.aof seq 1 type i\n")
    with Opened(tmp_path) as opened:
        assert opened("GET", "a") == b"2"


@pytest.mark.parametrize("inside", [False, True])
def test_effects_before_an_exception_are_logged(tmp_path: Path, inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception such as KeyboardInterrupt ends a transaction in the middle: memory and log agree."""

    def handler(session: Session, argv: list[bytes]) -> None:
        raise TypeError

    strange = Command("strange", 1, "write", (0, 0, 0), "generic", "1.0.0", "O(1)", "", "Fail.", handler, None)
    strange.index = TABLE[b"incr"].index  # of its counters
    monkeypatch.setitem(TABLE.by_name, b"strange", strange)
    with Opened(tmp_path) as opened:
        session, engine = opened.session, opened.engine
        opened("SET", "k", "1")
        if inside:
            opened("MULTI")
            opened("SET", "a", "1")
            opened("STRANGE")
            session.out.take_bytes()
        with pytest.raises(TypeError):
            engine.execute(session, [b"EXEC"] if inside else [b"STRANGE"])
        session.out.take_bytes()
        assert opened.log.feed.used > 0 or not inside
        assert opened("SET", "b", "1") == b"OK"
        before = opened.state()
    with Opened(tmp_path) as again:
        assert again.state() == before
