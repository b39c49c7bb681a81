"""The comparison of a stored object with the Python object that is its model."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.store.types.conftest import only

# The stores of the property tests: the engine in this process, and a server in both versions of the protocol.
MODELLED = only("memory", "redis", "resp3")
NAMES = st.sampled_from(["key", "ключ", ""])


def outcome(target: Any, action: tuple[Any, ...]) -> object:
    """Return the result of a method call, or the class of its exception."""
    method, *arguments = action
    try:
        return getattr(target, method)(*arguments)
    except (KeyError, IndexError, ValueError) as error:
        return type(error)


def compare(stored: Any, model: Any, action: tuple[Any, ...]) -> None:
    """Call a method of both objects and compare the results."""
    assert outcome(stored, action) == outcome(model, action), action
