"""The replies of XINFO, the error texts and the behaviour of each version that `compat` can name."""

from __future__ import annotations

from typing import Any

import pytest

from rillet.types.compat import COMPATS
from tests.commands.ends import NOW, Bench

STREAM = [
    b"length", b"radix-tree-keys", b"radix-tree-nodes", b"last-generated-id", b"max-deleted-entry-id",
    b"entries-added", b"recorded-first-entry-id",
]  # fmt: skip
PRODUCERS = [
    b"idmp-duration", b"idmp-maxsize", b"pids-tracked", b"iids-tracked", b"iids-added", b"iids-duplicates",
]  # fmt: skip
LEVELS = {name: compat.level for name, compat in COMPATS.items()}


def filled(compat: str) -> Bench:
    """Return an engine with a stream of three entries, of which a consumer has read two."""
    bench = Bench(compat=compat)
    for number in (1, 2, 3):
        bench("XADD", "s", f"{number}-0", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", 0)
    bench("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">")
    bench.clock.advance(1000)
    return bench


def names(flat: list[Any]) -> list[bytes]:
    """Return the names of a flat list of names and values."""
    return flat[::2]


@pytest.mark.parametrize("compat", COMPATS)
def test_xinfo_has_the_fields_of_its_version(compat: str) -> None:
    bench, level = filled(compat), LEVELS[compat]
    producers = PRODUCERS if level >= 86 else []
    assert names(bench("XINFO", "STREAM", "s")) == [*STREAM, *producers, b"groups", b"first-entry", b"last-entry"]
    full = bench("XINFO", "STREAM", "s", "FULL")
    assert names(full) == [*STREAM, *producers, b"entries", b"groups"]
    (group,) = full[-1]
    released = [b"nacked-count"] if level >= 88 else []
    assert names(group) == [
        b"name", b"last-delivered-id", b"entries-read", b"lag", b"pel-count", *released, b"pending", b"consumers",
    ]  # fmt: skip
    active = [b"active-time"] if level >= 72 else []
    assert names(group[-1][0]) == [b"name", b"seen-time", *active, b"pel-count", b"pending"]
    inactive = [b"inactive"] if level >= 72 else []
    assert names(bench("XINFO", "CONSUMERS", "s", "g")[0]) == [b"name", b"pending", b"idle", *inactive]
    groups = [b"name", b"consumers", b"pending", b"last-delivered-id", b"entries-read", b"lag"]
    assert names(bench("XINFO", "GROUPS", "s")[0]) == groups


@pytest.mark.parametrize("compat", COMPATS)
def test_a_timeout_that_overflows_is_rejected_since_7_2(compat: str) -> None:
    """Redis 7.0 adds it to the time, which overflows (timeout.c: getTimeoutFromObjectOrReply)."""
    bench, latest = filled(compat), 2**63 - 1 - NOW
    bench.clock.us = NOW * 1000
    for read in ("XREAD", "XREADGROUP GROUP g c"):
        given = bench(*read.split(), "BLOCK", latest, "STREAMS", "s", 0)
        assert isinstance(given, list)
        beyond = bench(*read.split(), "BLOCK", latest + 1, "STREAMS", "s", 0)
        assert beyond == (given if compat == "7.0" else "ERR timeout is out of range")


def test_only_the_newest_version_omits_leaves_from_the_number_of_tree_nodes() -> None:
    for compat, level in LEVELS.items():
        assert filled(compat)("XINFO", "STREAM", "s")[5] == (1 if level >= 810 else 2)


def test_a_read_without_entries_does_not_change_the_active_time() -> None:
    bench = filled("newest")
    bench("XREADGROUP", "GROUP", "g", "d", "COUNT", 1, "STREAMS", "s", ">")
    bench.clock.advance(500)
    assert bench("XREADGROUP", "GROUP", "g", "d", "STREAMS", "s", ">") is None
    bench("XREADGROUP", "GROUP", "g", "never", "STREAMS", "s", ">")
    bench.clock.advance(7)
    rows = {row[1]: row[5:8:2] for row in bench("XINFO", "CONSUMERS", "s", "g")}
    assert rows == {b"c": [1507, 1507], b"d": [7, 507], b"never": [7, -1]}
    group = bench("XINFO", "STREAM", "s", "FULL")[-1][0]
    assert [row[3:6:2] for row in group[-1]] == [[NOW, NOW], [NOW + 1500, NOW + 1000], [NOW + 1500, -1]]


@pytest.mark.parametrize("compat", COMPATS)
def test_a_command_without_entries_creates_the_consumer_since_7_2(compat: str) -> None:
    bench = filled(compat)
    bench("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    made = LEVELS[compat] >= 72
    for number, words in enumerate([
        ("XREADGROUP", "GROUP", "g", "read", "STREAMS", "s", ">"),
        ("XCLAIM", "s", "g", "claim", 0, "9-9"),
        ("XAUTOCLAIM", "s", "g", "auto", 10**9, 0),
    ], 2):  # fmt: skip
        logged = bench.logged(*words)
        assert len(bench("XINFO", "CONSUMERS", "s", "g")) == (number if made else 1)
        assert any(b"CREATECONSUMER" in argv for argv in logged) == made


@pytest.mark.parametrize(
    ("compat", "read", "grouped"),
    [
        ("7.0", "XREAD list of streams: for each stream key an ID or '$'", "XREAD list of streams: for each"),
        ("7.4", "'xread' list of streams: for each stream key an ID or '$'", "'xreadgroup' list"),
        ("valkey", "'xread' list of streams: for each stream key an ID or '$'", "an ID or '>' must be specified"),
        ("newest", "'xread' list of streams: for each stream key an ID, '+', or '$'", "an ID or '>' must be specified"),
    ],
)
def test_the_error_about_unbalanced_streams_depends_on_the_version(compat: str, read: str, grouped: str) -> None:
    bench = Bench(compat=compat)
    assert read in bench("XREAD", "STREAMS", "s", "t", "0")
    assert grouped in bench("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "t", "0")


def test_the_last_line_of_help_depends_on_the_version() -> None:
    for compat, level in LEVELS.items():
        last = b"    Print this help." if level >= 72 else b"    Prints this help."
        assert [Bench(compat=compat)(name, "HELP")[-1] for name in ("XINFO", "XGROUP")] == [last, last]
