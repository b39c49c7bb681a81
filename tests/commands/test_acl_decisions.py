"""What a user's session pays for a permitted call, and that cached decisions say what the rules say."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.commands.server.info import all_commands, find_subcommand
from rillet.modules import Module
from rillet.modules.manager import modules_of
from rillet.runtime.registry import TABLE, Command
from rillet.structs.argument_spans import ArgumentSpans
from tests.commands.ends import Bench
from tests.differential.acls import Generator
from tests.differential.wire import Local, pack

pytestmark = pytest.mark.both


def spans(*argv: bytes) -> ArgumentSpans:
    """Return the words of a call; `argv` must stay alive."""
    words = ArgumentSpans()
    words.point_to(list(argv), 0, len(argv))
    return words


class User(Local):
    """A session of the user `u`."""

    def __init__(self, bench: Bench, *rules: str | bytes) -> None:
        super().__init__(bench.engine)
        assert bench("ACL", "SETUSER", "u", "reset", "on", "nopass", *rules) == b"OK"
        assert self("AUTH", "u", "") == b"OK"

    def is_sure(self, entry: Command, *argv: bytes) -> bool:
        """Return whether a cached decision permits the call."""
        return bool(self.session.account.surely_permits(entry, spans(*argv)))

    def denial(self, entry: Command, argv: list[bytes]) -> tuple[int, int]:
        """Return why the call is denied, which must not depend on the cache."""
        acl, words = self.engine.acl, spans(*argv)
        by_rules: tuple[int, int] = self.session.account.denial(entry, words, self.session.db.index)
        for form in (words, argv, words):
            assert acl.denial(self.session, entry, form) == by_rules, argv
        return by_rules


def entries_of(bench: Bench) -> list[dict[bytes, Any]]:
    """Return ACL LOG as dicts."""
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in bench("ACL", "LOG")]


# -- the cached decision is that of the rules --------------------------------------------------------


@given(seed=st.integers(0, 2**32), compat=st.sampled_from(("7.0", "8.6", "newest", "valkey")))
def test_decisions_are_those_of_the_rules_after_every_change(seed: int, compat: str) -> None:
    generator, bench = Generator(seed, compat), Bench(compat=compat)
    user = User(bench, "+@all", "~a*", "&*")
    calls = [generator.call() for _ in range(40)]
    entries = [find_subcommand(bench.engine, line) for line in calls]
    for _ in range(8):
        for _ in range(generator.random.randrange(1, 4)):
            rule = generator.of_selector()
            bench("ACL", "SETUSER", "u", b"(" + rule + b" ~a* ~foo:* +@all)" if generator.chance(0.2) else rule)
        if generator.chance(0.1):
            bench("ACL", "SETUSER", "u", "clearselectors", "resetkeys", "%W~*", "%R~a", "+@all")
        for entry, line in zip(entries, calls, strict=True):
            assert entry is not None
            user.denial(entry, line)


@pytest.mark.parametrize("compat", ["7.0", "newest", "valkey"])
def test_the_decision_about_each_command_names_its_keys(compat: str) -> None:
    bench = Bench(compat=compat)
    user = User(bench, "+@all", "~user:*", "&*")
    decided = 0
    for entry in all_commands(bench.engine):
        for one in (entry, *(entry.subcommands or {}).values()):
            if not one.known_to(bench.engine.settings.compat) or one.subcommands is not None:
                continue
            name = one.fullname.encode().split(b"|")
            argv = name + [b"user:1"] * (abs(one.arity) + 3 - len(name))
            if one.get_keys is None:
                assert user.is_sure(one, *argv), one.fullname
                assert user.denial(one, argv) == (0, 0)
            for at in one.key_positions(argv):
                assert user.is_sure(one, *argv), one.fullname
                other = [*argv[:at], b"other", *argv[at + 1 :]]
                assert not user.is_sure(one, *other), one.fullname
                assert user.denial(one, other) != (0, 0)
                decided += 1
    assert decided > 250


def test_keys_that_follow_a_word_or_a_number() -> None:
    bench = Bench(compat="newest")
    user = User(bench, "+@all", "~user:*")
    for line, permitted in (
        (b"XREAD COUNT 1 STREAMS user:1 user:2 0 0", True),
        (b"XREAD COUNT 1 streams user:1 b 0 0", False),
        (b"XREAD STREAMS user:1 b 0", True),  # the first half of an odd number of words
        (b"XREADGROUP GROUP g c STREAMS user:1 >", True),
        (b"XREADGROUP GROUP streams user:1 STREAMS b >", False),
        (b"EVAL x 2 user:1 user:2 b", True),
        (b"EVAL x 2 user:1 b", False),
        (b"ZUNIONSTORE user:1 1 user:2", True),
        (b"ZUNIONSTORE b 1 user:2", False),
        (b"SORT user:1 BY nosort STORE b", False),
    ):
        argv = line.split(b" ")
        entry = TABLE[argv[0].lower()]
        assert user.is_sure(entry, *argv) is permitted, line
        assert (user.denial(entry, argv) == (0, 0)) is permitted


def test_a_module_may_declare_any_positions() -> None:
    module = Module("acltest", version=1)
    for name, keys in (("acltest.back", (1, -1, -1)), ("acltest.far", (1, 9, 3)), ("acltest.last", (2, -3, 1))):

        @module.command(name, arity=-3, flags="readonly", keys=keys)
        def read(context: Any, argv: list[bytes]) -> Any:
            """Return the words."""
            return argv

    bench = Bench(compat="newest")
    user = User(bench, "+@all", "~user:*")
    modules_of(bench.engine).load(module, "acltest", [])
    for words in ([b"b", b"c"], [b"user:1", b"b", b"c"], [b"user:1", b"b", b"c", b"user:2", b"d"], [b"user:1"] * 9):
        for entry in modules_of(bench.engine).commands.values():
            argv = [entry.name.encode(), *words]
            permitted = all(argv[at].startswith(b"user:") for at in entry.key_positions(argv))
            assert user.is_sure(entry, *argv) is permitted is (user.denial(entry, argv) == (0, 0)), argv


def test_accesses_that_depend_on_options() -> None:
    bench = Bench(compat="newest")
    user = User(bench, "+@all", "%W~w:*", "%R~r:*", "~both:*")
    for line, sure, permitted in (
        (b"SET w:1 v", True, True),
        (b"SET w:1 v GET", False, False),
        (b"SET w:1 v EX 10", False, True),  # the rules decide: GET may be among the options
        (b"SET both:1 v EX 10 GET", True, True),
        (b"SET r:1 v", False, False),
        (b"BITFIELD r:1", True, True),
        (b"BITFIELD r:1 GET u8 0", False, True),
        (b"BITFIELD both:1 SET u8 0 1", True, True),
        (b"RENAME both:1 w:1", True, True),
        (b"RENAME w:1 both:1", False, False),
        (b"COPY r:1 w:1", True, True),
        (b"EXISTS w:1 r:1 both:1", True, True),
    ):
        argv = line.split(b" ")
        entry = TABLE[argv[0].lower()]
        assert user.is_sure(entry, *argv) is sure, line
        assert (user.denial(entry, argv) == (0, 0)) is permitted, line


def test_one_selector_must_permit_the_command_and_all_keys() -> None:
    bench = Bench(compat="newest")
    user = User(bench, "+get", "~a:*", "(+mget ~b:*)", "(+mget ~c:* +set)")
    get, mget = TABLE[b"get"], TABLE[b"mget"]
    assert user.is_sure(mget, b"MGET", b"b:1", b"b:2")
    assert user.is_sure(mget, b"MGET", b"c:1")
    assert not user.is_sure(mget, b"MGET", b"b:1", b"c:1")
    assert not user.is_sure(mget, b"MGET", b"a:1")
    assert not user.is_sure(get, b"GET", b"b:1")
    assert user.denial(mget, [b"MGET", b"b:1", b"c:1"]) != (0, 0)


def test_a_change_of_anything_drops_the_decisions() -> None:
    module = Module("acltest", version=1)

    @module.command("acltest.read", arity=2, flags="readonly", keys=(1, 1, 1), access="RO access", categories="read")
    def read(context: Any, argv: list[bytes]) -> Any:
        """Return the word."""
        return argv[1]

    bench = Bench(compat="newest")
    user, get = User(bench, "+get", "~a"), TABLE[b"get"]
    argv = [b"GET", b"a"]

    def permits() -> bool:
        return user.denial(get, argv) == (0, 0) and user.is_sure(get, *argv)

    assert permits()
    for rule, permitted in (("-get", False), ("+get", True), ("resetkeys", False), ("%W~a", False), ("%R~a", True),
                            ("reset", False), ("(+get ~a)", True), ("clearselectors", False)):  # fmt: skip
        bench("ACL", "SETUSER", "u", rule)
        assert permits() is permitted, rule
    bench.engine.acl.load(b"user default on nopass ~* &* +@all\nuser u on nopass ~a +@read\n", "users.acl")
    assert permits()
    modules_of(bench.engine).load(module, "acltest", [])
    assert user("acltest.read", "a") == b"a"
    assert user("acltest.read", "b").startswith("NOPERM")
    modules_of(bench.engine).unload("acltest")
    assert permits()
    bench("ACL", "SETUSER", "u", "-@all", "+@array", "+get")
    arget = TABLE[b"arget"]
    assert user.is_sure(arget, b"ARGET", b"a", b"0")
    bench.engine.settings.set_text("compat", "8.6")  # whose servers have no arrays
    bench.engine.take_settings()
    assert not user.is_sure(arget, b"ARGET", b"a", b"0")
    assert permits()


# -- costs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"SET user:1 v", b"GET user:1", b"HSET user:1 f v", b"XADD user:1 * f v",
                                  b"XREADGROUP GROUP g c STREAMS user:1 >", b"PING"])  # fmt: skip
def test_a_permitted_call_runs_few_functions(line: bytes) -> None:
    bench = Bench(compat="newest")
    user, argv = User(bench, "+@all", "~user:*"), line.split(b" ")
    entry, words, acl = TABLE[argv[0].lower()], spans(*argv), bench.engine.acl
    called: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    acl.check(user.session, entry, words)
    sys.setprofile(note)
    try:
        acl.check(user.session, entry, words)
    finally:
        sys.setprofile(None)
    searched = 2 * called.count("is_option")  # XREADGROUP looks for STREAMS
    assert len(called) <= 14 + searched, called
    assert not {"denial", "keys_of", "to_list", "_decide", "call_flags"}.intersection(called)


@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_a_pipeline_stops_at_the_call_that_is_denied(compat: str) -> None:
    bench = Bench(compat=compat)
    door = Local(bench.engine, door=True)
    bench("ACL", "SETUSER", "u", "on", "nopass", "~user:*", "+@all")
    assert door("AUTH", "u", "") == b"OK"
    keys = [b"user:1", b"user:2", b"b", b"user:3", b"b", b"user:4"]
    lines = [[b"SET", key, b"v"] for key in keys]

    def denied(before: list[bytes], after: list[bytes]) -> list[bool]:
        assert door.parser is not None
        door.parser.feed(b"".join(map(pack, [*([before] if before else []), *lines, *([after] if after else [])])))
        bench.engine.drain(door.session, door.parser, 1 << 30)
        return [line.startswith(b"-NOPERM") for line in door.session.out.take_bytes().split(b"\r\n")[: len(keys) + 1]]

    assert denied([], [])[: len(keys)] == [key == b"b" for key in keys]
    assert bench("DBSIZE") == 4
    assert [one[b"object"] for one in entries_of(bench)] == [b"b"]
    assert denied([b"MULTI"], [b"EXEC"])[1:] == [key == b"b" for key in keys]  # EXEC is refused
    door("MULTI")
    for line in (lines[0], lines[1], lines[3]):
        assert door(*line) == b"QUEUED"
    bench("ACL", "SETUSER", "u", "resetkeys", "~user:2")  # a part of the queue is not permitted any more
    replies = door("EXEC")
    assert [str(reply).startswith("NOPERM") for reply in replies] == [True, False, True]


def test_a_permitted_call_creates_no_object_for_its_other_words() -> None:
    bench = Bench(compat="newest")
    user = User(bench, "+@all", "~user:*")
    argv = [b"XADD", b"user:1", b"*", *(b"%0100d" % number for number in range(200))]
    entry, words, acl = TABLE[b"xadd"], spans(*argv), bench.engine.acl
    tracemalloc.start()
    try:
        acl.check(user.session, entry, words)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        acl.check(user.session, entry, words)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - before < 2000  # a list of the words would take 25,000
