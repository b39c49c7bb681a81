"""The rax iterator: flags, changes of the tree during an iteration, callbacks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.structs.rax import Rax, RaxNode
from rillet.structs.rax_iterator import EOF, JUST_SEEKED, SAFE, RaxIterator

WORDS = [b"", b"foo", b"foobar", b"footer", b"first", b"z"]


def words() -> Rax:
    rax = Rax()
    for word in WORDS:
        rax.insert(word, word.decode())
    return rax


def test_the_first_step_after_a_seek_stays_on_the_found_key() -> None:
    it = RaxIterator(words())
    assert it.flags == EOF
    assert not it.next()
    assert not it.prev()
    assert it.seek("=", b"foo")
    assert it.flags == JUST_SEEKED
    assert (it.key, it.data) == (b"foo", "foo")
    assert it.prev()
    assert it.key == b"foo"
    assert it.flags == 0
    assert it.next()
    assert it.key == b"foobar"
    assert it.prev()
    assert it.key == b"foo"
    assert it.prev()
    assert it.key == b"first"


def test_the_end_is_final_until_the_next_seek() -> None:
    it = RaxIterator(words())
    it.seek("$")
    assert it.next()
    assert it.key == b"z"
    assert not it.next()
    assert it.eof()
    assert it.key == b"z"
    assert not it.prev()
    assert not it.next()
    assert it.seek("^")
    assert not it.eof()
    assert it.key == b""
    assert not it.seek("=", b"fo")
    assert it.eof()
    assert not it.seek(">", b"z")
    assert not it.seek("<", b"")


def test_operators_are_text_or_bytes_and_unknown_ones_are_rejected() -> None:
    it = RaxIterator(words())
    assert it.seek(b">=", b"g")
    assert it.key == b"z"
    for op in ("", "==", "=>", "!", b"~"):
        with pytest.raises(ValueError, match="unknown seek operator"):
            it.seek(op, b"a")
        assert it.eof()
    with pytest.raises(ValueError, match="unknown comparison"):
        it.compare("^", b"")


def test_an_iterator_can_seek_its_own_key() -> None:
    it = RaxIterator(words())
    it.seek("^")
    met = [it.key]
    while it.seek(">", it.key):
        met.append(it.key)
    assert met == sorted(WORDS)


@given(st.binary(max_size=3), st.binary(max_size=3))
def test_compare_applies_the_operator_to_the_current_key(left: bytes, right: bytes) -> None:
    rax = Rax()
    rax.insert(left, 1)
    it = RaxIterator(rax)
    it.seek("^")
    assert it.compare("<", right) == (left < right)
    assert it.compare("<=", right) == (left <= right)
    assert it.compare(">", right) == (left > right)
    assert it.compare(b">=", right) == (left >= right)
    assert it.compare("=", right) == it.compare("==", right) == (left == right)


def test_a_change_of_the_tree_raises_an_error() -> None:
    rax = words()
    it = RaxIterator(rax)
    it.seek("^")
    rax.remove(b"foo")
    for step in (it.next, it.prev):
        with pytest.raises(RuntimeError):
            step()
    assert it.seek(">=", b"foo")
    assert it.next()
    assert it.key == b"foobar"
    rax.insert(b"foobar", "again")
    assert it.next()
    assert it.key == b"footer"


@given(
    st.sets(st.binary(max_size=3), max_size=30),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.binary(max_size=3)), max_size=40),
)
@settings(deadline=None)
def test_a_safe_iterator_continues_from_its_key(keys: set[bytes], changes: list[tuple[bool, bool, bytes]]) -> None:
    rax = Rax()
    for key in keys:
        rax.insert(key, None)
    it = RaxIterator(rax)
    it.flags |= SAFE
    at_start = it.seek("^")
    for forward, adding, key in changes:
        if adding:
            rax.insert(key, None)
            keys.add(key)
        else:
            rax.remove(key)
            keys.discard(key)
        if it.eof():
            assert not it.next()
            at_start = it.seek("^") if forward else it.seek("$")
            continue
        at, found = it.key, it.next() if forward else it.prev()
        if forward:
            wanted = min((k for k in keys if k >= at and (at_start or k > at)), default=None)
        else:
            wanted = max((k for k in keys if k <= at and (at_start or k < at)), default=None)
        at_start = False
        assert found == (wanted is not None)
        assert not found or it.key == wanted


def test_keys_may_be_removed_during_items() -> None:
    rax = words()
    for key, _ in rax.items():
        rax.remove(key)
    assert (rax.numele, rax.numnodes) == (0, 1)


def test_the_callback_receives_every_node_except_the_head_once() -> None:
    rax = words()
    met: list[RaxNode] = []
    it = RaxIterator(rax)
    it.node_cb = met.append
    it.seek("^")
    while it.next():
        pass
    assert len(met) == rax.numnodes - 1
    assert sum(node.iskey for node in met) == rax.numele - 1  # the head represents the empty key


def test_the_callback_may_replace_nodes() -> None:
    """Replaces each node by a copy, as Redis's defragmentation does; the tree stays equal."""
    rax = words()
    before, old = rax.show(), rax.head.children()
    it = RaxIterator(rax)
    it.node_cb = lambda node: node.copy()
    it.seek("^")
    assert [it.key for _ in WORDS if it.next()] == sorted(WORDS)
    assert rax.show() == before
    assert rax.head.children()[0] is not old[0]
    rax.check()
    broken: Any = lambda node: 1  # noqa: E731
    it.node_cb = broken
    with pytest.raises(TypeError, match="RaxNode"):
        it.seek(">", b"")
