"""^C at any moment while a store opens: the directory is taken and served, or free; never locked by nobody."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

import rillet
from rillet import Store
from tests.forked import ran
from tests.store.owner_processes import await_end
from tests.store.process import Other
from tests.variants import by_speed

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # an interrupt in a finalizer
]  # fmt: skip

PACKAGE = Path(rillet.__file__).parent
PLACES = (str(PACKAGE / "store"), str(PACKAGE / "host"), threading.__file__)


class _Interrupts:
    """Raises KeyboardInterrupt in the n-th place of the store, host and threading where Python looks for signals."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PLACES):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def _interrupted(at: int, function: Callable[[], Any]) -> KeyboardInterrupt | Any:
    """Call a function that is interrupted in its `at`-th place; return its result, or the interrupt."""
    watch = _Interrupts(at)
    sys.setprofile(watch)
    try:
        return function()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("owner", "step"), [("this", by_speed(5, 5, 2)), ("process", 5)])
def test_an_interrupted_opening_leaves_the_directory_usable(
    tmp_path: Path, owner: Literal["this", "process"], step: int
) -> None:
    kept: list[KeyboardInterrupt] = []  # with their tracebacks, as in a notebook
    path = tmp_path / "store"

    def opened() -> Store:
        return rillet.open(path, owner=owner, owner_grace=0.0)

    at = 1
    while not isinstance(found := _interrupted(at, opened), Store):
        kept.append(found)
        with opened() as store:
            assert store.execute("INCR", "n") == len(kept)
        at += step
    found.close()
    assert len(kept) > 10
    await_end(tmp_path)


def test_a_takeover_that_is_interrupted_serves_the_others(tmp_path: Path) -> None:
    """The owner is killed; the call in which this process becomes the owner is interrupted; a third one goes on."""
    code = f"import rillet; print(rillet.open({str(tmp_path / 's')!r}).execute('INCR', 'n'))"
    kept: list[Any] = []
    for at in (1, 3, 6, 10, 18, 32, 90):
        with Other(tmp_path / "s") as other:
            store = rillet.open(tmp_path / "s")
            assert not store.owner
            other.kill()
            kept.append(_interrupted(at, lambda store=store: store.execute("GET", "n")))  # type: ignore[misc]
            assert ran(code)[0] == 0
            assert int(store.execute("GET", "n")) == len(kept)
            store.close()
    assert sum(isinstance(one, KeyboardInterrupt) for one in kept) > 4
