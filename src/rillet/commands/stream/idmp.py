"""XCFGSET, XIDMPRECORD, and what XADD does with IDMP and IDMPAUTO (Redis 8.6: t_stream.c).

    XADD s IDMP producer-1 order-77 * item book     -> 1700000000000-0   added, and remembered
    XADD s IDMP producer-1 order-77 * item book     -> 1700000000000-0   the same message again: nothing is added
    XADD s IDMPAUTO producer-1 * item book          the message's name is made from what it says

What is logged names the entry, as for every XADD, and so a replay can tell what happened without a clock:

    XADD s IDMP producer-1 order-77 1700000000000-0 item book

is, where the stream remembers that very entry, a duplicate (the counter counts it); where the ID is beyond the
stream's last, an entry to be added, whatever is remembered, because in the log's own time that record had
expired; and else a duplicate whose record is gone. Nothing expires while a log is replayed. Redis logs a
duplicate as it came, with `*`: if its record has gone when the log is read (a base leaves out what expired), the
message is added a second time, and where the record has not gone (an expiry is not logged) a message
that was added is lost. Such logs are read here as Redis reads them.

Streams with remembered messages are noted in their database (`Database.idmp_keys`), where `Database.expire_idmp`,
called by the cron, finds them.
"""

from __future__ import annotations

from rillet.commands.stream.arguments import (
    MAX_U64,
    SYNTAX_ERROR,
    TrimArguments,
    integer,
    option,
    read_id,
    to_signed,
)
from rillet.commands.stream.lookup import lookup_write, require_stream
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.runtime.settings import Settings
from rillet.types.stream.id import IDReader, format_id
from rillet.types.stream.idmp import (
    DURATION,
    DURATION_RANGE,
    MAX_ENTRIES,
    MAX_ENTRIES_RANGE,
    Producers,
    idempotency_hash,
)
from rillet.types.stream.value import Stream

SINCE = 86
"""The level of `compat` from which on all this is known."""


def new_stream(settings: Settings) -> Stream:
    """Return a stream without entries, with the limits that the settings give new streams (streamNew)."""
    stream = Stream()
    apply_settings(stream, settings)
    return stream


def apply_settings(stream: Stream, settings: Settings) -> bool:
    """Give a stream that has never heard of producers the settings' limits; True where they are not the usual."""
    limits = settings.stream_idmp_duration, settings.stream_idmp_maxsize
    if stream.idmp is not None or limits == (DURATION, MAX_ENTRIES):
        return False
    stream.idmp = Producers(*limits)
    return True


def producers_of(stream: Stream) -> Producers:
    """Return what the stream knows of its producers, to be changed."""
    if stream.idmp is None:
        stream.idmp = Producers()
    found: Producers = stream.idmp
    return found


# -- XADD --------------------------------------------------------------------------------------------


def is_duplicate(session: Session, stream: Stream, arguments: TrimArguments, argv: list[bytes]) -> bool:
    """Whether the message is in the stream already; then the reply is its entry's ID (idmpLookupAndReply)."""
    producers = producers_of(stream)
    session.db.idmp_keys[argv[1]] = None
    if arguments.idmp_auto:
        arguments.iid = idempotency_hash(argv, arguments.id_at + 1)
    entry = producers.find(arguments.pid, arguments.iid, 0 if session.trusted else session.db.clock.now_ms())
    if session.trusted and arguments.id_given and arguments.seq_given:
        given = arguments.ms << 64 | arguments.seq
        if entry != given:
            entry = -1 if given > stream.last_ms << 64 | stream.last_seq else given
    if entry < 0:
        return False
    ms, seq = entry >> 64, entry & MAX_U64
    producers.duplicates = producers.duplicates + 1 & MAX_U64
    session.out.stream_id(ms, seq)
    session.modified(argv[1])
    if session.engine.log is not None:
        words = list(argv)
        words[arguments.id_at] = format_id(ms, seq)
        session.propagate(words)
    return True


def remember(stream: Stream, arguments: TrimArguments) -> None:
    """Note that the message became the stream's last entry (idmpInsertEntry)."""
    producers_of(stream).add(arguments.pid, arguments.iid, stream.last_ms, stream.last_seq)


# -- the cron, and XINFO -----------------------------------------------------------------------------


def track(database: Database, key: bytes, value: object) -> None:
    """Let the cron find the value that came to a key by other ways than XADD (streamKeyLoaded)."""
    if isinstance(value, Stream) and value.idmp is not None and value.idmp.producers:
        database.idmp_keys[key] = None


IDMP_FIELDS = 6
"""How many names `write_idmp` adds to XINFO STREAM."""


def write_idmp(out: ReplyWriter, stream: Stream, now: int) -> None:
    """Write the names of XINFO STREAM that are about producers (xinfoReplyWithStreamInfo)."""
    producers: Producers = stream.idmp or Producers()
    producers.expire(now, empty=False)
    for name, value in (
        (b"idmp-duration", producers.duration),
        (b"idmp-maxsize", producers.max_entries),
        (b"pids-tracked", len(producers.producers)),
        (b"iids-tracked", producers.tracked()),
        (b"iids-added", to_signed(producers.added)),
        (b"iids-duplicates", to_signed(producers.duplicates)),
    ):
        out.bulk(name)
        out.integer(value)


# -- commands ----------------------------------------------------------------------------------------


def _limit(word: bytes, what: str, unit: str, low: int, high: int) -> int:
    value: int = integer(word)
    if not low <= value <= high:
        raise CommandError(f"{what} must be between {low} and {high} {unit}")
    return value


@command(
    "xcfgset", arity=-2, flags="write fast", keys=(1, 1, 1), group="stream", since="8.6.0", complexity="O(1)",
    syntax="key [IDMP-DURATION idmp-duration] [IDMP-MAXSIZE idmp-maxsize]",
)  # fmt: skip
def xcfgset(session: Session, argv: list[bytes]) -> None:
    """Sets how long, and how many, messages of a producer a stream remembers."""
    stream = require_stream(lookup_write(session, argv[1]))
    duration = max_entries = -1
    for at in range(2, len(argv), 2):
        word = option(argv[at])
        more = at + 1 < len(argv)
        if word == b"idmp-duration" and more:
            if duration != -1:
                raise CommandError("IDMP-DURATION specified multiple times")
            duration = _limit(argv[at + 1], "IDMP-DURATION", "seconds", *DURATION_RANGE)
        elif word == b"idmp-maxsize" and more:
            if max_entries != -1:
                raise CommandError("IDMP-MAXSIZE specified multiple times")
            max_entries = _limit(argv[at + 1], "IDMP-MAXSIZE", "entries", *MAX_ENTRIES_RANGE)
        else:
            raise CommandError(SYNTAX_ERROR)
    if duration == max_entries == -1:
        raise CommandError("At least one parameter must be specified")
    producers = producers_of(stream)
    if producers.configure(duration if duration != -1 else producers.duration,
                           max_entries if max_entries != -1 else producers.max_entries):  # fmt: skip
        session.db.idmp_keys.pop(argv[1], None)
        session.modified(argv[1])
    session.out.ok()


@command(
    "xidmprecord", arity=5, flags="write denyoom fast", keys=(1, 1, 1), group="stream", since="8.6.2",
    complexity="O(1)", syntax="key pid iid stream-id",
)  # fmt: skip
def xidmprecord(session: Session, argv: list[bytes]) -> None:
    """Records which message of a producer an entry is, as a rewritten log of Redis does."""
    key, pid, iid = argv[1:4]
    reader = IDReader()
    read_id(reader, argv[4])
    if not pid:
        raise CommandError("producer ID must be non-empty")
    if not iid:
        raise CommandError("idempotent ID must be non-empty")
    stream = require_stream(lookup_write(session, key))
    if not stream.contains(reader.ms, reader.seq):
        raise CommandError("No such message in stream")
    producers = producers_of(stream)
    entry = producers.find(pid, iid, 0 if session.trusted else session.db.clock.now_ms())
    if entry == -1:
        producers.add(pid, iid, reader.ms, reader.seq)
        session.db.idmp_keys[key] = None
        session.modified(key)
    elif entry != reader.ms << 64 | reader.seq:
        raise CommandError("IID already exists for this producer with a different stream ID")
    session.out.ok()
