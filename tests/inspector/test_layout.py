"""Layouts: each byte has a place and a meaning, the words are those of the format pages, DUMP of genuine servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rillet
from rillet.errors import Corrupt
from rillet.inspector.json_tree import json_tree
from rillet.inspector.layout import intset, listpack, stream_node, tree
from rillet.inspector.layout.append_steps import append_steps
from rillet.inspector.layout.intset import lay_out_intset
from rillet.inspector.layout.listpack import lay_out
from rillet.inspector.layout.payload import read_payload
from rillet.inspector.layout.span import Span, check
from rillet.inspector.layout.stream_node import lay_out_node
from rillet.inspector.layout.tree import rax_tree
from rillet.inspector.text import from_text, shown, to_text
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.structs.rax import Rax
from rillet.types.stream.id import StreamID
from tests.judge import redis_binary, running_redis
from tests.package.test_modes import ROOT


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(
    ("module", "page"),
    [(listpack, "listpack"), (stream_node, "stream_node"), (intset, "intset"), (tree, "rax")],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_words_are_those_of_the_format_page(module: Any, page: str) -> None:
    text = flat((ROOT / "docs" / "formats" / f"{page}.md").read_text())
    assert [words for words in module.WORDS.values() if flat(words) not in text] == []


# -- listpacks --------------------------------------------------------------------------------------------


WORDS = st.one_of(
    st.binary(max_size=70), st.integers(-(2**63), 2**63 - 1).map(lambda n: b"%d" % n), st.just(b"s" * 4100)
)


@given(st.lists(WORDS, max_size=20))
def test_each_byte_of_a_listpack_has_a_place(words: list[bytes]) -> None:
    packed = Listpack.from_values(words)
    data = packed.to_bytes()
    found = lay_out(data)
    check(found.spans, 0, len(data))
    assert [one.value for one in found.elements] == packed.values()
    for one in found.elements:
        backlen = one.span.parts[-1]
        assert int(backlen.value) == backlen.start - one.span.start


@pytest.mark.parametrize("length", [0, 63, 64, 126, 127, 4095, 4096, 16377, 16378, 16382, 2097146])
def test_the_backlen_of_each_size(length: int) -> None:
    data = Listpack.from_values([b"s" * length, b"x"]).to_bytes()
    check(lay_out(data).spans, 0, len(data))


def test_a_page_of_a_long_listpack_says_how_much_is_left() -> None:
    data = Listpack.from_values([b"%d" % n for n in range(100)]).to_bytes()
    found = lay_out(data, most=10)
    check(found.spans, 0, len(data))
    assert (len(found.elements), found.rest, found.spans[-2].kind) == (10, 90, "rest")


@given(st.binary(max_size=60))
def test_bytes_that_are_no_listpack_are_refused(data: bytes) -> None:
    try:
        check(lay_out(data).spans, 0, len(data))
    except Corrupt:
        pass


# -- stream nodes -----------------------------------------------------------------------------------------


def walk(spans: list[Span]) -> Iterator[Span]:
    for span in spans:
        yield span
        yield from walk(span.parts)


def nodes_of(store: rillet.Store, key: str = "s") -> list[tuple[bytes, bytes]]:
    return [(one.key, one.data) for one in read_payload(store.execute("DUMP", key)).blocks]


def test_the_roles_in_a_node() -> None:
    with rillet.open() as store:
        stream = store.stream("s")
        for ms, fields in ((1000, {"a": 1, "b": "x"}), (1007, {"a": 2, "b": "y"}), (1008, {"c": 3})):
            stream.add(fields, id=f"{ms}-1")
        stream.delete("1007-1")
        ((key, data),) = nodes_of(store)
        node = lay_out_node(key, data)
        check(node.spans, 0, len(data))
        assert [(str(one.id), one.flags) for one in node.entries] == [("1000-1", 2), ("1007-1", 3), ("1008-1", 0)]
        kinds = [span.kind for span in node.spans]
        assert kinds == ["header", "master", "entry", "tombstone", "entry", "end"]
        assert [part.kind for part in node.spans[1].parts] == [
            "count", "deleted", "num-fields", "field", "field", "master-end",
        ]  # fmt: skip
        assert [part.kind for part in node.spans[4].parts] == [
            "flags", "ms-delta", "seq-delta", "num-fields", "field", "value", "lp-count",
        ]  # fmt: skip
        assert node.spans[3].parts[0].value == "3: DELETED | SAMEFIELDS"
        assert node.facts() | {"entries": 0} == {"id": "1000-1", "live": 2, "tombstones": 1, "samefields": 2,
                                                 "entries": 0}  # fmt: skip


@pytest.mark.slow
def test_the_steps_of_each_entry_lead_to_the_bytes_of_the_node() -> None:
    """Entries with the names of the master and with others, one that makes the count longer, one deleted later."""
    with rillet.open(stream_node_max_entries=200, stream_node_max_bytes=0) as store:
        stream = store.stream("s")
        previous = b""
        for n in range(130):
            stream.add({"a": n, "b": "x" * (n % 70)} if n % 3 else {"c": n}, id=f"{1000 + n}-{n % 2}")
            key, data = nodes_of(store)[-1]
            if 4 < n < 126:
                previous = data
                continue
            id, first, count, last = append_steps(key, data, StreamID(1000 + n, n % 2))
            assert last.data == data
            assert id.data == previous
            assert first.data == (previous or count.data)
            for step in (first, count, last):
                check(lay_out_node(key, step.data).spans, 0, len(step.data))
            start, end = count.changed[0]
            assert (start, count.data[end : end + 2]) == (6, b"\x00\x01")  # the number of deleted entries follows
            assert int(Listpack.from_bytes(count.data).get_int(6)) == n + 1
            start, end = last.changed[1]
            assert last.data[6:start] + last.data[end:] == count.data[6:]
            previous = data
        whole = nodes_of(store)[0]
        stream.delete("1001-1")
        assert [step.data for step in append_steps(*nodes_of(store)[0], StreamID(1129, 1))][-1] == whole[1]
        with pytest.raises(KeyError, match="no entry 1-1"):
            append_steps(*whole, StreamID(1, 1))


def test_a_node_that_ends_inside_an_entry_is_refused() -> None:
    data = Listpack.from_values([b"1", b"0", b"1", b"f", b"0", b"2", b"0"]).to_bytes()
    with pytest.raises(Corrupt, match="ends inside"):
        lay_out_node(bytes(16), data)
    data = Listpack.from_values([b"1", b"0", b"x"]).to_bytes()
    with pytest.raises(Corrupt, match="not a number"):
        lay_out_node(bytes(16), data)


# -- intsets and trees ------------------------------------------------------------------------------------


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_an_intset(members: set[int]) -> None:
    numbers = Intset()
    for member in members:
        numbers.add(member)
    data = numbers.to_bytes()
    spans = lay_out_intset(data)
    check(spans, 0, len(data))
    assert [int(span.value) for span in spans[2:]] == sorted(members)


@given(st.sets(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 3)), max_size=40))
def test_the_tree_has_the_nodes_of_the_rax(ids: set[tuple[int, int]]) -> None:
    keys = [StreamID(*one).pack() for one in sorted(ids)]
    found = rax_tree(keys, lambda key: str(StreamID.unpack(key)))
    rax = Rax()
    for key in keys:
        rax.insert(key, None)
    assert (found["keys"], found["nodes"]) == (len(keys), rax.numnodes)
    names, count, todo = [], 0, [found["root"]]
    while todo:
        node = todo.pop()
        count += 1
        names += [node["key"]] if node["key"] else []
        assert len(node["children"]) == (1 if node["kind"] == "compressed" else len(node["chars"].split()))
        todo += node["children"]
    assert count == rax.numnodes
    assert sorted(names) == sorted(str(StreamID(*one)) for one in ids)


# -- payloads of genuine servers --------------------------------------------------------------------------


@pytest.mark.skipif(redis_binary() is None, reason="needs redis-server")
def test_payloads_of_a_genuine_server() -> None:
    with running_redis("--list-max-listpack-size", "3", "--list-compress-depth", "1") as judge:
        client = judge.client()
        for n in range(250):
            client.execute_command("XADD", "stream", f"{1000 + n}-1", "n", n, "text", "t" * (n % 70))
        client.execute_command("XDEL", "stream", "1003-1", "1100-1")
        client.execute_command("XGROUP", "CREATE", "stream", "g", "0")
        client.execute_command("RPUSH", "list", *("compressible " * 9 + str(n) for n in range(20)))
        client.execute_command("HSET", "hash", "name", "ada", "7", "x")
        client.execute_command("ZADD", "zset", 1.5, "a", 2, "b")
        client.execute_command("SADD", "numbers", 5, -1, 70000)
        client.execute_command("HSET", "big", *(word for n in range(600) for word in (f"f{n}", n)))
        client.execute_command("SET", "text", "hello")
        payload = read_payload(client.execute_command("DUMP", "stream"))
        assert (payload.type, payload.sealed, payload.facts["length"], payload.facts["groups"]) == (
            "stream", True, 248, 1)  # fmt: skip
        found = []
        for block in payload.blocks:
            node = lay_out_node(block.key, block.data)
            check(node.spans, 0, len(block.data))
            found += [str(one.id).encode() for one in node.entries if not one.deleted]
        assert found == [row[0] for row in client.execute_command("XRANGE", "stream", "-", "+")]
        values = [
            one.value if isinstance(one.value, bytes) else b"%d" % one.value
            for block in read_payload(client.execute_command("DUMP", "list")).blocks
            for one in lay_out(block.data).elements
        ]
        assert values == client.execute_command("LRANGE", "list", 0, -1)
        assert any(block.packed for block in read_payload(client.execute_command("DUMP", "list")).blocks)
        for key, form, count in (("hash", "listpack", 4), ("zset", "listpack", 4)):
            payload = read_payload(client.execute_command("DUMP", key))
            assert payload.form in (form, "ziplist")
            assert len(lay_out(payload.blocks[0].data).elements) == count
        payload = read_payload(client.execute_command("DUMP", "numbers"))
        assert [span.value for span in lay_out_intset(payload.blocks[0].data)[2:]] == ["-1", "5", "70000"]
        assert read_payload(client.execute_command("DUMP", "big")).elements == 600
        assert read_payload(client.execute_command("DUMP", "text")).blocks[0].data == b"hello"


@given(st.binary(min_size=0, max_size=80))
def test_bytes_that_are_no_payload_are_refused(data: bytes) -> None:
    try:
        read_payload(data)
    except Corrupt:
        pass


# -- text -------------------------------------------------------------------------------------------------


@given(st.binary(max_size=60))
def test_text_is_printable_and_reversible(raw: bytes) -> None:
    text = to_text(raw)
    assert text.isprintable()
    assert from_text(text) == raw


@given(st.text(max_size=30))
def test_text_of_any_character_is_reversible(text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    assert from_text(to_text(raw)) == raw


def test_values_in_messagepack_are_trees() -> None:
    msgpack = pytest.importorskip("msgspec.msgpack")
    value = {"n": 12345678901234567890, 7: [1.5, None, True, b"\xff"], "text": "a\u202e"}
    assert json_tree(msgpack.encode(value)) == [
        "object", [["n", ["number", "12345678901234567890"]],
                   ["7", ["array", [["number", "1.5"], ["constant", "null"], ["constant", "true"],
                                    ["string", "\\xff"]]]],
                   ["text", ["string", "a\\u202e"]]]]  # fmt: skip
    assert json_tree(msgpack.encode(["x" * 300_000])) is None
    for raw in (b"", b"\x81", b"\x81\xa1", b"plain", "\u0700 text".encode(), b"\xc1", msgpack.encode([1]) + b"x"):
        assert json_tree(raw) is None, raw


def test_texts() -> None:
    assert to_text("café \u202eevil\x1b[2J\n".encode()) == "café \\u202eevil\\x1b[2J\\x0a"
    assert to_text(b"a\\b\xff") == "a\\\\b\\xff"
    assert shown("é".encode() * 10, 5) == ("éé", True)
    with pytest.raises(ValueError, match="escape"):
        from_text("\\q")
