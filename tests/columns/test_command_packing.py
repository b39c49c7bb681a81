"""Arrow columns into the commands that write keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.command_packing import CommandForm, CommandPacker, pack_keys  # noqa: E402
from rillet.columns.string_column import texts  # noqa: E402
from tests.columns.test_row_packing import commands  # noqa: E402

CELLS = st.one_of(st.none(), st.binary(max_size=80))


def packed(packer: CommandPacker, rows: int, limit: int) -> tuple[bytes, int]:
    """Return all commands of the rows, and the lines of their replies."""
    row, data, lines = 0, b"", 0
    while row < rows:
        row = packer.pack(row, rows, limit)
        lines += packer.lines
        data += packer.take_bytes()
    return data, lines


@given(st.lists(st.tuples(st.binary(max_size=9), CELLS, CELLS), max_size=30), st.integers(0, 5), st.integers(1, 400))
def test_hashes(rows: list[tuple[bytes, Any, Any]], cut: int, limit: int) -> None:
    columns = [pa.array([row[i] for row in rows], pa.binary()).slice(cut) for i in range(3)]
    packer = CommandPacker([
        CommandForm([b"DEL", 0]), CommandForm([b"HSET", 0], pairs=[1, 2]), CommandForm([b"HDEL", 0], nulls=[1, 2]),
        CommandForm([b"HINCRBYFLOAT", 0, b"f2", 2], bulk=True), CommandForm([b"PERSIST", 0], only_null=1),
    ])  # fmt: skip
    packer.rows_of([texts(column, f"f{i}") for i, column in enumerate(columns)])
    expected, lines = [], 0
    for key, *cells in rows[cut:]:
        expected.append([b"DEL", key])
        pairs = [word for i, cell in enumerate(cells, 1) if cell is not None for word in (b"f%d" % i, cell)]
        nulls = [b"f%d" % i for i, cell in enumerate(cells, 1) if cell is None]
        expected += [[b"HSET", key, *pairs]] if pairs else []
        expected += [[b"HDEL", key, *nulls]] if nulls else []
        expected += [[b"HINCRBYFLOAT", key, b"f2", cells[1]]] if cells[1] is not None else []
        lines += cells[1] is not None
        expected += [[b"PERSIST", key]] if cells[0] is None else []
    data, counted = packed(packer, len(rows[cut:]), limit)
    assert commands(data) == expected
    assert counted == len(expected) + lines


def test_words_in_any_order_and_numbers() -> None:
    packer = CommandPacker([CommandForm([b"ZADD", 0, b"GT", 2, 1])])
    packer.rows_of([texts(pa.array([b"z"] * 3)), texts(pa.array(["a", None, "c"])), texts(pa.array([1.5, 2.0, 1e300]))])
    data, lines = packed(packer, 3, 1 << 16)
    assert commands(data) == [[b"ZADD", b"z", b"GT", b"1.5", b"a"], [b"ZADD", b"z", b"GT", b"1e+300", b"c"]]
    assert lines == 2


def test_maps() -> None:
    array = pa.array([[("a", "1"), ("b", None)], [], [("c", "3"), ("d", "4")]], pa.map_(pa.string(), pa.string()))
    for cut in range(3):
        part = array.slice(cut)
        packer = CommandPacker([CommandForm([b"HSET", 0], of_map=True)])
        packer.rows_of([texts(pa.array([b"x", b"y", b"z"]).slice(cut))])
        packer.map_of(part.buffers()[1].to_pybytes(), part.offset, texts(part.keys), texts(part.items))
        whole = [[b"HSET", b"x", b"a", b"1"], None, [b"HSET", b"z", b"c", b"3", b"d", b"4"]]
        assert commands(packed(packer, len(part), 1 << 16)[0]) == [words for words in whole[cut:] if words]


@given(st.lists(st.binary(max_size=120), max_size=9), st.lists(st.binary(min_size=1, max_size=9), max_size=3))
def test_the_same_commands_for_many_keys(keys: list[bytes], fields: list[bytes]) -> None:
    def bulk(word: bytes) -> bytes:
        return b"$%d\r\n%b\r\n" % (len(word), word)

    around = [
        (b"*%d\r\n" % (2 + len(fields)) + bulk(b"HMGET"), b"".join(map(bulk, fields))),
        (b"*3\r\n" + bulk(b"OBJECT") + bulk(b"FREQ"), b""),
    ]
    for count in range(3):
        expected = [words for key in keys for words in ([b"HMGET", key, *fields], [b"OBJECT", b"FREQ", key])[:count]]
        assert commands(bytes(pack_keys(around[:count], keys))) == expected
