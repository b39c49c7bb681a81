"""What commands on groups leave in the log: never themselves, but what they did.

Who reads for a group, or claims, chooses by the time and by who asked first. A log that is to lead to the
same state names the outcome:

    an entry was delivered to a consumer    XCLAIM key group consumer 0 id TIME ms RETRYCOUNT n FORCE JUSTID LASTID id
    the group moved on                      XGROUP SETID key group id ENTRIESREAD n
    a consumer came to be, and nothing      XGROUP CREATECONSUMER key group consumer
      was delivered that would make it
    a released entry was forgotten          XACK key group id

Whether the group's move is logged beside the deliveries, which carry LASTID, differs: Redis does so since 7.4,
for the sake of ENTRIESREAD, which XCLAIM does not carry; before, only a NOACK read said so.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.runtime.session import Session
from rillet.types.stream.group import ENTRIES_READ_UNKNOWN, Consumer, Group

if not cython.compiled:  # compiled code has it as a C function, through the .pxd
    from rillet.types.stream.id import format_id

_SIGNED_MAX = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)


@cython.ccall
def signed_count(count: cython.ulonglong) -> cython.longlong:
    """Return a delivery count as Redis's integer replies and logs show it: from 2**63 on, negative."""
    if count <= _SIGNED_MAX:
        return count
    if cython.compiled:
        return cython.cast(cython.longlong, count)
    return count - (1 << 64)


@cython.ccall
@cython.exceptval(-1, check=False)
def log_claim(
    session: Session, key: bytes, group: Group, ident: bytes, slot: cython.Py_ssize_t, last: bytes | None = None
) -> cython.bint:
    """Log the state of a pending entry as an XCLAIM that sets just that (streamPropagateXCLAIM); last: LASTID."""
    if session.engine.log is None:
        return False
    owner: Consumer = group.table.owner(slot)
    if last is None:
        last = format_id(group.last_ms, group.last_seq)
    return session.propagate([
        b"XCLAIM", key, group.name, owner.name, b"0", ident,
        b"TIME", b"%d" % group.table.delivery_time(slot),
        b"RETRYCOUNT", b"%d" % signed_count(group.table.delivery_count(slot)),
        b"FORCE", b"JUSTID", b"LASTID", last,
    ])  # fmt: skip


@cython.ccall
@cython.exceptval(-1, check=False)
def log_group_id(session: Session, key: bytes, group: Group) -> cython.bint:
    """Log the group's last delivered ID and read counter (streamPropagateGroupID)."""
    if session.engine.log is None:
        return False
    last: bytes = format_id(group.last_ms, group.last_seq)
    # A counter that ran over is logged as not known: SETID refuses a negative one, and the log could not be read.
    read = max(ENTRIES_READ_UNKNOWN, group.entries_read)
    return session.propagate([b"XGROUP", b"SETID", key, group.name, last, b"ENTRIESREAD", b"%d" % read])


@cython.ccall
@cython.exceptval(-1, check=False)
def log_consumer(session: Session, key: bytes, group: Group, consumer: Consumer) -> cython.bint:
    """Log that a consumer came to be (streamPropagateConsumerCreation)."""
    if session.engine.log is None:
        return False
    return session.propagate([b"XGROUP", b"CREATECONSUMER", key, group.name, consumer.name])


@cython.ccall
@cython.exceptval(-1, check=False)
def log_ack(session: Session, key: bytes, group: Group, ident: bytes) -> cython.bint:
    """Log that a pending entry was forgotten (streamPropagateXACK)."""
    if session.engine.log is None:
        return False
    return session.propagate([b"XACK", key, group.name, ident])


@cython.ccall
def meet_consumer(session: Session, key: bytes, group: Group, name: bytes) -> Consumer:
    """Return the consumer, seen now; it is made where there is none, and was never active before then."""
    now: cython.longlong = session.db.clock.now_ms()
    consumer: Consumer = group.find_consumer(name)
    if consumer is None:
        consumer = group.create_consumer(name, now)
        session.dirty += 1
        session.notify(b"t", b"xgroup-createconsumer", key)
    consumer.seen_time = now
    return consumer
