"""Checks of the arguments of the store's methods.

An error names the parameter, says what it accepts, and shows the value: "count must be an int of at least 1, not '10'".
A value of another type is a TypeError, a value out of bounds a ValueError. Nothing was sent then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from numbers import Real
from operator import index
from typing import Any, TypeVar

from rillet.store.arguments.encoding import encode

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


def encoded(value: Any, name: str) -> bytes:
    """Return the bytes of a value that is str, bytes, int or float."""
    try:
        return encode(value)
    except TypeError:
        raise TypeError(f"{name} must be bytes, str, int or float, not {value!r:.200}") from None
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be text that UTF-8 can encode, not {value!r:.200}") from None


def words_of(args: Iterable[Any], name: str) -> list[bytes]:
    """Return the words of a command as bytes."""
    words = args if type(args) is tuple else list(items_of(args, name, "words"))
    try:
        return [encode(word) for word in words]
    except (TypeError, UnicodeEncodeError):
        return [encoded(word, f"one of {name}") for word in words]


def number_of(value: Any, name: str, *, finite: bool = True) -> bytes:
    """Return an int or float as the argument of a command; NaN is not a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r:.200}")
    number = value if isinstance(value, int) else float(value)
    if math.isnan(number) or (finite and math.isinf(number)):
        raise ValueError(f"{name} must be a {'finite ' if finite else ''}number, not {value!r:.200}")
    return encode(number)


def score_bound(value: Any, name: str) -> bytes:
    """Return a bound of scores: a number, or the text of one, with "(" before it if it is excluded."""
    if not isinstance(value, (str, bytes)):
        return number_of(value, name, finite=False)
    raw = encoded(value, name)
    try:
        if not math.isnan(float(raw.removeprefix(b"("))):
            return raw
    except ValueError:
        pass
    raise ValueError(f"{name} must be a number, '-inf', '+inf', or text such as '(1.5', not {value!r:.200}")


def lex_bound(value: Any, name: str) -> bytes:
    """Return a bound of members: "-", "+", or a member after "[" or "("."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be str or bytes, not {value!r:.200}")
    raw = encoded(value, name)
    if raw not in (b"-", b"+") and raw[:1] not in (b"[", b"("):
        raise ValueError(f"{name} must be '-', '+', or a member after '[' or '(', not {value!r:.200}")
    return raw


def text_bytes(value: Any, name: str) -> bytes:
    """Return the bytes of str or bytes."""
    if not isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be str or bytes, not {value!r:.200}")
    return encoded(value, name)


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
    """Return an iterable of names and the like; TypeError for another object, and for a single text or bytes."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be an iterable of {what}, not a single one: pass [{values!r:.200}]")
    return values_of(values, name, what)


def values_of(values: Iterable[T], name: str, what: str = "values") -> Iterable[T]:
    """Return an iterable of values; a text is one of its characters, as for Python's list.extend and set.update."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be an iterable of {what}, not {values!r:.200}")
    return values
