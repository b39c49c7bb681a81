"""Patterns of any length, in every command that takes one: the cost depends on the names that are compared."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

import rillet
from tests.commands.ends import Bench

pytestmark = pytest.mark.both


def lines(bench: Bench, *words: bytes | str | int) -> int:
    """Return the lines of Python that a command executes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        bench(*words)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.slow
@pytest.mark.skipif(rillet.compiled(), reason="compiled functions execute no lines of Python")
@pytest.mark.parametrize("prefix", [b"", b"*", b"x*"])
def test_a_pattern_of_60_000_bytes_costs_no_more_than_one_of_600(prefix: bytes) -> None:
    used: dict[int, list[int]] = {}
    for classes in (100, 10_000):
        bench = Bench()
        pattern = prefix + b"[^b-z]" * classes
        for name in ("x", "aaaa", "x" + "a" * 50):
            bench("SET", name, 1)
            bench("HSET", "h", name, 1)
            bench("SADD", "s", name)
            bench("ZADD", "z", 1, name)
        bench("KEYS", "warm")
        commands: tuple[tuple[bytes | str | int, ...], ...] = (
            ("KEYS", pattern),
            ("SCAN", 0, "MATCH", pattern, "COUNT", 100),
            ("HSCAN", "h", 0, "MATCH", pattern, "COUNT", 100),
            ("SSCAN", "s", 0, "MATCH", pattern, "COUNT", 100),
            ("ZSCAN", "z", 0, "MATCH", pattern, "COUNT", 100),
            ("CONFIG", "GET", pattern),
            ("COMMAND", "LIST", "FILTERBY", "PATTERN", pattern),
            ("SORT", "s", "BY", pattern, "GET", pattern, "ALPHA"),
            ("ACL", "SETUSER", "u", "on", "+@all", b"~" + pattern, b"&" + pattern),
            ("ACL", "DRYRUN", "u", "GET", "aaaa"),
            ("ACL", "DRYRUN", "u", "PUBLISH", "aaaa", 1),
            ("PSUBSCRIBE", pattern),
            ("PUBLISH", "aaaa", 1),
            ("PUBSUB", "CHANNELS", pattern),
        )
        used[classes] = [lines(bench, *words) for words in commands]
    short, long = used.values()
    # Each class that a matcher looks at costs a line, and there are 9,900 more of them. The order of a hash table may
    # differ, and with it the steps of a lookup.
    assert [later - first > 2000 for first, later in zip(short, long, strict=True)] == [False] * len(short), used
