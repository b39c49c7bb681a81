"""XGROUP and XACK: consumer groups, their consumers, and the acknowledgement of pending entries.

A group is a position in the stream (its last delivered ID), its consumers, and its pending entries: those that were
delivered and not yet acknowledged. XGROUP changes groups but not entries, so it does not touch clients that WATCH the
key, as in Redis.

The checks have the order of t_stream.c (xgroupCommand): options, type, key, group, ID.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import subcommand_error
from rillet.commands.help_texts import write_help
from rillet.commands.stream import command
from rillet.commands.stream.arguments import integer, option, read_id, read_id_at
from rillet.commands.stream.idmp import new_stream
from rillet.commands.stream.lookup import logged_now, lookup_write, require_group, require_stream, stream_at
from rillet.errors import BusyGroup, CommandError
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.stream.group import ENTRIES_READ_UNKNOWN, Group
from rillet.types.stream.id import IDReader
from rillet.types.stream.stream import Stream

_KEY_MISSING = (
    "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option "
    "to create an empty stream automatically."
)


def _options(argv: list[bytes], creates: bool) -> tuple[bool, int]:
    """Return MKSTREAM and ENTRIESREAD of XGROUP CREATE or SETID."""
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


def _stream_and_group(session: Session, argv: list[bytes]) -> tuple[Stream, Group]:
    """Return the stream at the key argv[2] and its group argv[3]; raise an error if either is missing."""
    stream = require_stream(lookup_write(session, argv[2]), _KEY_MISSING)
    return stream, require_group(stream, argv[2], argv[3])


def _position(word: bytes, stream: Stream | None, strict: bool) -> tuple[int, int]:
    """Return the group's new last delivered ID; `$` is the stream's last ID."""
    if word.split(b"\0", 1)[0] == b"$":
        if stream is None:
            return 0, 0
        return stream.last_ms, stream.last_seq
    reader = IDReader()
    read_id(reader, word, strict)
    return reader.ms, reader.seq


def _bounded(session: Session, stream: Stream, entries_read: int) -> int:
    """Return the group's new entries-read: ENTRIESREAD, since Redis 8.2 at most the stream's entries-added."""
    if session.engine.settings.compat.knows(82):
        return min(entries_read, stream.entries_added)
    return entries_read


@command("xgroup|create", arity=-5, flags="write denyoom", keys=(2, 2, 1), since="5.0.0",
         syntax="key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]", complexity="O(1)")
def xgroup_create(session: Session, argv: list[bytes]) -> None:
    """Creates a consumer group."""
    make, entries_read = _options(argv, True)
    key = argv[2]
    stream = lookup_write(session, key)
    if not make:
        stream = require_stream(stream, _KEY_MISSING)
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


@command("xgroup|setid", arity=-5, flags="write", keys=(2, 2, 1), since="5.0.0",
         syntax="key group <id | $> [ENTRIESREAD entries-read]", complexity="O(1)")
def xgroup_setid(session: Session, argv: list[bytes]) -> None:
    """Sets the last delivered ID of a consumer group."""
    _, entries_read = _options(argv, False)
    stream, group = _stream_and_group(session, argv)
    if len(argv) not in (5, 7):
        raise subcommand_error(argv)
    ms, seq = _position(argv[4], stream, False)
    group.set_id(ms, seq, _bounded(session, stream, entries_read))
    session.out.ok()
    session.dirty += 1
    session.notify(b"t", b"xgroup-setid", argv[2])


@command("xgroup|destroy", arity=4, flags="write", keys=(2, 2, 1), since="5.0.0", syntax="key group",
         complexity="O(N) for the N pending entries of the group.")
def xgroup_destroy(session: Session, argv: list[bytes]) -> None:
    """Destroys a consumer group; clients that are blocked in it receive an error."""
    key = argv[2]
    stream = require_stream(lookup_write(session, key), _KEY_MISSING)
    if not stream.destroy_group(argv[3]):
        session.out.integer(0)
        return
    session.out.integer(1)
    session.dirty += 1
    session.notify(b"t", b"xgroup-destroy", key)
    session.db.signal_ready(key)


@command("xgroup|createconsumer", arity=5, flags="write denyoom", keys=(2, 2, 1), since="6.2.0",
         syntax="key group consumer", complexity="O(1)")
def xgroup_createconsumer(session: Session, argv: list[bytes]) -> None:
    """Creates a consumer in a group and returns how many were created."""
    _, group = _stream_and_group(session, argv)
    if argv[4] in group.consumers:
        session.out.integer(0)
        return
    group.create_consumer(argv[4], logged_now(session) if session.trusted else session.db.clock.now_ms())
    session.out.integer(1)
    session.dirty += 1
    session.notify(b"t", b"xgroup-createconsumer", argv[2])


@command("xgroup|delconsumer", arity=5, flags="write", keys=(2, 2, 1), since="5.0.0", syntax="key group consumer",
         complexity="O(N) for the N pending entries of the consumer.")
def xgroup_delconsumer(session: Session, argv: list[bytes]) -> None:
    """Deletes a consumer with its pending entries and returns the number of those entries."""
    stream, group = _stream_and_group(session, argv)
    pending = group.delete_consumer(argv[4])
    stream.tidy_pending()
    if pending >= 0:
        session.dirty += 1
        session.notify(b"t", b"xgroup-delconsumer", argv[2])
    session.out.integer(max(0, pending))


@cython.final
@cython.cclass
class Xack(Implementation):
    """XACK (xackCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Remove entries from the pending entries of a group, and reply with how many were pending."""
        stream: Stream | None = stream_at(session.db, session.db.locate_read(words))
        group: Group | None = None if stream is None else stream.find_group(words.get(2))
        reader: IDReader = IDReader()
        acknowledged: cython.longlong = 0
        at: cython.Py_ssize_t
        if stream is None or group is None:
            return session.out.integer(0)
        # One invalid ID rejects the whole command. Parsing IDs twice is cheaper than a list of them.
        if words.count > 4:
            for at in range(3, words.count):
                read_id_at(reader, words, at)
        for at in range(3, words.count):
            read_id_at(reader, words, at)
            if group.acknowledge(reader.ms, reader.seq):
                acknowledged += 1
        stream.tidy_pending()
        session.dirty += acknowledged
        return session.out.integer(acknowledged)


command("xack", arity=-4, flags="write fast", since="5.0.0", syntax="key group id [id ...]",
        summary="Acknowledges entries: removes them from the pending entries of a group and returns how many were "
        "pending.", complexity="O(1) for each ID.")(Xack)


@command("xgroup|help", arity=2, flags="loading stale", keys=(0, 0, 0), since="5.0.0", complexity="O(1)")
def xgroup_help(session: Session, argv: list[bytes]) -> None:
    """Shows the sub-commands of XGROUP."""
    write_help(session, argv[0], "xgroup")
