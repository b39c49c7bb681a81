"""The log and replication of commands on groups: the effects of a command, never the command itself.

XREADGROUP and XCLAIM depend on the time and on the other clients. The log has their outcome, so that replaying it leads
to the same state:

    effect                                    command in the log
    an entry was delivered to a consumer      XCLAIM key group consumer 0 id TIME ms RETRYCOUNT n FORCE JUSTID LASTID id
    the group's last delivered ID changed     XGROUP SETID key group id ENTRIESREAD n
    a consumer was created, nothing delivered XGROUP CREATECONSUMER key group consumer
    a released entry was dropped              XACK key group id

Since Redis 7.4 a delivery logs one XGROUP SETID after its XCLAIMs, because their LASTID has no ENTRIESREAD. Redis 7.0
and 7.2 log it only for a read with NOACK, so a group's lag is unknown after a restart. With `log-entries-read yes`
(always in a store) rillet logs it with every `compat`; redis-server since 7.0 loads such a log.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.stream.arguments import to_signed
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.stream.group import ENTRIES_READ_UNKNOWN, Consumer, Group
from rillet.types.stream.id import format_id


@cython.ccall
def log_claim(
    session: Session, key: bytes, group: Group, ident: bytes, slot: cython.Py_ssize_t, last: bytes | None = None
) -> cython.bint:
    """Log a pending entry as XCLAIM (streamPropagateXCLAIM) with LASTID `last`; None = the group's last ID."""
    if not session.logged:
        return False
    owner: Consumer = group.table.owner(slot)
    if last is None:
        last = format_id(group.last_ms, group.last_seq)
    return session.propagate([
        b"XCLAIM", key, group.name, owner.name, b"0", ident,
        b"TIME", decimal(group.table.delivery_time(slot)),
        b"RETRYCOUNT", decimal(to_signed(group.table.delivery_count(slot))),
        b"FORCE", b"JUSTID", b"LASTID", last,
    ])  # fmt: skip


@cython.ccall
def log_claims(session: Session, key: bytes, group: Group, slots: list[Any], last: bytes | None) -> cython.bint:
    """Log pending entries as XCLAIM commands with LASTID `last`, or if None with each entry's own ID."""
    for slot in slots:
        ident: bytes = format_id(group.table.ms(slot), group.table.seq(slot))
        log_claim(session, key, group, ident, slot, ident if last is None else last)
    return True


@cython.ccall
def log_group_id(session: Session, key: bytes, group: Group) -> cython.bint:
    """Log the group's last delivered ID and read counter (streamPropagateGroupID)."""
    if not session.logged:
        return False
    last: bytes = format_id(group.last_ms, group.last_seq)
    # Log an overflowed read counter as unknown (-1): XGROUP SETID would reject it during a replay.
    read = max(ENTRIES_READ_UNKNOWN, group.entries_read)
    return session.propagate([b"XGROUP", b"SETID", key, group.name, last, b"ENTRIESREAD", decimal(read)])


@cython.ccall
def log_consumer(session: Session, key: bytes, group: Group, consumer: Consumer) -> cython.bint:
    """Log the creation of a consumer (streamPropagateConsumerCreation)."""
    return session.propagate([b"XGROUP", b"CREATECONSUMER", key, group.name, consumer.name])


@cython.ccall
def log_ack(session: Session, key: bytes, group: Group, ident: bytes) -> cython.bint:
    """Log the removal of a pending entry (streamPropagateXACK)."""
    return session.propagate([b"XACK", key, group.name, ident])
