"""The arguments of XREAD and XREADGROUP: options, keys, and the ID after which each stream is read.

    XREAD      [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms]                   STREAMS key ... id ...
    XREADGROUP [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms]
               GROUP group consumer [CLAIM min-idle-ms] [NOACK]                    STREAMS key ... id ...

The IDs that are not numbers:

    $    XREAD: the stream's last ID at the time of the call
    +    XREAD: the ID before the last entry, so that the reply is that entry; looked up again at each attempt
    >    XREADGROUP: the group's last delivered ID, so that the reply contains the entries that the group has not read

The options are read before any key is looked up, and the IDs together with the keys, as in t_stream.c (xreadCommand):
a command with two errors returns the same one as Redis.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.stream.arguments import INVALID_ID, SYNTAX_ERROR
from rillet.commands.stream.lookup import no_key_or_group
from rillet.errors import CommandError
from rillet.runtime import session_state
from rillet.runtime.session import Session
from rillet.types.stream.id import IDReader
from rillet.types.stream.value import Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.commands.stream.arguments import integer, option
    from rillet.commands.stream.lookup import lookup_read

_IN_SCRIPT = cython.declare(cython.int, session_state.IN_SCRIPT)
_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_I64 = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_NEW_REQUIRES_GROUP = (
    "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
)


@cython.final
@cython.cclass
class ReadArguments:
    """The arguments of one XREAD or XREADGROUP. A blocked client keeps them for its next attempts.

    keys, starts    the streams, and the ID after which each is read; the largest ID stands for `>`
    last_entry_at   the indexes of the streams that were given the ID `+`
    group           the group's name, None for XREAD
    timeout         BLOCK in ms, 0 = forever, -1 = do not block
    count, max_count, max_size    0 = no limit
    min_idle        CLAIM in ms, -1 = not given
    """

    __slots__ = (
        "consumer", "count", "group", "ids_at", "keys", "last_entry_at", "level", "max_count", "max_size", "min_idle",
        "noack", "starts", "timeout", "valkey",
    )  # fmt: skip

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
        self.last_entry_at: list[int] | None = None

    # -- options

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def read(self, session: Session, argv: list[bytes], grouped: cython.bint) -> cython.bint:
        """Read the options and the keys of an XREADGROUP if `grouped`, otherwise of an XREAD."""
        at: cython.Py_ssize_t = 1
        count: cython.Py_ssize_t = len(argv)
        while at < count:
            word: bytes = option(argv[at])
            more: cython.Py_ssize_t = count - at - 1
            if word == b"streams" and more:
                self._read_keys(argv, at + 1, grouped)
                break
            if word == b"block" and more:
                if session.state & _IN_SCRIPT and self.level < 72:
                    name = argv[0].decode("utf-8", "surrogateescape")
                    raise CommandError(f"{name} command is not allowed with BLOCK option from scripts")
                self._read_timeout(session, argv[at + 1])
                at += 2
            elif word == b"count" and more:
                self.count = max(0, integer(argv[at + 1]))
                at += 2
            elif word == b"group" and more >= 2:
                _require_grouped(grouped, "GROUP")
                self.group = argv[at + 1]
                self.consumer = argv[at + 2]
                at += 3
            elif word == b"noack":
                _require_grouped(grouped, "NOACK")
                self.noack = True
                at += 1
            elif more and self._read_newer_option(word, argv[at + 1], grouped):
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
    def _read_timeout(self, session: Session, word: bytes) -> cython.bint:
        self.timeout = integer(word, "timeout is not an integer or out of range")
        if self.timeout < 0:
            raise CommandError("timeout is negative")
        if self.level >= 72 and self.timeout > _MAX_I64 - session.db.clock.now_ms():
            raise CommandError("timeout is out of range")
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_newer_option(self, word: bytes, value: bytes, grouped: cython.bint) -> cython.bint:
        """Read an option that Redis added after 7.0; return False if the word is not such an option."""
        if word == b"claim" and self.level >= 84:
            _require_grouped(grouped, "CLAIM")
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
    def _read_keys(self, argv: list[bytes], start: cython.Py_ssize_t, grouped: cython.bint) -> cython.bint:
        count: cython.Py_ssize_t = len(argv) - start
        if count % 2:
            raise _unbalanced(self.level, grouped)
        self.ids_at = start + count // 2
        self.keys = argv[start : self.ids_at]
        return True

    # -- streams and IDs

    @cython.cfunc
    def find_streams(self, session: Session, argv: list[bytes]) -> list[Any]:
        """Return the streams (None for a missing key), and read the ID given for each into `starts`."""
        streams: list[Any] = []
        reader: IDReader = IDReader()
        index: cython.Py_ssize_t
        for index in range(len(self.keys)):
            stream: Stream | None = self._find_stream(session, self.keys[index])
            word: bytes = argv[self.ids_at + index]
            streams.append(stream)
            # The reader needs a microsecond to find out that `>` is no number.
            if (len(word) != 1 or 48 <= word[0] <= 57) and reader.read(word, 0, True):
                self.starts.append((reader.ms, reader.seq))
            else:
                self.starts.append(self._special_id(word, stream, index))
        return streams

    @cython.cfunc
    def find_streams_again(self, session: Session) -> list[Any]:
        """Return the streams again for a blocked client, and the current meaning of `+` in `starts`."""
        streams: list[Any] = [self._find_stream(session, key) for key in self.keys]
        if self.last_entry_at is not None:
            for index in self.last_entry_at:
                self.starts[index] = _before_last_entry(streams[index], self.level, self.valkey)
        return streams

    @cython.cfunc
    def _find_stream(self, session: Session, key: bytes) -> Stream | None:
        """Return the stream, None if the key does not exist. XREADGROUP: raise an error if key or group is missing."""
        stream: Stream | None = lookup_read(session, key)
        if self.group is not None and (stream is None or stream.find_group(self.group) is None):
            raise no_key_or_group(key, self.group, " in XREADGROUP with GROUP option")
        return stream

    def _special_id(self, word: bytes, stream: Stream | None, index: int) -> tuple[int, int]:
        """Return the ID that `$`, `+` or `>` stands for."""
        if b"\0" in word:
            word = word.split(b"\0", 1)[0]
        if word == b"$":
            if self.group is not None:
                raise _meaningless("$")
            if stream is None:
                return 0, 0
            return stream.last_ms, stream.last_seq
        if word == b"+" and (self.level >= 74 or self.valkey):
            if self.group is not None:
                raise _meaningless("+")
            if self.last_entry_at is None:
                self.last_entry_at = []
            self.last_entry_at.append(index)
            return _before_last_entry(stream, self.level, self.valkey)
        if word == b">":
            if self.group is None:
                raise CommandError(_NEW_REQUIRES_GROUP)
            return _MAX_U64, _MAX_U64
        raise CommandError(INVALID_ID)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reads_history(self, index: cython.Py_ssize_t) -> cython.bint:
        """Return whether an ID, not `>`, was given for a stream, so that XREADGROUP returns pending entries."""
        start: tuple[int, int] = self.starts[index]
        ms: cython.ulonglong = start[0]
        seq: cython.ulonglong = start[1]
        return ms != _MAX_U64 or seq != _MAX_U64


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


def _positive(word: bytes, message: str) -> int:
    """Return an argument as an integer; raise CommandError(message) if it is below 1."""
    number: int = integer(word, message)
    if number < 1:
        raise CommandError(message)
    return number


@cython.cfunc
@cython.exceptval(-1, check=False)
def _require_grouped(grouped: cython.bint, name: str) -> cython.bint:
    if not grouped:
        raise CommandError(f"The {name} option is only supported by XREADGROUP. You called XREAD instead.")
    return True


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
