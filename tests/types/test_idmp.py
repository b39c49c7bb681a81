"""Producers: how long and how many iids they keep, and the iid that IDMPAUTO generates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rillet.types.stream.idmp import Producers, idempotency_hash

T0 = 1_700_000_000_000


def test_a_message_is_found_until_it_expires() -> None:
    producers = Producers(duration=10)
    assert producers.find(b"p", b"a", T0) == -1
    producers.add(b"p", b"a", T0, 3)
    assert producers.find(b"p", b"a", T0 + 9_999) == T0 << 64 | 3
    assert producers.find(b"q", b"a", T0) == -1
    assert producers.find(b"p", b"a", T0 + 10_000) == -1
    assert producers.find(b"p", b"a", 0) == -1, "the message expired"
    assert (producers.added, producers.tracked()) == (1, 0)


def test_no_message_expires_at_time_0() -> None:
    producers = Producers(duration=1)
    producers.add(b"p", b"a", 5, 0)
    assert producers.find(b"p", b"a", 0) == 5 << 64
    assert not producers.expire(0)
    assert producers.unexpired(b"p", 0) == [(b"a", 5 << 64)]


def test_each_producer_keeps_its_newest_messages() -> None:
    producers = Producers(max_entries=3)
    for number in range(10):
        producers.add(b"p", b"%d" % number, T0 + number, 0)
        producers.add(b"q", b"%d" % (number % 2), T0 + number, 0)
    assert [iid for iid, _ in producers.unexpired(b"p", 0)] == [b"7", b"8", b"9"]
    assert [iid for iid, _ in producers.unexpired(b"q", 0)] == [b"0", b"1"]
    assert producers.added == 20
    producers.check()


def test_adding_a_message_again_replaces_it() -> None:
    producers = Producers()
    for iid, ms in ((b"a", 1), (b"b", 2), (b"a", 3)):
        producers.add(b"p", iid, ms, 0)
    assert producers.unexpired(b"p", 0) == [(b"b", 2 << 64), (b"a", 3 << 64)]
    producers.check()


def test_the_cron_removes_expired_messages_and_empty_producers() -> None:
    producers = Producers(duration=1)
    producers.find(b"failed", b"x", T0)
    producers.add(b"old", b"a", T0, 0)
    producers.add(b"new", b"a", T0 + 5000, 0)
    assert producers.expire(T0 + 1500, empty=False)
    assert set(producers.producers) == {b"failed", b"new"}
    assert producers.expire(T0 + 1500)
    assert set(producers.producers) == {b"new"}
    assert not producers.expire(T0 + 1500)


def test_expired_producers_are_removed_without_a_cron() -> None:
    producers = Producers(duration=1)
    for number in range(10_000):
        producers.find(b"%d" % number, b"x", T0 + number)
        producers.add(b"%d" % number, b"x", T0 + number, 0)
    assert len(producers.producers) <= 2 * 1000 + 64
    producers.check()


def test_changing_the_limits_removes_all_messages() -> None:
    producers = Producers(100, 100)
    producers.add(b"p", b"a", T0, 0)
    assert not producers.configure(100, 100)
    assert producers.tracked() == 1
    assert producers.configure(100, 5)
    assert not producers.producers
    assert (producers.added, producers.is_default) == (1, False)


def test_a_copy_is_independent() -> None:
    producers = Producers(7, 8)
    producers.add(b"p", b"a", T0, 0)
    twin = producers.copy()
    twin.add(b"p", b"b", T0, 1)
    assert [iid for iid, _ in producers.unexpired(b"p", 0)] == [b"a"]
    assert (twin.duration, twin.max_entries, twin.added, twin.tracked()) == (7, 8, 2, 2)
    twin.check()


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), min_size=1, max_size=6), st.randoms())
def test_the_order_of_the_pairs_does_not_change_the_hash(pairs: list[tuple[bytes, bytes]], source: object) -> None:
    shuffled = list(pairs)
    source.shuffle(shuffled)  # type: ignore[attr-defined]
    one = idempotency_hash([word for pair in pairs for word in pair], 0)
    assert one == idempotency_hash([b"*", *(word for pair in shuffled for word in pair)], 1)
    assert len(one) == 16


def test_the_boundary_between_name_and_value_changes_the_hash() -> None:
    made = {idempotency_hash([b"abc"[:at], b"abc"[at:]], 0) for at in range(4)}
    assert len(made) == 4
