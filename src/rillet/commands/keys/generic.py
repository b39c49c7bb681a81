"""The commands about keys of any type (Redis: db.c); expiry is in `expire`, what a key is made of in `object`.

DEL and UNLINK do the same: freeing memory is the interpreter's business and happens as objects go.
"""

from __future__ import annotations

import re
from typing import Any

from rillet.commands.arguments import integer, small_integer, syntax_error
from rillet.commands.stream.idmp import track
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs.glob import compiled
from rillet.types.compat import Compat
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.rdb import value as rdb
from rillet.types.set import Set
from rillet.types.stream.value import Stream
from rillet.types.string import String
from rillet.types.zset import Zset

TYPE_NAMES: dict[type, bytes] = {
    String: b"string", List: b"list", Set: b"set", Zset: b"zset", Hash: b"hash", Stream: b"stream",
}  # fmt: skip
"""What TYPE calls the values (db.c: getObjectTypeName)."""

_CURSOR = re.compile(rb"(?:([+-]?)([0-9]+))?(?:\0.*)?", re.DOTALL)
_SAME_OBJECT = "source and destination objects are the same"


def _database(session: Session, raw: bytes) -> Database:
    """Return the database of that number."""
    index = small_integer(raw)
    if not 0 <= index < len(session.engine.databases):
        raise CommandError("DB index is out of range")
    database: Database = session.engine.databases[index]
    return database


def _notify(session: Session, database: Database, event: bytes, key: bytes) -> None:
    """Note an event in a database that need not be the session's."""
    if session.engine.notify_events:
        session.engine.keyspace_event(database, b"g", event, key)


# -- existence --------------------------------------------------------------------------------------


def _delete(session: Session, keys: list[bytes]) -> None:
    database = session.db
    removed = 0
    for key in keys:
        database.expire_if_needed(key)
        if database.delete(key):
            session.modified(key)
            session.notify(b"g", b"del", key)
            removed += 1
    session.out.integer(removed)


@command("del", arity=-2, flags="write", keys=(1, -1, 1), group="generic", since="1.0.0",
         complexity="O(N) for N keys, and O(M) for each value made of M parts", syntax="key [key ...]")
def del_(session: Session, argv: list[bytes]) -> None:
    """Remove keys."""
    _delete(session, argv[1:])


@command("unlink", arity=-2, flags="write fast", keys=(1, -1, 1), group="generic", since="4.0.0",
         complexity="O(N) for N keys, and O(M) for each value made of M parts", syntax="key [key ...]")
def unlink(session: Session, argv: list[bytes]) -> None:
    """Remove keys."""
    _delete(session, argv[1:])


def _count_existing(session: Session, keys: list[bytes]) -> None:
    session.out.integer(sum(1 for key in keys if session.db.lookup_read(key) is not None))


@command("exists", arity=-2, flags="readonly fast", keys=(1, -1, 1), group="generic", since="1.0.0",
         complexity="O(N) for N keys", syntax="key [key ...]")
def exists(session: Session, argv: list[bytes]) -> None:
    """Count how many of the keys exist; one given twice counts twice."""
    _count_existing(session, argv[1:])


@command("touch", arity=-2, flags="readonly fast", keys=(1, -1, 1), group="generic", since="3.2.1",
         complexity="O(N) for N keys", syntax="key [key ...]")
def touch(session: Session, argv: list[bytes]) -> None:
    """Look the keys up, and count those that exist."""
    _count_existing(session, argv[1:])


@command("type", arity=2, flags="readonly fast", keys=(1, 1, 1), group="generic", since="1.0.0", complexity="O(1)",
         syntax="key")
def type_(session: Session, argv: list[bytes]) -> None:
    """Tell the type of the value at a key."""
    value: Any = session.db.lookup_read(argv[1])
    session.out.simple(b"none" if value is None else TYPE_NAMES[type(value)])


@command("dbsize", arity=1, flags="readonly fast", group="server", since="1.0.0", complexity="O(1)")
def dbsize(session: Session, argv: list[bytes]) -> None:
    """Count the keys of the database."""
    session.out.integer(len(session.db))


# -- walking ----------------------------------------------------------------------------------------


@command("keys", arity=2, flags="readonly", group="generic", since="1.0.0", complexity="O(N) for N keys",
         syntax="pattern")
def keys(session: Session, argv: list[bytes]) -> None:
    """List the keys whose names match a glob pattern."""
    out = session.out
    glob = compiled(argv[1])
    mark, found = out.mark(), 0
    for key in session.db.live_keys():
        if argv[1] == b"*" or glob.matches(key):
            out.bulk(key)
            found += 1
    out.insert_array(mark, found)


@command("randomkey", arity=1, flags="readonly touches_arbitrary_keys", group="generic", since="1.0.0",
         complexity="O(1)")
def randomkey(session: Session, argv: list[bytes]) -> None:
    """Return the name of some key."""
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
    """Whether the option is NOVALUES or NOSCORES; CommandError for either in a scan of something else."""
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
    """Return COUNT, MATCH and whether NOVALUES (HSCAN) or NOSCORES (ZSCAN) is given, from argv[start] on.

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


@command("scan", arity=-2, flags="readonly touches_arbitrary_keys", group="generic", since="2.8.0",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N keys",
         syntax="cursor [MATCH pattern] [COUNT count] [TYPE type]")
def scan(session: Session, argv: list[bytes]) -> None:
    """Walk over the keys, some at a time."""
    cursor = parse_cursor(argv[1])
    count, pattern, kind = 10, b"*", b""
    for at in range(2, len(argv), 2):
        option = argv[at].lower()
        _is_bare(session, option, "SCAN")  # where it is, it is refused
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
    following, found = session.db.scan(cursor, count)
    found = [key for key in found if _wanted(session.db, key, pattern, kind)]
    out = session.out
    out.array(2)
    out.bulk(b"%d" % following)
    out.array(len(found))
    for key in found:
        out.bulk(key)


def _wanted(database: Database, key: bytes, pattern: bytes, kind: bytes) -> bool:
    if pattern != b"*" and not compiled(pattern).matches(key):
        return False
    value: Any = database.lookup(key)
    return value is not None and (not kind or TYPE_NAMES[type(value)] == kind)


# -- renaming, copying, moving ----------------------------------------------------------------------


def _put(database: Database, key: bytes, value: object, expiry: int) -> None:
    """Put a value at a key that does not exist, with its expiry or without one (-1)."""
    database.set(key, value)
    track(database, key, value)
    if expiry >= 0:
        database.set_expire(key, expiry)


def _rename(session: Session, argv: list[bytes], only_new: bool) -> bool:
    """Give the key another name; False where only_new forbids it (db.c: renameGenericCommand)."""
    source, target = argv[1], argv[2]
    database = session.db
    value = database.lookup(source)
    if value is None:
        raise CommandError("no such key")
    if source == target:
        return not only_new
    old = database.lookup(target)
    if old is not None:
        if only_new:
            return False
        database.delete(target)
    expiry = database.get_expire(source)
    database.delete(source)
    _put(database, target, value, expiry)
    session.modified(source)
    database.touch(target)
    session.notify(b"g", b"rename_from", source)
    session.notify(b"g", b"rename_to", target)
    database.notify_overwritten(target, old, value)
    return True


@command("rename", arity=3, flags="write", keys=(1, 2, 1), group="generic", since="1.0.0", complexity="O(1)",
         syntax="key newkey")
def rename(session: Session, argv: list[bytes]) -> None:
    """Give a key another name, replacing what is there."""
    _rename(session, argv, only_new=False)
    session.out.ok()


@command("renamenx", arity=3, flags="write fast", keys=(1, 2, 1), group="generic", since="1.0.0", complexity="O(1)",
         syntax="key newkey")
def renamenx(session: Session, argv: list[bytes]) -> None:
    """Give a key another name, unless that exists."""
    session.out.integer(_rename(session, argv, only_new=True))


@command("copy", arity=-3, flags="write denyoom", keys=(1, 2, 1), group="generic", since="6.2.0",
         complexity="O(N) for a value made of N parts, O(1) for a string",
         syntax="source destination [DB destination-db] [REPLACE]")
def copy(session: Session, argv: list[bytes]) -> None:
    """Copy a value to another key."""
    target, replace, at = session.db, False, 3
    while at < len(argv):
        option = argv[at].lower()
        if option == b"replace":
            replace = True
        elif option == b"db" and at + 1 < len(argv):
            target = _database(session, argv[at + 1])
            at += 1
        else:
            raise syntax_error()
        at += 1
    if target is session.db and argv[1] == argv[2]:
        raise CommandError(_SAME_OBJECT)
    session.out.integer(_copy(session, argv[1], target, argv[2], replace))


def _copy(session: Session, source: bytes, target: Database, key: bytes, replace: bool) -> bool:
    value: Any = session.db.lookup_read(source)
    if value is None:
        return False
    old = target.lookup(key)
    if old is not None:
        if not replace:
            return False
        target.delete(key)
    _put(target, key, _duplicate(value, session.engine.settings.compat), session.db.get_expire(source))
    target.touch(key)
    session.dirty += 1
    _notify(session, target, b"copy_to", key)
    target.notify_overwritten(key, old, value)
    return True


def _duplicate(value: Any, compat: Compat) -> Any:
    """Return a value of its own with the same content: by way of its RDB form, which holds nearly all of it."""
    if isinstance(value, (String, List, Set, Zset, Hash)):
        return value.copy()
    twin: Any = rdb.restore(rdb.dump(value, False))
    if isinstance(value, Stream):
        twin.idmp = None if value.idmp is None else value.idmp.copy()
        if compat.knows(88):
            for name, group in twin.groups.items():
                group.chain_as(value.groups[name])
    return twin


@command("move", arity=3, flags="write fast", keys=(1, 1, 1), group="generic", since="1.0.0", complexity="O(1)",
         syntax="key db")
def move(session: Session, argv: list[bytes]) -> None:
    """Take a key to another database, unless it exists there."""
    key, source, target = argv[1], session.db, _database(session, argv[2])
    if target is source:
        raise CommandError(_SAME_OBJECT)
    value = source.lookup(key)
    if value is None or target.lookup(key) is not None:
        session.out.integer(0)
        return
    expiry = source.get_expire(key)
    source.delete(key)
    _put(target, key, value, expiry)
    session.modified(key)
    target.touch(key)
    _notify(session, source, b"move_from", key)
    _notify(session, target, b"move_to", key)
    session.out.integer(1)


@command("swapdb", arity=3, flags="write fast", group="server", since="4.0.0",
         complexity="O(N) for N clients that watch or wait for keys of the two", syntax="index1 index2")
def swapdb(session: Session, argv: list[bytes]) -> None:
    """Exchange two databases; clients see the other one's keys at once."""
    databases = session.engine.databases
    one = small_integer(argv[1], "invalid first DB index")
    two = small_integer(argv[2], "invalid second DB index")
    if not 0 <= one < len(databases) or not 0 <= two < len(databases):
        raise CommandError("DB index is out of range")
    if one != two:
        databases[one].swap(databases[two])
    session.dirty += 1
    session.out.ok()


# -- everything at once -----------------------------------------------------------------------------


def _check_flush(argv: list[bytes]) -> None:
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() not in (b"sync", b"async")):
        raise syntax_error()


@command("flushdb", arity=-1, flags="write", group="server", since="1.0.0", complexity="O(N) for N keys",
         syntax="[ASYNC | SYNC]")
def flushdb(session: Session, argv: list[bytes]) -> None:
    """Remove every key of the database."""
    _check_flush(argv)
    session.dirty += session.db.flush()
    session.propagate(argv)
    session.out.ok()


@command("flushall", arity=-1, flags="write", group="server", since="1.0.0",
         complexity="O(N) for N keys in all databases", syntax="[ASYNC | SYNC]")
def flushall(session: Session, argv: list[bytes]) -> None:
    """Remove every key of every database."""
    _check_flush(argv)
    session.dirty += sum(database.flush() for database in session.engine.databases)
    if not session.engine.loading and session.engine.host.flushed():
        session.dirty = 0  # the empty file is written
    session.propagate(argv)
    session.out.ok()
