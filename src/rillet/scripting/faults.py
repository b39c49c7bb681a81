"""Errors that Python code raises inside a script.

lupa carries a Python exception through Lua as an opaque value. Every place where a script could see that value
(`pcall`, `xpcall`, `coroutine.resume`) asks for the plain Lua value instead: `taken` returns it. An exception that is
not a ScriptFault (KeyboardInterrupt, MemoryError, a defect) is never converted: the sandbox raises it again until it
leaves the script.
"""

from __future__ import annotations

# The kinds of Lua error values that a fault becomes.
TEXT = 0
"""A string, as luaL_error raises."""
REPLY = 1
"""A table with the field `err`, as redis.call raises; the command has counted the error already."""
UNCOUNTED = 2
"""A table with the field `err`; the error is counted when it becomes the script's reply."""


class ScriptFault(Exception):
    """An error inside a script. `message` is the text; `kind` is TEXT, REPLY or UNCOUNTED."""

    def __init__(self, message: bytes, kind: int = UNCOUNTED) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


def taken(error: object) -> tuple[bytes, int] | None:
    """Return the text and the kind of a fault, None for any other exception."""
    if isinstance(error, ScriptFault):
        return error.message, error.kind
    return None
