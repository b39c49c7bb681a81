"""Fields of hashes that expire: the effects of a deletion by time (Redis: t_hash.c).

    Redis     a command that reads an expired field removes it; the expiry cycle removes the others. The log contains
              an HDEL for each field, and the events are `hexpired` and, for the last field, `del`
    Valkey    a command passes over expired fields; only the expiry cycle removes them. Up to 1,024 fields are logged as
              one HDEL, followed by the DEL of an empty hash

A field has expired when its time is before the present. The expiry cycle and HRANDFIELD remove a field already in the
millisecond of its time. While a log is replayed, fields do not expire: the log contains the deletions. While clients
are paused, an expired field is missing for commands, but it is not removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.keyspace.database import Database
from rillet.types.hash import Hash

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

FIELDS_AT_ONCE = 128
"""Fields that the expiry cycle removes before it looks at the clock."""


def fields_expire(database: Database) -> bool:
    """Return whether fields expire now."""
    return database.may_expire is None or bool(database.may_expire())


def field_clock(database: Database) -> int:
    """Return the present in ms, 0 if fields do not expire now."""
    now: int = database.clock.now_ms() if fields_expire(database) else 0
    return now


def may_remove(database: Database) -> bool:
    """Return whether expired fields may be removed now."""
    return database.may_delete is None or bool(database.may_delete())


def remove_field(engine: CommandEngine, database: Database, key: bytes, value: Hash, field: bytes) -> None:
    """Remove an expired field, count it and log it (Redis)."""
    value.remove(field)
    engine.stats.expired_fields += 1
    log_fields(engine, database, key, [field])


def log_fields(engine: CommandEngine, database: Database, key: bytes, fields: list[bytes]) -> None:
    """Log the deletion of fields that expired (propagateHashFieldDeletion)."""
    if engine.propagation.log is None or engine.loading:
        return
    if engine.settings.compat.valkey:
        engine.propagation.add(database.index, [b"HDEL", key, *fields])
        return
    for field in fields:
        engine.propagation.add(database.index, [b"HDEL", key, field])


def notify(
    engine: CommandEngine, database: Database, kind: bytes, event: bytes, key: bytes, fields: list[bytes] | None
) -> None:
    """Publish a keyspace event of a hash."""
    if engine.notify_events:
        engine.keyspace_event(database, kind, event, key, fields)


def expire_fields(engine: CommandEngine, database: Database, key: bytes, now: int, limit: int, active: bool) -> bool:
    """Remove up to `limit` expired fields of a registered hash; return whether the hash still exists.

    active: the expiry cycle does it. Source: hashTypeExpire; in Valkey, dbReclaimExpiredFields.
    """
    value: Any = database.wake(key)
    fields = value.due(now, limit)
    for field in fields:
        value.remove(field)
    engine.stats.expired_fields += len(fields)
    engine.stats.expired_fields_active += len(fields) if active else 0
    if not len(value):
        database.delete(key)
    else:
        database.set_due(key, value, value.earliest())
    if fields:
        engine.propagation.depth += 1 if engine.settings.compat.valkey else 0
        log_fields(engine, database, key, fields)
        if engine.settings.compat.valkey:
            _finish_valkey(engine, database, key, len(value) == 0)
        else:
            notify(engine, database, b"h", b"hexpired", key, fields)
            if not len(value):
                notify(engine, database, b"g", b"del", key, None)
        database.touch(key, True)
    return len(value) > 0


def _finish_valkey(engine: CommandEngine, database: Database, key: bytes, deleted: bool) -> None:
    """Publish and log the rest of a deletion; its commands are one transaction of the log."""
    notify(engine, database, b"x", b"hexpired", key, None)
    propagation = engine.propagation
    if deleted:
        if propagation.log is not None:
            name = b"UNLINK" if engine.settings.lazyfree_lazy_expire else b"DEL"
            propagation.add(database.index, [name, key])
        notify(engine, database, b"g", b"del", key, None)
    propagation.depth -= 1
    if propagation.pending and propagation.depth == 0:
        propagation.flush_pending()
