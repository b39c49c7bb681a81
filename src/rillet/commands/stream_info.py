"""XINFO, and the help of XGROUP and XINFO: what a stream and its groups hold.

Every reply is a map (an array of names and values in RESP2), in Redis's order of names. FULL lists
entries and pending entries up to COUNT of each (10; 0 = all). Groups and consumers come in the
byte order of their names, as Redis's radix trees give them.
"""

from __future__ import annotations

from rillet.commands.args import text
from rillet.commands.registry import command
from rillet.commands.session import Session
from rillet.commands.stream_args import (
    MAX_U64,
    integer,
    no_such_group,
    option,
    owner_name,
    read_stream,
    signed,
    subcommand_error,
)
from rillet.commands.stream_read import write_entries
from rillet.errors import CommandError
from rillet.protocol.writer import Replies
from rillet.structs.rax import Rax
from rillet.structs.rax_iterator import RaxIterator
from rillet.types.group import ENTRIES_READ_UNKNOWN, Consumer, Group, PendingEntry
from rillet.types.stream import Stream
from rillet.types.stream_id import StreamID

_XGROUP_HELP = (
    b"CREATE <key> <groupname> <id|$> [option]",
    b"    Create a new consumer group. Options are:",
    b"    * MKSTREAM",
    b"      Create the empty stream if it does not exist.",
    b"    * ENTRIESREAD entries_read",
    b"      Set the group's entries_read counter (internal use).",
    b"CREATECONSUMER <key> <groupname> <consumer>",
    b"    Create a new consumer in the specified group.",
    b"DELCONSUMER <key> <groupname> <consumer>",
    b"    Remove the specified consumer.",
    b"DESTROY <key> <groupname>",
    b"    Remove the specified group.",
    b"SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    b"    Set the current group ID and entries_read counter.",
)
_XINFO_HELP = (
    b"CONSUMERS <key> <groupname>",
    b"    Show consumers of <groupname>.",
    b"GROUPS <key>",
    b"    Show the stream consumer groups.",
    b"STREAM <key> [FULL [COUNT <count>]",
    b"    Show information about the stream.",
)


def _write_help(session: Session, argv: list[bytes], lines: tuple[bytes, ...]) -> None:
    """Write a container's help, a simple string for each line (networking.c: addReplyHelp)."""
    out = session.out
    container = text(argv[0]).upper().encode("utf-8", "surrogateescape")
    out.array(len(lines) + 3)
    out.simple(container + b" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
    for line in (*lines, b"HELP", b"    Prints this help."):
        out.simple(line)


@command(
    "xgroup|help", arity=2, flags="loading stale", group="stream", since="5.0.0", complexity="O(1)",
)  # fmt: skip
def xgroup_help(session: Session, argv: list[bytes]) -> None:
    """Shows the sub-commands of XGROUP."""
    _write_help(session, argv, _XGROUP_HELP)


@command(
    "xinfo|help", arity=2, flags="loading stale", group="stream", since="5.0.0", complexity="O(1)",
)  # fmt: skip
def xinfo_help(session: Session, argv: list[bytes]) -> None:
    """Shows the sub-commands of XINFO."""
    _write_help(session, argv, _XINFO_HELP)


def _existing(session: Session, key: bytes) -> Stream:
    stream = read_stream(session, key)
    if stream is None:
        raise CommandError("no such key")
    return stream


def _write_counters(out: Replies, stream: Stream, group: Group) -> None:
    """Write entries-read and lag, null where they cannot be told (streamReplyWithCGLag)."""
    out.bulk(b"entries-read")
    if group.entries_read == ENTRIES_READ_UNKNOWN:
        out.null()
    else:
        out.integer(group.entries_read)
    out.bulk(b"lag")
    lag = stream.lag(group)
    if lag is None:
        out.null()
    else:
        out.integer(signed(lag))


@command(
    "xinfo|consumers", arity=4, flags="readonly", keys=(2, 2, 1), group="stream", since="5.0.0",
    complexity="O(1)", syntax="key group",
)  # fmt: skip
def xinfo_consumers(session: Session, argv: list[bytes]) -> None:
    """Lists the consumers of a group."""
    group = _existing(session, argv[2]).groups.get(argv[3])
    if group is None:
        raise no_such_group(argv[2], argv[3])
    out = session.out
    now = session.db.clock.now_ms()
    out.array(len(group.consumers))
    for consumer in group.sorted_consumers():
        out.map(3)
        out.bulk(b"name")
        out.bulk(consumer.name)
        out.bulk(b"pending")
        out.integer(consumer.pel.numele)
        out.bulk(b"idle")
        out.integer(max(0, now - consumer.seen_time))


@command(
    "xinfo|groups", arity=3, flags="readonly", keys=(2, 2, 1), group="stream", since="5.0.0",
    complexity="O(1)", syntax="key",
)  # fmt: skip
def xinfo_groups(session: Session, argv: list[bytes]) -> None:
    """Lists the consumer groups of a stream."""
    stream = _existing(session, argv[2])
    out = session.out
    out.array(len(stream.groups))
    for group in stream.sorted_groups():
        out.map(6)
        out.bulk(b"name")
        out.bulk(group.name)
        out.bulk(b"consumers")
        out.integer(len(group.consumers))
        out.bulk(b"pending")
        out.integer(group.pel.numele)
        out.bulk(b"last-delivered-id")
        out.stream_id(group.last_ms, group.last_seq)
        _write_counters(out, stream, group)


@command(
    "xinfo|stream", arity=-3, flags="readonly", keys=(2, 2, 1), group="stream", since="5.0.0",
    complexity="O(1)", syntax="key [FULL [COUNT count]]",
)  # fmt: skip
def xinfo_stream(session: Session, argv: list[bytes]) -> None:
    """Describes a stream, with FULL down to its entries and pending entries."""
    stream = _existing(session, argv[2])
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
    out.map(9 if full else 10)
    _write_stream(out, stream)
    if full:
        _write_full(out, stream, count)
    else:
        _write_edges(out, stream)


def _write_stream(out: Replies, stream: Stream) -> None:
    """Write the seven names that both forms begin with."""
    out.bulk(b"length")
    out.integer(stream.length)
    out.bulk(b"radix-tree-keys")
    out.integer(stream.rax.numele)
    out.bulk(b"radix-tree-nodes")
    out.integer(stream.rax.numnodes)
    out.bulk(b"last-generated-id")
    out.stream_id(stream.last_ms, stream.last_seq)
    out.bulk(b"max-deleted-entry-id")
    out.stream_id(stream.max_deleted_ms, stream.max_deleted_seq)
    out.bulk(b"entries-added")
    out.integer(signed(stream.entries_added))
    out.bulk(b"recorded-first-entry-id")
    out.stream_id(stream.first_ms, stream.first_seq)


def _write_edges(out: Replies, stream: Stream) -> None:
    """Write how many groups there are, and the first and last entry or null."""
    out.bulk(b"groups")
    out.integer(len(stream.groups))
    for name, newest in ((b"first-entry", False), (b"last-entry", True)):
        out.bulk(name)
        if write_entries(out, stream, 0, 0, MAX_U64, MAX_U64, 1, newest) == 0:
            out.null()


def _write_full(out: Replies, stream: Stream, count: int) -> None:
    """Write entries and groups."""
    out.bulk(b"entries")
    mark = out.mark()
    out.insert_array(mark, write_entries(out, stream, 0, 0, MAX_U64, MAX_U64, count))
    out.bulk(b"groups")
    out.array(len(stream.groups))
    for group in stream.sorted_groups():
        _write_group(out, stream, group, count)


def _write_group(out: Replies, stream: Stream, group: Group, count: int) -> None:
    """Write one group with its pending entries and consumers."""
    out.map(7)
    out.bulk(b"name")
    out.bulk(group.name)
    out.bulk(b"last-delivered-id")
    out.stream_id(group.last_ms, group.last_seq)
    _write_counters(out, stream, group)
    out.bulk(b"pel-count")
    out.integer(group.pel.numele)
    out.bulk(b"pending")
    _write_pending(out, group.pel, count, True)
    out.bulk(b"consumers")
    out.array(len(group.consumers))
    for consumer in group.sorted_consumers():
        _write_consumer(out, consumer, count)


def _write_consumer(out: Replies, consumer: Consumer, count: int) -> None:
    """Write one consumer with its pending entries."""
    out.map(4)
    out.bulk(b"name")
    out.bulk(consumer.name)
    out.bulk(b"seen-time")
    out.integer(consumer.seen_time)
    out.bulk(b"pel-count")
    out.integer(consumer.pel.numele)
    out.bulk(b"pending")
    _write_pending(out, consumer.pel, count, False)


def _write_pending(out: Replies, pel: Rax, count: int, owner: bool) -> None:
    """Write the first count pending entries: ID, owner if asked for, time of delivery, deliveries."""
    listed = min(count, pel.numele) if count else pel.numele
    out.array(listed)
    iterator = RaxIterator(pel)
    iterator.seek("^")
    for _ in range(listed):
        iterator.next()
        pending: PendingEntry = iterator.data
        out.array(4 if owner else 3)
        out.stream_id(*StreamID.unpack(iterator.key))
        if owner:
            out.bulk(owner_name(pending))
        out.integer(pending.delivery_time)
        out.integer(signed(pending.delivery_count))
