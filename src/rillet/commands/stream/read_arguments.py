"""The arguments of XREAD and XREADGROUP: options, keys, and the ID after which each stream is read.

    XREAD      [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms]                   STREAMS key ... id ...
    XREADGROUP [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms]
               GROUP group consumer [CLAIM min-idle-ms] [NOACK]                    STREAMS key ... id ...

The IDs that are not numbers:

    $    XREAD: the stream's last ID at the time of the call
    +    XREAD: the ID before the last entry, so that the reply is that entry; looked up again at each attempt
    >    XREADGROUP: the group's last delivered ID, so that the reply contains the entries that the group has not read

The options are read before any key is looked up, and the IDs together with the keys, as in t_stream.c (xreadCommand):
a command with two errors returns the same one as Redis. The keys and IDs stay in the words, where each attempt reads
them again. If the command has BLOCK, the ID of `$` replaces it there.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, readonly
from rillet.commands.stream.arguments import INVALID_ID, SYNTAX_ERROR, integer_at, is_named, option
from rillet.commands.stream.lookup import no_key_or_group, stream_at
from rillet.errors import CommandError
from rillet.runtime import session_state
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.stream.id import IDReader, format_id
from rillet.types.stream.stream import Stream

_IN_SCRIPT = cython.declare(cython.int, session_state.IN_SCRIPT)
_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_I64 = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_NEW_REQUIRES_GROUP = (
    "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
)


@cython.cclass
class ReadArguments:
    """The arguments of one XREAD or XREADGROUP. A blocked client keeps them for its next attempts.

    keys_at, ids_at   the positions of the first key and of its ID
    ms, seq           the ID after which a stream is read (`find_start`); the largest ID stands for `>`
    grouped           whether the command is XREADGROUP; its group and consumer are bytes, which commands repeat
    timeout           BLOCK in ms, 0 = forever, -1 = do not block
    count, max_count, max_size    0 = no limit
    min_idle          CLAIM in ms, -1 = not given
    level, valkey, lag_rule       of `compat`
    """

    __slots__ = (
        "compat", "consumer", "count", "group", "grouped", "ids_at", "keys_at", "lag_rule", "level", "max_count",
        "max_size", "min_idle", "ms", "noack", "reader", "seq", "timeout", "valkey",
    )  # fmt: skip
    compat: Any
    level: readonly[cython.int]
    valkey: readonly[cython.bint]
    lag_rule: readonly[cython.int]
    grouped: readonly[cython.bint]
    group: readonly[bytes]
    consumer: readonly[bytes]
    noack: readonly[cython.bint]
    timeout: readonly[cython.longlong]
    count: readonly[cython.longlong]
    max_count: readonly[cython.longlong]
    max_size: readonly[cython.longlong]
    min_idle: readonly[cython.longlong]
    keys_at: readonly[cython.Py_ssize_t]
    ids_at: readonly[cython.Py_ssize_t]
    ms: cython.ulonglong
    seq: cython.ulonglong
    reader: IDReader

    def __init__(self) -> None:
        self.grouped = False
        self.group = self.consumer = b""
        self.reader = IDReader()
        self.compat = None

    # -- options

    @cython.cfunc
    def read(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Read the options, and find the keys."""
        at: cython.Py_ssize_t = 1
        has_group: cython.bint = False
        compat: Any = session.engine.settings.compat
        if compat is not self.compat:
            self.compat = compat
            self.level = compat.level
            self.valkey = compat.valkey
            self.lag_rule = compat.lag_rule
        self.timeout = self.min_idle = -1
        self.count = self.max_count = self.max_size = 0
        self.noack = False
        self.ids_at = 0
        while at < words.count:
            more: cython.Py_ssize_t = words.count - at - 1
            if more and is_named(words, at, b"streams"):
                if more % 2:
                    raise _unbalanced(self.level, self.grouped)
                self.keys_at = at + 1
                self.ids_at = at + 1 + more // 2
                break
            if more and is_named(words, at, b"count"):
                self.count = max(0, integer_at(words, at + 1))
                at += 2
            elif more >= 2 and is_named(words, at, b"group"):
                self._require_grouped("GROUP")
                has_group = True
                if not words.equals(at + 1, self.group):
                    self.group = words.get(at + 1)
                if not words.equals(at + 2, self.consumer):
                    self.consumer = words.get(at + 2)
                at += 3
            elif more and is_named(words, at, b"block"):
                self._read_timeout(session, words, at + 1)
                at += 2
            elif is_named(words, at, b"noack"):
                self._require_grouped("NOACK")
                self.noack = True
                at += 1
            elif more and self._read_newer_option(option(words.get(at)), words, at + 1):
                at += 2
            else:
                raise CommandError(SYNTAX_ERROR)
        if self.ids_at == 0:
            raise CommandError(SYNTAX_ERROR)
        if self.grouped and not has_group:
            raise CommandError("Missing GROUP option for XREADGROUP")
        if self.max_count and self.max_count < self.count:
            raise CommandError("MAXCOUNT must be greater than or equal to COUNT")
        return True

    @cython.cfunc
    def _read_timeout(self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        if session.state & _IN_SCRIPT and self.level < 72:
            name = words.get(0).decode("utf-8", "surrogateescape")
            raise CommandError(f"{name} command is not allowed with BLOCK option from scripts")
        self.timeout = integer_at(words, at, "timeout is not an integer or out of range")
        if self.timeout < 0:
            raise CommandError("timeout is negative")
        if self.level >= 72 and self.timeout > _MAX_I64 - session.db.clock.now_ms():
            raise CommandError("timeout is out of range")
        words.to_list()  # as the client sent them
        return True

    @cython.cfunc
    def _read_newer_option(self, name: bytes, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        """Read an option that Redis added after 7.0; return False if it is not such an option."""
        if name == b"claim" and self.level >= 84:
            self._require_grouped("CLAIM")
            self.min_idle = integer_at(words, at, "min-idle-time is not an integer or out of range")
            if self.min_idle < 0:
                raise CommandError("min-idle-time must be a positive integer")
            return True
        if self.level < 810:
            return False
        if name == b"maxcount":
            self.max_count = _positive(words, at, "MAXCOUNT must be a positive integer")
            return True
        if name == b"maxsize":
            self.max_size = _positive(words, at, "MAXSIZE must be a positive integer")
            return True
        return False

    @cython.cfunc
    def _require_grouped(self, name: str) -> cython.bint:
        if not self.grouped:
            raise CommandError(f"The {name} option is only supported by XREADGROUP. You called XREAD instead.")
        return True

    # -- streams and IDs

    @cython.cfunc
    def check(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Raise CommandError if a key has another type, a group does not exist, or an ID is invalid."""
        at: cython.Py_ssize_t
        for at in range(self.keys_at, self.ids_at):
            stream: Stream | None = stream_at(session.db, session.db.locate_read(words, at))
            if self.grouped and (stream is None or stream.find_group(self.group) is None):
                raise no_key_or_group(words.get(at), self.group, " in XREADGROUP with GROUP option")
            self.find_start(words, at, stream)
        return True

    @cython.cfunc
    def find_start(self, words: ArgumentSpans, key_at: cython.Py_ssize_t, stream: Stream | None) -> cython.bint:
        """Set ms and seq to the ID after which the stream of a key (None: it does not exist) is read."""
        at: cython.Py_ssize_t = key_at - self.keys_at + self.ids_at
        reader: IDReader = self.reader
        # The reader needs a microsecond to find out that `>` is no number.
        if (words.size[at] != 1 or words.is_digit(at)) and reader.read_span(words.at[at], words.size[at], 0, True):
            self.ms = reader.ms
            self.seq = reader.seq
        elif self.grouped and words.is_char(at, 62):
            self.ms = self.seq = _MAX_U64
        else:
            self.ms, self.seq = self._special_id(words, at, stream)
        return True

    def _special_id(self, words: ArgumentSpans, at: int, stream: Stream | None) -> tuple[int, int]:
        """Return the ID that `$`, `+` or `>` stands for."""
        word = words.get(at).split(b"\0", 1)[0]
        if word == b"$":
            if self.grouped:
                raise _meaningless("$")
            last: tuple[int, int] = (0, 0)
            if stream is not None:
                last = stream.last_ms, stream.last_seq
            if self.timeout >= 0:
                words.put(at, format_id(last[0], last[1]))
            return last
        if word == b"+" and (self.level >= 74 or self.valkey):
            if self.grouped:
                raise _meaningless("+")
            return _before_last_entry(stream, self.level, self.valkey)
        if word == b">":
            if not self.grouped:
                raise CommandError(_NEW_REQUIRES_GROUP)
            return _MAX_U64, _MAX_U64
        raise CommandError(INVALID_ID)


def _before_last_entry(stream: Stream | None, level: int, valkey: bool) -> tuple[int, int]:
    """Return the ID that `+` stands for: the one before the last entry, 0-0 for an empty stream.

    Redis 7.4, and Valkey for a stream that is not empty, use the stream's last ID instead of the last entry's ID. If
    the entry with the last ID was deleted, XREAD then returns nothing.
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


def _unbalanced(level: int, grouped: bool) -> CommandError:
    """Return the error for an odd number of keys and IDs; its wording changed in Redis 7.2 and 8.0."""
    name, ids = "XREAD", "ID or '$'"
    if level >= 72:
        name = "'xreadgroup'" if grouped else "'xread'"
        if grouped:
            ids = "ID or '>'"
        elif level >= 80:
            ids = "ID, '+', or '$'"
    return CommandError(f"Unbalanced {name} list of streams: for each stream key an {ids} must be specified.")


def _meaningless(word: str) -> CommandError:
    """Return the error for `$` or `+` in XREADGROUP."""
    return CommandError(
        f"The {word} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by "
        f"specifying a proper ID, or use the > ID to get new messages. The {word} ID would just return an empty result "
        "set."
    )


def _positive(words: ArgumentSpans, at: int, message: str) -> int:
    """Return an argument as an integer; raise CommandError(message) if it is below 1."""
    number: int = integer_at(words, at, message)
    if number < 1:
        raise CommandError(message)
    return number


def keys_of_read(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of an XREAD or XREADGROUP (db.c: xreadGetKeys)."""
    words_of_option = {b"block": 2, b"count": 2, b"maxcount": 2, b"maxsize": 2, b"group": 3, b"claim": 2, b"noack": 1}
    at = 1
    while at < len(argv):
        word = option(argv[at])
        if word == b"streams":
            names = len(argv) - at - 1
            return [] if names % 2 else list(range(at + 1, at + 1 + names // 2))
        if word not in words_of_option:
            return []
        at += words_of_option[word]
    return []
