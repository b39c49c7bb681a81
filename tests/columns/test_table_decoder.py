"""Replies about keys into rows: whole, and in pieces of any size; absent keys, errors, and hostile bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch  # noqa: E402
from rillet.columns.column import DOUBLE, LONG, STRING  # noqa: E402
from rillet.columns.row_builder import DROPMALFORMED, PERMISSIVE, RowBuilder  # noqa: E402
from rillet.columns.table_decoder import (  # noqa: E402
    DONE,
    FULL,
    ITEMS,
    MORE,
    PAIRS,
    SCALAR,
    SCORED,
    VALUES,
    ReplyPart,
    TableDecoder,
)
from rillet.errors import ProtocolError  # noqa: E402

TYPES = {STRING: pa.string(), LONG: pa.int64(), DOUBLE: pa.float64()}


def resp(reply: Any) -> bytes:
    """Return a reply in RESP2: bytes, None, int, list; an Exception is an error, a str a simple string."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, Exception):
        return b"-%b\r\n" % str(reply).encode()
    return b"*%d\r\n" % len(reply) + b"".join(map(resp, reply))


class Table:
    """A decoder with a key column and typed columns, and what it has decoded."""

    def __init__(self, kind: int, columns: dict[str, int], mode: int = PERMISSIVE, **options: Any) -> None:
        self.rows = RowBuilder(b"", mode)
        self.rows.add_key(STRING)
        by_name = kind == PAIRS
        made = [self.rows.add_field(name.encode(), of) if by_name else self.rows.add_value(name.encode(), of)
                for name, of in columns.items()]  # fmt: skip
        self.schema = pa.schema([("key", pa.string()), *((name, TYPES[of]) for name, of in columns.items())])
        if kind == SCALAR:
            parts = [ReplyPart(SCALAR, [column], required=at == 0, positive=True) for at, column in enumerate(made)]
        else:
            parts = [ReplyPart(kind, [] if by_name else [*made], required=True)]
        self.decoder = TableDecoder(self.rows, parts, **options)
        self.batches: list[list[tuple[Any, ...]]] = []

    def take(self) -> None:
        """Take the rows as a batch."""
        batch = record_batch(self.rows, self.schema)
        self.batches.append([tuple(row.values()) for row in batch.to_pylist()])

    def read(self, keys: list[bytes], data: bytes, step: int = 1 << 20) -> list[tuple[Any, ...]]:
        """Decode replies that arrive in pieces of `step` bytes; return all rows."""
        self.decoder.expect(keys)
        at = 0
        while (state := self.decoder.decode()) != DONE:
            if state == FULL:
                self.take()
            else:
                assert state == MORE
                assert at < len(data), "the decoder wants more than the replies have"
                self.decoder.feed(data[at : at + step])
                at += step
        self.take()
        return [row for batch in self.batches for row in batch]


CELLS = st.one_of(st.none(), st.text(max_size=20).map(str.encode))


@given(st.lists(st.tuples(CELLS, CELLS), max_size=20), st.integers(1, 40))
def test_values_of_hashes_in_pieces(hashes: list[tuple[bytes | None, bytes | None]], step: int) -> None:
    keys = [b"h%d" % i for i in range(len(hashes))]
    data = b"".join(resp(list(values)) for values in hashes)
    table = Table(VALUES, {"a": STRING, "b": STRING}, max_rows=7)
    expected = [
        (key.decode(), *(None if cell is None else cell.decode() for cell in values))
        for key, values in zip(keys, hashes, strict=True)
        if any(cell is not None for cell in values)
    ]
    assert table.read(keys, data, step) == expected
    assert table.decoder.absent == [key for key, values in zip(keys, hashes, strict=True) if values == (None, None)]
    assert max(map(len, table.batches)) <= 7


@given(st.lists(st.dictionaries(st.sampled_from([b"a", b"b", b"other"]), st.integers(-99, 99)), max_size=9),
       st.integers(1, 30))  # fmt: skip
def test_whole_hashes_in_pieces(hashes: list[dict[bytes, int]], step: int) -> None:
    keys = [b"k:h%d" % i for i in range(len(hashes))]
    pairs = [[word for name, n in one.items() for word in (name, b"%d" % n)] for one in hashes]
    table = Table(PAIRS, {"b": LONG, "a": STRING}, prefix=2)
    assert table.read(keys, b"".join(map(resp, pairs)), step) == [
        (f"h{i}", one.get(b"b"), None if b"a" not in one else str(one[b"a"])) for i, one in enumerate(hashes) if one
    ]


@given(st.lists(st.lists(st.integers(-5, 5), max_size=5), max_size=9), st.integers(1, 30))
def test_elements_and_scores_in_pieces(values: list[list[int]], step: int) -> None:
    keys = [b"k%d" % i for i in range(len(values))]
    table = Table(ITEMS, {"index": LONG, "value": LONG}, max_rows=3)
    assert table.read(keys, b"".join(resp([b"%d" % n for n in one]) for one in values), step) == [
        (f"k{i}", at, n) for i, one in enumerate(values) for at, n in enumerate(one)
    ]
    scored = Table(SCORED, {"member": STRING, "score": DOUBLE})
    data = b"".join(resp([word for n in one for word in (b"m%d" % n, b"%d.5" % n)]) for one in values)
    assert scored.read(keys, data, step) == [
        (f"k{i}", f"m{n}", float(f"{n}.5")) for i, one in enumerate(values) for n in one
    ]


def test_scalars_missing_keys_and_negative_numbers() -> None:
    table = Table(SCALAR, {"type": STRING, "encoding": STRING, "ttl": LONG})
    data = b"".join(map(resp, ["hash", b"listpack", -1, "none", None, -2, "list", None, 12]))
    assert table.read([b"a", b"b", b"c"], data, 3) == [("a", "hash", "listpack", None), ("c", "list", None, 12)]
    assert table.decoder.absent == [b"b"]


def test_absent_keys_have_rows_of_nulls_on_request() -> None:
    table = Table(VALUES, {"a": STRING}, keeps=True)
    assert table.read([b"x", b"y"], resp([None]) + resp([b"1"])) == [("x", None), ("y", "1")]
    assert table.decoder.absent == []


def test_errors_are_collected_and_the_other_rows_stay() -> None:
    error = Exception("WRONGTYPE Operation against a key holding the wrong kind of value")
    table = Table(VALUES, {"a": LONG})
    assert table.read([b"x", b"y", b"z"], resp([b"1"]) + resp(error) + resp([b"3"]), 5) == [("x", 1), ("z", 3)]
    assert table.decoder.failed == [(b"y", str(error))]
    scored = Table(SCORED, {"member": STRING, "score": DOUBLE})
    assert scored.read([b"x", b"y"], resp(error) + resp([b"m", b"inf"]), 4) == [("y", "m", float("inf"))]
    assert scored.decoder.failed == [(b"x", str(error))]


def test_malformed_values_follow_the_mode() -> None:
    data = resp([b"1"]) + resp([b"one"]) + resp([b"3"])
    keys = [b"x", b"y", b"z"]
    assert Table(VALUES, {"a": LONG}).read(keys, data) == [("x", 1), ("y", None), ("z", 3)]
    assert Table(VALUES, {"a": LONG}, DROPMALFORMED).read(keys, data) == [("x", 1), ("z", 3)]


@pytest.mark.parametrize("step", range(1, 60, 7))
def test_a_rollback_drops_the_rows_of_the_incomplete_key(step: int) -> None:
    table = Table(ITEMS, {"index": LONG, "value": STRING})
    keys = [b"a", b"b"]
    data = resp([b"1", b"2"]) + resp([b"3", b"4", b"5"])
    table.decoder.expect(keys)
    table.decoder.feed(data[:step])
    assert table.decoder.decode() == (DONE if step >= len(data) else MORE)
    done = table.decoder.at
    assert done == (0 if step < 18 else 1 if step < len(data) else 2)
    table.decoder.rollback()
    again = b"".join(resp(one) for one in [[b"1", b"2"], [b"3", b"4", b"5"]][done:])
    assert table.read(keys[done:], again) == [("a", 0, "1"), ("a", 1, "2"), ("b", 0, "3"), ("b", 1, "4"), ("b", 2, "5")]


@pytest.mark.parametrize("data", [
    b"%1\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"$1\r\na\r\n", b"*1\r\n:1\r\n", b"*1\r\n$1\r\naXX", b"*x\r\n\r\n",
    b"*1\r\n$99999999999999999999\r\n", b"*1\r\n$9999999999999999\r\n",
])  # fmt: skip
def test_hostile_replies_are_errors(data: bytes) -> None:
    table = Table(VALUES, {"a": STRING})
    with pytest.raises(ProtocolError):
        table.read([b"k"], data)


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_raise(data: bytes) -> None:
    for kind, columns in ((VALUES, {"a": STRING}), (PAIRS, {"a": LONG}), (SCORED, {"m": STRING, "s": DOUBLE})):
        table = Table(kind, columns)
        table.decoder.expect([b"k"])
        table.decoder.feed(data)
        try:
            assert table.decoder.decode() in (MORE, DONE)
        except ProtocolError:
            pass
