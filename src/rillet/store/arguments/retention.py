"""Arguments of RILLET.XRETAIN: how much of a stream is kept."""

from __future__ import annotations

import math
from typing import Any

from rillet.errors import CommandError, StoreError
from rillet.runtime.settings.setting_types import parse_memory
from rillet.store.arguments.argument_checks import integer_of, one_of
from rillet.store.arguments.durations import Seconds, milliseconds_in

_MOST = 10**18 - 1
_GROUPS = {"acknowledged": b"ACKNOWLEDGED", "ignore": b"IGNORE"}


def retention_arguments(age: Seconds | None, entries: int | None, bytes: int | str | None, groups: str) -> list[Any]:
    """Return the limits, none if all are None; ValueError for one that is not positive, and for other groups."""
    word = _GROUPS[one_of(groups, "groups", _GROUPS)]
    argv: list[Any] = []
    if age is not None:
        argv += [b"AGE", _positive(age)]
    if entries is not None:
        argv += [b"ENTRIES", _count(entries, "entries")]
    if bytes is not None:
        size = parse_memory(bytes) if isinstance(bytes, str) else bytes
        if size is None:
            raise ValueError(f"bytes must be a number of bytes, or text such as '256mb', not {bytes!r:.200}")
        argv += [b"BYTES", _count(size, "bytes")]
    return [*argv, b"GROUPS", word] if argv else argv


def _positive(age: Seconds) -> Any:
    words = milliseconds_in(age, "age")
    if not 0 < int(words) <= _MOST:
        raise ValueError(f"age must be a positive, finite number of seconds, not {age!r:.200}")
    return words


def _count(value: Any, name: str) -> Any:
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{name} must be an int of at least 1, not nan")
    return integer_of(value, name, 1, _MOST)


def is_unknown(error: CommandError) -> bool:
    """Return whether a server does not have a command."""
    return "unknown command" in str(error).lower()


def not_retained(error: CommandError) -> Exception:
    """Return the error of a server that refused RILLET.XRETAIN."""
    if is_unknown(error):
        return StoreError("this server has no retention, only rillet has it: trim the stream with Stream.trim or XADD")
    return error
