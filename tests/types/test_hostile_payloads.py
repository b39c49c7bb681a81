"""Malicious payloads: RESTORE rejects them with Redis's error, or they do no harm.

The cases below are the classes of bugs that Redis's release notes describe, and those that the drawing of the format
suggests. The fuzzer (fuzz_restore.py) searches for others; these tests run it briefly.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rillet
from rillet.structs.listpack import Listpack
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbWriter
from rillet.types.stream.stream import Stream
from tests.commands.ends import Bench
from tests.types.fuzz_restore import Fuzzer, check, sealed
from tests.variants import by_speed, long_interpreted, seeds

U64 = 2**64 - 1
NOW = 1_700_000_000_000
Write = Callable[[RdbWriter], None]


def raw(ms: int, seq: int = 0) -> bytes:
    return (ms << 64 | seq).to_bytes(16, "big")


def node(*entries: tuple[int, int], count: int | None = None, deleted: int | None = None) -> bytes:
    """Return the listpack of a node with master ID 1-0; entries are (ms, flags), each with the field a and a number."""
    gone = sum(flags & 1 for _, flags in entries)
    counts = (len(entries) - gone if count is None else count), (gone if deleted is None else deleted)
    values: list[Any] = [*counts, 1, b"a", 0]
    for ms, flags in entries:
        values += [flags | 2, ms - 1, 0, ms, 4]
    lp = Listpack()
    for value in values:
        lp.append(value if isinstance(value, bytes) else b"%d" % value)
    return lp.to_bytes()


THREE = node((1, 0), (2, 0), (3, 0))


def payload(
    kind: int = 27, nodes: tuple[tuple[bytes, bytes], ...] = ((raw(1), THREE),), length: int = 3, last: int = 3,
    first: int = 1, added: int = 3, group: Write | None = None, idmp: Write | None = None, groups: int | None = None,
) -> bytes:  # fmt: skip
    """Return a payload of three entries, in which the arguments replace parts."""
    out = RdbWriter(False)
    out.length(len(nodes))
    for key, lp in nodes:
        out.string(key)
        out.string(lp)
    for number in (length, last, 0, first, 0, 0, 0, added)[: 3 if kind == 15 else 8]:
        out.length(number)
    out.length((group is not None) if groups is None else groups)
    if group is not None:
        group(out)
    if kind >= 26:
        (idmp or producers())(out)
    return sealed(kind, bytes(out.out), {15: 10, 19: 10, 21: 11, 26: 13, 27: 14}[kind])


def group(
    pending: tuple[int, ...] = (), consumers: tuple[tuple[bytes, tuple[int, ...]], ...] = (), nacked: Any = (),
    kind: int = 27, read: int = 3, counts: tuple[int, int, int] | None = None, time: int = 5,
) -> Write:  # fmt: skip
    """Return a function that writes a group; counts are the stored counts: pending, consumers, released."""
    claims = counts or (len(pending), len(consumers), len(nacked))

    def write(out: RdbWriter) -> None:
        out.string(b"g")
        for number in (3, 0, read & U64, claims[0]):
            out.length(number)
        for ms in pending:
            out.raw(raw(ms))
            out.milliseconds(time)
            out.length(1)
        out.length(claims[1])
        for name, own in consumers:
            out.string(name)
            out.milliseconds(NOW)
            if kind >= 21:
                out.milliseconds(NOW)
            out.length(len(own))
            for ms in own:
                out.raw(raw(ms))
        if kind >= 27:
            out.length(claims[2])
            for ms in nacked:
                out.raw(raw(ms))

    return write


def producers(
    duration: int = 100, size: int = 100, pids: tuple[tuple[bytes, tuple[bytes, ...]], ...] = (),
    count: int | None = None, messages: int | None = None,
) -> Write:  # fmt: skip
    """Return a function that writes the producers; count and messages are the stored counts."""

    def write(out: RdbWriter) -> None:
        out.length(duration)
        out.length(size)
        out.length(len(pids) if count is None else count)
        for pid, iids in pids:
            out.string(pid)
            out.length(len(iids) if messages is None else messages)
            for iid in iids:
                out.string(iid)
                out.length(NOW)
                out.length(0)
        out.length(0)
        out.length(0)

    return write


SOUND = {
    "three entries": payload(),
    "a group": payload(group=group((1, 2, 3), ((b"a", (1, 3)), (b"b", (2,))))),
    "released entries": payload(group=group((1, 2, 3), ((b"a", (2,)),), (3, 1))),
    "producers": payload(idmp=producers(pids=((b"p", (b"i", b"j")), (b"q", ())))),
    "an iid twice": payload(idmp=producers(pids=((b"p", (b"i", b"i")),))),
    "a node of tombstones only": payload(nodes=((raw(1), node((1, 1), (2, 1))),), length=0, last=9, first=0),
    "a wrong first ID": payload(first=77),
    "pending entries that are deleted": payload(group=group((7, 9), ((b"a", (9, 7)),))),
}

LONG = b"\x81\x00\x00" + b"\xff" * 6
HOSTILE = {
    "one NACK of two consumers": payload(group=group((1,), ((b"a", (1,)), (b"b", (1,))))),
    "one NACK twice of a consumer": payload(group=group((1,), ((b"a", (1, 1)),))),
    "a pending entry twice": payload(group=group((1, 1), ((b"a", (1,)),))),
    "a pending entry without an owner": payload(group=group((1, 2), ((b"a", (1,)),))),
    "a consumer's entry that is not pending": payload(group=group((1,), ((b"a", (1, 2)),))),
    "a consumer twice": payload(group=group((), ((b"a", ()), (b"a", ())))),
    "a group twice": payload(group=lambda out: (group()(out), group()(out), None)[2], groups=2),
    "a released entry that is not pending": payload(group=group((1,), ((b"a", (1,)),), (2,))),
    "a released entry with a consumer": payload(group=group((1,), ((b"a", (1,)),), (1,))),
    "a released entry twice": payload(group=group((1, 2), ((b"a", (2,)),), (1, 1))),
    "a huge number of released entries": payload(group=group((1,), (), (1,), counts=(1, 0, U64))),
    "a huge number of pending entries": payload(group=group((1,), ((b"a", (1,)),), counts=(U64, 1, 0))),
    "a huge number of consumers": payload(group=group((1,), ((b"a", (1,)),), counts=(1, 2**63, 0))),
    "a huge number of groups": payload(groups=2**62),
    "the smallest delivery time": payload(group=group((1,), ((b"a", (1,)),), time=-(2**63))),
    "the greatest delivery time": payload(group=group((1,), ((b"a", (1,)),), time=2**63 - 1)),
    "more read than added": payload(group=group(read=4)),
    "a negative number of entries read": payload(group=group(read=-2)),
    "more added than can be counted": payload(added=2**63),
    "fewer added than there are": payload(added=2),
    "a wrong length": payload(length=4),
    "a huge number of producers": payload(idmp=producers(pids=((b"p", (b"i",)),), count=U64)),
    "a huge number of messages": payload(idmp=producers(pids=((b"p", (b"i",)),), messages=U64)),
    "a producer twice": payload(idmp=producers(pids=((b"p", (b"i",)), (b"p", (b"j",))))),
    "a duration of 0": payload(idmp=producers(duration=0)),
    "a huge duration": payload(idmp=producers(duration=U64)),
    "a size of 0": payload(idmp=producers(size=0)),
    "a size of 10001": payload(idmp=producers(size=10001)),
    "a node twice": payload(nodes=((raw(1), THREE), (raw(1), THREE)), length=6),
    "nodes that overlap": payload(nodes=((raw(1), THREE), (raw(2), node((2, 0)))), length=4),
    "descending IDs": payload(nodes=((raw(1), node((1, 0), (3, 0), (2, 0))),)),
    "equal IDs": payload(nodes=((raw(1), node((1, 0), (2, 0), (2, 0))),)),
    "an ID above the last one": payload(last=2),
    "a node that counts too many": payload(nodes=((raw(1), node((1, 0), (2, 0), count=3)),)),
    "a node that counts a tombstone as alive": payload(
        nodes=((raw(1), node((1, 0), (2, 1), (3, 0), count=3, deleted=0)),)
    ),
    "a node that counts below zero": payload(nodes=((raw(1), node((1, 0), count=-1, deleted=2)),), length=U64),
    "a node whose first ID is not its master ID": payload(nodes=((raw(1), node((2, 0), (3, 0), (4, 0))),), last=9),
    "an empty node": payload(nodes=((raw(1), Listpack().to_bytes()),), length=0),
    "a node without a frame": payload(nodes=((raw(1), b""),), length=0),
    "a short ID": payload(nodes=((raw(1)[:15], THREE),)),
    "an empty value": sealed(27, b"", 14),
    "a huge number of nodes": sealed(27, b"\x81" + b"\xff" * 8, 14),
    "a string with a huge length": sealed(27, b"\x01\x10" + raw(1) + LONG, 14),
    "a compressed string with a huge length": sealed(27, b"\x01\x10" + raw(1) + b"\xc3\x05" + LONG + b"12345", 14),
}  # fmt: skip


@pytest.mark.parametrize("case", SOUND)
def test_valid_payloads_are_accepted(case: str) -> None:
    bench = Bench(compat="newest")
    assert bench("RESTORE", "s", 0, SOUND[case]) == b"OK"
    stream = bench.engine.databases[0].peek(b"s")
    check(stream)
    assert bench("DUMP", "s") == rdb.dump(rdb.restore(SOUND[case]))


@pytest.mark.parametrize("case", HOSTILE)
def test_malicious_payloads_are_rejected(case: str) -> None:
    bench = Bench(compat="newest")
    assert bench("RESTORE", "s", 0, HOSTILE[case]) == "ERR Bad data format"
    assert bench("EXISTS", "s") == 0


def test_an_overlong_backlen_is_accepted_and_deleting_the_entry_works() -> None:
    bench = Bench(compat="newest")
    odd = THREE[:9] + b"\x81" + THREE[10:]
    assert bench("RESTORE", "s", 0, payload(nodes=((raw(1), odd),))) == b"OK"
    assert bench("XDEL", "s", "2-0") == 1
    check(bench.engine.databases[0].peek(b"s"))
    assert bench("XREVRANGE", "s", "+", "-") == [[b"3-0", [b"a", b"3"]], [b"1-0", [b"a", b"1"]]]


def test_counters_that_older_servers_write_are_accepted_with_their_compat() -> None:
    over = payload(19, group=group(kind=19, read=99))
    assert Bench(compat="newest")("RESTORE", "s", 0, over) == "ERR Bad data format"
    bench = Bench(compat="7.0")
    assert bench("RESTORE", "s", 0, over) == b"OK"
    assert bench("DUMP", "s") == over
    # A log is accepted with any compat, because its writer accepted the payload.
    trusted = Bench(compat="newest")
    trusted.session.trusted = True
    assert trusted("RESTORE", "s", 0, over) == b"OK"


WRONG_COUNTERS = {
    "a length": (payload(19, length=120), "the length 120 of the stream is now 3, the number of its entries"),
    "a length of fewer": (payload(19, length=1), "the length 1 of the stream is now 3, the number of its entries"),
    "a length without counters": (payload(15, length=5), "the length 5 of the stream is now 3"),
    "a last ID": (payload(21, last=2), "the last ID 2-0 of the stream is now that of its last entry, 3-0"),
    "entries added": (payload(19, added=2), "the number 2 of entries ever added to the stream is now 3, its length"),
}


@pytest.mark.parametrize("case", WRONG_COUNTERS)
def test_the_nodes_correct_wrong_counters_of_a_stream_and_the_log_says_so(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis before 8.8 accepts such payloads and such files; early versions of 5.0 wrote them."""
    data, line = WRONG_COUNTERS[case]
    bench = Bench(compat="7.0")
    for key, trusted in (("s", False), ("t", True)):
        bench.session.trusted = trusted
        assert bench("RESTORE", key, 0, data) == b"OK"
        stream = bench.engine.databases[0].peek(key.encode())
        check(stream)
        assert bench("XLEN", key) == len(bench("XRANGE", key, "-", "+")) == 3
        assert stream.entries_added == 3
    bench.session.trusted = False
    assert bench("XADD", "s", "3-0", "a", "b").startswith("ERR The ID specified in XADD is equal or smaller")
    assert bench("XADD", "s", "4-0", "a", "b") == b"4-0"
    assert Bench(compat="newest")("RESTORE", "s", 0, data) == "ERR Bad data format"
    with rillet.open(compat="7.0") as store:
        store.execute("RESTORE", "s", 0, data)
    assert f"RESTORE of b's': {line}" in caplog.text


def test_a_length_without_nodes_is_rejected_as_in_redis() -> None:
    for compat in ("7.0", "newest"):
        assert Bench(compat=compat)("RESTORE", "s", 0, payload(19, nodes=(), length=3)) == "ERR Bad data format"


def test_entries_below_the_id_of_their_node_are_accepted() -> None:
    bench = Bench(compat="7.0")
    for ms in (101, 102, 103):
        bench("XADD", "s", f"{ms}-0", "a", "b")
    bench("XDEL", "s", "103-0")
    bench("XTRIM", "s", "MINID", 103)
    assert bench("XINFO", "STREAM", "s")[:4] == [b"length", 0, b"radix-tree-keys", 1]
    bench("XSETID", "s", "50-0")
    for ms in (60, 70, 80):
        bench("XADD", "s", f"{ms}-0", "a", "b")
    assert bench("RESTORE", "t", 0, bench("DUMP", "s")) == b"OK"
    assert bench("XRANGE", "t", "-", "+") == bench("XRANGE", "s", "-", "+")
    assert bench("XLEN", "t") == 3
    bench.engine.check()


@long_interpreted
def test_pending_entries_in_descending_order_load_in_linear_time() -> None:
    """With a quadratic algorithm this test would exceed the time limit of the suite."""
    many = range(10_000, 0, -1)
    write = group(tuple(many), ((b"a", tuple(many)),))
    stream = rdb.restore(payload(group=write))
    assert isinstance(stream, Stream)
    assert stream.groups[b"g"].pending_count == 10_000
    released = group(tuple(many), (), tuple(many))
    stream = rdb.restore(payload(group=released))
    assert isinstance(stream, Stream)
    assert stream.groups[b"g"].nacked_count == 10_000
    stream.groups[b"g"].check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 2, 101))
def test_mutated_payloads_of_streams_do_no_harm(seed: int) -> None:
    fuzzer = Fuzzer(seed)
    fuzzer.run(700)
    assert fuzzer.counts["refused"] > 300
    assert fuzzer.counts["accepted"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 2, 103))
def test_mutated_payloads_of_every_type_do_no_harm(seed: int) -> None:
    fuzzer = Fuzzer(seed, every=True)
    count = by_speed(1500, 300)
    fuzzer.run(count)
    assert fuzzer.counts["refused"] > count // 5
    assert fuzzer.counts["other types"] > count // 5
