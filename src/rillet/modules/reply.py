"""A Python value as the reply of a module's command.

    bytes            bulk string                     None             null
    str              simple string                   list, tuple      array
    int              integer; outside of 64 bits a   dict             map
                     big number                      set, frozenset   set
    bool             boolean                         CommandError     an error inside an array
    float            double                          Verbatim         text with its format
    bytearray, memoryview: as bytes                  Attributes       attributes, and the value that they describe

Any other value is a mistake of the module: the client gets an error, and nothing of the reply. NULL_ARRAY is the null
array of RESP2, which is null in RESP3. CommandError("text") is the error `ERR text`; ErrorReply("CODE text") has
another code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rillet.errors import CommandError
from rillet.protocol.reply_parser import ReplyError as ErrorReply
from rillet.protocol.reply_writer import ReplyWriter

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_DEPTH = 128  # of nested containers


class _Sign:
    """A value with a special meaning."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


NULL_ARRAY = _Sign("NULL_ARRAY")
"""The null array of RESP2."""
NO_REPLY = _Sign("NO_REPLY")
"""The command has written its reply to `context.out` itself."""


class Verbatim(NamedTuple):
    """A text with its format: three characters, such as txt or mkd."""

    data: bytes
    format: bytes = b"txt"


class Attributes(NamedTuple):
    """Attributes of a reply, and the reply."""

    fields: dict[Any, Any]
    value: Any


class WrongReply(TypeError):
    """A module returned a value that cannot be a reply."""


def write_reply(out: ReplyWriter, value: Any, depth: int = 0) -> None:
    """Write a value; WrongReply if that is impossible."""
    if depth > _DEPTH:
        raise WrongReply("the reply has more than 128 nested levels")
    if isinstance(value, bytes):
        out.bulk(value)
    elif isinstance(value, str):
        if "\r" in value or "\n" in value:
            raise WrongReply("a str is a simple string, which has one line; return bytes")
        out.simple(value.encode("utf-8", "surrogateescape"))
    elif value is None:
        out.null()
    elif isinstance(value, bool):
        out.boolean(value)
    elif isinstance(value, int):
        out.integer(value) if _LEAST <= value <= _MOST else out.bignum(b"%d" % value)
    elif isinstance(value, float):
        out.double(value)
    elif value is NULL_ARRAY:
        out.null_array()
    elif isinstance(value, bytearray | memoryview):
        out.bulk(bytes(value))
    elif isinstance(value, CommandError):
        out.error(str(value).encode("utf-8", "surrogateescape"))
    elif isinstance(value, Verbatim):
        out.verbatim(value.data, value.format)
    elif isinstance(value, Attributes):
        _write_attributes(out, value, depth)
    else:
        _write_container(out, value, depth)


def _write_container(out: ReplyWriter, value: Any, depth: int) -> None:
    if isinstance(value, dict):
        out.map(len(value))
        for name, one in value.items():
            write_reply(out, name, depth + 1)
            write_reply(out, one, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        out.set(len(value)) if isinstance(value, set | frozenset) else out.array(len(value))
        for one in value:
            write_reply(out, one, depth + 1)
    else:
        raise WrongReply(f"the module returned a {type(value).__name__}, which is not a reply")


def _write_attributes(out: ReplyWriter, value: Attributes, depth: int) -> None:
    if out.resp < 3:
        raise ErrorReply("Attributes aren't supported by RESP 2")
    out.attribute(len(value.fields))
    for name, one in value.fields.items():
        write_reply(out, name, depth + 1)
        write_reply(out, one, depth + 1)
    write_reply(out, value.value, depth + 1)
