"""An exception from outside in the middle of a log line leaves no lock of the module `logging` behind."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rillet
from rillet.loggers import SteadyLogger, logger


class Interrupt(BaseException):
    """An exception that comes from outside."""


class AtPlace:
    """Raises in the n-th place where Python looks for exceptions from outside: a function begins, or C returns."""

    def __init__(self, place: int, only: str = "") -> None:
        self.left = place
        self._only = only

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return") and self._only in frame.f_code.co_filename:
            self.left -= 1
            if self.left == 0:
                raise Interrupt


def interrupted(place: AtPlace, call: Callable[[], object]) -> bool:
    """Make a call that is interrupted in a place; return whether it has that place."""
    sys.setprofile(place)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return place.left <= 0  # `logging` reports an exception of the formatting and continues


def is_free(lock: Any) -> bool:
    """Return whether another thread can acquire the lock."""
    got: list[bool] = []

    def acquire() -> None:
        got.append(lock.acquire(timeout=0))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=acquire)
    thread.start()
    thread.join()
    return got[0]


@pytest.fixture
def handler() -> Iterator[logging.Handler]:
    """A handler of the loggers under `rillet`, which prints to a text."""
    root, made = logging.getLogger("rillet"), logging.StreamHandler(io.StringIO())
    root.addHandler(made)
    yield made
    root.removeHandler(made)


def clear_caches() -> None:
    """Empty the caches of all loggers, as setLevel does."""
    logging.getLogger("rillet").setLevel(logging.getLogger("rillet").level)


@pytest.mark.parametrize("name", ["attach", "store"])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR])
def test_a_line_that_is_interrupted_anywhere(handler: logging.Handler, name: str, level: int) -> None:
    log = logger(name)
    module_lock = logging._lock  # type: ignore[attr-defined]
    place = 0
    more = True
    while more:
        place += 1
        clear_caches()
        more = interrupted(AtPlace(place), partial(log.log, level, "a line of %d", place))
        for lock in (module_lock, handler.lock):
            assert is_free(lock), place
    assert place > (30 if level == logging.ERROR else 4)


def test_a_line_inside_a_handler_keeps_the_handlers_lock(handler: logging.Handler) -> None:
    log = logger("attach")
    seen: list[bool] = []
    ends: list[BaseException] = []

    class Nested(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not seen:
                seen.append(True)
                try:
                    interrupted(AtPlace(25), lambda: log.error("inside"))
                except BaseException as error:
                    ends.append(error)
                assert self.lock is not None
                seen.append(is_free(self.lock))

    nested = Nested()
    log.logger.addHandler(nested)
    try:
        log.error("outside")
    finally:
        log.logger.removeHandler(nested)
    assert not ends
    assert seen == [True, False]  # the outer call still held it
    assert is_free(nested.lock)


def test_levels_and_the_place_of_the_call(handler: logging.Handler) -> None:
    log = logger("attach")
    records: list[logging.LogRecord] = []
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    log.info("not enabled")
    log.logger.setLevel(logging.INFO)
    try:
        log.info("enabled")
        logging.disable(logging.INFO)
        log.info("disabled")
        log.warning("%s", "a warning")
    finally:
        logging.disable(logging.NOTSET)
        log.logger.setLevel(logging.NOTSET)
    try:
        raise ValueError("reason")
    except ValueError:
        log.exception("failed")
    assert [record.getMessage() for record in records] == ["enabled", "a warning", "failed"]
    assert {Path(record.pathname).name for record in records} == {Path(__file__).name}
    assert {record.funcName for record in records} == {"test_levels_and_the_place_of_the_call"}
    assert records[-1].exc_info is not None
    assert isinstance(records[-1].exc_info[1], ValueError)


def test_all_loggers_of_the_library_are_steady() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("rillet."):
            found = [one for one in vars(module).values() if isinstance(one, logging.Logger)]
            assert not found, name


def test_a_call_that_logs_is_interrupted(tmp_path: Path, handler: logging.Handler) -> None:
    """A connection that is refused, which is a line of the client's logger."""
    module_lock = logging._lock  # type: ignore[attr-defined]
    with rillet.connect(f"unix://{tmp_path}/nobody") as store:

        def call() -> None:
            with contextlib.suppress(rillet.StoreError):
                store.run([b"PING"], patience=0.0)

        place, more = 0, True
        while more:
            place += 1
            clear_caches()
            more = interrupted(AtPlace(place, "logg"), call)
            assert is_free(module_lock), place
            assert is_free(handler.lock), place
        assert place > 2


def test_steady_loggers_are_only_these() -> None:
    assert isinstance(logger("owner"), SteadyLogger)
    with pytest.raises(AssertionError, match="document"):
        logger("other")
