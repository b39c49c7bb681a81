"""APPEND, STRLEN, SETRANGE, GETRANGE and SUBSTR: parts of a string (Redis: t_string.c)."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import integer
from rillet.commands.string import command
from rillet.commands.string.values import check_length, form_of_word, string_for_write, string_to_read
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.string import String, new_string


@command("append", arity=3, flags="write denyoom fast", since="2.0.0", syntax="key value",
         complexity="O(1) amortized, for a small appended value: a string that grows is over-allocated.")
def append(session: Session, argv: list[bytes]) -> None:
    """Append bytes to a string."""
    key: bytes = argv[1]
    tail: bytes = argv[2]
    size: cython.Py_ssize_t
    string: String = string_for_write(session.db, key)
    if string is None:
        size = len(tail)
        session.db.set_string(key, tail, form_of_word(session))
    else:
        check_length(session, string.length() + len(tail))
        size = string.append(tail)
    session.modified(key)
    session.notify(b"$", b"append", key)
    session.out.integer(size)


@command("strlen", arity=2, flags="readonly fast", since="2.2.0", syntax="key", complexity="O(1)")
def strlen(session: Session, argv: list[bytes]) -> None:
    """Return the length of a string in bytes."""
    string: String = string_to_read(session, argv[1])
    session.out.integer(0 if string is None else string.length())


@command("setrange", arity=4, flags="write denyoom", since="2.2.0", syntax="key offset value",
         complexity="O(M) with M being the length of the value argument, and of the gap before it.")
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
    string: String = string_to_read(session, argv[1])
    size: cython.Py_ssize_t = 0 if string is None else string.length()
    # Two negative bounds in the wrong order give an empty range, even if both would be clipped to 0.
    if size == 0 or (start < 0 and end < 0 and start > end):
        return session.out.bulk(b"")
    start = max(start + size, 0) if start < 0 else start
    end = max(end + size, 0) if end < 0 else min(end, size - 1)
    if start > end:
        return session.out.bulk(b"")
    return session.out.bulk(string.get_range(start, end + 1))


@command("getrange", arity=4, flags="readonly", since="2.4.0", syntax="key start end",
         complexity="O(N) where N is the length of the returned string.")
def getrange(session: Session, argv: list[bytes]) -> None:
    """Return part of a string; both positions are included, negative positions count from the end."""
    _get_range(session, argv)


@command("substr", arity=4, flags="readonly", since="1.0.0", syntax="key start end",
         complexity="O(N) where N is the length of the returned string.")
def substr(session: Session, argv: list[bytes]) -> None:
    """Return part of a string; both positions are included, negative positions count from the end."""
    _get_range(session, argv)
