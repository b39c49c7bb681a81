"""RENAME, RENAMENX, COPY, MOVE and SWAPDB (Redis: db.c)."""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import small_integer, syntax_error
from rillet.commands.keys import command
from rillet.commands.stream.idmp import track
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.field_expiry import field_clock
from rillet.runtime.session import Session
from rillet.types.array import Array
from rillet.types.compat import EMBEDS_44, Compat
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.module import KeyPlace, ModuleValue
from rillet.types.rdb.stream import copy_stream
from rillet.types.set import Set
from rillet.types.string import OWN, RAW, String
from rillet.types.zset import Zset

_SAME_OBJECT = "source and destination objects are the same"


def _database(session: Session, raw: bytes) -> Database:
    """Return the database whose number is given as an argument."""
    index = small_integer(raw)
    if not 0 <= index < len(session.engine.databases):
        raise CommandError("DB index is out of range")
    database: Database = session.engine.databases[index]
    return database


def _notify(session: Session, database: Database, event: bytes, key: bytes) -> None:
    """Publish a keyspace event of any database, not only the session's."""
    if database.notifies:
        session.engine.keyspace_event(database, b"g", event, key)


def _under_new_key(session: Session, value: Any, key: bytes) -> Any:
    """Return the value of a key for another key: a string that was raw because of the key stays raw."""
    rule = session.engine.settings.compat.embedding
    if rule != EMBEDS_44 and isinstance(value, String) and value.form != RAW:
        if value.encoding_at(len(key), rule) == "raw":
            return String(value.value(), RAW)
    return value


def _put(database: Database, key: bytes, value: object, expiry: int) -> None:
    """Store a value at a new key; expiry -1 means no expiry."""
    database.put(key, value)
    track(database, key, value)
    if expiry >= 0:
        database.set_expire(key, expiry)


def _keep_access(session: Session, database: Database, key: bytes, bits: int) -> None:
    """Give a moved value its LRU or LFU data; since 7.2, a value gets new data under a new name (dbAddInternal)."""
    if not session.engine.settings.compat.knows(72):
        database.set_access_bits(key, bits)


def _rename(session: Session, argv: list[bytes], only_new: bool) -> bool:
    """Rename a key; return False if only_new is set and the new name exists (db.c: renameGenericCommand)."""
    source, target = argv[1], argv[2]
    database = session.db
    n = database.find(source)
    if n < 0:
        raise CommandError("no such key")
    value, bits = _under_new_key(session, database.value_at(n), source), database.keys.lru(n)
    if source == target:
        return not only_new
    old = database.view(target)
    if old is not None:
        if only_new:
            return False
        database.delete_replaced(target)
    expiry = database.get_expire(source)
    database.delete(source)
    _put(database, target, value, expiry)
    _keep_access(session, database, target, bits)
    session.modified(source)
    database.touch(target)
    session.notify(b"g", b"rename_from", source)
    session.notify(b"g", b"rename_to", target)
    database.notify_overwritten(target, old, value)
    return True


@command("rename", arity=3, flags="write", keys=(1, 2, 1), since="1.0.0", syntax="key newkey", complexity="O(1)")
def rename(session: Session, argv: list[bytes]) -> None:
    """Rename a key, replacing the key of the new name."""
    _rename(session, argv, only_new=False)
    session.out.ok()


@command("renamenx", arity=3, flags="write fast", keys=(1, 2, 1), since="1.0.0", syntax="key newkey", complexity="O(1)")
def renamenx(session: Session, argv: list[bytes]) -> None:
    """Rename a key, unless the new name exists."""
    session.out.integer(_rename(session, argv, only_new=True))


@command("copy", arity=-3, flags="write denyoom", keys=(1, 2, 1), since="6.2.0",
         syntax="source destination [DB destination-db] [REPLACE]",
         complexity="O(N) for a value made of N parts, O(1) for a string")
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
    value: Any = session.db.view_read(source)
    if value is None:
        return False
    old = target.view(key)
    if old is not None and not replace:
        return False
    if isinstance(value, ModuleValue):
        twin: object = value.copy(KeyPlace(session.db.index, source), KeyPlace(target.index, key))
    else:
        twin = _duplicate(value, session.engine.settings.compat)
    if old is not None:
        target.delete_replaced(key)
    twin = _under_new_key(session, twin, source)
    if isinstance(twin, Hash) and twin.expiry is not None and session.engine.settings.compat.valkey:
        _drop_expired(session, twin)
    _put(target, key, twin, session.db.get_expire(source))
    target.touch(key)
    session.dirty += 1
    _notify(session, target, b"copy_to", key)
    target.notify_overwritten(key, old, value)
    return True


def _duplicate(value: Any, compat: Compat) -> Any:
    """Return a copy of a value. A stream is copied through its RDB form, then the data that RDB lacks is added."""
    if isinstance(value, String) and compat.shares_integers and value.is_integer():
        return String(value.data, OWN)
    if isinstance(value, (String, List, Set, Zset, Hash, Array)):
        return value.copy()
    twin = copy_stream(value)
    twin.idmp = None if value.idmp is None else value.idmp.copy()
    if compat.knows(88):
        for name, group in twin.groups.items():
            group.chain_as(value.groups[name])
    return twin


def _drop_expired(session: Session, twin: Hash) -> None:
    """Leave out the expired fields of a copied hash, as Valkey does; if all have expired, they stay.

    Valkey then creates a hash without fields (hashTypeDup).
    """
    now = field_clock(session.db)
    expired = twin.due(now - 1, len(twin)) if now else []
    if len(expired) < len(twin):
        for field in expired:
            twin.remove(field)
    if twin.expiry is not None:
        twin.expiry.due = twin.earliest()


@command("move", arity=3, flags="write fast", since="1.0.0", syntax="key db", complexity="O(1)")
def move(session: Session, argv: list[bytes]) -> None:
    """Move a key to another database, unless it exists there."""
    key, source, target = argv[1], session.db, _database(session, argv[2])
    if target is source:
        raise CommandError(_SAME_OBJECT)
    n = source.find(key)
    if n < 0 or target.find(key) >= 0:
        session.out.integer(0)
        return
    value, expiry, bits = source.value_at(n), source.get_expire(key), source.keys.lru(n)
    source.delete(key)
    _put(target, key, value, expiry)
    _keep_access(session, target, key, bits)
    session.modified(key)
    target.touch(key)
    _notify(session, source, b"move_from", key)
    _notify(session, target, b"move_to", key)
    session.out.integer(1)


@command("swapdb", arity=3, flags="write fast", keys=(0, 0, 0), group="server", since="4.0.0", syntax="index1 index2",
         complexity="O(N) for N clients that watch or wait for keys of both databases")
def swapdb(session: Session, argv: list[bytes]) -> None:
    """Swap two databases; connected clients see the swapped keys at once."""
    databases = session.engine.databases
    one = small_integer(argv[1], "invalid first DB index")
    two = small_integer(argv[2], "invalid second DB index")
    if not 0 <= one < len(databases) or not 0 <= two < len(databases):
        raise CommandError("DB index is out of range")
    if one != two:
        databases[one].swap(databases[two])
        session.engine.restart_changes()
        if session.engine.modules is not None:
            session.engine.modules.server_event("swap", one, two)
    session.dirty += 1
    session.out.ok()
