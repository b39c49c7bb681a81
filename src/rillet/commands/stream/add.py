"""XADD, XTRIM and XSETID: commands that append to a stream, trim it, and set its last ID.

XADD is the most frequent write, so its plain form, `XADD key * field value ...`, skips the option scan: an option
begins with a letter, an ID with a digit.

The log is deterministic. It does not depend on the clock or on the limits of an approximate trim:

    XADD s MAXLEN ~ 1000 * f v   ->   XADD s MAXLEN = 1007 1526919030474-0 f v
    XTRIM s MINID ~ 5            ->   XTRIM s MINID = 3-0

The logged threshold is the result: the length, or the first remaining ID. With DELREF and ACKED this would be wrong,
because the remaining entries may begin with tombstones, or with an entry that ACKED kept while it removed later ones.
(Redis logs it nevertheless, so that a replica or a replay has more entries.) With these strategies `~` removes the same
entries as `=`, up to its limit. So the threshold is logged unchanged, or, if the limit ended the trim, as the ID of the
first node that was not examined:

    XTRIM s MAXLEN ~ 10 ACKED            ->   XTRIM s MAXLEN = 10 ACKED
    XTRIM s MAXLEN ~ 10 LIMIT 5 ACKED    ->   XTRIM s MINID = 1526919030474-0 LIMIT 5 ACKED

(A replay ignores LIMIT.) The rewritten command is built only if there is a log.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import arity_error
from rillet.commands.stream import command
from rillet.commands.stream.arguments import MAXLEN, NO_TRIM, SYNTAX_ERROR, TrimArguments, default_limit
from rillet.commands.stream.idmp import is_duplicate, new_stream, remember
from rillet.commands.stream.lookup import require_stream
from rillet.errors import CommandError
from rillet.keyspace import lru
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.fast_path import FastPath
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.integer_text import decimal
from rillet.types.stream.id import IDReader
from rillet.types.stream.value import KEEPREF, Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.commands.stream.arguments import integer, option, read_id
    from rillet.commands.stream.lookup import lookup_write
    from rillet.types.stream.id import format_id, less

_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_LRU = cython.declare(cython.int, lru.LRU)
_MAX_I64 = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
_NO_TRIM = cython.declare(cython.int, NO_TRIM)
_MAXLEN = cython.declare(cython.int, MAXLEN)
_KEEPREF = cython.declare(cython.int, KEEPREF)
_TRUSTED = cython.declare(cython.int, TRUSTED)
_ID_TOO_SMALL = "The ID specified in XADD is equal or smaller than the target stream top item"


@cython.final
@cython.cclass
class XaddFastPath(FastPath):
    """The fast path of XADD: copies an entry's names and values from the client's bytes into the listpack.

    It supports `XADD key [MAXLEN [=|~] n] <*|id> field value ...` on an existing stream, with n and id in digits. It
    reads the clock once for sixteen commands: they take a few microseconds, and an ID has a resolution of 1 ms.
    """

    __slots__ = ("approx", "key", "made", "maxlen", "ms", "seq", "stream", "trims")
    key: bytes
    stream: Stream | None  # the value of `key` during one call of `run`, if no key can expire; else None
    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(self) -> None:
        self.key = b""
        self.stream = None
        self.trims = False
        self.approx = False
        self.maxlen = 0
        self.ms = self.seq = 0
        self.made = False

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(
        self,
        session: Session,
        parser: CommandParser,
        words: ArgumentSpans,
        feed: PropagationBuffer | None,
        limit: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Run consecutive XADDs that the fast path supports; return how many."""
        settings: Any = session.engine.settings
        max_bytes: cython.longlong = settings.stream_node_max_bytes
        max_entries: cython.longlong = settings.stream_node_max_entries
        now: cython.ulonglong = 0
        ran: cython.Py_ssize_t = 0
        self.stream = None
        while True:
            if ran & 15 == 0:
                now = session.db.clock.now_ms()
            self.ran = ran + 1
            if not self._add(session, words, feed, now, max_bytes, max_entries):
                break
            parser.step()
            ran += 1
            if session.db.ready_keys or session.out.used > limit:
                break
            words.count = parser.scan(words.at, words.size, words.room)
            if not words.is_option(0, b"xadd"):
                break
        self.stream = None
        self.ran = ran
        return ran

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add(
        self, session: Session, words: ArgumentSpans, feed: PropagationBuffer | None, now: cython.ulonglong,
        max_bytes: cython.longlong,
        max_entries: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """Execute the XADD, or return False without any effect if the fast path does not support it."""
        at: cython.Py_ssize_t = self._read_options(words)
        fields: cython.Py_ssize_t = words.count - at - 1
        if at == 0 or fields < 2 or fields & 1:
            return False
        if not words.equals(1, self.key):
            self.stream = None
            self.key = words.get(1)
        key: bytes = self.key
        stream: Stream | None = self.stream
        if stream is None:
            if session.db.is_expired(key):
                return False  # the handler also deletes the expired key and logs its deletion
            keys: Dict = session.db.keys
            n: cython.Py_ssize_t = keys.find(key)
            value: object = None if n < 0 else keys.object_at(n)
            if not isinstance(value, Stream):
                return False
            stream = value
            session.db.access.touch(keys, n)
            session.db.ledger.note(stream)
            if not len(session.db.expires) and session.db.access.mode == _LRU:
                self.stream = stream
        if not self._make_id(stream, words, at, now) or stream.entries_added >= _MAX_I64:
            return False
        if feed is not None:
            feed.reserve_words(words.at, words.size, words.count)
        if not stream.add(words, at + 1, fields >> 1, self.ms, self.seq, max_bytes, max_entries):
            return False
        session.modified(key)
        if self.trims:
            stream.trim_maxlen(self.maxlen, self.approx, default_limit(max_entries) if self.approx else 0)
        if feed is not None:
            feed.begin(session.db.index, now)
            self._log(feed, words, at, stream.length)
        session.out.stream_id(stream.last_ms, stream.last_seq)
        return session.db.signal_ready(key)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log(
        self, feed: PropagationBuffer, words: ArgumentSpans, at: cython.Py_ssize_t, length: cython.ulonglong
    ) -> cython.bint:
        """Log the XADD with its generated ID; `MAXLEN ~ n` becomes `MAXLEN = <length after the trim>`."""
        start: cython.Py_ssize_t = 0
        feed.header(words.count)
        if self.trims and self.approx:
            feed.words(words.at, words.size, 0, 3)
            feed.raw(b"$1\r\n=\r\n")
            feed.number(length)
            start = at
        if self.made:
            feed.words(words.at, words.size, start, at)
            feed.stream_id(self.ms, self.seq)
            start = at + 1
        return feed.words(words.at, words.size, start, words.count)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_options(self, words: ArgumentSpans) -> cython.Py_ssize_t:
        """Read MAXLEN; return the ID's index in the command, 0 if the fast path does not support the options."""
        at: cython.Py_ssize_t = 2
        self.trims = False
        if words.count > 6 and words.is_option(2, b"maxlen"):
            self.trims = True
            self.approx = words.is_char(3, 126)
            at = 4 if self.approx or words.is_char(3, 61) else 3
            self.maxlen = words.number(at)
            if self.maxlen < 0:
                return 0
            at += 1
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _make_id(
        self, stream: Stream, words: ArgumentSpans, at: cython.Py_ssize_t, now: cython.ulonglong
    ) -> cython.bint:  # fmt: skip
        """Set ms and seq to the new entry's ID; return False if it is invalid or not above the last ID."""
        self.made = words.is_char(at, 42)
        if self.made:
            if not stream.next_id(now):
                return False
            self.ms = stream.next_ms
            self.seq = stream.next_seq
            return True
        return self._read_id(words, at) and less(stream.last_ms, stream.last_seq, self.ms, self.seq)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_id(self, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        """Parse `ms-seq` or `ms`, with up to 19 digits each, into ms and seq; return False for any other word."""
        i: cython.Py_ssize_t
        digits: cython.int = 0
        value: cython.ulonglong = 0
        char: cython.int
        dash: cython.bint = False
        self.seq = 0
        for i in range(words.size[at]):
            char = words.at[at][i]
            if 48 <= char <= 57 and digits < 19:
                value = value * 10 + (char - 48)
                digits += 1
            elif char == 45 and digits > 0 and not dash:
                self.ms = value
                value = 0
                digits = 0
                dash = True
            else:
                return False
        if dash:
            self.seq = value
        else:
            self.ms = value
        return digits > 0


@command("xadd", arity=-5, flags="write denyoom fast", since="5.0.0",
         syntax="key [NOMKSTREAM] [KEEPREF | DELREF | ACKED]@8.2.0 [IDMPAUTO pid | IDMP pid iid]@8.6.0 "
         "[<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]",
         complexity="O(1) for the new entry, O(N) for the N entries that a trim evicts.", shortcut=XaddFastPath)
def xadd(session: Session, argv: list[bytes]) -> None:
    """Appends an entry to a stream, which is created if it does not exist."""
    key: bytes = argv[1]
    at: cython.Py_ssize_t = 2
    arguments: TrimArguments | None = None
    if argv[2] != b"*":
        arguments = TrimArguments()
        arguments.read(session, argv, True)
        at = arguments.id_at
    words: cython.Py_ssize_t = len(argv) - at - 1
    if words < 2 or words % 2 == 1:
        raise arity_error("xadd")
    if arguments is not None and arguments.id_given and arguments.seq_given and not (arguments.ms or arguments.seq):
        raise CommandError("The ID specified in XADD must be greater than 0-0")
    stream: Stream | None = lookup_write(session, key)
    created: cython.bint = False
    if stream is None:
        if arguments is not None and arguments.no_mkstream:
            session.out.null()
            return
        stream = new_stream(session.engine.settings)
        created = True
    if arguments is not None and arguments.pid and is_duplicate(session, stream, arguments, argv):
        return
    _append(session, stream, arguments, argv, at, words)
    if created:
        session.db.set(key, stream)
    if arguments is not None and arguments.pid:
        remember(stream, arguments)
    session.out.stream_id(stream.last_ms, stream.last_seq)
    session.modified(key)
    session.notify(b"t", b"xadd", key)
    if arguments is not None and arguments.strategy != _NO_TRIM and _trim(stream, arguments) > 0:
        session.notify(b"t", b"xtrim", key)
    if session.engine.log is not None:
        _log_exactly(session, stream, arguments, at)
    session.db.signal_ready(key)


@cython.cfunc
def _append(
    session: Session, stream: Stream, arguments: TrimArguments | None, argv: list[bytes], id_at: cython.Py_ssize_t,
    words: cython.Py_ssize_t,
) -> cython.bint:  # fmt: skip
    """Append an XADD's fields and values as an entry, with the given or a generated ID (streamAppendItem)."""
    settings: Any = session.engine.settings
    ms: cython.ulonglong
    seq: cython.ulonglong
    if stream.last_seq == _MAX_U64 and stream.last_ms == _MAX_U64:
        raise CommandError("The stream has exhausted the last possible ID, unable to add more items")
    if arguments is None or not arguments.id_given:
        stream.next_id(session.db.clock.now_ms())
        ms = stream.next_ms
        seq = stream.next_seq
    elif arguments.seq_given:
        ms = arguments.ms
        seq = arguments.seq
    elif stream.next_seq_of(arguments.ms):
        ms = stream.next_ms
        seq = stream.next_seq
    else:
        raise CommandError(_ID_TOO_SMALL)
    if not less(stream.last_ms, stream.last_seq, ms, seq):
        raise CommandError(_ID_TOO_SMALL)
    places: ArgumentSpans = session.engine.words
    places.take(argv, id_at + 1, words)
    if not stream.add(places, 0, words // 2, ms, seq, settings.stream_node_max_bytes, settings.stream_node_max_entries):
        raise CommandError("Elements are too large to be stored")
    if stream.entries_added > _MAX_I64 and settings.compat.level >= 88:  # since Redis 8.8 it stays at the maximum
        stream.entries_added = _MAX_I64
    return True


@cython.cfunc
def _trim(stream: Stream, arguments: TrimArguments) -> cython.longlong:
    """Trim the stream according to the options; return how many entries were removed."""
    if arguments.strategy == _MAXLEN:
        return stream.trim_maxlen(arguments.maxlen, arguments.approx, arguments.limit, arguments.delete_strategy)
    return stream.trim_minid(
        arguments.minid_ms, arguments.minid_seq, arguments.approx, arguments.limit, arguments.delete_strategy
    )


@cython.cfunc
def _exact_trim(stream: Stream, arguments: TrimArguments, argv: list[bytes]) -> cython.bint:
    """Rewrite an approximate trim in argv as the exact trim with the same result (streamRewriteTrimArgument)."""
    at: cython.Py_ssize_t = arguments.threshold_at
    argv[at - 1] = b"="
    if arguments.delete_strategy != _KEEPREF:
        if stream.stopped:
            argv[at - 2] = b"MINID"
            argv[at] = format_id(stream.stop_ms, stream.stop_seq)
    elif arguments.strategy == _MAXLEN:
        argv[at] = decimal(stream.length)
    else:
        # MINID becomes the ID of the first entry or tombstone; for an empty stream, the largest ID.
        stream.edge(True, False)
        argv[at] = format_id(stream.edge_ms, stream.edge_seq)
    return True


@cython.cfunc
def _log_exactly(
    session: Session, stream: Stream, arguments: TrimArguments | None, id_at: cython.Py_ssize_t
) -> cython.bint:
    """Log an XADD with its generated ID and with the exact threshold of its approximate trim."""
    made: cython.bint = arguments is None or not arguments.id_given or not arguments.seq_given
    approx: cython.bint = arguments is not None and arguments.approx
    if made or approx:
        argv: list[bytes] = list(session.argv)
        if arguments is not None and arguments.approx:
            _exact_trim(stream, arguments, argv)
        if made:
            argv[id_at] = format_id(stream.last_ms, stream.last_seq)
        session.propagate(argv)
    return True


@command("xtrim", arity=-4, flags="write", since="5.0.0",
         syntax="key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]@8.2.0",
         complexity="O(N) for the N entries evicted; whole nodes go at once.")
def xtrim(session: Session, argv: list[bytes]) -> None:
    """Removes the oldest entries of a stream, down to a length or up to an ID."""
    arguments: TrimArguments = TrimArguments()
    arguments.read(session, argv, False)
    key: bytes = argv[1]
    stream: Stream | None = lookup_write(session, key)
    if stream is None:
        session.out.integer(0)
        return
    deleted: cython.longlong = _trim(stream, arguments)
    if deleted > 0:
        session.notify(b"t", b"xtrim", key)
        if arguments.approx and session.engine.log is not None:
            words: list[bytes] = list(argv)
            _exact_trim(stream, arguments, words)
            session.propagate(words)
        session.modified(key)
        session.dirty += deleted - 1
    session.out.integer(deleted)


@command("xsetid", arity=-3, flags="write denyoom fast", since="5.0.0",
         syntax="key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]", complexity="O(1)")
def xsetid(session: Session, argv: list[bytes]) -> None:
    """Sets the last ID of a stream, and its counters; used by replication and rewritten logs."""
    last: IDReader = IDReader()
    deleted: IDReader = IDReader()
    entries_added: cython.longlong = -1
    at: cython.Py_ssize_t = 3
    read_id(last, argv[2])
    while at < len(argv):
        word: bytes = option(argv[at]) if at + 1 < len(argv) else b""
        if word == b"entriesadded":
            entries_added = integer(argv[at + 1])
            if entries_added < 0:
                raise CommandError("entries_added must be positive")
        elif word == b"maxdeletedid":
            read_id(deleted, argv[at + 1])
            if less(last.ms, last.seq, deleted.ms, deleted.seq):
                raise CommandError("The ID specified in XSETID is smaller than the provided max_deleted_entry_id")
        else:
            raise CommandError(SYNTAX_ERROR)
        at += 2
    key: bytes = argv[1]
    stream: Stream = require_stream(lookup_write(session, key))
    # A log may set a last ID below the greatest deleted ID: Redis before 7.2 allowed it.
    if (
        session.engine.settings.compat.level >= 72
        and not session.state & _TRUSTED
        and less(last.ms, last.seq, stream.max_deleted_ms, stream.max_deleted_seq)
    ):
        raise CommandError("The ID specified in XSETID is smaller than current max_deleted_entry_id")
    _check_setid(stream, last, entries_added)
    stream.last_ms = last.ms
    stream.last_seq = last.seq
    if entries_added != -1:
        stream.entries_added = entries_added
    if deleted.ms or deleted.seq:
        stream.max_deleted_ms = deleted.ms
        stream.max_deleted_seq = deleted.seq
    session.out.ok()
    session.dirty += 1
    session.notify(b"t", b"xsetid", key)


@cython.cfunc
def _check_setid(stream: Stream, last: IDReader, entries_added: cython.longlong) -> cython.bint:
    """Reject a last ID below the newest entry, and a count below the length."""
    if stream.length == 0:
        return True
    if not stream.edge(False, True):
        raise AssertionError("a stream with entries has a last entry")
    if less(last.ms, last.seq, stream.edge_ms, stream.edge_seq):
        raise CommandError("The ID specified in XSETID is smaller than the target stream top item")
    if entries_added >= 0 and stream.length > cython.cast(cython.ulonglong, entries_added):
        raise CommandError("The entries_added specified in XSETID is smaller than the target stream length")
    return True
