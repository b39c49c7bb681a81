"""What a command costs in each situation, in calls of functions: no situation has a way of its own.

Time depends on the machine, calls do not (SQLAlchemy guards its speed in the same way). The counts are those of the
interpreted build; the compiled one runs the same functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rillet
from rillet.keyspace.clock import Clock
from rillet.protocol.command_parser import CommandParser, pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session

pytestmark = [
    pytest.mark.both,  # only the interpreted build can be counted
    pytest.mark.skipif(rillet.compiled(), reason="compiled functions are not profiled"),
]

SOURCE = str(Path(rillet.__file__).parent)
CALLS = 100
COMMANDS: dict[str, list[bytes]] = {
    "XADD": [b"XADD", b"key:s", b"*", b"field", b"value"],
    "HSET": [b"HSET", b"key:h", b"field", b"value"],
    "SET": [b"SET", b"key:k", b"value"],
    "ZADD": [b"ZADD", b"key:z", b"1", b"member"],
    "GET": [b"GET", b"key:k"],
    "HGET": [b"HGET", b"key:h", b"field"],
    "SADD": [b"SADD", b"key:e", b"member"],
    "INCR": [b"INCR", b"key:n"],
}


class Bench:
    """An engine with one client, and the calls of functions of the package while it runs a pipeline."""

    def __init__(self) -> None:
        self.engine = Engine(clock=Clock())
        self.session = self.engine.session()
        self.files: set[str] = set()
        self.counted = 0

    def _see(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self.counted += 1
            self.files.add(frame.f_code.co_filename)

    def send(self, session: Session, *commands: list[bytes]) -> bytes:
        """Run commands as one pipeline; return the replies."""
        parser = CommandParser()
        parser.feed(b"".join(map(pack_command, commands)))
        self.engine.drain(session, parser, 1 << 40)
        return session.out.take_bytes()

    def calls(self, *commands: list[bytes]) -> int:
        """Return the calls of functions while a pipeline runs."""
        self.send(self.session, *commands)  # caches are filled
        self.counted, self.files = 0, set()
        sys.setprofile(self._see)
        try:
            replies = self.send(self.session, *commands)
        finally:
            sys.setprofile(None)
        assert b"-" not in replies[:1], replies
        return self.counted


def _track(bench: Bench, *options: bytes) -> None:
    other = bench.engine.session()
    bench.send(other, [b"HELLO", b"3"], [b"CLIENT", b"TRACKING", b"ON", b"BCAST", *options])


def _limit(bench: Bench) -> None:
    bench.send(bench.session, [b"ACL", b"SETUSER", b"u", b"on", b"nopass", b"~key:*", b"+@all"], [b"AUTH", b"u", b"x"])


SITUATIONS: dict[str, Callable[[Bench], Any]] = {
    "another client tracks another prefix": lambda bench: _track(bench, b"PREFIX", b"other:"),
    "another client watches another key": lambda bench: bench.send(bench.engine.session(), [b"WATCH", b"other"]),
    "the user may use some keys only": _limit,
    "RESP3": lambda bench: bench.send(bench.session, [b"HELLO", b"3"]),
}
SHOWN: dict[str, tuple[Callable[[Bench], Any], int]] = {
    "another client has sent MONITOR": (lambda bench: bench.send(bench.engine.session(), [b"MONITOR"]), 28),
    "the slow log has every command": (
        lambda bench: bench.send(bench.session, [b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0"]), 26
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_costs_what_it_does_and_not_another_way(name: str, situation: str) -> None:
    """A pipeline in the situation makes at most 1.3 times the calls of a plain pipeline, and one more per call."""
    pipeline = [COMMANDS[name]] * CALLS
    plain = Bench().calls(*pipeline)
    bench = Bench()
    SITUATIONS[situation](bench)
    assert bench.calls(*pipeline) <= 1.3 * plain + 8 * CALLS


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("situation", SHOWN)
def test_showing_a_command_adds_the_copy_of_its_words(name: str, situation: str) -> None:
    """A pipeline, or a transaction, makes some calls more for each of its commands, and few for each word."""
    pipeline = [COMMANDS[name]] * CALLS
    prepare, most = SHOWN[situation]
    for commands in (pipeline, [[b"MULTI"], *pipeline, [b"EXEC"]]):
        bench = Bench()
        prepare(bench)
        assert bench.calls(*commands) <= Bench().calls(*commands) + (most + 3 * len(COMMANDS[name])) * CALLS


@pytest.mark.parametrize("name", COMMANDS)
def test_maxmemory_is_not_compared_for_each_queued_command(name: str) -> None:
    pipeline = [COMMANDS[name]] * CALLS
    for commands, each in ((pipeline, 20), ([[b"MULTI"], *pipeline, [b"EXEC"]], 10)):
        bench = Bench()
        bench.send(bench.session, [b"CONFIG", b"SET", b"maxmemory", b"1gb"])
        assert bench.calls(*commands) <= Bench().calls(*commands) + each * CALLS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_transaction_adds_the_queue(name: str) -> None:
    """MULTI and EXEC add the admission and the copy of each command, and nothing to its execution."""
    pipeline = [COMMANDS[name]] * CALLS
    plain = Bench().calls(*pipeline)
    queued = Bench().calls([b"MULTI"], *pipeline, [b"EXEC"])
    assert queued <= plain + 52 * CALLS


def test_options_of_xadd_take_the_same_way() -> None:
    """An XADD with MINID runs in the same files as a plain one, at most 30."""
    plain, options = Bench(), Bench()
    plain.calls([b"XADD", b"s", b"*", b"field", b"value"])
    options.calls([b"XADD", b"s", b"MINID", b"~", b"5", b"*", b"field", b"value"])
    assert len(options.files) <= 30, sorted(options.files)
    assert {Path(one).name for one in options.files - plain.files} <= {"arguments.py", "id.py", "errors.py"}
