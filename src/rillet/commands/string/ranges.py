"""APPEND, STRLEN, SETRANGE, GETRANGE and SUBSTR: parts of a string (Redis: t_string.c)."""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import integer
from rillet.commands.string.values import check_length, string_for_write
from rillet.errors import CommandError, WrongType
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.string import String, new_string


@command("append", arity=3, flags="write denyoom fast", keys=(1, 1, 1), group="string", since="2.0.0",
         complexity="O(1) amortized, for a small appended value: a string that grows is over-allocated.",
         syntax="key value")
def append(session: Session, argv: list[bytes]) -> None:
    """Append bytes to a string."""
    key: bytes = argv[1]
    tail: bytes = argv[2]
    string: String = string_for_write(session.db, key)
    if string is None:
        string = new_string(tail)
        session.db.set(key, string)
    else:
        check_length(session, string.length() + len(tail))
        string.append(tail)
    session.modified(key)
    session.notify(b"$", b"append", key)
    session.out.integer(string.length())


@command("strlen", arity=2, flags="readonly fast", keys=(1, 1, 1), group="string", since="2.2.0", complexity="O(1)",
         syntax="key")
def strlen(session: Session, argv: list[bytes]) -> None:
    """Return the length of a string in bytes."""
    value: object = session.db.lookup_read(argv[1])
    if value is not None and not isinstance(value, String):
        raise WrongType()
    string: String = value  # type: ignore[assignment]
    session.out.integer(0 if string is None else string.length())


@command("setrange", arity=4, flags="write denyoom", keys=(1, 1, 1), group="string", since="2.2.0",
         complexity="O(M) with M being the length of the value argument, and of the gap before it.",
         syntax="key offset value")
def setrange(session: Session, argv: list[bytes]) -> None:
    """Overwrite part of a string, filling a gap with zero bytes."""
    key: bytes = argv[1]
    part: bytes = argv[3]
    offset = integer(argv[2])
    if offset < 0:
        raise CommandError("offset is out of range")
    string: String = string_for_write(session.db, key)
    if len(part) == 0:
        session.out.integer(0 if string is None else string.length())
        return
    check_length(session, offset + len(part))
    if string is None:
        string = new_string(b"")
        session.db.set(key, string)
    size: cython.Py_ssize_t = string.set_range(offset, part)
    session.modified(key)
    session.notify(b"$", b"setrange", key)
    session.out.integer(size)


@cython.cfunc
def _get_range(session: Session, argv: list[bytes]) -> cython.bint:
    start = integer(argv[2])
    end = integer(argv[3])
    value: object = session.db.lookup_read(argv[1])
    if value is not None and not isinstance(value, String):
        raise WrongType()
    string: String = value  # type: ignore[assignment]
    size: cython.Py_ssize_t = 0 if string is None else string.length()
    # Both negative and start > end: empty, even if clipping would make them meet at 0.
    if size == 0 or (start < 0 and end < 0 and start > end):
        return session.out.bulk(b"")
    start = max(start + size, 0) if start < 0 else start
    end = max(end + size, 0) if end < 0 else min(end, size - 1)
    if start > end:
        return session.out.bulk(b"")
    return session.out.bulk(string.get_range(start, end + 1))


@command("getrange", arity=4, flags="readonly", keys=(1, 1, 1), group="string", since="2.4.0",
         complexity="O(N) where N is the length of the returned string.", syntax="key start end")
def getrange(session: Session, argv: list[bytes]) -> None:
    """Return part of a string; both ends are included, negative ones count from the end."""
    _get_range(session, argv)


@command("substr", arity=4, flags="readonly", keys=(1, 1, 1), group="string", since="1.0.0",
         complexity="O(N) where N is the length of the returned string.", syntax="key start end")
def substr(session: Session, argv: list[bytes]) -> None:
    """Return part of a string; both ends are included, negative ones count from the end."""
    _get_range(session, argv)
