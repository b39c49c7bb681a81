"""The progress bar appears on terminals only, after a second, and is erased at the end."""

from __future__ import annotations

import io

from rillet.store.display.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_bar_appears_after_a_second_and_is_erased_at_the_end() -> None:
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
        bar(2_000_000, 4_000_000)  # less than 0.1 s after the last drawing
        clock.now = 1.2
        bar(5_000_000, 4_000_000)  # more than the total is shown as the total
    assert stream.getvalue().count("\r\x1b[K") == 3
    assert "100%  4.0 of 4.0 MB  0:00 left\r\x1b[K" in stream.getvalue()


def test_nothing_is_written_to_a_stream_that_is_not_a_terminal() -> None:
    stream, clock = io.StringIO(), Seconds()
    with ProgressBar("x", stream, clock) as bar:
        clock.now = 10.0
        bar(1, 2)
    assert stream.getvalue() == ""
    assert not bar.shown


def test_no_remaining_time_is_shown_before_any_work_is_done() -> None:
    stream, clock = Terminal(), Seconds()
    bar = ProgressBar("x", stream, clock)
    clock.now = 2.0
    bar(0, 100)
    assert stream.getvalue().endswith("] " + "  0%  0.0 of 0.0 MB")
    bar_of_nothing = ProgressBar("y", stream, clock)
    clock.now = 4.0
    bar_of_nothing(0, 0)
    assert "100%" in stream.getvalue()


def test_an_unknown_total_shows_the_count_and_the_elapsed_time() -> None:
    stream, clock = Terminal(), Seconds()
    with ProgressBar("archiving", stream, clock, unit="entries") as bar:
        clock.now = 65.0
        bar(12_345)
        assert stream.getvalue() == "\r\x1b[Karchiving  12,345 entries  1:05"
