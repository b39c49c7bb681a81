"""Checks of the arguments of the store's methods.

An error names the parameter, says what it accepts, and shows the value: "count must be an int of at least 1, not '10'".
A value of another type is a TypeError, a value out of bounds a ValueError. Nothing was sent then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import index
from typing import Any, TypeVar

T = TypeVar("T")


def whole_number(value: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    """Return an int between two bounds, both included. A float and a bool are not ints, a number of numpy is."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be {_an_int(least, most)}, not {value!r:.200}") from None
    if (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(f"{name} must be {_an_int(least, most)}, not {_shown(number)}")
    return number


def _shown(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # more than 4300 digits
        return hex(number)[:40] + "..."


def _an_int(least: int | None, most: int | None) -> str:
    if least is not None and most is not None:
        return f"an int from {least} to {most}"
    return "an int" if least is None else f"an int of at least {least}"


def integer_of(value: Any, name: str, least: int | None = None, most: int | None = None) -> bytes:
    """Return an int as the argument of a command; see `whole_number`."""
    return b"%d" % whole_number(value, name, least, most)


def flag(value: Any, name: str) -> bool:
    """Return True or False; TypeError for another object, such as the text "no", which would count as true."""
    if value is True or value is False:
        return bool(value)
    if type(value).__module__ != "numpy" or type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} must be True or False, not {value!r:.200}")
    return bool(value)


def one_of(value: Any, name: str, choices: Collection[str]) -> Any:
    """Return a text that is one of the choices; ValueError for any other object."""
    if isinstance(value, str) and value in choices:
        return value
    *others, last = (repr(choice) for choice in choices)
    raise ValueError(f"{name} must be {', '.join(others)} or {last}, not {value!r:.200}")


def items_of(values: Iterable[T], name: str, what: str) -> Iterable[T]:
    """Return an iterable of several values; TypeError for another object, and for a single text or bytes."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be an iterable of {what}, such as a list, not a single one: [{values!r:.200}]")
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be an iterable of {what}, not {values!r:.200}")
    return values


__all__ = ["flag", "integer_of", "items_of", "one_of", "whole_number"]
