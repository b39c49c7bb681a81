"""The units and changes of a stream, without a server; and what a filter makes of each command."""

from __future__ import annotations

import pytest

from rillet.protocol.command_parser import pack_command
from rillet.replication.changes import Change, ChangePosition, Unit, UnitParser, changes_of
from rillet.replication.errors import LinkError
from rillet.replication.filtering import KeyFilter, Unappliable
from rillet.types.compat import COMPATS

HISTORY = "0123456789abcdef" * 2 + "01234567"


def stream_of(*lines: str) -> bytes:
    return b"".join(pack_command(line.encode().split()) for line in lines)


STREAM = stream_of("SELECT 2", "MULTI", "SET a 1", "SELECT 3", "INCR b", "EXEC", "PING", "REPLCONF GETACK *",
                   "XADD orders 1-1 a b", "XGROUP CREATE orders g 0", "PUBLISH c m", "FLUSHALL")  # fmt: skip


def units_of(data: bytes, step: int, offset: int = 100, db: int = 0) -> list[Unit]:
    parser, units = UnitParser(offset, db), []
    for at in range(0, len(data), step):
        units += parser.feed(data[at : at + step])
    assert (parser.offset, parser.waiting) == (offset + len(data), 0)
    return units


@pytest.mark.parametrize("step", [1, 3, 64, 10_000])
def test_units_are_those_of_the_stream_in_pieces_of_any_size(step: int) -> None:
    units = units_of(STREAM, step)
    assert b"".join(unit.data for unit in units) == STREAM
    assert [unit.end for unit in units[:-1]] == [unit.start for unit in units[1:]]
    found = [(unit.db, unit.db_after, unit.transaction, len(unit.commands)) for unit in units]
    assert found == [(0, 2, False, 0), (2, 3, True, 2), (3, 3, False, 0), (3, 3, False, 0), (3, 3, False, 1),
                     (3, 3, False, 1), (3, 3, False, 0), (3, 3, False, 1)]  # fmt: skip


def all_changes(units: list[Unit], skip: int = 0) -> list[Change]:
    found = []
    for number, unit in enumerate(units):
        found += changes_of(unit, HISTORY, skip=0 if number else skip)
    return found


def test_changes_and_where_to_continue_after_each() -> None:
    changes = all_changes(units_of(STREAM, 64))
    assert [(one.database, one.key, one.command, one.type, one.last) for one in changes] == [
        (2, "a", "SET", "string", False), (3, "b", "INCR", "string", True), (3, "orders", "XADD", "stream", True),
        (3, "orders", "XGROUP", "stream", True), (3, None, "FLUSHALL", None, True),
    ]  # fmt: skip
    for number, change in enumerate(changes):
        position = ChangePosition.parse(str(change.position))
        assert position == change.position
        rest = units_of(STREAM[position.offset - 100 :], 64, position.offset, position.db)
        assert all_changes(rest, position.skip) == changes[number + 1 :]
    assert changes[0].position.skip == 1
    assert changes[0].offset == changes[1].offset == changes[1].position.offset
    with pytest.raises(ValueError, match="not the position of a change"):
        ChangePosition.parse("12:0")


@pytest.mark.parametrize("data", [b"+OK\r\n", b"*1\r\n:3\r\n", b"*x\r\n", b"*1\r\n$-1\r\n"])
def test_bytes_that_are_no_commands(data: bytes) -> None:
    with pytest.raises(LinkError, match="instead of"):
        UnitParser(0, 0).feed(data)


FILTER = KeyFilter([b"o*"], COMPATS["newest"])
# What a replica of o* makes of a command: "=" applies it, "" drops it, "!" cannot apply it, or other commands.
CASES = {
    "SET o 1": "=", "SET x 1": "", "DEL o x": "DEL o", "UNLINK x y": "", "MSET o 1 x 2 o2 3": "MSET o 1 o2 3",
    "MSETEX 2 o 1 x 2": "MSETEX 1 o 1", "FLUSHALL": "=", "SWAPDB 0 1": "=", "FUNCTION FLUSH": "=", "MOVE o 1": "=",
    "RENAME o x": "RENAME o x|DEL x", "RENAME x o": "!", "RENAME x y": "", "RENAMENX o o2": "=",
    "COPY o x": "", "COPY x o": "!", "COPY o o2": "=",
    "LMOVE o x LEFT LEFT": "LMOVE o x LEFT LEFT|DEL x", "LMOVE x o LEFT LEFT": "!", "RPOPLPUSH x o": "!",
    "SMOVE o x m": "SMOVE o x m|DEL x", "SMOVE x o m": "!",
    "SUNIONSTORE o o2 x": "!", "SUNIONSTORE x o o2": "", "SINTERSTORE o x": "!", "SDIFFSTORE o o2 o3": "=",
    "ZUNIONSTORE o 2 o2 x": "!", "ZUNIONSTORE o 2 o2 o3": "=", "ZRANGESTORE x o 0 1": "", "ZRANGESTORE o x 0 1": "!",
    "GEOSEARCHSTORE o x FROMLONLAT 1 2 BYRADIUS 3 m": "!", "GEORADIUS x 1 2 3 m STORE o": "!",
    "PFMERGE o x": "!", "PFMERGE x o": "", "BITOP AND o o2 x": "!", "BITOP NOT o o2": "=",
    "SORT x STORE o": "!", "SORT o STORE x": "", "SORT o STORE o2": "=", "SORT o BY w_* STORE o2": "!",
    "SORT o BY nosort GET # STORE o2": "=",
    "XADD o 1-1 a b": "=", "XADD x 1-1 a b": "", "XGROUP CREATE o g 0": "=", "XGROUP CREATE x g 0": "",
    "EXPIRE x 1": "", "NOSUCH x": "=",
}  # fmt: skip


@pytest.mark.parametrize("line", CASES)
def test_what_a_filter_makes_of_a_command(line: str) -> None:
    expected, words = CASES[line], line.encode().split()
    if expected == "!":
        with pytest.raises(Unappliable, match=line.split()[0]):
            FILTER.applied(words)
        return
    if expected == "=":
        expected = line
    assert FILTER.applied(words) == [one.encode().split() for one in expected.split("|") if one]


def test_a_part_of_a_transaction() -> None:
    stream = stream_of("MULTI", "SET x 1", "SET o 1", "SELECT 3", "DEL o x", "SELECT 4", "SET x 2", "EXEC")
    (unit,) = units_of(stream, 100)
    part = FILTER.part_of(unit)
    assert part == stream_of("MULTI", "SET o 1", "SELECT 3", "DEL o", "SELECT 4", "EXEC")
    assert [one.words for one in changes_of(unit, HISTORY, FILTER.reduced)] == [[b"SET", b"o", b"1"], [b"DEL", b"o"]]
    (whole,) = units_of(stream_of("MULTI", "SET o 1", "EXEC"), 100)
    assert FILTER.part_of(whole) is whole.data
    (other,) = units_of(stream_of("MULTI", "SET x 1", "EXEC"), 100)
    assert FILTER.part_of(other) is None
