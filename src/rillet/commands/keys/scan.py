"""KEYS, RANDOMKEY, SCAN, and the options that SCAN shares with HSCAN, SSCAN and ZSCAN (Redis: db.c)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.keys.lookup import TYPE_NAMES
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs.glob import compiled

_CURSOR = re.compile(rb"(?:([+-]?)([0-9]+))?(?:\0.*)?", re.DOTALL)


@command("keys", arity=2, flags="readonly", group="generic", since="1.0.0", complexity="O(N) for N keys",
         syntax="pattern")
def keys(session: Session, argv: list[bytes]) -> None:
    """List the keys whose names match a glob pattern."""
    out = session.out
    glob = compiled(argv[1])
    mark, count = out.mark(), 0
    for key in session.db.live_keys():
        if argv[1] == b"*" or glob.matches(key):
            out.bulk(key)
            count += 1
    out.insert_array(mark, count)


@command("randomkey", arity=1, flags="readonly touches_arbitrary_keys", group="generic", since="1.0.0",
         complexity="O(1)")
def randomkey(session: Session, argv: list[bytes]) -> None:
    """Return a random key."""
    key = session.db.random_key()
    if key is None:
        session.out.null()
    else:
        session.out.bulk(key)


def parse_cursor(raw: bytes) -> int:
    """Return a SCAN cursor, read as C's strtoul reads it (db.c: parseScanCursorOrReply)."""
    match = _CURSOR.fullmatch(raw)
    number = int(match[2] or 0) if match and len(match[2] or b"") < 4000 else 1 << 64
    if match is None or number >= 1 << 64:
        raise CommandError("invalid cursor")
    return -number % (1 << 64) if match[1] == b"-" else number


def _is_bare(session: Session, option: bytes, scan: str) -> bool:
    """Return whether the option is NOVALUES or NOSCORES; CommandError if it belongs to another command."""
    compat = session.engine.settings.compat
    if option == b"novalues" and (compat.knows(74) or compat.valkey):
        meant = "HSCAN"
    elif option == b"noscores" and compat.valkey:
        meant = "ZSCAN"
    else:
        return False
    if scan != meant:
        raise CommandError(f"{option.decode().upper()} option can only be used in {meant}")
    return True


def scan_options(session: Session, argv: list[bytes], start: int, scan: str = "") -> tuple[int, bytes, bool]:
    """Return COUNT, MATCH and whether NOVALUES (HSCAN) or NOSCORES (ZSCAN) is given, in argv[start:].

    Source: db.c, scanGenericCommand.
    """
    count, pattern, bare, at = 10, b"*", False, start
    while at < len(argv):
        option = argv[at].lower()
        if _is_bare(session, option, scan):
            bare = True
            at += 1
            continue
        if at + 1 == len(argv) or option not in (b"count", b"match"):
            raise syntax_error()
        if option == b"match":
            pattern = argv[at + 1]
        else:
            count = integer(argv[at + 1])
            if count < 1:
                raise syntax_error()
        at += 2
    return count, pattern, bare


def scan_value(
    session: Session, argv: list[bytes], read: Callable[[Session, bytes], Any], scan: str
) -> tuple[Any, list[Any], bool]:
    """Run HSCAN, SSCAN or ZSCAN and write the next cursor; return the value, the elements, and `bare` of scan_options.

    An element of a sorted set is a pair of member and score; MATCH applies to the member.
    """
    cursor = parse_cursor(argv[2])
    value = read(session, argv[1])
    following, elements, bare = 0, list[Any](), False
    if value is not None:
        count, pattern, bare = scan_options(session, argv, 3, scan)
        following, elements = value.scan(cursor, count)
        if pattern != b"*":
            glob = compiled(pattern)
            elements = [one for one in elements if glob.matches(one[0] if isinstance(one, tuple) else one)]
    session.out.array(2)
    session.out.bulk(b"%d" % following)
    return value, elements, bare


@command("scan", arity=-2, flags="readonly touches_arbitrary_keys", group="generic", since="2.8.0",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N keys",
         syntax="cursor [MATCH pattern] [COUNT count] [TYPE type]")
def scan(session: Session, argv: list[bytes]) -> None:
    """Iterate over the keys, some per call."""
    cursor = parse_cursor(argv[1])
    count, pattern, kind = 10, b"*", b""
    for at in range(2, len(argv), 2):
        option = argv[at].lower()
        _is_bare(session, option, "SCAN")  # raises for either option
        if at + 1 == len(argv) or option not in (b"count", b"match", b"type"):
            raise syntax_error()
        if option == b"count":
            count = integer(argv[at + 1])
            if count < 1:
                raise syntax_error()
        elif option == b"match":
            pattern = argv[at + 1]
        else:
            kind = argv[at + 1].lower()
    following, names = session.db.scan(cursor, count)
    names = [key for key in names if _wanted(session.db, key, pattern, kind)]
    out = session.out
    out.array(2)
    out.bulk(b"%d" % following)
    out.array(len(names))
    for key in names:
        out.bulk(key)


def _wanted(database: Database, key: bytes, pattern: bytes, kind: bytes) -> bool:
    if pattern != b"*" and not compiled(pattern).matches(key):
        return False
    value: Any = database.lookup(key)
    return value is not None and (not kind or TYPE_NAMES[type(value)] == kind)
