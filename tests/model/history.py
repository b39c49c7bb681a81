"""Recorded calls: what an actor asked of the store, and what it knows about the outcome.

A call is recorded before it begins. The journal of a process that may be killed is a file: a call that has begun there
and not ended has an unknown outcome.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


class Outcome(Enum):
    """What the caller knows after a call."""

    STARTED = "started"
    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Call:
    """One call of the store.

    tokens: the unique values that it writes to `place`. may_take: the most elements that it may remove there.
    result: plain data made from the reply. may_lose: the elements that may be lost because the outcome is unknown.
    """

    actor: str
    number: int
    name: str
    place: str
    tokens: tuple[str, ...] = ()
    may_take: int = 0
    may_lose: int = 0
    began: float = 0.0
    ended: float = 0.0
    outcome: Outcome = Outcome.STARTED
    result: Any = None
    note: str = ""

    @property
    def done(self) -> bool:
        """True if the call returned."""
        return self.outcome is Outcome.DONE

    @property
    def unknown(self) -> bool:
        """True if the call may have been executed or not."""
        return self.outcome in (Outcome.STARTED, Outcome.UNKNOWN)

    def __str__(self) -> str:
        words = ",".join(self.tokens)
        took = f"{self.began:.4f}-{self.ended:.4f}" if self.ended else f"{self.began:.4f}-"
        what = f"{self.actor} {self.number} {self.name}({words})"
        return f"{took} {what} {self.outcome.value}: {self.result!r} {self.note}"


@dataclass
class History:
    """The calls of one process in one round.

    journal: the file in which another process can read them. disturbed: the owner or server was killed in this round.
    """

    calls: list[Call] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    journal: Path | None = None
    disturbed: bool = False
    _file: int = -1
    _running: dict[tuple[str, int], Call] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, call: Call) -> None:
        """Record a call that begins."""
        call.began = time.monotonic()
        self.calls.append(call)
        self._running[call.actor, call.number] = call
        self._write(call)

    def end(self, call: Call, outcome: Outcome, result: Any = None, note: str = "", loses: bool = True) -> None:
        """Record the end of a call. loses: a call of unknown outcome may have taken elements."""
        call.ended = time.monotonic()
        call.outcome, call.result, call.note = outcome, result, note
        if outcome is Outcome.UNKNOWN and (loses or self.disturbed):
            call.may_lose = call.may_take
        self._running.pop((call.actor, call.number), None)
        self._write(call)

    def violate(self, text: str) -> None:
        """Record something that must not happen."""
        self.violations.append(text)
        self._write(text)

    def oldest(self) -> Call | None:
        """Return the call that has been running longest."""
        running = list(self._running.values())
        return min(running, key=lambda call: call.began, default=None)

    def _write(self, what: Call | str) -> None:
        if self.journal is None:
            return
        with self._guard:
            if self._file < 0:
                self._file = os.open(self.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(self._file, pickle.dumps(what))

    def close(self) -> None:
        """Close the journal."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def merge(self, journal: Path, change: Callable[[Call], None] = lambda call: None) -> None:
        """Add the calls of another process, after `change`; remove its journal."""
        if not journal.exists():
            return
        calls: dict[tuple[str, int], Call] = {}
        for item in _items(journal):
            if isinstance(item, Call):
                calls[item.actor, item.number] = item
            else:
                self.violate(item)
        for call in calls.values():
            if call.outcome is Outcome.STARTED:
                call.outcome, call.may_lose = Outcome.UNKNOWN, call.may_take
            change(call)
            self.calls.append(call)
            self._write(call)
        journal.unlink()


def _items(journal: Path) -> Iterator[Any]:
    with journal.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):  # the end, or a record that a kill cut off
                return


__all__ = ["Call", "History", "Outcome"]
