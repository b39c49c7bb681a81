"""RILLET.CHANGES lists the streams that changed after a position, and nothing but nil after what it cannot follow."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rillet.runtime import key_changes
from rillet.types.compat import COMPATS
from tests.commands.ends import Bench

NIL = b"-1"  # as tests/differential/wire.py reads it


class Follower:
    """A client that asks for the changes since its last call."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.position = b"0"

    def __call__(self, *words: Any) -> list[bytes] | None:
        self.position, names = self.bench("RILLET.CHANGES", self.position, *words)
        return None if names == NIL else sorted(names)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def changes(bench: Bench) -> Follower:
    """A follower that has seen the streams a and b."""
    for name in "ab":
        bench("XADD", name, "1-1", "n", "1")
    bench("SET", "text", "x")
    found = Follower(bench)
    assert found() is None
    assert found() == []
    return found


def test_a_change_is_listed_once(bench: Bench, changes: Follower) -> None:
    for _ in range(3):
        bench("XADD", "a", "*", "n", "1")
    assert changes() == [b"a"]
    assert changes() == []
    bench("XADD", "c", "*", "n", "1")
    bench("XADD", "a", "*", "n", "1")
    assert changes() == [b"a", b"c"]
    bench("XLEN", "a")
    bench("XRANGE", "a", "-", "+")
    assert changes() == []


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("XADD new 1-1 n 1", ["new"]), ("XDEL a 1-1", ["a"]), ("XTRIM a MAXLEN 0", ["a"]), ("XSETID a 9-9", ["a"]),
        ("XGROUP CREATE new g 0 MKSTREAM", ["new"]), ("XGROUP CREATE a g 0", []),
        ("DEL a", ["a"]), ("UNLINK a b", ["a", "b"]), ("SET a x", ["a"]), ("RENAME a c", ["a", "c"]),
        ("RENAME text a", ["a"]), ("RENAMENX a c", ["a", "c"]), ("COPY a c", ["c"]), ("COPY text a REPLACE", ["a"]),
        ("MOVE a 1", ["a"]), ("EXPIRE a 100", ["a"]), ("PEXPIRE a -1", ["a"]), ("SUNIONSTORE a none", ["a"]),
        ("SORT none STORE a", ["a"]), ("GETDEL text", []), ("SET text y", []), ("LPUSH list x", []), ("DEL text", []),
        ("EXISTS a", []), ("TYPE none", []),
    ],
)  # fmt: skip
def test_everything_that_changes_a_stream(bench: Bench, changes: Follower, command: str, names: list[str]) -> None:
    bench(*command.split())
    assert changes() == [name.encode() for name in names]
    bench.engine.check()
    assert changes() == []


def test_a_restored_stream_and_one_of_another_database(bench: Bench, changes: Follower) -> None:
    dump = bench("DUMP", "a")
    bench("RESTORE", "c", "0", dump)
    assert changes() == [b"c"]
    bench("RESTORE", "a", "0", dump, "REPLACE")
    assert changes() == [b"a"]
    bench("SELECT", "1")
    bench("XADD", "z", "1-1", "n", "1")
    bench("MOVE", "z", "0")
    bench("SELECT", "0")
    assert changes() == [b"z"]


def test_an_expired_stream_is_listed(bench: Bench, changes: Follower) -> None:
    bench("PEXPIRE", "a", "10")
    bench("PEXPIRE", "b", "10")
    assert changes() == [b"a", b"b"]
    bench.clock.advance(100)
    bench("EXISTS", "a")
    assert changes() == [b"a"]
    bench.engine.expire_all()
    assert changes() == [b"b"]
    bench.engine.check()


@pytest.mark.parametrize(
    "commands", ["FLUSHALL", "FLUSHALL SYNC", "FLUSHDB ASYNC", "SWAPDB 0 1", "SWAPDB 1 0;SWAPDB 0 1"]
)
def test_after_these_everything_may_have_changed(bench: Bench, changes: Follower, commands: str) -> None:
    for command in commands.split(";"):
        bench(*command.split())
    assert changes() is None
    assert changes() == []
    bench("XADD", "a", "*", "n", "1")
    assert changes() == [b"a"]
    bench.engine.check()


def test_a_position_of_another_run_or_place_has_no_answer(bench: Bench, changes: Follower) -> None:
    other = Follower(Bench())
    assert (other(), other()) == (None, [])
    for wrong in (other.position, b"", b"0", b"-", changes.position[:-1] + b"x", changes.position + b"9", b"\xff-1"):
        assert bench("RILLET.CHANGES", wrong) == [changes.position, NIL]
    bench("SELECT", "1")
    assert bench("RILLET.CHANGES", changes.position)[1] == NIL


def test_names_are_filtered(bench: Bench, changes: Follower) -> None:
    for name in ("x:1", "x:2", "y:1"):
        bench("XADD", name, "*", "n", "1")
    assert changes("MATCH", "x:*") == [b"x:1", b"x:2"]
    assert bench("RILLET.CHANGES", "0", "COUNT", "1") == "ERR syntax error"


def test_with_client_side_caching(bench: Bench, changes: Follower) -> None:
    """Both observers get the changes, in any order of their beginning."""
    other = bench.beside()
    for _ in range(2):
        other.run([b"HELLO", b"3"])
        other.run([b"CLIENT", b"TRACKING", b"ON"])
        other.run([b"XLEN", b"a"])
        bench("XADD", "a", "*", "n", "1")
        assert changes() == [b"a"]
        assert other.run([b"PING"]) == b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n+PONG\r\n"
        other.run([b"CLIENT", b"TRACKING", b"OFF"])
        bench("XADD", "b", "*", "n", "1")
        assert changes() == [b"b"]


def test_streams_are_collected_in_pieces(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is deleted before the end of that was never promised to be known."""
    monkeypatch.setattr(key_changes, "PIECE", 1000)
    for number in range(5000):
        bench("XADD", f"s{number}", "1-1", "n", "1")
    changes = Follower(bench)
    calls = 0
    while changes() is None:
        bench("DEL", f"s{calls}")
        calls += 1
        assert calls < 50
    assert calls > 2
    bench("DEL", "s4999")
    assert changes() == [b"s4999"]
    bench.engine.check()


def test_names_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_changes, "NAMES", 10)
    bench = Bench()
    bench("XADD", "a", "1-1", "n", "1")
    changes = Follower(bench)
    assert (changes(), changes()) == (None, [])
    late = changes.position
    for number in range(100):
        bench("XADD", f"s{number}", "1-1", "n", "1")
        bench("DEL", f"s{number}")
    bench.engine.check()
    assert len(bench.engine.changes[0].order) < 20
    assert bench("RILLET.CHANGES", late)[1] == NIL
    assert changes() is None
    bench("XADD", "s", "1-1", "n", "1")
    assert changes() == [b"s"]


@pytest.mark.parametrize("compat", COMPATS)
def test_it_exists_with_every_compat_and_is_never_shown(compat: str) -> None:
    bench = Bench(compat=compat)
    assert bench("RILLET.CHANGES", "0")[1] == NIL
    assert b"rillet.changes" not in [entry[0] for entry in bench("COMMAND")]
    assert bench("COMMAND", "INFO", "rillet.changes") == [NIL]
    if COMPATS[compat].knows(70):
        assert b"rillet.changes" not in bench("COMMAND", "LIST")
        assert bench("COMMAND", "DOCS", "rillet.changes") in ([], {})


def test_it_needs_its_own_right(bench: Bench, changes: Follower) -> None:
    bench("ACL", "SETUSER", "u", "on", "nopass", "~*", "+@all", "-rillet.changes")
    bench("ACL", "SETUSER", "v", "on", "nopass", "resetkeys", "nocommands", "+rillet.changes")
    bench("AUTH", "u", "x")
    assert bench("RILLET.CHANGES", "0").startswith("NOPERM")
    bench("AUTH", "v", "x")
    assert bench("RILLET.CHANGES", changes.position) == [changes.position, []]


def test_random_changes_against_a_comparison_of_all_streams(bench: Bench) -> None:
    """What differs between two looks is listed; nothing else but what was written is."""
    source = random.Random(7)
    changes = Follower(bench)

    def look() -> dict[bytes, bytes | None]:
        return {b"k%d" % n: bench("DUMP", f"k{n}") if bench("TYPE", f"k{n}") == b"stream" else None
                for n in range(20)}  # fmt: skip

    assert changes() is None
    before = look()
    for _ in range(300):
        for _ in range(source.randint(0, 4)):
            one, two = (f"k{source.randrange(20)}" for _ in range(2))
            words = source.choice((
                ("XADD", one, "*", "n", "1"), ("DEL", one), ("SET", one, "x"), ("RENAME", one, two), ("COPY", one, two),
                ("XADD", one, "MAXLEN", "1", "*", "n", "2"), ("PEXPIRE", one, "-1"), ("MULTI",), ("EXEC",),
            ))  # fmt: skip
            bench(*words)
        bench("EXEC")
        found, now = changes(), look()
        assert found is not None
        assert {name for name in now if now[name] != before[name]} <= set(found)
        before = now
        bench.engine.check()
