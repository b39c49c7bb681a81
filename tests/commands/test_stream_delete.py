"""XDELEX, XACKDEL and the delete strategies of trims: replies, references, the log, and keyspace events.

Tests with `peer_of` compare with newer servers, if RILLET_NEWER_REDIS or RILLET_REDIS_8_6 names one; the others need
no server.

"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.commands.ends import Bench
from tests.differential.wire import Local, Redis, read
from tests.judge import Judge
from tests.variants import by_speed

SYNTAX = "ERR syntax error"
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NOT_POSITIVE = "ERR Number of IDs must be a positive integer"
TOO_FEW = "ERR The `numids` parameter must match the number of arguments"
NO_IDS = "ERR IDS option is required"
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"

SETUP = [
    "SET text x", "XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XADD s 4-1 f v", "XGROUP CREATE s g 0",
    "XGROUP CREATE s h 0", "XREADGROUP GROUP g c COUNT 3 STREAMS s >", "XREADGROUP GROUP h d COUNT 2 STREAMS s >",
]  # fmt: skip

REFUSALS = [
    ("XDELEX s 1-1 KEEPREF IDS", SYNTAX), ("XDELEX s IDS 1 1-1 IDS", SYNTAX),
    ("XDELEX s IDS 1 1-1 1-1", SYNTAX), ("XDELEX s 1-1 2-1 3-1", SYNTAX),
    ("XDELEX s KEEPREF DELREF IDS 1 1-1", SYNTAX), ("XDELEX s ACKED ACKED IDS 1 1-1", SYNTAX),
    ("XDELEX s IDS 0 1-1", NOT_POSITIVE), ("XDELEX s IDS -1 1-1", NOT_POSITIVE), ("XDELEX s IDS x 1-1", NOT_POSITIVE),
    ("XDELEX s IDS 9223372036854775808 1-1", NOT_POSITIVE), ("XDELEX s IDS 2 1-1", TOO_FEW),
    ("XDELEX s IDS 9223372036854775807 1-1", TOO_FEW), ("XDELEX s IDS 2 1-1 x", INVALID_ID),
    ("XDELEX s IDS 1 -", INVALID_ID), ("XDELEX s ACKED IDS 1 1-*", INVALID_ID),
    ("XDELEX s IDS 2 1-1 acked", INVALID_ID),
    ("XDELEX text IDS x 1-1", WRONG_TYPE), ("XDELEX no IDS x 1-1", NOT_POSITIVE), ("XDELEX text x x x", WRONG_TYPE),
    ("XDELEX s ACKED KEEPREF KEEPREF", SYNTAX), ("XDELEX s KEEPREF KEEPREF IDS", SYNTAX),
    ("XDELEX s IDS 1", "ERR wrong number of arguments for 'xdelex' command"),
    ("XACKDEL s g IDS 1", "ERR wrong number of arguments for 'xackdel' command"),
    ("XACKDEL s g ACKED ACKED IDS", SYNTAX), ("XACKDEL s g KEEPREF ACKED KEEPREF", SYNTAX),
    ("XACKDEL s g IDS 1 1-1 x", SYNTAX), ("XACKDEL s g IDS x 1-1", NOT_POSITIVE),
    ("XACKDEL s g IDS 3 1-1 2-1", TOO_FEW), ("XACKDEL s g IDS 2 1-1 x", INVALID_ID),
    ("XACKDEL s no IDS x 1-1", NOT_POSITIVE), ("XACKDEL text no IDS x 1-1", WRONG_TYPE),
    ("XACKDEL text no IDS 1 1-1", WRONG_TYPE), ("XTRIM s ACKED MAXLEN 5 DELREF", SYNTAX),
    ("XTRIM s ACKED MAXLEN", SYNTAX), ("XTRIM s MAXLEN ACKED", "ERR value is not an integer or out of range"),
    ("XTRIM s ACKED LIMIT 5", "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
    ("XTRIM s ACKED DELREF", SYNTAX), ("XTRIM s DELREF KEEPREF MAXLEN 1", SYNTAX),
    ("XADD s ACKED ACKED 9-1 f v", INVALID_ID),
    ("XADD s KEEPREF DELREF * f v", INVALID_ID), ("XADD s DELREF", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD s * ACKED", "ERR wrong number of arguments for 'xadd' command"),
    ("XADD s ACKED LIMIT 5 9-1 f v", "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
    ("XADD s ACKED MAXLEN 5 LIMIT 5 9-1 f v", "ERR syntax error, LIMIT cannot be used without the special ~ option"),
]  # fmt: skip


def encoded(text: str) -> list[bytes]:
    """Split a command line into its arguments."""
    return [word.encode() for word in text.split(" ")]


@pytest.fixture
def bench() -> Bench:
    """A newest engine with entries 1-1 to 4-1: g has three pending, h has two."""
    bench = Bench(compat="newest")
    for text in SETUP:
        assert not isinstance(bench(*text.split()), str), text
    return bench


def pending(local: Local, group: str) -> list[bytes]:
    """Return the IDs of a group's pending entries."""
    return [row[0] for row in local("XPENDING", "s", group, "-", "+", 100)]


def ids(local: Local) -> list[bytes]:
    """Return the IDs of the stream's entries."""
    return [entry[0] for entry in local("XRANGE", "s", "-", "+")]


def fact(local: Local, name: bytes) -> Any:
    """Return a field of XINFO STREAM."""
    facts = local("XINFO", "STREAM", "s")
    return facts[facts.index(name) + 1]


# -- errors


def test_an_invalid_command_changes_and_logs_nothing(bench: Bench) -> None:
    """The reply is Redis's error for the fault that Redis reports first."""
    bench.log.take()
    before = bench("DUMP", "s")
    for text, refusal in REFUSALS:
        assert bench(*text.split(" ")) == refusal, text
    assert bench("DUMP", "s") == before
    assert not bench.log.commands


@pytest.mark.parametrize("compat", ["newest", "8.6"])
def test_the_errors_are_those_of_a_server(peer_of: Callable[[str], Judge], compat: str) -> None:
    """The newer servers reply the same errors."""
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"FLUSHALL"], *map(encoded, SETUP))
        for text, refusal in REFUSALS:
            assert read(redis.run(encoded(text))[0]) == refusal, text


@pytest.mark.parametrize("compat", ["7.0", "7.4", "8.0", "valkey"])
def test_delete_strategies_are_unknown_before_8_2(compat: str) -> None:
    """Before 8.2 neither the commands nor the options exist, so XADD reads a strategy as an ID."""
    local = Local(Engine(Settings(compat=compat)))
    local("XADD", "s", "1-1", "f", "v")
    assert local("XDELEX", "s", "IDS", 1, "1-1").startswith("ERR unknown command 'XDELEX'")
    assert local("XACKDEL", "s", "g", "IDS", 1, "1-1").startswith("ERR unknown command 'XACKDEL'")
    assert local("COMMAND", "DOCS", "xdelex") == []
    for strategy in ("KEEPREF", "DELREF", "ACKED"):
        assert local("XADD", "s", strategy, "2-1", "f", "v") == INVALID_ID
        assert local("XTRIM", "s", "MAXLEN", 0, strategy) == SYNTAX
        assert local("XTRIM", "s", strategy, "MAXLEN", 0) == SYNTAX


@pytest.mark.parametrize(("compat", "refused"), [("7.0", False), ("7.2", True), ("newest", True), ("valkey", True)])
def test_xsetid_rejects_an_id_below_the_greatest_deleted_one_since_7_2(compat: str, refused: bool) -> None:
    """This applies even if the stream is empty."""
    local = Local(Engine(Settings(compat=compat)))
    local("XADD", "s", "5-5", "f", "v")
    local("XDEL", "s", "5-5")
    refusal = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
    assert local("XSETID", "s", "5-4") == (refusal if refused else b"OK")
    assert local("XSETID", "s", "5-5") == b"OK"


# -- XDELEX


def test_xdelex_keeps_references_by_default(bench: Bench) -> None:
    """KEEPREF is the default and deletes only the entry."""
    assert bench("XDELEX", "s", "IDS", 2, "1-1", "9-9") == [1, -1]
    assert bench("XDELEX", "s", "IDS", 1, "4-1", "keepref") == [1]
    assert ids(bench) == [b"2-1", b"3-1"]
    assert pending(bench, "g") == [b"1-1", b"2-1", b"3-1"]
    assert pending(bench, "h") == [b"1-1", b"2-1"]


def test_xdelex_delref_removes_the_references_of_every_group(bench: Bench) -> None:
    """DELREF deletes the entry and removes it from the pending entries of all groups and consumers."""
    assert bench("XDELEX", "s", "DELREF", "IDS", 2, "2-1", "4-1") == [1, 1]
    assert ids(bench) == [b"1-1", b"3-1"]
    assert pending(bench, "g") == [b"1-1", b"3-1"]
    assert pending(bench, "h") == [b"1-1"]
    assert bench("XPENDING", "s", "g") == [2, b"1-1", b"3-1", [[b"c", b"2"]]]


def test_xdelex_acked_requires_the_acknowledgement_of_every_group(bench: Bench) -> None:
    """ACKED keeps an entry that is pending in a group or that a group has not read."""
    assert bench("XDELEX", "s", "ACKED", "IDS", 2, "1-1", "4-1") == [2, 2]
    bench("XACK", "s", "g", "1-1", "3-1")
    assert bench("XDELEX", "s", "ACKED", "IDS", 2, "1-1", "3-1") == [2, 2]  # 1-1 is pending in h; h has not read 3-1
    bench("XACK", "s", "h", "1-1")
    assert bench("XDELEX", "s", "ACKED", "IDS", 3, "1-1", "3-1", "0-9") == [1, 2, -1]
    bench("XGROUP", "DESTROY", "s", "h")
    assert bench("XDELEX", "s", "ACKED", "IDS", 3, "3-1", "2-1", "9-9") == [1, 2, 2]  # 9-9 is after the position of g
    bench("XGROUP", "DELCONSUMER", "s", "g", "c")
    assert bench("XDELEX", "s", "ACKED", "IDS", 1, "2-1") == [1]
    bench("XGROUP", "DESTROY", "s", "g")
    assert bench("XDELEX", "s", "ACKED", "IDS", 2, "4-1", "9-9") == [1, -1]


@pytest.mark.parametrize("strategy", ["KEEPREF", "DELREF", "ACKED"])
def test_a_repeated_id_is_deleted_once(bench: Bench, strategy: str) -> None:
    """The second occurrence is not found, and the number of changes is the number of deleted entries."""
    bench("XACK", "s", "h", "1-1", "2-1")
    dirty = bench.engine.dirty
    assert bench("XACKDEL", "s", "g", strategy, "IDS", 3, "1-1", "2-1", "1-1") == [1, 1, -1]
    assert bench.engine.dirty == dirty + 2
    bench("XACK", "s", "g", "3-1")
    bench("XGROUP", "SETID", "s", "h", "9-9")
    dirty = bench.engine.dirty
    assert bench("XDELEX", "s", strategy, "IDS", 3, "3-1", "3-1", "3-1") == [1, -1, -1]
    assert bench.engine.dirty == dirty + 1
    assert ids(bench) == [b"4-1"]


def test_deletions_raise_the_greatest_deleted_id_but_trims_do_not(bench: Bench) -> None:
    """All of them update the first ID."""
    assert bench("XDELEX", "s", "IDS", 2, "2-1", "1-1") == [1, 1]
    assert fact(bench, b"max-deleted-entry-id") == b"2-1"
    assert fact(bench, b"recorded-first-entry-id") == b"3-1"
    assert bench("XACKDEL", "s", "g", "IDS", 2, "2-1", "3-1") == [1, 1]  # 2-1 is pending, but deleted
    assert fact(bench, b"max-deleted-entry-id") == b"3-1"
    assert fact(bench, b"recorded-first-entry-id") == b"4-1"
    assert bench("XTRIM", "s", "MAXLEN", 0, "DELREF") == 1
    assert fact(bench, b"max-deleted-entry-id") == b"3-1"
    assert fact(bench, b"recorded-first-entry-id") == b"0-0"
    assert bench("XDELEX", "s", "IDS", 1, "3-1") == [-1]
    assert bench("EXISTS", "s") == 1


# -- XACKDEL


def test_xackdel_acknowledges_in_its_group_only(bench: Bench) -> None:
    """KEEPREF deletes an entry that another group has pending, DELREF also that reference; ACKED keeps both."""
    assert bench("XACKDEL", "s", "g", "IDS", 1, "1-1") == [1]
    assert pending(bench, "g") == [b"2-1", b"3-1"]
    assert pending(bench, "h") == [b"1-1", b"2-1"]
    assert bench("XACKDEL", "s", "g", "ACKED", "IDS", 2, "2-1", "3-1") == [2, 2]  # h has not read 3-1
    assert pending(bench, "g") == []
    assert ids(bench) == [b"2-1", b"3-1", b"4-1"]
    assert bench("XACKDEL", "s", "h", "DELREF", "IDS", 3, "1-1", "2-1", "4-1") == [1, 1, -1]
    assert pending(bench, "h") == []
    assert ids(bench) == [b"3-1", b"4-1"]


def test_xackdel_acked_deletes_with_the_last_acknowledgement(bench: Bench) -> None:
    """The entry is deleted when the last group that had it acknowledges it."""
    bench("XREADGROUP", "GROUP", "h", "d", "STREAMS", "s", ">")
    assert bench("XACKDEL", "s", "h", "ACKED", "IDS", 2, "1-1", "4-1") == [2, 2]
    assert bench("XACKDEL", "s", "g", "ACKED", "IDS", 1, "1-1") == [1]
    bench("XGROUP", "DESTROY", "s", "g")
    assert bench("XACKDEL", "s", "h", "ACKED", "IDS", 2, "2-1", "3-1") == [1, 1]


def test_without_the_key_or_group_no_id_is_found(bench: Bench) -> None:
    """Without the key or group even an invalid ID gives -1."""
    assert bench("XDELEX", "no", "IDS", 2, "x", "1-1") == [-1, -1]
    assert bench("XACKDEL", "no", "g", "IDS", 2, "x", "1-1") == [-1, -1]
    assert bench("XACKDEL", "s", "no", "IDS", 2, "x", "1-1") == [-1, -1]
    assert bench("XDELEX", "s", "IDS", 1, "x", "IDS", 1, "9-9") == [-1]  # the last list of IDs counts
    assert bench("XACKDEL", "s", "g", "IDS", 1, "1-1", "ACKED", "ids", 1, "9-9") == [-1]
    assert pending(bench, "g") == [b"1-1", b"2-1", b"3-1"]
    assert not bench("EXISTS", "no")


@pytest.mark.parametrize("name", ["XACKDEL", "XDELEX"])
def test_thousands_of_ids_in_one_call_are_deleted(name: str) -> None:
    """Each ID is an entry that is pending in two groups."""
    bench = Bench(compat="newest")
    count = by_speed(3000, 1500, 6000)
    for number in range(1, count + 1):
        bench.run([b"XADD", b"s", b"%d-1" % number, b"f", b"v"])
    for group in ("g", "h"):
        bench("XGROUP", "CREATE", "s", group, "0")
        bench("XREADGROUP", "GROUP", group, "c", "COUNT", count - 1, "STREAMS", "s", ">")
    named = [b"%d-1" % number for number in range(1, count + 1)]
    words = [b"s", b"g"] if name == "XACKDEL" else [b"s"]
    reply = read(bench.run([name.encode(), *words, b"DELREF", b"IDS", b"%d" % count, *named]))
    assert reply == [1] * (count - 1) + [-1 if name == "XACKDEL" else 1]
    assert bench("XLEN", "s") == (1 if name == "XACKDEL" else 0)
    assert pending(bench, "g") == pending(bench, "h") == []


# -- trims


def test_xadd_trims_with_the_given_strategy(bench: Bench) -> None:
    """The strategy may precede or follow the trim, has no effect without one, and applies to the new entry too."""
    assert bench("XADD", "s", "ACKED", "MAXLEN", "=", 1, "5-1", "f", "v") == b"5-1"
    assert len(ids(bench)) == 5
    bench("XACK", "s", "g", "1-1", "2-1", "3-1")
    bench("XACK", "s", "h", "1-1")
    assert bench("XADD", "s", "MAXLEN", "~", 1, "ACKED", "6-1", "f", "v") == b"6-1"
    assert ids(bench) == [b"2-1", b"3-1", b"4-1", b"5-1", b"6-1"]
    assert bench("XADD", "s", "DELREF", "7-1", "f", "v") == b"7-1"
    assert len(ids(bench)) == 6
    assert bench("XADD", "s", "NOMKSTREAM", "minid", "3", "delref", "8-1", "f", "v") == b"8-1"
    assert ids(bench)[0] == b"3-1"
    assert pending(bench, "h") == []
    assert bench("XADD", "new", "ACKED", "MAXLEN", 0, "*", "f", "v") is not None
    assert bench("XLEN", "new") == 0


def test_an_approximate_trim_with_acked_removes_single_entries() -> None:
    """With ACKED, `~` enters nodes that it cannot remove as a whole, like `=`."""
    for about in ("~", "="):
        bench = Bench(compat="newest")
        for number in range(1, 251):
            bench("XADD", "s", f"{number}-1", "f", "v")
        bench("XGROUP", "CREATE", "s", "g", "0")
        bench("XREADGROUP", "GROUP", "g", "c", "COUNT", 250, "STREAMS", "s", ">")
        bench("XACK", "s", "g", *(f"{number}-1" for number in range(1, 251) if number % 10))
        assert bench("XTRIM", "s", "MAXLEN", about, 100, "KEEPREF") == (100 if about == "~" else 150)
        assert bench("XTRIM", "s", "MAXLEN", about, 50, "ACKED") == (100 if about == "~" else 50)
        assert bench("XLEN", "s") == 50


# -- keyspace events


def test_deletions_notify_and_touch_watched_keys(bench: Bench) -> None:
    """Acknowledgements alone do neither."""
    events: list[bytes] = []
    bench.engine.notify_events = True
    bench.engine.on_keyspace_event = lambda _db, _kind, event, _key: events.append(event)
    other = bench.beside()
    for text, touched in [
        ("XDELEX s ACKED IDS 1 1-1", False), ("XACKDEL s g ACKED IDS 1 1-1", False),
        ("XDELEX s DELREF IDS 1 9-9", False), ("XACKDEL s g IDS 2 2-1 3-1", True), ("XDELEX s IDS 2 1-1 9-9", True),
        ("XACKDEL s h IDS 1 1-1", False), ("XTRIM s MAXLEN 0 DELREF", True),
    ]:  # fmt: skip
        events.clear()
        bench("WATCH", "s")
        other(*text.split())
        bench("MULTI")
        assert (bench("EXEC") is None) == touched, text
        assert events == ([b"xtrim" if text.startswith("XTRIM") else b"xdel"] if touched else []), text


# -- the log


def test_commands_that_change_something_are_logged_unchanged(bench: Bench) -> None:
    """rillet also logs DELREF if it removed only references; Redis does not."""
    for text, logged in [
        ("XDELEX s ACKED IDS 1 1-1", False), ("XDELEX s IDS 2 1-1 9-9", True), ("XDELEX s IDS 1 1-1", False),
        ("XDELEX s DELREF IDS 1 1-1", True), ("XDELEX s DELREF IDS 1 1-1", False),
        ("XACKDEL s g ACKED IDS 2 2-1 9-9", True), ("XACKDEL s g ACKED IDS 1 2-1", False),
        ("XDEL s 2-1", True), ("XDEL s 2-1", False),
    ]:  # fmt: skip
        assert bench.logged(*text.split()) == ([encoded(text)] if logged else []), text


def test_approximate_trims_are_logged_as_exact_ones(bench: Bench) -> None:
    """If LIMIT ended a trim, the log has the ID of the first remaining node; exact trims are logged unchanged."""
    bench.engine.settings.stream_node_max_entries = 2
    bench.engine.take_settings()
    bench("DEL", "s")
    for number in range(1, 7):
        bench("XADD", "s", f"{number}-1", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", "$")
    for text, logged in [
        ("XTRIM s MAXLEN ~ 9 ACKED", ""), ("XTRIM s ACKED MAXLEN ~ 5 LIMIT 9", "XTRIM s ACKED MAXLEN = 5 LIMIT 9"),
        ("XTRIM s MAXLEN ~ 0 LIMIT 1 DELREF", "XTRIM s MINID = 3-1 LIMIT 1 DELREF"),
        ("XTRIM s minid ~ 6 LIMIT 2 acked", "XTRIM s MINID = 5-1 LIMIT 2 acked"),
        ("XADD s DELREF MAXLEN ~ 2 9-* f v", "XADD s DELREF MAXLEN = 2 9-0 f v"),
        ("XADD s ACKED MAXLEN ~ 0 LIMIT 1 10-1 f v", "XADD s ACKED MINID = 9-0 LIMIT 1 10-1 f v"),
        ("XTRIM s MINID = 10 KEEPREF", "XTRIM s MINID = 10 KEEPREF"),
        ("XTRIM s MAXLEN ~ 0 KEEPREF", "XTRIM s MAXLEN = 0 KEEPREF"),
    ]:  # fmt: skip
        assert bench.logged(*text.split()) == ([encoded(logged)] if logged else []), text


# -- random commands


class RandomCommands:
    """Random additions, trims, deliveries, acknowledgements and deletions on the stream s."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.last = 0

    def ident(self) -> bytes:
        low = max(1, self.last - 25) if self.random.random() < 0.8 else 1
        return b"%d-%d" % (self.random.randint(low, self.last + 1), self.random.choice([1, 1, 1, 2]))

    def some(self, most: int) -> list[bytes]:
        return [self.ident() for _ in range(self.random.randint(1, most))]

    def strategy(self) -> list[bytes]:
        return [self.random.choice([b"KEEPREF", b"DELREF", b"ACKED"])] if self.random.random() < 0.8 else []

    def named(self) -> list[bytes]:
        found = self.some(5)
        words = [b"IDS", b"%d" % len(found), *found]
        return [*self.strategy(), *words] if self.random.random() < 0.7 else [*words, *self.strategy()]

    def trim(self) -> list[bytes]:
        by_length = self.random.random() < 0.5
        words = [b"MAXLEN" if by_length else b"MINID", *self.random.choice([[b"~"], [b"~"], [b"="], []])]
        words.append(b"%d" % self.random.randint(0, 30) if by_length else self.ident())
        if b"~" in words and self.random.random() < 0.4:
            words += [b"LIMIT", b"%d" % self.random.randint(0, 20)]
        return [*words, *self.strategy()] if self.random.random() < 0.5 else [*self.strategy(), *words]

    def next(self) -> list[bytes]:
        """Return the next command."""
        group = self.random.choice([b"g", b"h", b"i"])
        kind = self.random.random()
        if kind < 0.3:
            self.last += 1
            trim = self.trim() if self.random.random() < 0.2 else []
            return [b"XADD", b"s", *trim, b"%d-1" % self.last, b"f", b"v"]
        for most, argv in (
            (0.4, [b"XTRIM", b"s", *self.trim()]),
            (0.6, [b"XREADGROUP", b"GROUP", group, b"c", b"COUNT", b"4", b"STREAMS", b"s", b">"]),
            (0.7, [b"XACK", b"s", group, *self.some(6)]),
            (0.73, [b"XDEL", b"s", *self.some(3)]),
            (0.82, [b"XDELEX", b"s", *self.named()]),
            (0.94, [b"XACKDEL", b"s", group, *self.named()]),
            (0.97, [b"XGROUP", b"CREATE", b"s", group, self.random.choice([b"0", b"$", self.ident()])]),
            (0.98, [b"XGROUP", b"DESTROY", b"s", group]),
            (0.99, [b"XGROUP", b"SETID", b"s", group, self.ident()]),
        ):
            if kind < most:
                return argv
        return [b"XCLAIM", b"s", group, b"d", b"0", *self.some(2), b"FORCE"]


# Entries per node: few, so that commands often reach the edges of nodes.
NODE_SIZES = [100, 5, 3, 1]
STATE = ["XRANGE s - +", "XPENDING s g", "XPENDING s h", "XPENDING s i"]
COUNTERS = (b"radix-tree-keys", b"last-generated-id", b"max-deleted-entry-id", b"recorded-first-entry-id")


@pytest.mark.parametrize("compat", ["newest", "8.6"])
@pytest.mark.parametrize("seed", range(8))
def test_random_commands_match_a_server(peer_of: Callable[[str], Judge], compat: str, seed: int) -> None:
    """The same commands give the same replies, entries, pending entries and counters as on a newer server."""
    commands = RandomCommands(seed)
    local = Local(Engine(Settings(compat=compat, stream_node_max_entries=NODE_SIZES[seed % 4])))
    with Redis(peer_of(compat).port) as redis:
        limit = b"%d" % NODE_SIZES[seed % 4]
        redis.run([b"FLUSHALL"], [b"CONFIG", b"SET", b"stream-node-max-entries", limit])
        for _ in range(500):
            argv = commands.next()
            their = redis.run(argv)[0]
            assert local.run(argv) == their or their.startswith(b"-NOGROUP"), argv
            for state in map(encoded, STATE):
                assert local.run(state) == redis.run(state)[0], argv
            ours, theirs = local("XINFO", "STREAM", "s"), read(redis.run([b"XINFO", b"STREAM", b"s"])[0])
            for counter in COUNTERS if isinstance(theirs, list) else ():
                assert ours[ours.index(counter) + 1] == theirs[theirs.index(counter) + 1], (argv, counter)


@pytest.mark.parametrize("seed", range(100, 108))
def test_replaying_the_log_gives_the_same_nodes_and_pending_entries(seed: int) -> None:
    """The nodes are equal including tombstones.

    The log does not contain a group's read counter; a replica computes it from the ID.

    """
    commands = RandomCommands(seed)
    benches = [Bench(compat="newest", stream_node_max_entries=NODE_SIZES[seed % 4]) for _ in range(2)]
    master, replica = benches
    replica.session = replica.engine.session(trusted=True)
    for _ in range(by_speed(300, 100, 500)):
        argv = commands.next()
        master.run(argv)
        for logged in master.log.take():
            assert not replica.run(logged).startswith(b"-"), logged
        for state in map(encoded, ["XINFO STREAM s", *STATE]):
            assert master.run(state) == replica.run(state), (argv, state)
        ours, theirs = (nodes(bench) for bench in benches)
        assert ours == theirs, argv
    assert fact(master, b"length")
    assert fact(master, b"max-deleted-entry-id") != b"0-0"


def nodes(local: Local) -> list[tuple[bytes, bytes]]:
    """Return the keys and bytes of the stream's nodes."""
    stream = local.session.db.lookup(b"s")
    return [] if stream is None else [(key, bytes(lp.buf[: lp.used])) for key, lp in stream.rax.items()]  # type: ignore[attr-defined]
