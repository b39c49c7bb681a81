"""XCFGSET, XIDMPRECORD, and the options IDMP and IDMPAUTO of XADD (Redis 8.6: t_stream.c).

    XADD s IDMP producer-1 order-77 * item book     -> 1700000000000-0   added, and its iid is stored
    XADD s IDMP producer-1 order-77 * item book     -> 1700000000000-0   the same message: nothing is added
    XADD s IDMPAUTO producer-1 * item book          the iid is a hash of the message

The log has the ID of the entry, as for every XADD, so that a replay does not need a clock:

    XADD s IDMP producer-1 order-77 1700000000000-0 item book

A replay distinguishes three cases. If the stream has stored the iid with this entry, the command was a duplicate, and
the counter of duplicates rises. If the ID is greater than the stream's last ID, the entry is added, even if the iid is
stored, because that record had expired when the command ran. Otherwise it was a duplicate whose record has expired.
Nothing expires during a replay. Redis logs a duplicate with `*`: if its record is missing in a replay (an RDB base
omits expired records), the message is added a second time; if a record exists that had expired, an added message is
lost. rillet replays such logs as Redis does.

`Database.idmp_keys` contains the streams with stored messages, for `Database.expire_idmp`, which the cron calls.
"""

from __future__ import annotations

from rillet.commands.replies import write_fields
from rillet.commands.stream import command
from rillet.commands.stream.arguments import (
    MAX_U64,
    SYNTAX_ERROR,
    TrimArguments,
    integer,
    option,
    read_id,
    to_signed,
)  # fmt: skip
from rillet.commands.stream.lookup import lookup_write, require_stream
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings
from rillet.types.stream.id import IDReader, format_id
from rillet.types.stream.idmp import (
    DURATION,
    DURATION_RANGE,
    MAX_ENTRIES,
    MAX_ENTRIES_RANGE,
    Producers,
    idempotency_hash,
)
from rillet.types.stream.stream import Stream

SINCE = 86
"""The first level of `compat` with idempotent producers."""


def new_stream(settings: Settings) -> Stream:
    """Create an empty stream with the limits that the settings define for new streams (streamNew)."""
    stream = Stream()
    apply_settings(stream, settings)
    return stream


def apply_settings(stream: Stream, settings: Settings) -> bool:
    """Set the limits of a stream without producers from the settings; return whether they differ from the defaults."""
    limits = settings.stream_idmp_duration, settings.stream_idmp_maxsize
    if stream.idmp is not None or limits == (DURATION, MAX_ENTRIES):
        return False
    stream.idmp = Producers(*limits)
    return True


def producers_of(stream: Stream) -> Producers:
    """Return the producers of a stream; create an empty table of producers if the stream has none."""
    if stream.idmp is None:
        stream.idmp = Producers()
    producers: Producers = stream.idmp
    return producers


# -- XADD --------------------------------------------------------------------------------------------


def is_duplicate(session: Session, stream: Stream, arguments: TrimArguments, argv: list[bytes]) -> bool:
    """Return True and reply the entry's ID if the message is a duplicate, else False (idmpLookupAndReply)."""
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
        narrow = session.engine.propagation.narrow
        if narrow is not None:
            narrow.duplicate = words
        session.propagate(words)
    return True


def remember(stream: Stream, arguments: TrimArguments) -> None:
    """Record that the stream's last entry is this message of the producer (idmpInsertEntry)."""
    producers_of(stream).add(arguments.pid, arguments.iid, stream.last_ms, stream.last_seq)


# -- the cron, and XINFO -----------------------------------------------------------------------------


def track(database: Database, key: bytes, value: object) -> None:
    """Register a loaded or copied stream, so that the cron removes its expired message IDs (streamKeyLoaded)."""
    if isinstance(value, Stream) and value.idmp is not None and value.idmp.producers:
        database.idmp_keys[key] = None


IDMP_FIELDS = 6
"""The number of names that `write_idmp` adds to XINFO STREAM."""


def write_idmp(out: ReplyWriter, stream: Stream, now: int) -> None:
    """Write the names and values about producers of XINFO STREAM (xinfoReplyWithStreamInfo)."""
    producers: Producers = stream.idmp or Producers()
    producers.expire(now, empty=False)
    write_fields(out, {
        b"idmp-duration": producers.duration,
        b"idmp-maxsize": producers.max_entries,
        b"pids-tracked": len(producers.producers),
        b"iids-tracked": producers.tracked(),
        b"iids-added": to_signed(producers.added),
        b"iids-duplicates": to_signed(producers.duplicates),
    })  # fmt: skip


# -- commands ----------------------------------------------------------------------------------------


def _limit(word: bytes, what: str, unit: str, low: int, high: int) -> int:
    value: int = integer(word)
    if not low <= value <= high:
        raise CommandError(f"{what} must be between {low} and {high} {unit}")
    return value


@command("xcfgset", arity=-2, flags="write fast", since="8.6.0",
         syntax="key [IDMP-DURATION idmp-duration] [IDMP-MAXSIZE idmp-maxsize]", complexity="O(1)")
def xcfgset(session: Session, argv: list[bytes]) -> None:
    """Sets how many messages per producer a stream stores, and for how long."""
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


@command("xidmprecord", arity=5, flags="write denyoom fast", since="8.6.2", syntax="key pid iid stream-id",
         complexity="O(1)")
def xidmprecord(session: Session, argv: list[bytes]) -> None:
    """Records that an entry is a given message of a producer; used by rewritten logs of Redis."""
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
