"""The bar: shown to people only, after a second, and gone at the end."""

from __future__ import annotations

import io

from rillet.store.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_shows_itself_after_a_second_and_wipes_itself_away() -> None:
    stream, clock = Terminal(), Seconds()
    with ProgressBar("store: replaying", stream, clock) as bar:
        bar(1_000_000, 4_000_000)
        assert stream.getvalue() == ""
        clock.now = 1.0
        bar(1_000_000, 4_000_000)
        assert stream.getvalue() == (
            "\r\x1b[Kstore: replaying  [######..................]  25%  1.0 of 4.0 MB  0:03 left"
        )
        clock.now = 1.05
        bar(2_000_000, 4_000_000)  # too soon to draw again
        clock.now = 1.2
        bar(5_000_000, 4_000_000)  # more than was thought is all
    assert stream.getvalue().count("\r\x1b[K") == 3 and "100%  4.0 of 4.0 MB  0:00 left\r\x1b[K" in stream.getvalue()


def test_nothing_is_written_where_nobody_looks() -> None:
    stream, clock = io.StringIO(), Seconds()
    with ProgressBar("x", stream, clock) as bar:
        clock.now = 10.0
        bar(1, 2)
    assert stream.getvalue() == "" and not bar.shown


def test_an_unknown_beginning_has_no_end_in_sight() -> None:
    stream, clock = Terminal(), Seconds()
    bar = ProgressBar("x", stream, clock)
    clock.now = 2.0
    bar(0, 100)
    assert stream.getvalue().endswith("] " + "  0%  0.0 of 0.0 MB")
    bar_of_nothing = ProgressBar("y", stream, clock)
    clock.now = 4.0
    bar_of_nothing(0, 0)
    assert "100%" in stream.getvalue()
