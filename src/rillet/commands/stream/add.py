"""XADD, XTRIM and XSETID: commands that append to a stream, trim it, and set its last ID.

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

from rillet._cython import cython
from rillet.commands.arguments import arity_error
from rillet.commands.stream import command
from rillet.commands.stream.arguments import MAXLEN, NO_TRIM, SYNTAX_ERROR, TrimArguments, integer, option, read_id
from rillet.commands.stream.idmp import is_duplicate, new_stream, remember
from rillet.commands.stream.lookup import lookup_write, require_stream
from rillet.errors import CommandError
from rillet.keyspace import lru
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.types.stream.id import IDReader, format_id, less
from rillet.types.stream.stream import KEEPREF, Stream

_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_I64 = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
_LRU = cython.declare(cython.int, lru.LRU)
_NO_TRIM = cython.declare(cython.int, NO_TRIM)
_MAXLEN = cython.declare(cython.int, MAXLEN)
_KEEPREF = cython.declare(cython.int, KEEPREF)
_TRUSTED = cython.declare(cython.int, TRUSTED)
_ID_TOO_SMALL = "The ID specified in XADD is equal or smaller than the target stream top item"


@cython.final
@cython.cclass
class Xadd(Implementation):
    """XADD: copies an entry's names and values from the client's bytes into the listpack (xaddCommand).

    _arguments: the options, or None while a call uses them. _key: the key of the last call, which clients repeat.
    """

    __slots__ = ("_arguments", "_key")
    _arguments: TrimArguments | None
    _key: bytes

    def __init__(self) -> None:
        self._arguments = TrimArguments()
        self._key = b""

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Append an entry to a stream, which is created if it does not exist."""
        db: Database = session.db
        at: cython.Py_ssize_t = 2
        arguments: TrimArguments | None = None
        if not words.is_char(2, 42):
            arguments = self._arguments
            self._arguments = None
            if arguments is None:  # a module's callback in another XADD
                arguments = TrimArguments()
            else:
                arguments.clear()
            arguments.read(session, words, True)
            self._arguments = arguments
            at = arguments.id_at
        fields: cython.Py_ssize_t = words.count - at - 1
        if fields < 2 or fields & 1:
            raise arity_error("xadd")
        if arguments is not None and arguments.id_given and arguments.seq_given:
            if arguments.ms == 0 and arguments.seq == 0:
                raise CommandError("The ID specified in XADD must be greater than 0-0")
        stream: Stream | None = None
        if not words.equals(1, self._key):
            self._key = words.get(1)
        elif session.batch_value is not None:
            stream = session.batch_value
        key: bytes = self._key
        if stream is None:
            stream = lookup_write(session, key)
            session.batch_value = stream if self._is_alone(db) else None
        created: cython.bint = stream is None
        if stream is None:
            if arguments is not None and arguments.no_mkstream:
                return session.out.null()
            stream = new_stream(session.engine.settings)
        if arguments is not None and arguments.pid and is_duplicate(session, stream, arguments, words.to_list()):
            return True
        self._append(session, stream, arguments, words, at)
        if created:
            db.set(key, stream)
        session.out.stream_id(stream.last_ms, stream.last_seq)
        session.modified(key)
        if arguments is None:
            if db.notifies:
                session.notify(b"t", b"xadd", key)
            if session.logged:
                words.put_id(2, stream.last_ms, stream.last_seq)
        else:
            self._end(session, stream, arguments, words, key)
        return not db.blocking_keys or db.signal_ready(key)

    @cython.cfunc
    def _is_alone(self, db: Database) -> cython.bint:
        """Return whether nothing but the calls themselves changes keys between consecutive calls, or counts them."""
        return not db.notifies and db.access.mode == _LRU and db.expires.used0 == 0 and db.expires.used1 == 0

    @cython.cfunc
    def _append(
        self, session: Session, stream: Stream, arguments: TrimArguments | None, words: ArgumentSpans,
        at: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Append the fields and values as an entry, with the given or a generated ID (streamAppendItem)."""
        buffer: RestBuffer = session.db.buffer
        ms: cython.ulonglong
        seq: cython.ulonglong
        if stream.last_seq == _MAX_U64 and stream.last_ms == _MAX_U64:
            raise CommandError("The stream has exhausted the last possible ID, unable to add more items")
        if arguments is None or not arguments.id_given:
            stream.next_id(session.now_ms())
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
        count: cython.Py_ssize_t = (words.count - at - 1) >> 1
        if not stream.add(words, at + 1, count, ms, seq, buffer.stream_bytes, buffer.stream_entries):
            raise CommandError("Elements are too large to be stored")
        if stream.entries_added > _MAX_I64 and session.engine.settings.compat.level >= 88:
            stream.entries_added = _MAX_I64  # since Redis 8.8 it stays at the maximum
        return True

    @cython.cfunc
    def _end(
        self, session: Session, stream: Stream, arguments: TrimArguments, words: ArgumentSpans, key: bytes
    ) -> cython.bint:
        """Do what the options require after the entry is added: trim, and log the exact result."""
        if arguments.pid:
            remember(stream, arguments)
        if session.db.notifies:
            session.notify(b"t", b"xadd", key)
        if arguments.strategy != _NO_TRIM and _trim(stream, arguments) > 0 and session.db.notifies:
            session.notify(b"t", b"xtrim", key)
        if session.logged:
            if arguments.approx:
                _exact_trim(stream, arguments, words)
            if not arguments.id_given or not arguments.seq_given:
                words.put_id(arguments.id_at, stream.last_ms, stream.last_seq)
        return True


command("xadd", arity=-5, flags="write denyoom fast", since="5.0.0",
        syntax="key [NOMKSTREAM] [KEEPREF | DELREF | ACKED]@8.2.0 [IDMPAUTO pid | IDMP pid iid]@8.6.0 "
        "[<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]",
        summary="Appends an entry to a stream, which is created if it does not exist.",
        complexity="O(1) for the new entry, O(N) for the N entries that a trim evicts.")(Xadd)


@cython.cfunc
def _trim(stream: Stream, arguments: TrimArguments) -> cython.longlong:
    """Trim the stream according to the options; return how many entries were removed."""
    if arguments.strategy == _MAXLEN:
        return stream.trim_maxlen(arguments.maxlen, arguments.approx, arguments.limit, arguments.delete_strategy)
    return stream.trim_minid(
        arguments.minid_ms, arguments.minid_seq, arguments.approx, arguments.limit, arguments.delete_strategy
    )


@cython.cfunc
def _exact_trim(stream: Stream, arguments: TrimArguments, words: ArgumentSpans) -> cython.bint:
    """Replace an approximate trim by the exact trim with the same result (streamRewriteTrimArgument)."""
    at: cython.Py_ssize_t = arguments.threshold_at
    words.put(at - 1, b"=")
    if arguments.delete_strategy != _KEEPREF:
        if stream.stopped:
            words.put(at - 2, b"MINID")
            words.put(at, format_id(stream.stop_ms, stream.stop_seq))
    elif arguments.strategy == _MAXLEN:
        words.put(at, decimal(stream.length))
    else:
        # MINID becomes the ID of the first entry or tombstone; for an empty stream, the largest ID.
        stream.edge(True, False)
        words.put(at, format_id(stream.edge_ms, stream.edge_seq))
    return True


@cython.final
@cython.cclass
class Xtrim(Implementation):
    """XTRIM (xtrimCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Remove the oldest entries of a stream, down to a length or up to an ID."""
        arguments: TrimArguments = TrimArguments()
        arguments.read(session, words, False)
        key: bytes = words.get(1)
        stream: Stream | None = lookup_write(session, key)
        if stream is None:
            return session.out.integer(0)
        deleted: cython.longlong = _trim(stream, arguments)
        if deleted > 0:
            session.notify(b"t", b"xtrim", key)
            if arguments.approx and session.logged:
                _exact_trim(stream, arguments, words)
            session.modified(key)
            session.dirty += deleted - 1
        return session.out.integer(deleted)


command("xtrim", arity=-4, flags="write", since="5.0.0",
        syntax="key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]@8.2.0",
        summary="Removes the oldest entries of a stream, down to a length or up to an ID.",
        complexity="O(N) for the N entries evicted; whole nodes go at once.")(Xtrim)


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
    session.engine.note_change(session.db, key)
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
