"""XLEN, XRANGE, XREVRANGE, XREAD and XREADGROUP: entries on their way out.

An entry's reply is written straight from the bytes of its listpack: no object is made for a field
or a value. What it looks like is the same everywhere (`EntryWriter`):

    *2  $ id  *2n  $ field $ value ...

XREAD and XREADGROUP answer an array of [key, entries] pairs in RESP2 and a map in RESP3. Where
nothing can be served and BLOCK is given, the session waits with the arguments it came with
(`ReadRequest`): `$` was pinned to the last ID at the call, `>` is looked up in the group again when
the key is ready, since those who were served before moved it on.

    waits for           key ready, and it is              what the client gets
    XREAD               a stream with a newer last ID     the entries, at most COUNT or 1000
    XREADGROUP          a stream with the group           the entries
                        a stream without the group        NOGROUP
                        anything else, or gone            UNBLOCKED

Reading for a group is a write: entries become pending. It is logged as what it did, never as it
came: an XCLAIM for each entry, or with NOACK one XGROUP SETID.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.commands.args import text
from rillet.commands.registry import command
from rillet.commands.session import Session
from rillet.commands.stream_args import INVALID_ID, SYNTAX_ERROR, Interval, owner_name, signed
from rillet.errors import CommandError, NoGroup, Unblocked
from rillet.protocol.writer import Replies
from rillet.structs.listpack import Listpack
from rillet.types.compat import Compat
from rillet.types.group import ENTRIES_READ_UNKNOWN, Consumer, Group
from rillet.types.pending import PendingIterator
from rillet.types.stream import Stream
from rillet.types.stream_id import IDReader
from rillet.types.stream_iterator import StreamIterator
from rillet.types.stream_node import SAMEFIELDS

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.commands.stream_args import integer, option, read_stream
    from rillet.types.stream_id import format_id, less

_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_NEW_IS_GROUPED = (
    "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
)
_SAMEFIELDS = cython.declare(cython.longlong, SAMEFIELDS)
# How many entries a client that waited gets when it named no COUNT (XREAD_BLOCKED_DEFAULT_COUNT).
_BLOCKED_COUNT = cython.declare(cython.longlong, 1000)


# -- entries -------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class EntryWriter:
    """Writes the entries that an iterator finds, one after the other.

    From the second entry of a node on, the field names that all its entries share are copied as one piece of
    reply each (`names`, the first with the array's header before it), and only values are decoded.
    """

    __slots__ = ("lp", "names", "out")

    def __init__(self, out: Replies) -> None:
        self.out = out
        self.lp: Listpack | None = None
        self.names: list[bytes] | None = None

    @cython.ccall
    def write(self, entries: StreamIterator) -> cython.bint:
        """Write the iterator's current entry: its ID and an array of its fields and values. O(fields)"""
        out: Replies = self.out
        lp: Listpack | None = entries.lp
        assert lp is not None, "the iterator is at an entry"
        out.array(2)
        out.stream_id(entries.ms, entries.seq)
        if entries.flags & _SAMEFIELDS != 0:
            if lp is self.lp:
                return self._write_values(lp, entries)
            self.lp = lp
            self.names = None
        out.array(2 * entries.numfields)
        while entries.next_field():
            if entries.field_text:
                out.bulk_slice(lp.buf, entries.field_start, entries.field_len)
            else:
                out.bulk_int(entries.field_int)
            if entries.value_text:
                out.bulk_slice(lp.buf, entries.value_start, entries.value_len)
            else:
                out.bulk_int(entries.value_int)
        return True

    @cython.cfunc
    def _write_values(self, lp: Listpack, entries: StreamIterator) -> cython.bint:
        """Write fields and values of an entry whose names are those of its node."""
        out: Replies = self.out
        names: list[bytes] | None = self.names
        index: cython.Py_ssize_t
        pos: cython.Py_ssize_t
        if not entries.next_field():
            return out.array(0)
        if names is None:
            names = self.names = _shared_names(lp, entries.field_pos, entries.numfields)
        pos = entries.value_pos
        for index in range(entries.numfields):
            out.raw(names[index])
            if lp.decode(pos):
                out.bulk_slice(lp.buf, lp.at_start, lp.at_len)
            else:
                out.bulk_int(lp.at_int)
            pos = lp.at_next
        return True


@cython.cfunc
def _shared_names(lp: Listpack, pos: cython.Py_ssize_t, count: cython.Py_ssize_t) -> list[bytes]:
    """Return the reply of each of a node's names, from the position of the first."""
    names: list[bytes] = []
    out: Replies = Replies()
    left: cython.Py_ssize_t = count
    out.array(2 * count)
    while left > 0:
        if lp.decode(pos):
            out.bulk_slice(lp.buf, lp.at_start, lp.at_len)
        else:
            out.bulk_int(lp.at_int)
        names.append(out.take())
        pos = lp.at_next
        left -= 1
    return names


@cython.ccall
def write_entries(
    out: Replies,
    stream: Stream,
    start_ms: cython.ulonglong,
    start_seq: cython.ulonglong,
    end_ms: cython.ulonglong,
    end_seq: cython.ulonglong,
    count: cython.longlong = 0,
    reverse: cython.bint = False,
) -> cython.longlong:
    """Write the entries of a range without a header and return how many they are; count 0 = all. O(log N + entries)"""
    written: cython.longlong = 0
    entries: StreamIterator = StreamIterator(stream, start_ms, start_seq, end_ms, end_seq, reverse)
    writer: EntryWriter = EntryWriter(out)
    while entries.next_entry():
        writer.write(entries)
        written += 1
        if written == count:
            break
    return written


@command(
    "xlen", arity=2, flags="readonly fast", keys=(1, 1, 1), group="stream", since="5.0.0",
    complexity="O(1)", syntax="key",
)  # fmt: skip
def xlen(session: Session, argv: list[bytes]) -> None:
    """Returns the number of entries in a stream."""
    stream: Stream | None = read_stream(session, argv[1])
    session.out.integer(0 if stream is None else stream.length)


@command(
    "xrange", arity=-4, flags="readonly", keys=(1, 1, 1), group="stream", since="5.0.0",
    complexity="O(N) for the N entries returned.", syntax="key start end [COUNT count]",
)  # fmt: skip
def xrange(session: Session, argv: list[bytes]) -> None:
    """Returns the entries between two IDs, oldest first."""
    _range(session, argv, False)


@command(
    "xrevrange", arity=-4, flags="readonly", keys=(1, 1, 1), group="stream", since="5.0.0",
    complexity="O(N) for the N entries returned.", syntax="key end start [COUNT count]",
)  # fmt: skip
def xrevrange(session: Session, argv: list[bytes]) -> None:
    """Returns the entries between two IDs, newest first."""
    _range(session, argv, True)


@cython.cfunc
def _range(session: Session, argv: list[bytes], reverse: cython.bint) -> cython.bint:
    """Answer XRANGE and XREVRANGE (t_stream.c: xrangeGenericCommand)."""
    interval: Interval = Interval()
    count: cython.longlong = -1
    at: cython.Py_ssize_t = 4
    interval.read_start(argv[3] if reverse else argv[2])
    interval.read_end(argv[2] if reverse else argv[3])
    while at < len(argv):
        if at + 1 == len(argv) or option(argv[at]) != b"count":
            raise CommandError(SYNTAX_ERROR)
        count = integer(argv[at + 1])
        if count < 0:
            count = 0
        at += 2
    out: Replies = session.out
    stream: Stream | None = read_stream(session, argv[1])
    if stream is None:
        return out.array(0)
    if count == 0:
        return out.null_array()
    mark: cython.Py_ssize_t = out.mark()
    written: cython.longlong = write_entries(
        out, stream, interval.start_ms, interval.start_seq, interval.end_ms, interval.end_seq,
        0 if count == -1 else count, reverse,
    )  # fmt: skip
    return out.insert_array(mark, written)


# -- what reading for a group leaves in the log -----------------------------------------------------------


def log_claim(session: Session, key: bytes, group: Group, ident: bytes, slot: int) -> None:
    """Log the state of a pending entry as an XCLAIM that sets just that (streamPropagateXCLAIM)."""
    if session.engine.log is not None:
        session.propagate([
            b"XCLAIM", key, group.name, owner_name(group, slot), b"0", ident,
            b"TIME", b"%d" % group.table.delivery_time(slot),
            b"RETRYCOUNT", b"%d" % signed(group.table.delivery_count(slot)),
            b"FORCE", b"JUSTID", b"LASTID", format_id(group.last_ms, group.last_seq),
        ])  # fmt: skip


def log_group_id(session: Session, key: bytes, group: Group) -> None:
    """Log the group's last delivered ID and read counter (streamPropagateGroupID)."""
    if session.engine.log is not None:
        last = format_id(group.last_ms, group.last_seq)
        # A counter that ran over is logged as not known: SETID refuses a negative one, and the log could not be read.
        read = max(ENTRIES_READ_UNKNOWN, group.entries_read)
        session.propagate([b"XGROUP", b"SETID", key, group.name, last, b"ENTRIESREAD", b"%d" % read])


def log_consumer(session: Session, key: bytes, group: Group, consumer: Consumer) -> None:
    """Log that a consumer came to be (streamPropagateConsumerCreation)."""
    if session.engine.log is not None:
        session.propagate([b"XGROUP", b"CREATECONSUMER", key, group.name, consumer.name])


def meet_consumer(session: Session, key: bytes, group: Group, name: bytes) -> tuple[Consumer, bool]:
    """Return the consumer, whose seen-time becomes now, and whether it was made here."""
    now = session.db.clock.now_ms()
    consumer = group.consumers.get(name)
    if consumer is not None:
        consumer.seen_time = now
        return consumer, False
    consumer = group.create_consumer(name, now)
    session.dirty += 1
    session.notify(b"t", b"xgroup-createconsumer", key)
    return consumer, True


# -- XREAD and XREADGROUP ---------------------------------------------------------------------------------


@cython.final
@cython.cclass
class ReadRequest:
    """What an XREAD or XREADGROUP asks for; while its session waits, what it waits with.

    keys, ms, seq   the streams and the IDs to read after; in a group the largest ID stands for `>`
    group           the group's name, None for XREAD
    timeout         ms to wait, 0 = for ever, -1 = do not
    """

    __slots__ = ("consumer", "count", "group", "ids_at", "keys", "noack", "starts", "timeout")

    def __init__(self) -> None:
        self.timeout = -1
        self.count = 0
        self.group: bytes | None = None
        self.consumer = b""
        self.noack = False
        self.ids_at = 0
        self.keys: list[bytes] = []
        self.starts: list[tuple[int, int]] = []

    @cython.cfunc
    def read(self, session: Session, argv: list[bytes], grouped: cython.bint) -> cython.bint:
        """Read the options, up to where the IDs begin (t_stream.c: xreadCommand)."""
        at: cython.Py_ssize_t = 1
        count: cython.Py_ssize_t = len(argv)
        while at < count:
            word: bytes = option(argv[at])
            more: cython.Py_ssize_t = count - at - 1
            if word == b"streams" and more:
                self._take_keys(session, argv, at + 1, grouped)
                break
            if word == b"block" and more:
                self.timeout = integer(argv[at + 1], "timeout is not an integer or out of range")
                if self.timeout < 0:
                    raise CommandError("timeout is negative")
                at += 2
            elif word == b"count" and more:
                self.count = max(0, integer(argv[at + 1]))
                at += 2
            elif word == b"group" and more >= 2:
                _only_grouped(grouped, "GROUP")
                self.group = argv[at + 1]
                self.consumer = argv[at + 2]
                at += 3
            elif word == b"noack":
                _only_grouped(grouped, "NOACK")
                self.noack = True
                at += 1
            else:
                raise CommandError(SYNTAX_ERROR)
        if self.ids_at == 0:
            raise CommandError(SYNTAX_ERROR)
        if grouped and self.group is None:
            raise CommandError("Missing GROUP option for XREADGROUP")
        return True

    @cython.cfunc
    def _take_keys(
        self, session: Session, argv: list[bytes], start: cython.Py_ssize_t, grouped: cython.bint
    ) -> cython.bint:
        count: cython.Py_ssize_t = len(argv) - start
        if count % 2:
            raise _unbalanced(session.engine.settings.compat, grouped)
        self.ids_at = start + count // 2
        self.keys = argv[start : self.ids_at]
        return True

    @cython.cfunc
    def resolve(self, session: Session, argv: list[bytes]) -> list[Any]:
        """Read the IDs, `$` and `>` among them, and return the streams (None where there is no key)."""
        streams: list[Any] = []
        reader: IDReader = IDReader()
        index: cython.Py_ssize_t
        for index in range(len(self.keys)):
            key: bytes = self.keys[index]
            stream: Stream | None = self._find(session, key)
            streams.append(stream)
            word: bytes = argv[self.ids_at + index]
            if word == b"$" or word.startswith(b"$\0"):
                self._pin(stream)
            elif word == b">" or word.startswith(b">\0"):
                if self.group is None:
                    raise CommandError(_NEW_IS_GROUPED)
                self.starts.append((_MAX_U64, _MAX_U64))
            elif reader.read(word, 0, True):
                self.starts.append((reader.ms, reader.seq))
            else:
                raise CommandError(INVALID_ID)
        return streams

    @cython.cfunc
    def _find(self, session: Session, key: bytes) -> Stream | None:
        """Return the stream, None where there is no key and no group is asked for."""
        stream: Stream | None = read_stream(session, key)
        if self.group is not None and (stream is None or self.group not in stream.groups):
            raise NoGroup(
                f"No such key '{text(key)}' or consumer group '{text(self.group)}' in XREADGROUP with GROUP option"
            )
        return stream

    @cython.cfunc
    def _pin(self, stream: Stream | None) -> cython.bint:
        """Note the ID that `$` stands for now."""
        if self.group is not None:
            raise CommandError(
                "The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer "
                "by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty "
                "result set."
            )
        if stream is None:
            self.starts.append((0, 0))
        else:
            self.starts.append((stream.last_ms, stream.last_seq))
        return True

    @cython.cfunc
    def answer(self, session: Session, streams: list[Any]) -> cython.bint:
        """Write what can be served at once; False where there is nothing."""
        out: Replies = session.out
        mark: cython.Py_ssize_t = out.mark()
        served: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t
        for index in range(len(streams)):
            stream: Stream | None = streams[index]
            if stream is not None and self._answer_one(session, stream, index):
                served += 1
        if served == 0:
            return False
        if out.resp == 2:
            out.insert_array(mark, served)
        else:
            out.insert_map(mark, served)
        return True

    @cython.cfunc
    def _answer_one(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write the pair of one stream if it has something for this request."""
        key: bytes = self.keys[index]
        start: tuple[int, int] = self.starts[index]
        ms: cython.ulonglong = start[0]
        seq: cython.ulonglong = start[1]
        history: cython.bint = False
        if self.group is not None:
            if ms == _MAX_U64 and seq == _MAX_U64:
                group: Group = stream.groups[self.group]
                ms = group.last_ms
                seq = group.last_seq
            else:
                history = True
        if not history and not _has_after(stream, ms, seq):
            if self.group is not None and session.engine.settings.compat.level >= 72:
                # Since Redis 7.2 a consumer is seen, and made, by asking.
                consumer, created = meet_consumer(session, key, group, self.consumer)
                if created:
                    log_consumer(session, key, group, consumer)
            return False
        self._write_pair(session, stream, key, ms, seq, self.count, history)
        return True

    @cython.cfunc
    def _write_pair(
        self, session: Session, stream: Stream, key: bytes, ms: cython.ulonglong, seq: cython.ulonglong,
        count: cython.longlong, history: cython.bint,
    ) -> cython.bint:  # fmt: skip
        """Write a key and its entries after the ID."""
        out: Replies = session.out
        written: cython.longlong
        if out.resp == 2:
            out.array(2)
        out.bulk(key)
        # The ID after; the largest of all has none and starts over (streamIncrID).
        if seq != _MAX_U64:
            seq += 1
        else:
            seq = 0
            ms = 0 if ms == _MAX_U64 else ms + 1
        mark: cython.Py_ssize_t = out.mark()
        if self.group is None:
            written = write_entries(out, stream, ms, seq, _MAX_U64, _MAX_U64, count, False)
        else:
            written = self._deliver(session, stream, key, ms, seq, count, history)
        return out.insert_array(mark, written)

    @cython.cfunc
    def _deliver(
        self, session: Session, stream: Stream, key: bytes, ms: cython.ulonglong, seq: cython.ulonglong,
        count: cython.longlong, history: cython.bint,
    ) -> cython.longlong:  # fmt: skip
        """Write entries for the consumer: from its own pending ones, or new ones that become pending."""
        assert self.group is not None
        group: Group = stream.groups[self.group]
        consumer, created = meet_consumer(session, key, group, self.consumer)
        if created and (self.noack or (history and session.engine.settings.compat.level >= 72)):
            log_consumer(session, key, group, consumer)
        session.dirty += 1
        if history:
            return _write_history(session, stream, group, consumer, ms, seq, count)
        return _write_new(session, stream, key, group, consumer, ms, seq, count, self.noack)

    def serve(self, session: Session, key: bytes) -> bool:
        """Answer a waiting client whose key changed; True when it got its reply (serveClientsBlockedOnStreamKey)."""
        value = session.db.lookup(key)
        if session.engine.settings.compat.level >= 72:
            return self._serve_again(session, value)
        ms: cython.ulonglong
        seq: cython.ulonglong
        if not isinstance(value, Stream):
            if self.group is None:
                return False
            raise Unblocked("the stream key no longer exists")
        stream: Stream = value
        if self.group is None:
            ms, seq = self.starts[self.keys.index(key)]
        else:
            session.propagate_nothing()
            group: Group | None = stream.groups.get(self.group)
            if group is None:
                raise NoGroup("the consumer group this client was blocked on no longer exists")
            ms = group.last_ms
            seq = group.last_seq
        if not less(ms, seq, stream.last_ms, stream.last_seq):
            return False
        if session.out.resp == 2:
            session.out.array(1)
        else:
            session.out.map(1)
        self._write_pair(session, stream, key, ms, seq, self.count or _BLOCKED_COUNT, False)
        return True

    @cython.cfunc
    def _serve_again(self, session: Session, value: object) -> cython.bint:
        """Answer as if the command came now, which is what Redis 7.2 and newer do (blocked.c: unblockClientOnKey)."""
        if self.group is not None:
            session.propagate_nothing()
        elif not isinstance(value, Stream):
            return False
        return self.answer(session, [self._find(session, key) for key in self.keys])

    def expired(self, session: Session) -> None:
        """Answer a client that waited long enough."""
        session.out.null_array()


def _unbalanced(compat: Compat, grouped: bool) -> CommandError:
    """Return the refusal of keys and IDs that do not come in pairs, which names the command since Redis 7.2."""
    name, ids = "XREAD", "ID or '$'"
    if compat.knows(72):
        name = "'xreadgroup'" if grouped else "'xread'"
        if grouped:
            ids = "ID or '>'"
        elif compat.knows(80):
            ids = "ID, '+', or '$'"
    return CommandError(f"Unbalanced {name} list of streams: for each stream key an {ids} must be specified.")


@cython.cfunc
def _only_grouped(grouped: cython.bint, name: str) -> cython.bint:
    if not grouped:
        raise CommandError(f"The {name} option is only supported by XREADGROUP. You called XREAD instead.")
    return True


@cython.cfunc
def _has_after(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Whether the stream holds an entry after the ID; the last ID alone does not tell, its entry may be deleted."""
    if stream.length == 0 or not less(ms, seq, stream.last_ms, stream.last_seq):
        return False
    stream.edge(False, True)
    return less(ms, seq, stream.edge_ms, stream.edge_seq)


@cython.cfunc
def _write_history(
    session: Session, stream: Stream, group: Group, consumer: Consumer, ms: cython.ulonglong,
    seq: cython.ulonglong, count: cython.longlong,
) -> cython.longlong:  # fmt: skip
    """Write what is pending for the consumer, a deleted entry as its ID and null (..RangeFromConsumerPEL)."""
    out: Replies = session.out
    written: cython.longlong = 0
    now: cython.longlong = session.db.clock.now_ms()
    saturates: cython.bint = session.engine.settings.compat.level >= 84
    pending: PendingIterator = PendingIterator(group.table, consumer.index, ms, seq)
    while (count == 0 or written < count) and pending.next():
        ms = pending.ms
        seq = pending.seq
        if write_entries(out, stream, ms, seq, ms, seq, 1, False) == 0:
            out.array(2)
            out.stream_id(ms, seq)
            out.null_array()
        else:
            group.redeliver(pending.slot, now, saturates)
        written += 1
    return written


@cython.cfunc
def _write_new(
    session: Session, stream: Stream, key: bytes, group: Group, consumer: Consumer, ms: cython.ulonglong,
    seq: cython.ulonglong, count: cython.longlong, noack: cython.bint,
) -> cython.longlong:  # fmt: skip
    """Write entries nobody of the group has seen, move the group on, make them pending unless noack."""
    writer: EntryWriter = EntryWriter(session.out)
    written: cython.longlong = 0
    moved: cython.bint = False
    logged: cython.bint = session.engine.log is not None
    now: cython.longlong = session.db.clock.now_ms()
    rule: cython.int = session.engine.settings.compat.lag_rule
    entries: StreamIterator = StreamIterator(stream, ms, seq, _MAX_U64, _MAX_U64, False)
    while entries.next_entry():
        if stream.advance_group(group, entries.ms, entries.seq, rule):
            moved = True
        writer.write(entries)
        if not noack:
            slot: cython.Py_ssize_t = group.deliver(entries.ms, entries.seq, consumer, now)
            consumer.active_time = now
            if logged:
                log_claim(session, key, group, format_id(entries.ms, entries.seq), slot)
        written += 1
        if written == count:
            break
    if noack and moved:
        log_group_id(session, key, group)
    return written


def keys_of_read(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of an XREAD or XREADGROUP (db.c: xreadGetKeys)."""
    skipped = {b"block": 2, b"count": 2, b"group": 3, b"noack": 1}
    at = 1
    while at < len(argv):
        word = option(argv[at])
        if word == b"streams":
            names = len(argv) - at - 1
            return [] if names % 2 else list(range(at + 1, at + 1 + names // 2))
        if word not in skipped:
            return []
        at += skipped[word]
    return []


@command(
    "xread", arity=-4, flags="blocking readonly movablekeys", group="stream", since="5.0.0", get_keys=keys_of_read,
    complexity="O(N) for the N entries returned; an XADD pays O(M) for the M clients that wait for the stream.",
    syntax="[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
)  # fmt: skip
def xread(session: Session, argv: list[bytes]) -> None:
    """Returns entries of one or more streams after the given IDs; waits for some if told to."""
    _read(session, argv, False)


@command(
    "xreadgroup", arity=-7, flags="blocking write movablekeys", group="stream", since="5.0.0", get_keys=keys_of_read,
    complexity="O(M) for the M entries returned; an XADD pays O(N) for the N clients that wait for the stream.",
    syntax="GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
)  # fmt: skip
def xreadgroup(session: Session, argv: list[bytes]) -> None:
    """Returns new entries for a consumer of a group, which become pending, or its pending ones again."""
    _read(session, argv, True)


@cython.cfunc
def _read(session: Session, argv: list[bytes], grouped: cython.bint) -> cython.bint:
    """Answer XREAD and XREADGROUP now, wait, or answer null."""
    request: ReadRequest = ReadRequest()
    request.read(session, argv, grouped)
    streams: list[Any] = request.resolve(session, argv)
    if grouped:
        session.propagate_nothing()
    if request.answer(session, streams):
        return True
    if request.timeout == -1 or not session.can_block:
        return session.out.null_array()
    session.block(request.keys, request.timeout, request.serve, request.expired, request.group)
    return True
