"""RILLET.XRETAIN and RILLET.XINFO: how much of a stream is kept, and where it is; Redis does not have them.

    RILLET.XRETAIN key [AGE ms] [ENTRIES n] [BYTES n] [GROUPS ACKNOWLEDGED|IGNORE]
        sets the policy of a stream, which need not exist; without a limit it removes the policy
    RILLET.XINFO key
        entries-in-memory, bytes-in-memory, nodes-in-segments, entries-in-segments, bytes-in-segments, ranges
        retention: null, or a map
            age, entries, bytes       the limits, null for none; age in ms
            groups                    acknowledged or ignore
            drops-entries, drops-bytes  what the next steps remove: null if a segment cannot be read
            keeps-from                the ID of the first entry that then remains; null if nothing goes
            due-at                    when the first entry becomes too old, ms since 1970; null without a limit of age
            held                      for each group that holds back entries: name, entries, bytes, the first ID
            note                      why nothing goes, or what cannot be read; else empty

A policy belongs to the name of the stream. It is a field of the hash `rillet:retention`, and XRETAIN is logged as the
HSET or HDEL of this field, so that a redis-server loads the log. Retention itself (rillet.host.retention) is logged as
XTRIM.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.replies import write_tree
from rillet.commands.stream import command
from rillet.commands.stream.arguments import option
from rillet.commands.stream.lookup import lookup_read
from rillet.errors import CommandError, SegmentUnreadable, WrongType
from rillet.keyspace.database import Database
from rillet.keyspace.helper_keys import RETENTION
from rillet.runtime.session import Session
from rillet.types.hash import Hash
from rillet.types.stream.id import format_id
from rillet.types.stream.retention import Amount, Cut, Policy, policy_of
from rillet.types.stream.stream import Stream

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

NO_GROUP = "no group: with groups=acknowledged, entries stay until a group has acknowledged them"
MALFORMED = "the policy is malformed, so nothing goes: set it again"
MEASURED = 100
"""Streams whose retention INFO measures."""
_LIMITS = (b"age", b"entries", b"bytes")


def _policy(argv: list[bytes]) -> Policy | None:
    """Return the policy of the arguments after the key, None without a limit."""
    limits: dict[bytes, int] = {}
    acknowledged, named = True, False
    if len(argv) % 2:
        raise syntax_error()
    for at in range(0, len(argv), 2):
        name, value = option(argv[at]), argv[at + 1]
        if name in _LIMITS and name not in limits:
            limits[name] = integer(value)
            if not 0 < limits[name] < 10**18:
                raise CommandError(f"{name.decode()} must be an integer from 1 to {10**18 - 1}")
        elif name == b"groups" and not named and option(value) in (b"acknowledged", b"ignore"):
            acknowledged, named = option(value) == b"acknowledged", True
        else:
            raise syntax_error()
    age, entries, size = (limits.get(name, 0) for name in _LIMITS)
    return Policy(age, entries, size, acknowledged) if limits else None


@command("rillet.xretain", arity=-2, flags="write denyoom fast", since="1.0.0",
         syntax="key [AGE milliseconds] [ENTRIES count] [BYTES bytes] [GROUPS <ACKNOWLEDGED | IGNORE>]",
         complexity="O(1)")
def xretain(session: Session, argv: list[bytes]) -> None:
    """Sets how much of a stream is kept, or removes these limits."""
    policy, key, db = _policy(argv[2:]), argv[1], session.db
    policies = db.lookup(RETENTION)
    if policies is not None and not isinstance(policies, Hash):
        raise WrongType()
    before = None if policies is None else policies.get(key)
    text = None if policy is None else policy.text()
    session.propagate_nothing()
    if before != text:
        if text is not None:
            changed = Hash() if policies is None else policies
            changed.set(key, text, session.engine.settings)
            db.put(RETENTION, changed)
            session.propagate([b"HSET", RETENTION, key, text])
            session.notify(b"h", b"hset", RETENTION)
        elif policies is not None:
            policies.remove(key)
            session.propagate([b"HDEL", RETENTION, key])
            session.notify(b"h", b"hdel", RETENTION)
            if not len(policies):
                db.delete(RETENTION)
                session.notify(b"g", b"del", RETENTION)
        session.modified(RETENTION)
    if policy is not None and session.engine.on_retain is not None:
        with contextlib.suppress(RuntimeError):  # no thread can be started
            session.engine.on_retain()
    session.out.ok()


@command("rillet.xinfo", arity=2, flags="readonly", since="1.0.0", syntax="key",
         complexity="O(N) for the N nodes in memory that exceed the limits of the retention.")
def xinfo(session: Session, argv: list[bytes]) -> None:
    """Returns where the entries of a stream are, and what its retention removes next."""
    key = argv[1]
    stream = lookup_read(session, key) or Stream()
    write_tree(session.out, {
        b"entries-in-memory": stream.length - stream.sealed_entries, b"bytes-in-memory": stream.node_bytes,
        b"nodes-in-segments": stream.sealed, b"entries-in-segments": stream.sealed_entries,
        b"bytes-in-segments": stream.sealed_bytes, b"ranges": stream.ranges,
        b"retention": retention_of(session.db, key, stream, session.now_ms()),
    })  # fmt: skip


def retention_of(database: Database, key: bytes, stream: Stream, now: int) -> dict[bytes, Any] | None:
    """Return the retention of a stream as RILLET.XINFO shows it, None without a policy. now: ms since the epoch."""
    policies = database.peek(RETENTION)
    text = policies.get(key) if isinstance(policies, Hash) else None
    if text is None:
        return None
    policy = policy_of(text)
    if policy is None:
        return {**dict.fromkeys(_LIMITS), b"groups": None, **_effect(0, 0, None), b"due-at": None, b"held": [],
                b"note": MALFORMED.encode()}  # fmt: skip
    due = stream.first_ms + policy.age + 1 if policy.age and stream.length else None
    try:
        effect, held = _dropped(stream, policy, now)
        note = NO_GROUP if policy.acknowledged and not stream.groups else ""
    except SegmentUnreadable as error:
        effect, held, note = _effect(None, None, None), [], str(error)
    return {
        b"age": policy.age or None, b"entries": policy.entries or None, b"bytes": policy.size or None,
        b"groups": b"acknowledged" if policy.acknowledged else b"ignore", **effect, b"due-at": due, b"held": held,
        b"note": note.encode(),
    }  # fmt: skip


def _effect(entries: int | None, size: int | None, first: bytes | None) -> dict[bytes, Any]:
    return {b"drops-entries": entries, b"drops-bytes": size, b"keeps-from": first}


def _dropped(stream: Stream, policy: Policy, now: int) -> tuple[dict[bytes, Any], list[list[Any]]]:
    """Return what the next steps remove, and what each group holds back of the rest that exceeds the limits."""
    wanted = Cut()
    wanted.find(stream, policy, now, None)
    end = (wanted.ms, wanted.seq)
    needs = []
    for group in stream.sorted_groups() if policy.acknowledged else []:
        first = Cut()
        first.find_needed(group)
        if (first.ms, first.seq) < end:
            needs.append(((first.ms, first.seq), group.name))
    amount = Amount(stream)
    before = {at: amount.before(*at) for at in sorted({at for at, _ in needs} | {end})}
    entries, size = before[end]
    held = [[name, entries - before[at][0], size - before[at][1], format_id(*at)] for at, name in needs]
    kept = min((at for at, _ in needs), default=end)
    if (policy.acknowledged and not stream.groups) or before[kept][0] == 0:
        return _effect(0, 0, None), held
    return _effect(*before[kept], format_id(*kept)), held


def figures(engine: CommandEngine) -> dict[str, int]:
    """Return the fields of INFO rillet about retention; none without a policy. O(nodes that exceed the limits)"""
    streams = [(database, key) for database in engine.databases
               if isinstance(policies := database.peek(RETENTION), Hash) for key in policies]  # fmt: skip
    if not streams:
        return {}
    due = due_bytes = held = held_bytes = 0
    for database, key in streams[:MEASURED]:
        stream = database.peek(key)
        found = retention_of(database, key, stream, engine.clock.now_ms()) if isinstance(stream, Stream) else None
        if found is not None:
            due += found[b"drops-entries"] or 0
            due_bytes += found[b"drops-bytes"] or 0
            held += max((one[1] for one in found[b"held"]), default=0)
            held_bytes += max((one[2] for one in found[b"held"]), default=0)
    return {
        "retention_streams": len(streams), "retention_removed_entries": engine.stats.retention_removed,
        "retention_drops_entries": due, "retention_drops_bytes": due_bytes, "retention_held_entries": held,
        "retention_held_bytes": held_bytes,
    }  # fmt: skip


__all__ = ["NO_GROUP", "figures", "retention_of"]
