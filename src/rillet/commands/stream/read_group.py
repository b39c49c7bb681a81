"""XREAD and XREADGROUP: what comes after an ID, now or as soon as it is there; for a group, each entry to one consumer.

XREAD and XREADGROUP answer an array of [key, entries] pairs in RESP2 and a map in RESP3. An entry has two
parts, with CLAIM four: milliseconds since it was delivered last, and how often it was, both 0 for a new one.

    XREADGROUP ... CLAIM 60000 COUNT 5 STREAMS s >

    by time   released ─► oldest ─► ... ─► newest        what is pending in the group, whoever has it
              └─ idle for long enough: claimed ─┘        first, up to COUNT
    by ID     ... last delivered ─► new ─► new           then these, up to what COUNT leaves

Limits: COUNT holds for each stream, MAXCOUNT for all of them together, and MAXSIZE ends the reply once it has
so many bytes, headers included; the first entry is given however long it is. Streams are served in the order in
which they were named, and where a limit is reached, the rest is as if it had not been named.

Where nothing can be served and BLOCK is given, the session waits with the arguments it came with
(`ReadRequest`): `$` was pinned to the last ID at the call, `>` and `+` are looked up again when a
key is ready. Since Redis 7.2 a woken client's command runs anew; before, only the key that woke it was looked at:

    waits for           a key is ready, and it is       7.0: what the client gets    since 7.2
    XREAD               a stream with a newer last ID   the entries, at most COUNT   all that is there, as if
                                                        or 1000                      it asked now
    XREADGROUP          a stream with the group         the entries                  the same
                        a stream without the group      NOGROUP                      NOGROUP
                        anything else, or gone          UNBLOCKED                    WRONGTYPE, NOGROUP

With CLAIM it waits for the clock, too: `Blocked.retry_at` is when the entry that was delivered first among
those that exist will have been idle for long enough, and without any, when one delivered now would be; but
not sooner than Redis's cron looks, else clients that claim what is idle for 0 ms would be asked all the time.

Reading for a group is a write: entries become pending. It is logged as what it did (`stream_log`).
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.commands.arguments import text
from rillet.commands.stream.arguments import INVALID_ID, SYNTAX_ERROR
from rillet.commands.stream.range import EntryWriter
from rillet.errors import CommandError, NoGroup, Unblocked
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.stream.entry_lookup import EntryLookup
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.id import IDReader
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.pending import PendingIterator, PendingTable
from rillet.types.stream.value import Stream

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.commands.stream.arguments import integer, option, read_stream
    from rillet.commands.stream.propagation import log_claim, log_consumer, log_group_id, meet_consumer, signed_count
    from rillet.types.stream.id import format_id, less

_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_I64 = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_NEW_IS_GROUPED = (
    "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
)
# How many entries a client that waited gets when it named no COUNT (7.0: XREAD_BLOCKED_DEFAULT_COUNT).
_BLOCKED_COUNT = cython.declare(cython.longlong, 1000)
# For how long (ms) nobody asks for a client that claims where nothing is pending.
_LEAST_WAIT = 100


@cython.final
@cython.cclass
class ReadRequest:
    """What an XREAD or XREADGROUP asks for; while its session waits, what it waits with.

    keys, starts    the streams and the IDs to read after; in a group the largest ID stands for `>`
    last_of         where `+` stands: their IDs are found anew with every try
    group           the group's name, None for XREAD
    timeout         ms to wait, 0 = for ever, -1 = do not
    count, max_count, max_size    0 = no limit
    min_idle        CLAIM, -1 = none
    """

    __slots__ = (
        "base", "claiming", "consumer", "count", "group", "ids_at", "keys", "last_of", "level", "logged", "max_count",
        "max_size", "min_idle", "noack", "now", "oldest", "starts", "timeout", "valkey", "written",
    )  # fmt: skip
    # Of one try: where its reply begins, its entries so far, how idle claims must be now, when the first of the
    # pending entries was delivered, and how many changes of the stream at hand are to be logged.
    base: cython.Py_ssize_t
    written: cython.longlong
    claiming: cython.longlong
    oldest: cython.longlong
    logged: cython.longlong
    now: cython.longlong

    def __init__(self, compat: Any) -> None:
        self.level = compat.level
        self.valkey = compat.valkey
        self.timeout = -1
        self.count = 0
        self.max_count = 0
        self.max_size = 0
        self.min_idle = -1
        self.group: bytes | None = None
        self.consumer = b""
        self.noack = False
        self.ids_at = 0
        self.keys: list[bytes] = []
        self.starts: list[tuple[int, int]] = []
        self.last_of: list[int] | None = None
        self.base = 0
        self.written = self.claiming = self.oldest = self.logged = self.now = 0

    # -- reading the arguments

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def read(self, session: Session, argv: list[bytes], grouped: cython.bint) -> cython.bint:
        """Read the options, up to where the IDs begin (t_stream.c: xreadCommand)."""
        at: cython.Py_ssize_t = 1
        count: cython.Py_ssize_t = len(argv)
        while at < count:
            word: bytes = option(argv[at])
            more: cython.Py_ssize_t = count - at - 1
            if word == b"streams" and more:
                self._take_keys(argv, at + 1, grouped)
                break
            if word == b"block" and more:
                self.timeout = integer(argv[at + 1], "timeout is not an integer or out of range")
                if self.timeout < 0:
                    raise CommandError("timeout is negative")
                if self.level >= 72 and self.timeout > _MAX_I64 - session.db.clock.now_ms():
                    raise CommandError("timeout is out of range")
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
            elif more and self._read_newer(word, argv[at + 1], grouped):
                at += 2
            else:
                raise CommandError(SYNTAX_ERROR)
        if self.ids_at == 0:
            raise CommandError(SYNTAX_ERROR)
        if grouped and self.group is None:
            raise CommandError("Missing GROUP option for XREADGROUP")
        if self.max_count and self.max_count < self.count:
            raise CommandError("MAXCOUNT must be greater than or equal to COUNT")
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_newer(self, word: bytes, value: bytes, grouped: cython.bint) -> cython.bint:
        """Read an option that came after 7.0; False where it is none."""
        if word == b"claim" and self.level >= 84:
            _only_grouped(grouped, "CLAIM")
            self.min_idle = integer(value, "min-idle-time is not an integer or out of range")
            if self.min_idle < 0:
                raise CommandError("min-idle-time must be a positive integer")
            return True
        if self.level < 810:
            return False
        if word == b"maxcount":
            self.max_count = _positive(value, "MAXCOUNT must be a positive integer")
            return True
        if word == b"maxsize":
            self.max_size = _positive(value, "MAXSIZE must be a positive integer")
            return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _take_keys(self, argv: list[bytes], start: cython.Py_ssize_t, grouped: cython.bint) -> cython.bint:
        count: cython.Py_ssize_t = len(argv) - start
        if count % 2:
            raise _unbalanced(self.level, grouped)
        self.ids_at = start + count // 2
        self.keys = argv[start : self.ids_at]
        return True

    @cython.cfunc
    def resolve(self, session: Session, argv: list[bytes]) -> list[Any]:
        """Read the IDs, `$`, `+` and `>` among them, and return the streams (None where there is no key)."""
        streams: list[Any] = []
        reader: IDReader = IDReader()
        index: cython.Py_ssize_t
        for index in range(len(self.keys)):
            stream: Stream | None = self._find(session, self.keys[index])
            streams.append(stream)
            word: bytes = argv[self.ids_at + index]
            if reader.read(word, 0, True):
                self.starts.append((reader.ms, reader.seq))
                continue
            if b"\0" in word:
                word = word.split(b"\0", 1)[0]
            if word == b"$":
                self._pin(stream)
            elif word == b"+" and (self.level >= 74 or self.valkey):
                self._ask_for_last(stream, index)
            elif word == b">":
                if self.group is None:
                    raise CommandError(_NEW_IS_GROUPED)
                self.starts.append((_MAX_U64, _MAX_U64))
            else:
                raise CommandError(INVALID_ID)
        return streams

    @cython.cfunc
    def _find(self, session: Session, key: bytes) -> Stream | None:
        """Return the stream, None where there is no key and no group is asked for."""
        stream: Stream | None = read_stream(session, key)
        if self.group is not None and (stream is None or stream.find_group(self.group) is None):
            raise NoGroup(
                f"No such key '{text(key)}' or consumer group '{text(self.group)}' in XREADGROUP with GROUP option"
            )
        return stream

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _pin(self, stream: Stream | None) -> cython.bint:
        """Note the ID that `$` stands for now."""
        if self.group is not None:
            raise _meaningless("$")
        if stream is None:
            self.starts.append((0, 0))
        else:
            self.starts.append((stream.last_ms, stream.last_seq))
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _ask_for_last(self, stream: Stream | None, index: cython.Py_ssize_t) -> cython.bint:
        """Note that the last entry of this stream is wanted."""
        if self.group is not None:
            raise _meaningless("+")
        if self.last_of is None:
            self.last_of = []
        self.last_of.append(index)
        self.starts.append(_before_last(stream, self.level, self.valkey))
        return True

    # -- answering

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def answer(self, session: Session, streams: list[Any]) -> cython.bint:
        """Write what can be served at once; False where there is nothing."""
        out: ReplyWriter = session.out
        served: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t
        self._begin(session)
        for index in range(len(streams)):
            stream: Stream | None = streams[index]
            if self.is_full(out):
                break
            # Redis looks every key up twice: for its ID, and for its entries.
            session.db.count_read(self.keys[index], stream is not None)
            if stream is not None and self._answer_one(session, stream, index):
                served += 1
        if served == 0:
            return False
        if out.resp == 2:
            out.insert_array(self.base, served)
        else:
            out.insert_map(self.base, served)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _begin(self, session: Session) -> cython.bint:
        """Begin a try: nothing is written yet."""
        self.base = session.out.mark()
        self.written = 0
        self.claiming = self.min_idle
        self.oldest = _MAX_I64
        self.now = session.db.clock.now_ms()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_full(self, out: ReplyWriter) -> cython.bint:
        """Say whether a limit for all streams together is reached."""
        if self.written == 0:
            return False
        if self.max_count and self.written >= self.max_count:
            return True
        return self.max_size > 0 and out.mark() - self.base >= self.max_size

    @cython.cfunc
    @cython.exceptval(check=False)
    def _limit(self, count: cython.longlong) -> cython.longlong:
        """Return how many entries the stream at hand may give, 0 = any number."""
        left: cython.longlong
        if self.max_count == 0:
            return count
        left = self.max_count - self.written
        return left if count == 0 or left < count else count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _answer_one(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write the pair of one stream if it has something for this request."""
        start: tuple[int, int] = self.starts[index]
        ms: cython.ulonglong = start[0]
        seq: cython.ulonglong = start[1]
        mark: cython.Py_ssize_t
        if self.group is not None:
            return self._answer_group(session, stream, self.keys[index], ms, seq)
        if not _has_after(stream, ms, seq):
            return False
        mark = self._begin_pair(session.out, self.keys[index])
        return session.out.insert_array(mark, self._write_after(session.out, stream, ms, seq, self._limit(self.count)))

    @cython.cfunc
    def _begin_pair(self, out: ReplyWriter, key: bytes) -> cython.Py_ssize_t:
        """Write the key and return where its entries begin."""
        if out.resp == 2:
            out.array(2)
        out.bulk(key)
        return out.mark()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_after(
        self, out: ReplyWriter, stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, count: cython.longlong
    ) -> cython.longlong:
        """Write entries after the ID."""
        writer: EntryWriter = EntryWriter(out)
        entries: StreamIterator = _entries_after(stream, ms, seq)
        written: cython.longlong = 0
        while not self.is_full(out) and entries.next_entry():
            writer.write(entries)
            self.written += 1
            written += 1
            if written == count:
                break
        return written

    # -- answering for a group

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _answer_group(
        self, session: Session, stream: Stream, key: bytes, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Write the pair of one stream for the consumer: of its history, or what is claimed and what is new."""
        assert self.group is not None
        group: Group = stream.find_group(self.group)
        history: cython.bint = ms != _MAX_U64 or seq != _MAX_U64
        claims: cython.bint = self.claiming >= 0 and self._has_claimable(stream, group)
        fresh: cython.bint = not history and _has_after(stream, group.last_ms, group.last_seq)
        created: cython.bint
        told: cython.bint = False
        if history:
            # A quirk kept: who asks for history in one stream claims nothing in those named after it.
            self.claiming = -1
        if self.level < 72 and not history and not fresh:
            return False
        created = group.find_consumer(self.consumer) is None
        consumer: Consumer = meet_consumer(session, key, group, self.consumer)
        if created and self.noack and self.level < 88:
            told = log_consumer(session, key, group, consumer)
        self.logged = 0
        if history or fresh or claims:
            self._write_for_group(session, stream, key, group, consumer, history, fresh, ms, seq)
        # A delivery that is logged makes the consumer, too; with NOACK there is none.
        if created and not told and (self.noack or self.logged == 0):
            log_consumer(session, key, group, consumer)
        return history or fresh or claims

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_for_group(
        self, session: Session, stream: Stream, key: bytes, group: Group, consumer: Consumer, history: cython.bint,
        fresh: cython.bint, ms: cython.ulonglong, seq: cython.ulonglong,
    ) -> cython.bint:  # fmt: skip
        """Write the key and its entries, and note what changed."""
        out: ReplyWriter = session.out
        mark: cython.Py_ssize_t = self._begin_pair(out, key)
        count: cython.longlong = self._limit(self.count)
        written: cython.longlong = 0
        if history:
            written = self._write_history(out, stream, group, consumer, ms, seq, count)
        else:
            if self.claiming >= 0:
                written = self._write_claimed(session, stream, key, group, consumer, count)
            if fresh and (count == 0 or written < count):
                written += self._write_new(session, stream, key, group, consumer, 0 if count == 0 else count - written)
        out.insert_array(mark, written)
        if self.logged or self.level < 74:
            session.dirty += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _has_claimable(self, stream: Stream, group: Group) -> cython.bint:
        """Say whether the first pending entry by time that exists was idle for long enough; note its time."""
        table: PendingTable = group.table
        slot: cython.Py_ssize_t = group.oldest()
        time: cython.longlong
        while slot >= 0:
            if stream.contains(table.ms(slot), table.seq(slot)):
                time = table.delivery_time(slot)
                if time < self.oldest:
                    self.oldest = time
                return _is_idle(self.now - time, self.claiming)
            slot = table.next_by_time(slot)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_claimed(
        self, session: Session, stream: Stream, key: bytes, group: Group, consumer: Consumer, count: cython.longlong
    ) -> cython.longlong:
        """Claim and write what was idle for long enough, first what was delivered first (streamReplyWithRange).

        What was claimed stands last by time then: the way ends where the first of those is met again.
        """
        out: ReplyWriter = session.out
        table: PendingTable = group.table
        writer: EntryWriter = EntryWriter(out)
        finder: EntryLookup = EntryLookup(stream)
        saturates: cython.bint = self.level >= 88
        last: bytes = format_id(group.last_ms, group.last_seq)
        written: cython.longlong = 0
        slot: cython.Py_ssize_t = group.oldest()
        first: cython.Py_ssize_t = -1
        after: cython.Py_ssize_t
        idle: cython.longlong
        deliveries: cython.ulonglong
        writer.parts = 4
        while slot >= 0 and slot != first and not self.is_full(out):
            after = table.next_by_time(slot)
            idle = self.now - table.delivery_time(slot)
            if not _is_idle(idle, self.claiming):
                break
            if finder.find(table.ms(slot), table.seq(slot)):
                deliveries = table.delivery_count(slot)
                writer.write(finder.entries)
                out.integer(idle)
                out.integer(signed_count(deliveries))
                group.transfer(slot, consumer)
                group.redeliver(slot, self.now, saturates)
                consumer.active_time = self.now
                if first < 0:
                    first = slot
                self.logged += 1
                if session.engine.log is not None:
                    log_claim(session, key, group, format_id(table.ms(slot), table.seq(slot)), slot, last)
                self.written += 1
                written += 1
                if written == count:
                    break
            slot = after
        return written

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_new(
        self, session: Session, stream: Stream, key: bytes, group: Group, consumer: Consumer, count: cython.longlong
    ) -> cython.longlong:
        """Write entries nobody of the group has seen, move the group on, make them pending unless NOACK."""
        out: ReplyWriter = session.out
        writer: EntryWriter = EntryWriter(out)
        entries: StreamIterator = _entries_after(stream, group.last_ms, group.last_seq)
        logs: cython.bint = session.engine.log is not None
        rule: cython.int = session.engine.settings.compat.lag_rule
        # Since 8.4 all deliveries of a read carry the ID that the group had before it.
        last: bytes | None = format_id(group.last_ms, group.last_seq) if logs and self.level >= 84 else None
        written: cython.longlong = 0
        slot: cython.Py_ssize_t
        moved: cython.bint = False
        if self.claiming >= 0:
            writer.parts = 4
        while not self.is_full(out) and entries.next_entry():
            if stream.advance_group(group, entries.ms, entries.seq, rule):
                moved = True
            writer.write(entries)
            if self.claiming >= 0:
                out.integer(0)
                out.integer(0)
            if not self.noack:
                slot = group.deliver(entries.ms, entries.seq, consumer, self.now)
                consumer.active_time = self.now
                self.logged += 1
                if logs:
                    log_claim(session, key, group, format_id(entries.ms, entries.seq), slot, last)
            self.written += 1
            written += 1
            if written == count:
                break
        if moved and (self.noack or self.level >= 74 or self.valkey):
            log_group_id(session, key, group)
            self.logged += 1
        return written

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_history(
        self, out: ReplyWriter, stream: Stream, group: Group, consumer: Consumer, ms: cython.ulonglong,
        seq: cython.ulonglong, count: cython.longlong,
    ) -> cython.longlong:  # fmt: skip
        """Write what is pending for the consumer after the ID, a deleted entry as its ID and null.

        Redis: streamReplyWithRangeFromConsumerPEL. The delivery is counted, and logged nowhere.
        """
        writer: EntryWriter = EntryWriter(out)
        finder: EntryLookup = EntryLookup(stream)
        saturates: cython.bint = self.level >= 88
        written: cython.longlong = 0
        pending: PendingIterator = PendingIterator(group.table, consumer.index, ms, seq)
        while (count == 0 or written < count) and not self.is_full(out) and pending.next():
            if pending.ms == ms and pending.seq == seq:
                continue
            if finder.find(pending.ms, pending.seq):
                writer.write(finder.entries)
                group.redeliver(pending.slot, self.now, saturates)
            else:
                out.array(2)
                out.stream_id(pending.ms, pending.seq)
                out.null_array()
            self.written += 1
            written += 1
        return written

    # -- waiting

    def serve(self, session: Session, key: bytes) -> bool:
        """Answer a waiting client whose key changed, or whose time to ask again has come; True when it got a reply."""
        value = session.db.lookup(key)
        if self.level < 72:
            return self._serve_key(session, key, value)
        if self.group is not None:
            session.propagate_nothing()
        elif not isinstance(value, Stream):
            return False
        return self._serve_again(session)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _serve_again(self, session: Session) -> cython.bint:
        """Answer as if the command came now, which is what Redis 7.2 and newer do (blocked.c: unblockClientOnKey)."""
        streams: list[Any] = [self._find(session, key) for key in self.keys]
        if self.last_of is not None:
            for index in self.last_of:
                self.starts[index] = _before_last(streams[index], self.level, self.valkey)
        if self.answer(session, streams):
            return True
        if self.min_idle >= 0:
            session.engine.retry_at(session, self.asks_at())
        return False

    def asks_at(self) -> int:
        """Return when the first pending entry will have been idle for long enough (ms since the epoch)."""
        # As Python ints: min-idle-time may be any number.
        idle: Any = self.min_idle
        if self.oldest == _MAX_I64:
            return self.now + max(idle, _LEAST_WAIT)  # type: ignore[no-any-return]
        return self.oldest + idle  # type: ignore[no-any-return]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _serve_key(self, session: Session, key: bytes, value: object) -> cython.bint:
        """Answer with what the key that changed has (7.0's blocked.c: serveClientsBlockedOnStreamKey)."""
        stream: Stream
        ms: cython.ulonglong
        seq: cython.ulonglong
        if not isinstance(value, Stream):
            if self.group is None:
                return False
            raise Unblocked("the stream key no longer exists")
        stream = value
        if self.group is None:
            ms, seq = self.starts[self.keys.index(key)]
        else:
            session.propagate_nothing()
            group: Group | None = stream.find_group(self.group)
            if group is None:
                raise NoGroup("the consumer group this client was blocked on no longer exists")
            ms = group.last_ms
            seq = group.last_seq
        if not less(ms, seq, stream.last_ms, stream.last_seq):
            return False
        return self._write_only_pair(session, stream, key, ms, seq)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_only_pair(
        self, session: Session, stream: Stream, key: bytes, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Write a reply with one pair, which may be without entries: the newest may be deleted already (7.0)."""
        out: ReplyWriter = session.out
        count: cython.longlong = self.count or _BLOCKED_COUNT
        self._begin(session)
        if out.resp == 2:
            out.array(1)
        else:
            out.map(1)
        mark: cython.Py_ssize_t = self._begin_pair(out, key)
        if self.group is None:
            return out.insert_array(mark, self._write_after(out, stream, ms, seq, count))
        group: Group = stream.find_group(self.group)
        created: cython.bint = group.find_consumer(self.consumer) is None
        consumer: Consumer = meet_consumer(session, key, group, self.consumer)
        self.logged = 0
        if created and self.noack:
            log_consumer(session, key, group, consumer)
        session.dirty += 1
        out.insert_array(mark, self._write_new(session, stream, key, group, consumer, count))
        if created and not self.noack and self.logged == 0:
            # Redis leaves this out: its log loses a consumer that got nothing.
            log_consumer(session, key, group, consumer)
        return True

    def expired(self, session: Session) -> None:
        """Answer a client that waited long enough."""
        session.out.null_array()


def _unbalanced(level: int, grouped: bool) -> CommandError:
    """Return the refusal of a list of streams and IDs that is no list of pairs; its words changed with 7.2 and 8.0."""
    name, ids = "XREAD", "ID or '$'"
    if level >= 72:
        name = "'xreadgroup'" if grouped else "'xread'"
        if grouped:
            ids = "ID or '>'"
        elif level >= 80:
            ids = "ID, '+', or '$'"
    return CommandError(f"Unbalanced {name} list of streams: for each stream key an {ids} must be specified.")


def _meaningless(word: str) -> CommandError:
    """Return the refusal of `$` and `+` for a group."""
    return CommandError(
        f"The {word} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by "
        f"specifying a proper ID, or use the > ID to get new messages. The {word} ID would just return an empty result "
        "set."
    )


def _positive(word: bytes, message: str) -> int:
    """Return the number above 0 that the word is."""
    number: int = integer(word, message)
    if number < 1:
        raise CommandError(message)
    return number


@cython.cfunc
@cython.exceptval(-1, check=False)
def _only_grouped(grouped: cython.bint, name: str) -> cython.bint:
    if not grouped:
        raise CommandError(f"The {name} option is only supported by XREADGROUP. You called XREAD instead.")
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_idle(idle: cython.longlong, min_idle: cython.longlong) -> cython.bint:
    """Say whether an entry may be claimed; one that was delivered in the future may, Redis's clocks are unsigned."""
    return idle < 0 or idle >= min_idle


@cython.cfunc
@cython.exceptval(-1, check=False)
def _has_after(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Whether the stream holds an entry after the ID; the last ID alone does not tell, its entry may be deleted."""
    if stream.length == 0 or not less(ms, seq, stream.last_ms, stream.last_seq):
        return False
    stream.edge(False, True)
    return less(ms, seq, stream.edge_ms, stream.edge_seq)


@cython.cfunc
def _entries_after(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> StreamIterator:
    """Return the entries after an ID; after the largest of all they start over (streamIncrID)."""
    if seq != _MAX_U64:
        seq += 1
    else:
        seq = 0
        ms = 0 if ms == _MAX_U64 else ms + 1
    return StreamIterator(stream, ms, seq, _MAX_U64, _MAX_U64, False)


def _before_last(stream: Stream | None, level: int, valkey: bool) -> tuple[int, int]:
    """Return the ID after which only the last entry comes: what `+` stands for. Without entries, 0-0.

    7.4 took the last ID that ever was for that of the last entry, and Valkey does, where there is an entry: if it was
    deleted, nothing is found.
    """
    if stream is None or (stream.length == 0 and (level >= 80 or valkey)):
        return 0, 0
    ms, seq = stream.last_ms, stream.last_seq
    if level >= 80:
        stream.edge(False, True)
        ms, seq = stream.edge_ms, stream.edge_seq
    if seq:
        return ms, seq - 1
    if ms:
        return ms - 1, 0xFFFF_FFFF_FFFF_FFFF
    raise CommandError("the stream last element ID is 0-0")


def keys_of_read(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of an XREAD or XREADGROUP (db.c: xreadGetKeys)."""
    skipped = {b"block": 2, b"count": 2, b"maxcount": 2, b"maxsize": 2, b"group": 3, b"claim": 2, b"noack": 1}
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
    syntax="[COUNT count] [MAXCOUNT maxcount]@8.10.0 [MAXSIZE maxsize]@8.10.0 [BLOCK milliseconds] "
    "STREAMS key [key ...] id [id ...]",
)  # fmt: skip
def xread(session: Session, argv: list[bytes]) -> None:
    """Returns entries of one or more streams after the given IDs; waits for some if told to."""
    _read(session, argv, False)


@command(
    "xreadgroup", arity=-7, flags="blocking write movablekeys", group="stream", since="5.0.0", get_keys=keys_of_read,
    complexity="O(M) for the M entries returned; an XADD pays O(N) for the N clients that wait for the stream.",
    syntax="GROUP group consumer [COUNT count] [MAXCOUNT maxcount]@8.10.0 [MAXSIZE maxsize]@8.10.0 "
    "[BLOCK milliseconds] [CLAIM min-idle-time]@8.4.0 [NOACK] STREAMS key [key ...] id [id ...]",
)  # fmt: skip
def xreadgroup(session: Session, argv: list[bytes]) -> None:
    """Returns new entries for a consumer of a group, which become pending, or its pending ones again."""
    _read(session, argv, True)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _read(session: Session, argv: list[bytes], grouped: cython.bint) -> cython.bint:
    """Answer XREAD and XREADGROUP now, wait, or answer null."""
    request: ReadRequest = ReadRequest(session.engine.settings.compat)
    request.read(session, argv, grouped)
    streams: list[Any] = request.resolve(session, argv)
    if grouped:
        session.propagate_nothing()
    if request.answer(session, streams):
        return True
    if request.timeout == -1 or not session.can_block:
        return session.out.null_array()
    # Those who wait for a group's new entries stand in one queue: what the first cannot get, nobody can. With CLAIM
    # each may have another idle time.
    queue: bytes | None = request.group if request.min_idle < 0 else None
    session.block(request.keys, request.timeout, request.serve, request.expired, queue)
    if request.min_idle >= 0:
        session.blocked.retry_at = request.asks_at()
    return True
