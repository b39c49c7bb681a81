"""RILLET.XNODES, XRANK and XAFTER: they return, count and locate the same entries as XRANGE."""

from __future__ import annotations

import random
from typing import Any

import pytest

import rillet
from rillet.columns.node_decoder import nodes_of
from rillet.commands.stream import bulk_read as stream_nodes
from rillet.types.compat import COMPATS
from rillet.types.stream.counts import StreamCounts
from rillet.types.stream.id import StreamID
from rillet.types.stream.iterator import StreamIterator
from tests.commands.ends import Bench
from tests.variants import by_speed, seeds

pytestmark = pytest.mark.both

INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NOT_POSITIVE = "ERR value is out of range, must be positive"
NIL = b"-1"  # how `read` shows a null
Entries = list[tuple[StreamID, list[bytes]]]


def entries_of(reply: Any) -> Entries:
    return [(StreamID.parse(one), flat) for one, flat in reply]


def first_of(bench: Bench) -> Any:
    """Return the ID of the stream's first entry."""
    return next((one for one, _ in bench("XRANGE", "s", "-", "+", "COUNT", 1)), NIL)


def pages(bench: Bench, after: str, last: str, count: int) -> list[Any]:
    """Return all pages of a range, each as a list of nodes."""
    pages_so_far = []
    go_on: Any = after
    while go_on != NIL:
        reply = bench("RILLET.XNODES", "s", go_on, last, "COUNT", count)
        assert isinstance(reply, list), reply
        go_on, first, *nodes = reply
        assert first == first_of(bench)
        pages_so_far.append(list(zip(nodes[::2], nodes[1::2], strict=True)))
    return pages_so_far


def decoded(nodes: list[Any], after: StreamID, last: StreamID) -> Entries:
    """Return the entries of (after, last] that the nodes of a reply contain."""
    entries = StreamIterator(nodes_of(nodes), *after, *last, False)
    found = []
    while entries.next_entry():
        if (entries.ms, entries.seq) > after:
            found.append((StreamID(entries.ms, entries.seq), entries.fields()))
    return found


def change(bench: Bench, chance: random.Random) -> None:
    """Change the stream at random: add, delete, trim or reload."""
    ids = [one for one, _ in bench("XRANGE", "s", "-", "+")]
    what = chance.random()
    if what < 0.6 or not ids:
        for _ in range(chance.randint(1, 12)):
            fields = [b"f%d" % i for i in range(chance.choice((1, 2, 2, 2, 3)))]
            values = [chance.choice((b"7", b"text", b"\xff", b"-70000", b"")) for _ in fields]
            step = chance.choice(("*", f"{chance.randint(1, 9)}"))
            last = dict(zip(*[iter(bench("XINFO", "STREAM", "s") if ids else [])] * 2, strict=True))
            top = StreamID.parse(last.get(b"last-generated-id", b"0-0"))
            new = f"{top.ms}-{top.seq + 1}" if step == "*" else f"{top.ms + int(step)}-{chance.choice((0, 2**64 - 1))}"
            bench("XADD", "s", new, *(word for pair in zip(fields, values, strict=True) for word in pair))
    elif what < 0.8:
        bench("XDEL", "s", *chance.sample(ids, min(len(ids), chance.randint(1, 5))))
    elif what < 0.9:
        bench("XTRIM", "s", "MAXLEN", chance.choice("=~"), chance.randint(0, len(ids)))
    elif what < 0.95:
        bench("XTRIM", "s", "MINID", chance.choice("=~"), chance.choice(ids))
    elif what < 0.98:
        bench("XTRIM", "s", "MAXLEN", len(ids) // 2, "DELREF")
    else:
        bench("DEBUG", "RELOAD")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 4))
def test_pages_ranks_and_positions_agree_with_xrange_after_random_changes(seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench(compat="newest", stream_node_max_entries=4)
    for _ in range(by_speed(60, 40, 100)):
        change(bench, chance)
        stream: Any = bench.session.db.lookup(b"s")
        if stream is None:
            continue
        if stream.sums is None:
            stream.sums = StreamCounts(3)
        everything = entries_of(bench("XRANGE", "s", "-", "+"))
        ids = [one for one, _ in everything] or [StreamID(5, 5)]
        others = [StreamID(9, 9), StreamID(2**64 - 1, 2**64 - 1)]
        after, last = sorted((chance.choice(ids), chance.choice([*ids, *others])))
        if chance.random() < 0.3:
            after = StreamID(0, 0)
        found = pages(bench, str(after), str(last), chance.randint(1, 20))
        shipped = [node for page in found for node in page]
        expected = [entry for entry in everything if after < entry[0] <= last]
        assert decoded(shipped, after, last) == expected

        asked = [after, last, chance.choice(ids)]
        ranks = bench("RILLET.XRANK", "s", *map(str, asked))
        assert ranks == [sum(one <= limit for one, _ in everything) for limit in asked]

        for start, end in ((f"{after}", f"{last}"), (f"({after}", "+"), ("-", f"({last}"), (f"{last}", f"{after}")):
            assert bench("RILLET.XCOUNT", "s", start, end) == len(bench("XRANGE", "s", start, end))

        behind = [one for one, _ in everything if one > after]
        count = chance.randint(1, len(behind) + 3)
        reply = bench("RILLET.XAFTER", "s", str(after), count)
        assert reply == (str(behind[min(count, len(behind)) - 1]).encode() if behind else NIL)
        stream.check()


def test_a_page_has_at_least_count_entries_and_the_start_of_the_next_page() -> None:
    bench = Bench(stream_node_max_entries=4)
    for number in range(1, 41):
        bench("XADD", "s", f"{number}-0", "f", number)
    bench("XDEL", "s", "3-0", "4-0")
    go_on, first, *nodes = bench("RILLET.XNODES", "s", "2-0", "+", "COUNT", 5)
    assert first == b"1-0"
    # The node of 1 to 4 has no entries after 2-0; the reply has the nodes of 5 to 8 and of 9 to 12.
    assert go_on == b"12-18446744073709551615"
    assert nodes[::2] == [StreamID(5, 0).pack(), StreamID(9, 0).pack()]
    assert bench("RILLET.XNODES", "s", "36-0", "+", "COUNT", 100)[0] == NIL
    assert bench("RILLET.XNODES", "s", "36-5", "36-7", "COUNT", 1) == [NIL, b"1-0"]
    assert bench("RILLET.XNODES", "s", "40-0", "+", "COUNT", 1) == [NIL, b"1-0"]
    assert bench("RILLET.XNODES", "s", "5-0", "4-0", "COUNT", 1) == [NIL, b"1-0"]
    assert bench("RILLET.XRANK", "s", "4", "5", "-", "+") == [2, 3, 0, 38]


@pytest.mark.slow
def test_the_size_of_a_reply_is_bounded_whatever_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for number in range(1, 6):
        bench("XADD", "s", f"{number}-0", "f", bytes(stream_nodes.REPLY_BYTES // 3 + 1))
    assert [len(page) for page in pages(bench, "0", "+", 1_000_000)] == [3, 2]


def test_a_missing_key_is_like_an_empty_stream() -> None:
    bench = Bench()
    assert bench("RILLET.XNODES", "s", "0", "+", "COUNT", 1) == [NIL, NIL]
    assert bench("RILLET.XRANK", "s", "0", "5-5") == [0, 0]
    assert bench("RILLET.XAFTER", "s", "0", 1) == NIL
    assert bench("RILLET.XCOUNT", "s", "-", "+") == 0
    bench("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    assert bench("RILLET.XNODES", "s", "0", "+", "COUNT", 1) == [NIL, NIL]
    assert bench("RILLET.XRANK", "s", "0", "5-5") == [0, 0]
    assert bench("RILLET.XAFTER", "s", "0", 1) == NIL


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("RILLET.XNODES s 0 + COUNT", "ERR wrong number of arguments for 'rillet.xnodes' command"),
        ("RILLET.XNODES s x + COUNT 1", INVALID_ID), ("RILLET.XNODES text 0 (5 COUNT 1", INVALID_ID),
        ("RILLET.XNODES s 0 + LIMIT 1", "ERR syntax error"), ("RILLET.XNODES s 0 + COUNT 0", NOT_POSITIVE),
        ("RILLET.XNODES s 0 + COUNT x", "ERR value is not an integer or out of range"),
        ("RILLET.XNODES text 0 + COUNT 1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("RILLET.XRANK s", "ERR wrong number of arguments for 'rillet.xrank' command"),
        ("RILLET.XRANK s 0 x", INVALID_ID),
        ("RILLET.XRANK text 0", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("RILLET.XCOUNT s 0", "ERR wrong number of arguments for 'rillet.xcount' command"),
        ("RILLET.XCOUNT s - x", INVALID_ID), ("RILLET.XCOUNT s - (0-0", "ERR invalid end ID for the interval"),
        ("RILLET.XCOUNT text - +", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("RILLET.XAFTER s 0", "ERR wrong number of arguments for 'rillet.xafter' command"),
        ("RILLET.XAFTER s x 1", INVALID_ID), ("RILLET.XAFTER s 0 0", NOT_POSITIVE),
        ("RILLET.XAFTER text 0 1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ],
)  # fmt: skip
def test_invalid_commands_are_rejected(line: str, refusal: str) -> None:
    bench = Bench()
    bench("SET", "text", "x")
    bench("XADD", "s", "1-1", "f", "v")
    assert bench(*line.split()) == refusal


@pytest.mark.parametrize("compat", COMPATS)
def test_the_commands_exist_with_every_compat_and_are_never_logged(compat: str) -> None:
    bench = Bench(compat=compat)
    bench("XADD", "s", "1-1", "f", "v")
    for line in ("RILLET.XNODES s 0 + COUNT 1", "RILLET.XRANK s 1-1", "RILLET.XAFTER s 0 1",
                 "RILLET.XCOUNT s - +"):  # fmt: skip
        words = line.split()
        assert bench.logged(*words) == []
        assert bench("COMMAND", "GETKEYS", *words) == [b"s"]
        assert words[0].lower().encode() in bench("ACL", "CAT", "stream")
        facts = bench("COMMAND", "INFO", words[0])[0]
        assert facts[2] == [b"readonly"]
        assert facts[6] == [b"@read", b"@stream", b"@slow"]


def test_the_commands_work_in_a_transaction_and_through_a_store() -> None:
    with rillet.open() as store:
        store.stream("s").add({"a": "1"}, id="1-1")
        with store.transaction() as transaction:
            rank = transaction.execute("RILLET.XRANK", "s", "+")
        assert rank.result == [1]
