"""KEYS, RANDOMKEY, SCAN, and the options that SCAN shares with HSCAN, SSCAN and ZSCAN (Redis: db.c)."""

from __future__ import annotations

import re
from typing import Any

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.keys import command
from rillet.commands.keys.lookup import TYPE_NAMES, type_name
from rillet.commands.lookup import read_value
from rillet.commands.replies import bulk_or_null, write_bulks
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.structs.glob import matches, matching
from rillet.types.compat import Compat

_CURSOR = re.compile(rb"(\s*)([+-]?)([0-9]+)")


@command("keys", arity=2, flags="readonly", keys=(0, 0, 0), since="1.0.0", syntax="pattern",
         complexity="O(N) for N keys")
def keys(session: Session, argv: list[bytes]) -> None:
    """List the keys whose names match a glob pattern."""
    out = session.out
    mark, count = out.mark(), 0
    for batch in session.db.live_keys():
        found = batch if argv[1] == b"*" else matching(argv[1], batch)
        out.bulks(found)
        count += len(found)
    out.insert_array(mark, count)


class _Deletions:
    """Keep expired keys while a block runs in EXEC, if `lazyexpire-nested-arbitrary-keys` is off (confAllowsExpireDel).

    They are missing for the command. Their deletions would be logged inside the transaction, for keys that it does not
    name.
    """

    def __init__(self, session: Session) -> None:
        self._engine = session.engine
        self._keep = session.in_exec and not session.engine.settings.lazyexpire_nested_arbitrary_keys

    def __enter__(self) -> None:
        self._engine.keeps_expired = self._keep

    def __exit__(self, *_: object) -> None:
        self._engine.keeps_expired = False


@command("randomkey", arity=1, flags="readonly touches_arbitrary_keys", keys=(0, 0, 0), since="1.0.0",
         complexity="O(1)")
def randomkey(session: Session, argv: list[bytes]) -> None:
    """Return a random key."""
    with _Deletions(session):
        bulk_or_null(session.out, session.db.random_key())


def parse_cursor(raw: bytes, compat: Compat) -> int:
    """Return a SCAN cursor (db.c: parseScanCursorOrReply).

    Until 7.2, strtoul reads it: an empty cursor is 0, and a negative one counts from 2^64. Since 7.4, and in Valkey,
    string2ull refuses both, but passes what is no canonical number to strtoull, which accepts blanks and "-05".
    """
    word = raw.partition(b"\0")[0]
    old = not compat.knows(74) and not compat.valkey
    if old and not word:
        return 0
    match = _CURSOR.fullmatch(word)
    number = int(match[3]) if match is not None and len(match[3]) < 4000 else 1 << 64
    if match is None or number >= 1 << 64 or (old and match[1]):
        raise CommandError("invalid cursor")
    if match[2] != b"-":
        return number
    canonical = not match[1] and match[3] == b"%d" % number
    if not old and canonical and 0 < number <= 1 << 63:
        raise CommandError("invalid cursor")
    return -number % (1 << 64)


def _is_bare(session: Session, option: bytes, scan: str) -> bool:
    """Return whether the option is NOVALUES or NOSCORES; raise an error if it belongs to another command."""
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


class ScanOptions:
    """The options of SCAN, HSCAN, SSCAN and ZSCAN in argv[start:] (db.c: scanGenericCommand).

    bare        NOVALUES (HSCAN) or NOSCORES (ZSCAN) is given
    type        TYPE of SCAN in lower case, empty unless given
    """

    __slots__ = ("bare", "count", "pattern", "type")

    def __init__(self, session: Session, argv: list[bytes], start: int, scan: str) -> None:
        self.count, self.pattern, self.type, self.bare = 10, b"*", b"", False
        at = start
        while at < len(argv):
            option = argv[at].lower()
            if _is_bare(session, option, scan):
                self.bare = True
                at += 1
                continue
            if at + 1 == len(argv):
                raise syntax_error()
            value = argv[at + 1]
            at += 2
            if option == b"match":
                self.pattern = value
            elif option == b"type" and scan == "SCAN":
                self.type = value.lower()
                if session.engine.settings.compat.valkey and self.type not in TYPE_NAMES.values():
                    raise CommandError(f"unknown type name '{text(value)}'")
            elif option == b"count":
                self.count = integer(value)
                if self.count < 1:
                    raise syntax_error()
            else:
                raise syntax_error()


def scan_value(session: Session, argv: list[bytes], kind: type, scan: str) -> tuple[Any, list[Any], bool]:
    """Run HSCAN, SSCAN or ZSCAN and write the next cursor; return the value, its elements, and `ScanOptions.bare`.

    An element of a sorted set is a pair of member and score; MATCH applies to the member.
    """
    cursor = parse_cursor(argv[2], session.engine.settings.compat)
    value: Any = read_value(session, argv[1], kind)
    following, elements, bare = 0, list[Any](), False
    if value is not None:
        options = ScanOptions(session, argv, 3, scan)
        bare = options.bare
        following, elements = value.scan(cursor, options.count)
        if options.pattern != b"*":
            wanted = options.pattern
            elements = [one for one in elements if matches(wanted, one[0] if isinstance(one, tuple) else one)]
    session.out.array(2)
    session.out.bulk(b"%d" % following)
    return value, elements, bare


@command("scan", arity=-2, flags="readonly touches_arbitrary_keys", keys=(0, 0, 0), since="2.8.0",
         syntax="cursor [MATCH pattern] [COUNT count] [TYPE type]",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N keys")
def scan(session: Session, argv: list[bytes]) -> None:
    """Return some keys of the database, and the cursor for the next call."""
    cursor = parse_cursor(argv[1], session.engine.settings.compat)
    options = ScanOptions(session, argv, 2, "SCAN")
    following, names = session.db.scan(cursor, options.count)
    session.out.array(2)
    session.out.bulk(b"%d" % following)
    type_first = session.engine.settings.compat.valkey
    with _Deletions(session):
        write_bulks(session.out, [key for key in names if _wanted(session.db, key, options, type_first)])


def _wanted(database: Database, key: bytes, options: ScanOptions, type_first: bool) -> bool:
    """Return whether SCAN returns a key; delete it if it has expired, in Valkey only if its type is wanted."""
    if options.pattern != b"*" and not matches(options.pattern, key):
        return False
    if type_first and options.type and not _has_type(database, database.keys.find(key), options):
        return False
    n = -1 if database.expire_if_needed(key) else database.keys.find(key)
    return n >= 0 and (not options.type or _has_type(database, n, options))


def _has_type(database: Database, n: int, options: ScanOptions) -> bool:
    """Return whether an entry's value has the type of the option TYPE, in any case."""
    return type_name(database, n).lower() == options.type
