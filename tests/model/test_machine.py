"""The model as a state machine of hypothesis: one caller, interrupted at drawn places; the law after each call.

Without other threads, a failure shrinks to a few calls.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import rillet
from rillet import Store
from tests.model.actors import make, make_cancelled
from tests.model.history import History
from tests.model.interrupts import AtPlace, Undisturbed, quiet
from tests.model.law import read_state, violations
from tests.model.operations import GROUP, OPERATIONS, Choices, Keys

# Alone, a call that waits would wait until its timeout.
NAMES = sorted(set(OPERATIONS) - {"read", "messages"})


class OneCaller(RuleBasedStateMachine):
    """Calls of one thread and of one task at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.keys = Keys("m:")
        self.history = History()
        self.number = 0
        self.store = self.open()
        self.store.stream(self.keys.stream).group(GROUP).create()
        self.callers = {
            is_async: Choices("task" if is_async else "thread", self.keys, random.Random(0), is_async)
            for is_async in (False, True)
        }

    def open(self) -> Store:
        """Return the store."""
        return self.stack.enter_context(rillet.open())

    def _caller(self, name: str, seed: int, is_async: bool) -> Choices:
        caller = self.callers[is_async]
        caller.names, caller.source = [name], random.Random(seed)
        self.number += 1
        return caller

    @rule(name=st.sampled_from(NAMES), seed=st.integers(0, 50), place=st.integers(0, 60))
    def call(self, name: str, seed: int, place: int) -> None:
        """Make a call in this thread; it is interrupted at a place, or not at all."""
        interrupts = AtPlace(lambda: place) if place else Undisturbed()
        with quiet():
            make(self.store, self.history, self._caller(name, seed, False), self.number, interrupts)

    @rule(name=st.sampled_from(NAMES), seed=st.integers(0, 50), turns=st.integers(0, 6))
    def cancelled(self, name: str, seed: int, turns: int) -> None:
        """Make a call in a task, which is cancelled after some turns of the event loop."""
        caller = self._caller(name, seed, True)
        asyncio.run(make_cancelled(self.store.aio(), self.history, caller, self.number, turns))

    @invariant()
    def law_holds(self) -> None:
        """The data follows from the calls."""
        state = read_state(self.store, self.keys, ["thread", "task"])
        assert [*self.history.violations, *violations(self.history.calls, state)] == []

    def teardown(self) -> None:
        """Close the store."""
        self.stack.close()


class OneCallerOfADirectory(OneCaller):
    """The same with a durable store, which is opened again at the end."""

    def open(self) -> Store:
        """Return the store."""
        self.path = Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "store"
        options: dict[str, Any] = {"appendfsync": "always"}
        return self.stack.enter_context(rillet.open(self.path, **options))

    def teardown(self) -> None:
        """Open the directory again, and check its data."""
        self.store.close()
        with rillet.open(self.path) as self.store:
            self.law_holds()
        super().teardown()


TestMemory = OneCaller.TestCase
TestMemory.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
TestDirectory = OneCallerOfADirectory.TestCase
TestDirectory.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)
