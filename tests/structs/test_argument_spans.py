"""Argument spans: filling, comparing and converting the arguments of a command."""

from __future__ import annotations

import pytest

from rillet.structs.argument_spans import ArgumentSpans


def words_of(*argv: bytes) -> tuple[ArgumentSpans, list[bytes]]:
    """Return spans of the arguments, and the list that keeps the arguments alive."""
    kept = list(argv)
    words = ArgumentSpans()
    words.point_to(kept, 0, len(kept))
    return words, kept


def test_arguments_are_returned_unchanged() -> None:
    argv = [b"a", b"", b"\xff\0", b"x" * 300]
    words = ArgumentSpans()
    words.point_to(argv, 1, 3)
    assert words.count == 3
    assert [words.get(at) for at in range(words.count)] == argv[1:]
    assert [words.get(index) for index in range(3)] == argv[1:]
    for index in (-1, 3):
        with pytest.raises(IndexError):
            words.get(index)


def test_a_range_past_the_list_is_rejected() -> None:
    words = ArgumentSpans()
    for start, count in ((0, 2), (1, 1), (-1, 1), (0, -1)):
        with pytest.raises(IndexError):
            words.point_to([b"a"], start, count)
    with pytest.raises(TypeError):
        words.point_to([b"a", None], 0, 2)  # type: ignore[list-item]


def test_room_grows_and_extra_room_is_released() -> None:
    words = ArgumentSpans()
    many = [b"%d" % number for number in range(5000)]
    words.point_to(many, 0, 5000)
    assert words.room >= 5000
    assert [words.get(at) for at in range(words.count)] == many
    few = [b"a"]
    words.point_to(few, 0, 1)
    assert words.room <= 1024
    assert [words.get(at) for at in range(words.count)] == few


@pytest.mark.parametrize("listed", [False, True])
def test_replaced_arguments_are_restored(listed: bool) -> None:
    argv = [b"XADD", b"s", b"*", b"f", b"v"]
    words = ArgumentSpans()
    words.point_to([b"-", *argv], 1, 5)
    if listed:
        assert words.to_list() == argv
    words.put(2, b"1-1")
    words.put(4, b"other")
    words.put(2, b"1-2")
    assert words.to_list() == [b"XADD", b"s", b"1-2", b"f", b"other"]
    for _ in range(2):
        words.restore()
        assert [words.get(at) for at in range(words.count)] == words.to_list() == argv
        words.put(3, b"(redacted)")
    words.point_to(argv, 0, 2)
    words.restore()
    assert words.to_list() == argv[:2]


def test_arguments_are_compared_by_value_and_by_form() -> None:
    words, _kept = words_of(b"MaxLen", b"*", b"", b"12")
    assert words.equals(0, b"MaxLen")
    assert not words.equals(0, b"MaxLe")
    assert not words.equals(0, b"maxlen")
    assert words.is_option(0, b"maxlen")
    assert not words.is_option(0, b"minid")
    assert not words.is_option(0, b"maxlem")
    assert words.is_char(1, 42)
    assert not words.is_char(2, 42)
    assert not words.is_char(3, 49)
    assert words.is_digit(3)
    assert not words.is_digit(2)
    for outside in (-1, 4):
        assert not words.equals(outside, b"")
        assert not words.is_option(outside, b"")
        assert not words.is_char(outside, 42)
        assert not words.is_digit(outside)
        assert words.number(outside) == -1


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"0", 0), (b"7", 7), (b"9" * 18, 10**18 - 1), (b"9" * 19, -1), (b"007", -1), (b"00", -1), (b"-1", -1),
     (b"", -1), (b"1x", -1), (b"x", -1), (b"+1", -1), (b" 1", -1)],
)  # fmt: skip
def test_only_canonical_numbers_are_converted(text: bytes, value: int) -> None:
    words, _kept = words_of(text)
    assert words.number(0) == value


def test_case_folding_affects_only_letters() -> None:
    """Setting bit 0x20 also changes other characters, but never into a letter."""
    for char in range(256):
        words, _kept = words_of(bytes([char]))
        assert words.is_option(0, b"x") == (bytes([char]).lower() == b"x")
