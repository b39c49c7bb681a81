"""HRANDFIELD (Redis: t_hash.c)."""

from __future__ import annotations

from rillet.commands.arguments import random_count
from rillet.commands.hash import command
from rillet.commands.hash.read import write_hash_fields
from rillet.commands.lookup import read_value
from rillet.commands.replies import bulk_or_null
from rillet.runtime.field_expiry import expire_fields, field_clock, may_remove
from rillet.runtime.session import Session
from rillet.types.hash import Hash

# Fields picked per batch (HRANDFIELD_RANDOM_SAMPLE_LIMIT).
_BATCH = 1000


@command("hrandfield", arity=-2, flags="readonly", since="6.2.0", syntax="key [count [WITHVALUES]]",
         complexity="O(N) where N is the number of fields returned; in a small hash, the number of its fields.")
def hrandfield(session: Session, argv: list[bytes]) -> None:
    """Return one or several random fields; a negative count allows repetitions."""
    if len(argv) == 2:
        value = _without_expired(session, argv[1], read_value(session, argv[1], Hash))
        bulk_or_null(session.out, None if value is None else value.picks(1)[0])
    else:
        _pick(session, argv[1], *random_count(argv, b"withvalues"))


def _pick(session: Session, key: bytes, count: int, with_values: bool) -> None:
    """Reply with `count` random fields (hrandfieldWithCountCommand); with values, RESP3 nests them as pairs."""
    out = session.out
    value = _without_expired(session, key, read_value(session, key, Hash))
    if value is None or not count:
        out.array(0)
        return
    wanted = -count if count < 0 else min(count, len(value))
    nested = with_values and out.resp == 3
    out.array(2 * wanted if with_values and not nested else wanted)
    if count > 0:
        write_hash_fields(session, value, value.sample(wanted), with_values, nested)
        return
    while wanted:
        batch = min(wanted, _BATCH)
        write_hash_fields(session, value, value.picks(batch), with_values, nested)
        wanted -= batch


def _without_expired(session: Session, key: bytes, value: Hash | None) -> Hash | None:
    """Return the hash without its expired fields, None if none remain (hashTypeExpireIfNeeded).

    Redis removes the fields, but not while clients are paused. Valkey passes over them: here it picks from a copy.
    """
    now = 0 if value is None or value.expiry is None else field_clock(session.db)
    if value is None or not 0 < value.earliest() < now:
        return value
    if session.engine.settings.compat.valkey:
        live = value.copy()
        for field in value.due(now - 1, len(value)):
            live.remove(field)
        return live if len(live) else None
    if may_remove(session.db):
        return session.db.wake(key) if expire_fields(session.engine, session.db, key, now, len(value), False) else None
    return value
