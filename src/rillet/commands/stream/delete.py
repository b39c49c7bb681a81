"""XDEL, XDELEX and XACKDEL: what takes single entries out of a stream, and the groups' references with them.

A group refers to an entry while it has it pending. XDEL leaves such references dangling; since 8.2
XDELEX says what becomes of them, and XACKDEL acknowledges on the way:

                  entry     pending in this group    pending in others        reply, for each ID
    KEEPREF       goes      XACKDEL: goes            stays                    1
    DELREF        goes      goes                     goes                     1
    ACKED         goes only if nobody has it pending, and every group         1, or 2: referenced still
                  has been given it

    -1 is the reply for an ID that XDELEX does not find in the stream, or XACKDEL among the pending
    entries; the latter counts an entry as deleted that is pending and long gone from the stream.

IDs are read twice, first to refuse them all where one is wrong, so that no list of them is made,
however many there are. The stream's first ID is found once, behind the last deletion.

Only what changed is logged, as it came. DELREF drops references to entries that are no more, too,
which changes no stream and counts as no change; Redis logs nothing then, and a replica keeps them.
Here the command is logged.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.commands.stream.arguments import SYNTAX_ERROR
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.stream.group import Group
from rillet.types.stream.id import IDReader
from rillet.types.stream.value import ACKED, DELREF, KEEPREF, Stream

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.commands.stream.arguments import delete_strategy, integer, option, read_id
    from rillet.commands.stream.lookup import lookup_read, lookup_write

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
    """The options of XDELEX and XACKDEL: the IDs are argv[start:end] (t_stream.c: streamParseAckDelArgsOrReply)."""

    __slots__ = ("end", "start", "strategy")
    strategy: cython.int
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t

    def __init__(self) -> None:
        self.strategy = _NO_STRATEGY
        self.start = self.end = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def read(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.bint:
        """Read argv[at:], strategy and IDs in any order; of IDs given twice, the last count."""
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
@cython.exceptval(-1, check=False)
def _check_ids(argv: list[bytes], start: cython.Py_ssize_t, end: cython.Py_ssize_t, reader: IDReader) -> cython.bint:
    """Refuse argv[start:end] where one word is no ID."""
    at: cython.Py_ssize_t
    for at in range(start, end):
        read_id(reader, argv[at])
    return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def _none_found(session: Session, arguments: DeleteArguments) -> cython.bint:
    """Reply -1 for each word that stands where an ID should; it need not even be one."""
    left: cython.Py_ssize_t = arguments.end - arguments.start
    session.out.array(left)
    while left > 0:
        session.out.integer(_NO_ID)
        left -= 1
    return True


@cython.final
@cython.cclass
class Deletion:
    """What one command takes out of a stream: entries, references, and whether its first entry was among them."""

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
    @cython.exceptval(-1, check=False)
    def forbids(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Say whether references keep the entry from being deleted; those that the strategy drops are gone then."""
        if self.strategy == _DELREF:
            self.dropped += self.stream.drop_references(ms, seq)
        return self.strategy == _ACKED and self.stream.is_held(ms, seq)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def delete(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Delete the entry; False when it does not exist."""
        if not self.stream.delete_unsettled(ms, seq):
            return False
        self.deleted += 1
        if ms == self.stream.first_ms and seq == self.stream.first_seq:
            self.first = True
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def settle(self, session: Session, key: bytes) -> cython.bint:
        """Find the stream's first entry, and note the key as changed once, where anything was deleted."""
        self.stream.tidy_pending()
        if self.deleted == 0:
            return False
        if self.first or self.stream.length == 0:
            self.stream.settle_first()
        session.modified(key)
        session.notify(b"t", b"xdel", key)
        return True


@command(
    "xdel", arity=-3, flags="write fast", keys=(1, 1, 1), group="stream", since="5.0.0",
    complexity="O(1) for each ID.", syntax="key id [id ...]",
)  # fmt: skip
def xdel(session: Session, argv: list[bytes]) -> None:
    """Removes entries by ID and returns how many were there."""
    key: bytes = argv[1]
    stream: Stream | None = lookup_write(session, key)
    if stream is None:
        session.out.integer(0)
        return
    reader: IDReader = IDReader()
    deletion: Deletion = Deletion(stream, _KEEPREF)
    at: cython.Py_ssize_t
    _check_ids(argv, 2, len(argv), reader)
    for at in range(2, len(argv)):
        read_id(reader, argv[at])
        deletion.delete(reader.ms, reader.seq)
    if deletion.settle(session, key):
        session.dirty += deletion.deleted - 1
    session.out.integer(deletion.deleted)


@command(
    "xdelex", arity=-5, flags="write fast", keys=(1, 1, 1), group="stream", since="8.2.0",
    complexity="O(1) for each ID.", syntax="key [KEEPREF | DELREF | ACKED] <IDS numids id [id ...]>",
)  # fmt: skip
def xdelex(session: Session, argv: list[bytes]) -> None:
    """Removes entries by ID, and the groups' references to them or not, and tells for each what was done."""
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


@command(
    "xackdel", arity=-6, flags="write fast", keys=(1, 1, 1), group="stream", since="8.2.0",
    complexity="O(1) for each ID.", syntax="key group [KEEPREF | DELREF | ACKED] <IDS numids id [id ...]>",
)  # fmt: skip
def xackdel(session: Session, argv: list[bytes]) -> None:
    """Takes entries off the pending ones of a group, deletes them from the stream, and tells for each what was done."""
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
    # The changes that count are the acknowledged ones, and one of them is counted with the deletions.
    if deletion.settle(session, key):
        acknowledged -= 1
    session.dirty += acknowledged
