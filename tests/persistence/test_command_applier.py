"""A log's commands have the same effect however its bytes are split, and errors have their offset."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.errors import LogCorrupt, NewerFormat
from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.command_applier import CommandApplier
from rillet.persistence.aof.loader import replay
from rillet.protocol.command_parser import pack_command
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.rdb.value import dump
from tests.judge import free_port, redis_binary, running_redis
from tests.server.harness import launch, running
from tests.variants import long_interpreted, seeds

pytestmark = pytest.mark.both

NOW = 1_700_000_000_000


def adds(count: int, key: bytes = b"s", first: int = 1) -> list[bytes]:
    """Return XADDs in the form of a log."""
    return [pack_command([b"XADD", key, b"%d-%d" % (number // 3 + 1, number % 3), b"f", b"%d" % number])
            for number in range(first, first + count)]  # fmt: skip


def loading() -> Engine:
    """Return an engine in the loading state."""
    engine = Engine(clock=ManualClock(NOW))
    engine.loading = True
    return engine


def played(engine: Engine, data: bytes, sizes: random.Random | None = None) -> CommandApplier:
    """Replay the bytes in one piece or in many."""
    playback = CommandApplier("a.aof", engine.session(trusted=True), 0)
    at = 0
    while at < len(data):
        size = len(data) if sizes is None else sizes.choice([1, 2, 7, 50, 300])
        playback.feed(data[at : at + size])
        at += size
    return playback


def values(engine: Engine) -> dict[tuple[int, bytes], bytes]:
    """Return the keys and their DUMP payloads."""
    engine.check()
    return {(database.index, key): dump(value) for database in engine.databases
            for key, value in database.items()}  # fmt: skip


def some_log(chance: random.Random) -> bytes:
    """Return a log of many plain XADDs, with other content between them."""
    parts = [pack_command([b"SELECT", b"0"])]
    for number in range(60):
        parts += adds(chance.randrange(1, 9), chance.choice([b"s", b"t"]), 100 * number)
        between = pack_command([b"SET", b"k", b"%d" % number])
        group = pack_command([b"XGROUP", b"CREATE", b"s", b"g%d" % number, b"0", b"MKSTREAM"])
        transaction = pack_command([b"MULTI"]) + b"".join(adds(3, b"s", 100 * number + 20)) + pack_command([b"EXEC"])
        trim = pack_command([b"XADD", b"s", b"MAXLEN", b"=", b"20", b"%d" % (33 * number + 31), b"f", b"v"])
        parts.append(chance.choice([b"", b"#TS:%d\r\n" % (1_700_000_000 + number), between, group, transaction, trim,
                                    pack_command([b"SELECT", b"%d" % chance.randrange(2)])]))  # fmt: skip
    return b"".join(parts)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_a_log_read_in_pieces_gives_the_same_data(seed: int) -> None:
    chance = random.Random(seed)
    data = some_log(chance)
    whole, pieces, handled = loading(), loading(), loading()
    one, many = played(whole, data), played(pieces, data, chance)
    handled.notify_events = True  # with keyspace events enabled, the fast path is not used
    third = played(handled, data)
    assert values(whole) == values(pieces) == values(handled)
    assert one.commands == many.commands == third.commands
    assert one.good == one.here == many.good == third.good == len(data)
    assert whole.dirty == pieces.dirty == handled.dirty


@pytest.mark.parametrize("bad", [
    pack_command([b"XADD", b"s", b"1-0", b"f", b"v"]),
    pack_command([b"XADD", b"s", b"99-0", b"f"]),
    pack_command([b"XADD", b"text", b"99-0", b"f", b"v"]),
    pack_command([b"XADD", b"s", b"x", b"f", b"v"]),
])  # fmt: skip
def test_a_rejected_command_is_reported_with_its_offset(bad: bytes) -> None:
    before = pack_command([b"SET", b"text", b"1"]) + b"".join(adds(50))
    engine = loading()
    with pytest.raises(LogCorrupt, match=rf"a\.aof: offset {len(before)}: .*XADD .* was refused: "):
        played(engine, before + bad + b"".join(adds(3, first=200)))
    assert engine.databases[0].peek(b"s").length == 50


BAD = [[b"XADD", b"text", b"99-0", b"f", b"v"], [b"XADD", b"s", b"1-0", b"f", b"v"], [b"INCR", b"word"],
       [b"XFUTURE", b"s"]]  # fmt: skip


def log_with_refused_commands() -> bytes:
    """Return a log with the commands of BAD, one of them inside a transaction."""
    bad = [pack_command(argv) for argv in BAD]
    return b"".join([
        pack_command([b"SELECT", b"0"]), pack_command([b"MSET", b"text", b"1", b"word", b"a"]), *adds(50), bad[0],
        pack_command([b"MULTI"]), bad[1], pack_command([b"SET", b"k", b"v"]), pack_command([b"EXEC"]), *bad[2:],
        *adds(3, first=200),
    ])  # fmt: skip


def test_refused_commands_are_omitted_if_the_setting_permits_it() -> None:
    engine = Engine(Settings(aof_load_refused=True), ManualClock(NOW))
    engine.loading = True
    playback = played(engine, log_with_refused_commands(), random.Random(1))
    assert playback.refused == len(BAD)
    assert engine.databases[0].peek(b"s").length == 53
    assert engine.databases[0].peek(b"k") is not None
    engine.check()


@pytest.mark.parametrize("how", [{}, {"readonly": True}], ids=str)
def test_a_store_omits_refused_commands_and_says_so(
    tmp_path: Path, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with rillet.open(tmp_path / "x"):
        pass
    (log,) = (tmp_path / "x" / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(log_with_refused_commands())
    with pytest.raises(LogCorrupt, match=r"'XADD text 99-0' was refused: WRONGTYPE .*; aof_load_refused=True "
                       r"\(rillet serve --aof-load-refused yes\) logs and omits such commands; "
                       r"`rillet check \S+ --salvage OUT` writes"):  # fmt: skip
        rillet.open(tmp_path / "x", **how)
    caplog.clear()
    with rillet.open(tmp_path / "x", aof_load_refused=True, **how) as store:
        assert store.stream("s").length() == 53
        assert store.recovery is not None
        assert store.recovery.note == "4 commands that were refused were omitted"
    said = [record.getMessage() for record in caplog.records if "CRITICAL" in record.getMessage()]
    assert len(said) == len(BAD)
    assert f"== CRITICAL == {log}: offset " in said[0]
    assert "'INCR word' was refused and omitted: ERR value is not an integer" in said[2]
    assert "'XFUTURE s' was refused and omitted: ERR unknown command" in said[3]


@long_interpreted
def test_a_server_omits_refused_commands_as_redis_does(tmp_path: Path) -> None:
    """redis-server always omits them, except unknown commands."""
    data = log_with_refused_commands().replace(pack_command(BAD[3]), b"")
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.1.incr.aof").write_bytes(data)
    (folder / "appendonly.aof.manifest").write_bytes(b"file appendonly.aof.1.incr.aof seq 1 type i\n")
    arguments = ["--port", str(free_port()), "--dir", str(tmp_path), "--appendonly", "yes"]
    with launch(arguments) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "aof_load_refused=True (rillet serve --aof-load-refused yes) logs and omits such commands" in errors
    assert f"`rillet check {tmp_path} --salvage OUT` writes everything sound to the new directory OUT" in errors
    found = []
    with running(tmp_path, "--appendonly", "yes", "--aof-load-refused", "yes") as server:
        found.append(contents(server.port))
    if redis_binary() is not None:
        with running_redis("--dir", str(tmp_path), "--appendonly", "yes") as judge:
            found.append(contents(judge.port))
    assert all(one == (53, b"v", b"a") for one in found)


def contents(port: int) -> tuple[Any, ...]:
    """Return what a server has of the log with refused commands."""
    with redis.Redis(port=port) as client:
        return client.xlen("s"), client.get("k"), client.get("word")


def test_an_unknown_command_is_reported() -> None:
    before = b"".join(adds(9))
    with pytest.raises(NewerFormat, match=rf"offset {len(before)}: .*XFUTURE"):
        played(loading(), before + pack_command([b"XFUTURE", b"s"]))


@pytest.mark.parametrize("noise", [b"x", b"\0", b"\r\n", b"PING\r\n"])
def test_invalid_bytes_are_reported_with_their_offset(noise: bytes) -> None:
    before = b"".join(adds(9))
    with pytest.raises(LogCorrupt, match=f"offset {len(before)}: Bad file format .*: a command expected"):
        played(loading(), before + noise + before)


def test_an_incomplete_transaction_is_not_executed() -> None:
    before = b"".join(adds(9))
    engine = loading()
    playback = played(engine, before + pack_command([b"MULTI"]) + b"".join(adds(5, first=50)))
    assert engine.databases[0].peek(b"s").length == 9
    assert playback.good == len(before)
    assert len(playback.transaction) == 5
    playback.feed(pack_command([b"EXEC"]))
    assert engine.databases[0].peek(b"s").length == 14
    assert playback.transaction is None


@pytest.mark.slow
def test_an_incomplete_last_command_is_ignored(tmp_path: Path) -> None:
    """The commands before it are executed, and the reported end of the log is after them."""
    before, last = b"".join(adds(5)), adds(1, first=70)[0]
    path = tmp_path / "a.aof"
    for kept in range(1, len(last)):
        path.write_bytes(before + last[:kept])
        engine = Engine()
        found = replay(engine, [path])
        assert found.torn == f"{path}: {kept} bytes of an unfinished command were dropped at offset {len(before)}"
        assert (found.commands, found.bytes, found.dropped) == (5, len(before), kept)
        assert path.read_bytes() == before
        assert engine.databases[0].peek(b"s").length == 5


def test_nothing_is_logged_again_and_nothing_expires() -> None:
    class Fed:
        feed = PropagationBuffer()

    engine = loading()
    engine.log = Fed()
    gone = pack_command([b"PEXPIREAT", b"s", b"1000"])
    playback = played(engine, b"".join(adds(5)) + gone + b"".join(adds(5, first=20)))
    assert engine.databases[0].peek(b"s").length == 10
    assert playback.commands == 11
    assert engine.log.feed.take_bytes() == b""
    engine.loading = False
    assert engine.databases[0].lookup(b"s") is None
