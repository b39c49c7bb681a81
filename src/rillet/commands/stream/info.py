"""XINFO: streams, groups and consumers as they are.

Every reply is a map (in RESP2 an array of names and values), with the names in Redis's order. FULL lists at most COUNT
entries, and COUNT pending entries per group and consumer (default 10; 0 = all). Groups and consumers are in the byte
order of their names, as in Redis's radix trees.

The names depend on the version (`compat`): inactive and active-time exist since 7.2, the values about idempotent
producers since 8.6, nacked-count since 8.8. Since 8.10 radix-tree-nodes counts a tree without nodes for its leaves
(`Rax.inlined_nodes`). Valkey has the names of 7.2.
"""

from __future__ import annotations

from rillet.commands.arguments import subcommand_error
from rillet.commands.help_texts import write_help
from rillet.commands.replies import write_fields, write_tree
from rillet.commands.stream import command
from rillet.commands.stream.arguments import MAX_U64, integer, option, to_signed
from rillet.commands.stream.idmp import IDMP_FIELDS, SINCE, write_idmp
from rillet.commands.stream.lookup import lookup_read, require_group, require_stream
from rillet.commands.stream.range import EntryWriter
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.group import ENTRIES_READ_UNKNOWN, Consumer, Group
from rillet.types.stream.id import format_id
from rillet.types.stream.pending import PendingIndex, PendingIterator
from rillet.types.stream.stream import Stream, StreamIterator

ACTIVE_TIME = 72
"""The first level that shows the active time of consumers."""
NACKED_COUNT = 88
"""The first level that shows the number of released entries (XNACK)."""
INLINED_LEAVES = 810
"""The first level whose radix trees of streams have no nodes for their leaves."""


@command("xinfo|help", arity=2, flags="loading stale", keys=(0, 0, 0), since="5.0.0", complexity="O(1)")
def xinfo_help(session: Session, argv: list[bytes]) -> None:
    """Shows the sub-commands of XINFO."""
    write_help(session, argv[0], "xinfo")


def _counters(session: Session, stream: Stream, group: Group) -> dict[bytes, int | None]:
    """Return entries-read and lag of a group, None if unknown (streamReplyWithCGLag)."""
    read = None if group.entries_read == ENTRIES_READ_UNKNOWN else group.entries_read
    return {b"entries-read": read, b"lag": stream.lag(group, session.engine.settings.compat.lag_rule)}


@command("xinfo|consumers", arity=4, flags="readonly", keys=(2, 2, 1), since="5.0.0", syntax="key group",
         complexity="O(1)")
def xinfo_consumers(session: Session, argv: list[bytes]) -> None:
    """Lists the consumers of a group."""
    group = require_group(require_stream(lookup_read(session, argv[2])), argv[2], argv[3])
    now = session.db.clock.now_ms()
    shows_active = session.engine.settings.compat.knows(ACTIVE_TIME)
    session.out.array(len(group.consumers))
    for consumer in group.sorted_consumers():
        described = {
            b"name": consumer.name, b"pending": consumer.pending_count, b"idle": max(0, now - consumer.seen_time),
        }  # fmt: skip
        if shows_active:
            described[b"inactive"] = -1 if consumer.active_time == -1 else now - consumer.active_time
        write_tree(session.out, described)


@command("xinfo|groups", arity=3, flags="readonly", keys=(2, 2, 1), since="5.0.0", syntax="key", complexity="O(1)")
def xinfo_groups(session: Session, argv: list[bytes]) -> None:
    """Lists the consumer groups of a stream."""
    stream = require_stream(lookup_read(session, argv[2]))
    session.out.array(len(stream.groups))
    for group in stream.sorted_groups():
        write_tree(session.out, {
            b"name": group.name, b"consumers": len(group.consumers), b"pending": group.pending_count,
            b"last-delivered-id": format_id(group.last_ms, group.last_seq), **_counters(session, stream, group),
        })  # fmt: skip


@command("xinfo|stream", arity=-3, flags="readonly", keys=(2, 2, 1), since="5.0.0", syntax="key [FULL [COUNT count]]",
         complexity="O(1)")
def xinfo_stream(session: Session, argv: list[bytes]) -> None:
    """Describes a stream, with FULL down to its entries and pending entries."""
    stream = require_stream(lookup_read(session, argv[2]))
    full = len(argv) > 3
    count = 10
    if full:
        if len(argv) not in (4, 6) or option(argv[3]) != b"full" or (len(argv) == 6 and option(argv[4]) != b"count"):
            raise subcommand_error(argv)
        if len(argv) == 6:
            count = integer(argv[5])
            if count < 0:
                count = 10
    out = session.out
    compat = session.engine.settings.compat
    idmp_fields = IDMP_FIELDS if compat.knows(SINCE) else 0
    out.map((9 if full else 10) + idmp_fields)
    _write_stream(out, stream, stream.rax.inlined_nodes if compat.knows(INLINED_LEAVES) else stream.rax.numnodes)
    if idmp_fields:
        write_idmp(out, stream, session.db.clock.now_ms())
    if full:
        _write_full(session, stream, count)
    else:
        _write_edges(out, stream)


def _write_stream(out: ReplyWriter, stream: Stream, nodes: int) -> None:
    """Write the names and values that XINFO STREAM returns both with and without FULL."""
    write_fields(out, {
        b"length": stream.length,
        b"radix-tree-keys": stream.node_count,
        b"radix-tree-nodes": nodes,
        b"last-generated-id": format_id(stream.last_ms, stream.last_seq),
        b"max-deleted-entry-id": format_id(stream.max_deleted_ms, stream.max_deleted_seq),
        b"entries-added": to_signed(stream.entries_added),
        b"recorded-first-entry-id": format_id(stream.first_ms, stream.first_seq),
    })  # fmt: skip


def _write_edges(out: ReplyWriter, stream: Stream) -> None:
    """Write the number of groups, and the first and last entry of the stream, or null."""
    out.bulk(b"groups")
    out.integer(len(stream.groups))
    for name, newest in ((b"first-entry", False), (b"last-entry", True)):
        out.bulk(name)
        entries = StreamIterator(stream, 0, 0, MAX_U64, MAX_U64, newest)
        if EntryWriter().write_all(out, entries, 1) == 0:
            out.null()


def _write_full(session: Session, stream: Stream, count: int) -> None:
    """Write the entries and groups of XINFO STREAM FULL."""
    out = session.out
    out.bulk(b"entries")
    mark = out.mark()
    out.insert_array(mark, EntryWriter().write_all(out, StreamIterator(stream), count or -1))
    out.bulk(b"groups")
    out.array(len(stream.groups))
    for group in stream.sorted_groups():
        _write_group(session, stream, group, count)


def _write_group(session: Session, stream: Stream, group: Group, count: int) -> None:
    """Write one group with its pending entries and consumers."""
    out = session.out
    compat = session.engine.settings.compat
    nacked = {b"nacked-count": group.nacked_count} if compat.knows(NACKED_COUNT) else {}
    out.map(7 + len(nacked))
    write_fields(out, {
        b"name": group.name, b"last-delivered-id": format_id(group.last_ms, group.last_seq),
        **_counters(session, stream, group), b"pel-count": group.pending_count, **nacked,
    })  # fmt: skip
    out.bulk(b"pending")
    _write_pending(out, group, group.index, count, True)
    out.bulk(b"consumers")
    out.array(len(group.consumers))
    for consumer in group.sorted_consumers():
        _write_consumer(out, group, consumer, count, compat.knows(ACTIVE_TIME))


def _write_consumer(out: ReplyWriter, group: Group, consumer: Consumer, count: int, shows_active: bool) -> None:
    """Write one consumer with its pending entries."""
    active = {b"active-time": consumer.active_time} if shows_active else {}
    out.map(4 + len(active))
    write_fields(out, {
        b"name": consumer.name, b"seen-time": consumer.seen_time, **active, b"pel-count": consumer.pending_count,
    })  # fmt: skip
    out.bulk(b"pending")
    _write_pending(out, group, consumer.index, count, False)


def _write_pending(out: ReplyWriter, group: Group, index: PendingIndex, count: int, owner: bool) -> None:
    """Write the first `count` pending entries: ID, owner (optional), delivery time, number of deliveries."""
    table = group.table
    listed = min(count, len(index)) if count else len(index)
    out.array(listed)
    pending = PendingIterator(table, index)
    for _ in range(listed):
        pending.next()
        out.array(4 if owner else 3)
        out.stream_id(pending.ms, pending.seq)
        if owner:
            out.bulk(group.table.owner(pending.slot).name)
        out.integer(table.delivery_time(pending.slot))
        out.integer(to_signed(table.delivery_count(pending.slot)))
