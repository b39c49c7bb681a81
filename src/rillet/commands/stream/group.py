"""XGROUP, XACK and XPENDING: groups, and what is pending in them.

A group is a position in the stream (the last ID it handed out), its consumers, and its pending
entries: those handed out and not acknowledged. XGROUP CREATE, SETID, DESTROY and the like change
groups but not entries, so they do not touch the key's watchers; Redis has it so too.

The checks come in the order of t_stream.c's xgroupCommand: options, type, key, group, ID.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.commands.stream.arguments import (
    SYNTAX_ERROR,
    Interval,
    find_group,
    no_such_group,
    subcommand_error,
)
from rillet.commands.stream.idmp import new_stream
from rillet.errors import BusyGroup, CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.stream.group import ENTRIES_READ_UNKNOWN, Consumer, Group
from rillet.types.stream.id import IDReader
from rillet.types.stream.pending import PendingIndex, PendingIterator, PendingTable
from rillet.types.stream.value import Stream

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.commands.stream.arguments import find_stream, integer, option, read_id, read_stream
    from rillet.commands.stream.propagation import signed_count
    from rillet.types.stream.id import less

_KEY_MISSING = (
    "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option "
    "to create an empty stream automatically."
)

def _options(argv: list[bytes], creates: bool) -> tuple[bool, int]:
    """Return MKSTREAM and ENTRIESREAD of XGROUP CREATE and SETID."""
    make = False
    entries_read = ENTRIES_READ_UNKNOWN
    at = 5
    while at < len(argv):
        word = option(argv[at])
        if creates and word == b"mkstream":
            make = True
            at += 1
        elif word == b"entriesread" and at + 1 < len(argv):
            entries_read = integer(argv[at + 1])
            if entries_read < ENTRIES_READ_UNKNOWN:
                raise CommandError("value for ENTRIESREAD must be positive or -1")
            at += 2
        else:
            raise subcommand_error(argv)
    return make, entries_read


def _existing(session: Session, key: bytes) -> Stream:
    """Return the stream, which has to be there."""
    stream = find_stream(session, key)
    if stream is None:
        raise CommandError(_KEY_MISSING)
    return stream


def _existing_group(session: Session, argv: list[bytes]) -> tuple[Stream, Group]:
    """Return stream and group of argv[2:4], which have to be there."""
    stream = _existing(session, argv[2])
    group = stream.groups.get(argv[3])
    if group is None:
        raise no_such_group(argv[2], argv[3])
    return stream, group


def _position(word: bytes, stream: Stream | None, strict: bool) -> tuple[int, int]:
    """Return the ID that a group is put at; `$` is the stream's last."""
    if word.split(b"\0", 1)[0] == b"$":
        if stream is None:
            return 0, 0
        return stream.last_ms, stream.last_seq
    reader = IDReader()
    read_id(reader, word, strict)
    return reader.ms, reader.seq


def _bounded(session: Session, stream: Stream, entries_read: int) -> int:
    """Return the read counter to set: since Redis 8.4 nobody can have read more than was added."""
    if session.engine.settings.compat.knows(84):
        return min(entries_read, stream.entries_added)
    return entries_read


@command(
    "xgroup|create", arity=-5, flags="write denyoom", keys=(2, 2, 1), group="stream", since="5.0.0",
    complexity="O(1)", syntax="key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
)  # fmt: skip
def xgroup_create(session: Session, argv: list[bytes]) -> None:
    """Creates a consumer group."""
    make, entries_read = _options(argv, True)
    key = argv[2]
    stream = find_stream(session, key) if make else _existing(session, key)
    if len(argv) > 8:
        raise subcommand_error(argv)
    ms, seq = _position(argv[4], stream, True)
    if stream is None:
        stream = new_stream(session.engine.settings)
        session.db.set(key, stream)
        session.db.touch(key)
    entries_read = _bounded(session, stream, entries_read)
    if stream.create_group(argv[3], ms, seq, entries_read) is None:
        raise BusyGroup()
    session.out.ok()
    session.dirty += 1
    session.notify(b"t", b"xgroup-create", key)


@command(
    "xgroup|setid", arity=-5, flags="write", keys=(2, 2, 1), group="stream", since="5.0.0",
    complexity="O(1)", syntax="key group <id | $> [ENTRIESREAD entries-read]",
)  # fmt: skip
def xgroup_setid(session: Session, argv: list[bytes]) -> None:
    """Sets the last delivered ID of a consumer group."""
    _, entries_read = _options(argv, False)
    stream, group = _existing_group(session, argv)
    if len(argv) not in (5, 7):
        raise subcommand_error(argv)
    ms, seq = _position(argv[4], stream, False)
    group.set_id(ms, seq, _bounded(session, stream, entries_read))
    session.out.ok()
    session.dirty += 1
    session.notify(b"t", b"xgroup-setid", argv[2])


@command(
    "xgroup|destroy", arity=4, flags="write", keys=(2, 2, 1), group="stream", since="5.0.0",
    complexity="O(N) for the N pending entries of the group.", syntax="key group",
)  # fmt: skip
def xgroup_destroy(session: Session, argv: list[bytes]) -> None:
    """Destroys a consumer group; clients that wait in it get an error."""
    key = argv[2]
    stream = _existing(session, key)
    if not stream.destroy_group(argv[3]):
        session.out.integer(0)
        return
    session.out.integer(1)
    session.dirty += 1
    session.notify(b"t", b"xgroup-destroy", key)
    session.db.signal_ready(key)


@command(
    "xgroup|createconsumer", arity=5, flags="write denyoom", keys=(2, 2, 1), group="stream", since="6.2.0",
    complexity="O(1)", syntax="key group consumer",
)  # fmt: skip
def xgroup_createconsumer(session: Session, argv: list[bytes]) -> None:
    """Creates a consumer in a group and returns how many were created."""
    _, group = _existing_group(session, argv)
    if argv[4] in group.consumers:
        session.out.integer(0)
        return
    group.create_consumer(argv[4], session.db.clock.now_ms())
    session.out.integer(1)
    session.dirty += 1
    session.notify(b"t", b"xgroup-createconsumer", argv[2])


@command(
    "xgroup|delconsumer", arity=5, flags="write", keys=(2, 2, 1), group="stream", since="5.0.0",
    complexity="O(N) for the N pending entries of the consumer.", syntax="key group consumer",
)  # fmt: skip
def xgroup_delconsumer(session: Session, argv: list[bytes]) -> None:
    """Deletes a consumer and returns how many entries were pending for it; nobody can claim those any more."""
    stream, group = _existing_group(session, argv)
    pending = group.delete_consumer(argv[4])
    stream.tidy_pending()
    if pending >= 0:
        session.dirty += 1
        session.notify(b"t", b"xgroup-delconsumer", argv[2])
    session.out.integer(max(0, pending))


@command(
    "xack", arity=-4, flags="write fast", keys=(1, 1, 1), group="stream", since="5.0.0",
    complexity="O(1) for each ID.", syntax="key group id [id ...]",
)  # fmt: skip
def xack(session: Session, argv: list[bytes]) -> None:
    """Takes entries off the pending ones of a group and returns how many were there."""
    stream: Stream | None = read_stream(session, argv[1])
    group: Group | None = None if stream is None else stream.find_group(argv[2])
    reader: IDReader = IDReader()
    acknowledged: cython.longlong = 0
    at: cython.Py_ssize_t
    if stream is None or group is None:
        session.out.integer(0)
        return
    # All or nothing: every ID is read before the first is acknowledged, and once more then. No list of them is made.
    if len(argv) > 4:
        for at in range(3, len(argv)):
            read_id(reader, argv[at])
    for at in range(3, len(argv)):
        read_id(reader, argv[at])
        if group.acknowledge(reader.ms, reader.seq):
            acknowledged += 1
    stream.tidy_pending()
    session.dirty += acknowledged
    session.out.integer(acknowledged)


# -- XPENDING ---------------------------------------------------------------------------------------------


@command(
    "xpending", arity=-3, flags="readonly", keys=(1, 1, 1), group="stream", since="5.0.0",
    complexity="O(N) for the N entries returned, or scanned where IDLE filters; the summary is O(consumers).",
    syntax="key group [[IDLE min-idle-time] start end count [consumer]]",
)  # fmt: skip
def xpending(session: Session, argv: list[bytes]) -> None:
    """Returns what is pending in a group: a summary, or entry by entry."""
    if len(argv) == 3:
        _summary(session, find_group(session, argv[1], argv[2])[1])
        return
    if not 6 <= len(argv) <= 9:
        raise CommandError(SYNTAX_ERROR)
    min_idle: cython.longlong = 0
    at: cython.Py_ssize_t = 3
    if option(argv[3]) == b"idle":
        min_idle = integer(argv[4])
        if len(argv) < 8:
            raise CommandError(SYNTAX_ERROR)
        at = 5
    count: cython.longlong = integer(argv[at + 2])
    interval: Interval = Interval()
    interval.read_start(argv[at])
    interval.read_end(argv[at + 1])
    _, group = find_group(session, argv[1], argv[2])
    index: PendingIndex = group.index
    if at + 3 < len(argv):
        consumer: Consumer = group.find_consumer(argv[at + 3])
        if consumer is None:
            session.out.array(0)
            return
        index = consumer.index
    _list_pending(session, group, index, interval, count, min_idle)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _list_pending(session: Session, group: Group, index: PendingIndex, interval: Interval, count: cython.longlong,
                  min_idle: cython.longlong) -> cython.bint:
    """Write up to count pending entries of the interval: ID, consumer, ms since delivery, deliveries.

    A released entry (XNACK) has no consumer, and was idle for -1 ms: for as long as anybody may ask.
    """
    table: PendingTable = group.table
    out: ReplyWriter = session.out
    mark: cython.Py_ssize_t = out.mark()
    written: cython.longlong = 0
    now: cython.longlong = session.db.clock.now_ms()
    elapsed: cython.longlong
    owner: Consumer
    pending: PendingIterator = PendingIterator(table, index, interval.start_ms, interval.start_seq)
    while written < count and pending.next() and not less(
        interval.end_ms, interval.end_seq, pending.ms, pending.seq
    ):
        owner = table.owner(pending.slot)
        elapsed = now - table.delivery_time(pending.slot)
        if owner is group.nobody:
            elapsed = -1
        elif min_idle != 0 and elapsed < min_idle:
            continue
        elif elapsed < 0:
            elapsed = 0
        out.array(4)
        out.stream_id(pending.ms, pending.seq)
        out.bulk(owner.name)
        out.integer(elapsed)
        out.integer(signed_count(table.delivery_count(pending.slot)))
        written += 1
    return out.insert_array(mark, written)


def _summary(session: Session, group: Group) -> None:
    """Write how many entries are pending, the first and last of them, and how many for each consumer."""
    out = session.out
    out.array(4)
    out.integer(group.pending_count)
    if group.pending_count == 0:
        out.null()
        out.null()
        out.null_array()
        return
    for first in (True, False):
        slot = group.index.edge(first)
        out.stream_id(group.table.ms(slot), group.table.seq(slot))
    busy = [consumer for consumer in group.sorted_consumers() if consumer.pending_count]
    out.array(len(busy))
    for consumer in busy:
        out.array(2)
        out.bulk(consumer.name)
        out.bulk_int(consumer.pending_count)
