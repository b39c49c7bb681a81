"""XDEL, XDELEX and XACKDEL: delete single entries of a stream, and the references that groups have to them.

A group refers to an entry while the entry is pending in the group. XDEL leaves these references; the strategies of
XDELEX and XACKDEL (since 8.2) define what happens to them. XACKDEL also acknowledges the entry:

                  entry      pending in this group    pending in other groups  reply per ID
    KEEPREF       deleted    XACKDEL: removed         stays                    1
    DELREF        deleted    removed                  removed                  1
    ACKED         deleted if it is pending in no group, and every group has    1, or 2 if it is still referenced
                  read it

    The reply is -1 if XDELEX does not find the ID in the stream, or XACKDEL not among the pending entries. For XACKDEL
    an entry that is pending counts as deleted even if the stream no longer has it.

IDs are read twice: first to reject the command if one is invalid, then to execute it. This avoids a list of them. The
stream's first ID is updated once, after the last deletion.

A command that changes anything is logged unchanged. DELREF also drops references to entries that no longer exist, which
does not count as a change. Redis does not log it, so that a replica keeps these references; rillet logs it.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.stream import command
from rillet.commands.stream.arguments import SYNTAX_ERROR, delete_strategy, integer, option, read_id
from rillet.commands.stream.cold import must_wait, named_ids
from rillet.commands.stream.lookup import lookup_read, lookup_write
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.stream.group import Group
from rillet.types.stream.id import IDReader
from rillet.types.stream.stream import ACKED, DELREF, KEEPREF, Stream

_KEEPREF = cython.declare(cython.int, KEEPREF)
_DELREF = cython.declare(cython.int, DELREF)
_ACKED = cython.declare(cython.int, ACKED)
_NO_STRATEGY = cython.declare(cython.int, -1)

_NO_ID = cython.declare(cython.int, -1)
_GONE = cython.declare(cython.int, 1)
_STILL_REFERENCED = cython.declare(cython.int, 2)

_NOT_POSITIVE = "Number of IDs must be a positive integer"


@cython.final
@cython.cclass
class DeleteArguments:
    """The options of XDELEX and XACKDEL; the IDs are argv[start:end] (t_stream.c: streamParseAckDelArgsOrReply)."""

    __slots__ = ("end", "start", "strategy")
    strategy: cython.int
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t

    def __init__(self) -> None:
        self.strategy = _NO_STRATEGY
        self.start = self.end = 0

    @cython.cfunc
    def read(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.bint:
        """Read the strategy and the IDs from argv[at:], in any order; if IDS is repeated, the last one applies."""
        count: cython.Py_ssize_t = len(argv)
        while at < count:
            word: bytes = option(argv[at])
            named: cython.int = delete_strategy(word)
            if named != _NO_STRATEGY and self.strategy == _NO_STRATEGY:
                self.strategy = named
                at += 1
            elif word == b"ids" and at + 1 < count:
                number: cython.longlong = integer(argv[at + 1], _NOT_POSITIVE)
                if number < 1:
                    raise CommandError(_NOT_POSITIVE)
                if number > count - at - 2:
                    raise CommandError("The `numids` parameter must match the number of arguments")
                self.start = at + 2
                self.end = at = self.start + number
            else:
                raise CommandError(SYNTAX_ERROR)
        if self.start == 0:
            raise CommandError("IDS option is required")
        if self.strategy == _NO_STRATEGY:
            self.strategy = _KEEPREF
        return True


@cython.cfunc
def _check_ids(argv: list[bytes], start: cython.Py_ssize_t, end: cython.Py_ssize_t, reader: IDReader) -> cython.bint:
    """Raise CommandError if a word of argv[start:end] is not a valid ID."""
    at: cython.Py_ssize_t
    for at in range(start, end):
        read_id(reader, argv[at])
    return True


@cython.cfunc
def _none_found(session: Session, arguments: DeleteArguments) -> cython.bint:
    """Reply -1 for each ID, without checking that it is valid."""
    left: cython.Py_ssize_t = arguments.end - arguments.start
    session.out.array(left)
    while left > 0:
        session.out.integer(_NO_ID)
        left -= 1
    return True


@cython.final
@cython.cclass
class Deletion:
    """The effects of one XDEL, XDELEX or XACKDEL: deleted entries, dropped references, a new first entry."""

    __slots__ = ("deleted", "dropped", "first", "strategy", "stream")
    stream: Stream
    strategy: cython.int
    deleted: cython.longlong
    dropped: cython.longlong
    first: cython.bint

    def __init__(self, stream: Stream, strategy: cython.int) -> None:
        self.stream = stream
        self.strategy = strategy
        self.deleted = self.dropped = 0
        self.first = False
        if strategy == _ACKED:
            stream.find_unread()

    @cython.cfunc
    def forbids(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """With DELREF, remove an entry's references in groups; return whether ACKED forbids its deletion."""
        if self.strategy == _DELREF:
            self.dropped += self.stream.drop_references(ms, seq)
        return self.strategy == _ACKED and self.stream.is_held(ms, seq)

    @cython.cfunc
    def delete(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Delete the entry; return False if it does not exist."""
        if not self.stream.delete_unsettled(ms, seq):
            return False
        self.deleted += 1
        if ms == self.stream.first_ms and seq == self.stream.first_seq:
            self.first = True
        return True

    @cython.cfunc
    def settle(self, session: Session, key: bytes) -> cython.bint:
        """If entries were deleted, update the stream's first ID and mark the key as modified, once."""
        self.stream.tidy_pending()
        if self.deleted == 0:
            return False
        if self.first or self.stream.length == 0:
            self.stream.settle_first()
        session.modified(key)
        session.notify(b"t", b"xdel", key)
        return True


@command("xdel", arity=-3, flags="write fast", since="5.0.0", syntax="key id [id ...]", complexity="O(1) for each ID.")
def xdel(session: Session, argv: list[bytes]) -> None:
    """Deletes entries by ID and returns how many existed."""
    key: bytes = argv[1]
    stream: Stream | None = lookup_write(session, key)
    if stream is None:
        session.out.integer(0)
        return
    reader: IDReader = IDReader()
    deletion: Deletion = Deletion(stream, _KEEPREF)
    at: cython.Py_ssize_t
    _check_ids(argv, 2, len(argv), reader)
    if stream.sealed != 0 and must_wait(session, argv, stream, named_ids(argv, 2, len(argv))):
        return
    for at in range(2, len(argv)):
        read_id(reader, argv[at])
        deletion.delete(reader.ms, reader.seq)
    if deletion.settle(session, key):
        session.dirty += deletion.deleted - 1
    session.out.integer(deletion.deleted)


@command("xdelex", arity=-5, flags="write fast", since="8.2.0",
         syntax="key [KEEPREF | DELREF | ACKED] <IDS numids id [id ...]>", complexity="O(1) for each ID.")
def xdelex(session: Session, argv: list[bytes]) -> None:
    """Deletes entries by ID, with or without the groups' references to them, and returns the result for each."""
    key: bytes = argv[1]
    stream: Stream | None = lookup_write(session, key)
    arguments: DeleteArguments = DeleteArguments()
    arguments.read(argv, 2)
    if stream is None:
        _none_found(session, arguments)
        return
    reader: IDReader = IDReader()
    deletion: Deletion = Deletion(stream, arguments.strategy)
    at: cython.Py_ssize_t
    _check_ids(argv, arguments.start, arguments.end, reader)
    if stream.sealed != 0 and must_wait(session, argv, stream, named_ids(argv, arguments.start, arguments.end)):
        return
    session.out.array(arguments.end - arguments.start)
    for at in range(arguments.start, arguments.end):
        read_id(reader, argv[at])
        if deletion.forbids(reader.ms, reader.seq):
            session.out.integer(_STILL_REFERENCED)
        elif deletion.delete(reader.ms, reader.seq):
            session.out.integer(_GONE)
        else:
            session.out.integer(_NO_ID)
    if deletion.settle(session, key):
        session.dirty += deletion.deleted - 1
    elif deletion.dropped > 0:
        session.propagate(argv)


@command("xackdel", arity=-6, flags="write fast", since="8.2.0",
         syntax="key group [KEEPREF | DELREF | ACKED] <IDS numids id [id ...]>", complexity="O(1) for each ID.")
def xackdel(session: Session, argv: list[bytes]) -> None:
    """Acknowledges entries in a group, deletes them from the stream, and returns the result for each."""
    key: bytes = argv[1]
    stream: Stream | None = lookup_read(session, key)
    arguments: DeleteArguments = DeleteArguments()
    arguments.read(argv, 3)
    group: Group | None = None if stream is None else stream.find_group(argv[2])
    if stream is None or group is None:
        _none_found(session, arguments)
        return
    reader: IDReader = IDReader()
    deletion: Deletion = Deletion(stream, arguments.strategy)
    at: cython.Py_ssize_t
    acknowledged: cython.longlong = 0
    _check_ids(argv, arguments.start, arguments.end, reader)
    if stream.sealed != 0 and must_wait(session, argv, stream, named_ids(argv, arguments.start, arguments.end)):
        session.db.hits -= 1  # the lookup counts when the command begins again
        return
    session.out.array(arguments.end - arguments.start)
    for at in range(arguments.start, arguments.end):
        read_id(reader, argv[at])
        if not group.acknowledge(reader.ms, reader.seq):
            session.out.integer(_NO_ID)
            continue
        acknowledged += 1
        if deletion.forbids(reader.ms, reader.seq):
            session.out.integer(_STILL_REFERENCED)
        else:
            deletion.delete(reader.ms, reader.seq)
            session.out.integer(_GONE)
    # Every acknowledged entry is a change to the key. `settle` counts one change if it deletes entries.
    if deletion.settle(session, key):
        acknowledged -= 1
    session.dirty += acknowledged
