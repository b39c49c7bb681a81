"""Reading the arguments of stream commands: numbers, IDs, ranges, and the options of XADD and XTRIM.

    XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [MAXLEN|MINID [=|~] threshold [LIMIT n]] *|ms-*|ms-seq field value ...
             └──────────────────────────────── TrimArguments ────────────────────────────┘ └── and its ID ──┘
    XRANGE key -|(ms-seq|ms ... +|(ms-seq|ms                         Interval

Redis reads options with C's string functions, so an option, `$` and `>` end at their first NUL byte (`option`), and so
does a name in an error message (`text`). Numbers must be the canonical decimal text of a signed 64-bit integer (util.c:
string2ll).

The checks have Redis's order: a command with two errors returns the same one as Redis.

Results that consist of several numbers are attributes of a small object (`TrimArguments`, `Interval`), so that compiled
modules pass the 64-bit halves of IDs without creating Python integers.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public
from rillet.commands.arguments import NOT_AN_INTEGER
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.compat import NEWEST
from rillet.types.stream.id import IDReader
from rillet.types.stream.stream import ACKED, DELREF, KEEPREF

NO_TRIM = 0
MAXLEN = 1
MINID = 2
_NO_TRIM = cython.declare(cython.int, NO_TRIM)
_MAXLEN = cython.declare(cython.int, MAXLEN)
_MINID = cython.declare(cython.int, MINID)
_KEEPREF = cython.declare(cython.int, KEEPREF)
_DELREF = cython.declare(cython.int, DELREF)
_ACKED = cython.declare(cython.int, ACKED)
_NO_STRATEGY = cython.declare(cython.int, -1)

_MAX_LEVEL = cython.declare(cython.int, NEWEST.level)
_TRUSTED = cython.declare(cython.int, TRUSTED)
MAX_U64 = 0xFFFF_FFFF_FFFF_FFFF
_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_SIGNED = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
_MIN_I64 = -(1 << 63)
_MAX_I64 = (1 << 63) - 1

INVALID_ID = "Invalid stream ID specified as stream command argument"
SYNTAX_ERROR = "syntax error"


@cython.ccall
def option(word: bytes) -> bytes:
    """Return an argument in lower case, up to its first NUL byte, for comparison with the names of options."""
    if b"\0" in word:
        word = word.split(b"\0", 1)[0]
    return word.lower()


@cython.ccall
def integer(word: bytes, message: str = NOT_AN_INTEGER) -> cython.longlong:
    """Return an argument as a signed 64-bit integer, or raise CommandError(message) (getLongLongFromObjectOrReply)."""
    digits: bytes = word[1:] if word[:1] == b"-" else word
    if word == b"0":
        return 0
    if not 0 < len(digits) < 20 or not digits.isdigit() or digits[0] == 48:
        raise CommandError(message)
    value: Any = int(word)
    if value < _MIN_I64 or value > _MAX_I64:
        raise CommandError(message)
    number: cython.longlong = value
    return number


@cython.ccall
@cython.exceptval(-1, check=True)
def to_signed(value: cython.ulonglong) -> cython.longlong:
    """Return an unsigned 64-bit counter as Redis's integer replies and logs show it: negative from 2**63 on."""
    if value <= _MAX_SIGNED:
        return value
    if cython.compiled:
        return cython.cast(cython.longlong, value)
    return value - (1 << 64)


@cython.ccall
def read_id(reader: IDReader, word: bytes, strict: cython.bint = True) -> cython.bint:
    """Parse an ID into the reader's ms and seq (a missing seq is 0). Unless strict, also accept `-` and `+`."""
    if not reader.read(word, 0, strict):
        raise CommandError(INVALID_ID)
    return True


@cython.cfunc
def read_id_at(reader: IDReader, words: ArgumentSpans, index: cython.Py_ssize_t) -> cython.bint:
    """Do `read_id` for an argument."""
    if not reader.read_span(words.at[index], words.size[index], 0, True):
        raise CommandError(INVALID_ID)
    return True


@cython.cfunc
def is_named(words: ArgumentSpans, index: cython.Py_ssize_t, name: bytes) -> cython.bint:
    """Return whether an argument is an option with this lower-case name, as `option` reads it."""
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(name)
    if words.size[index] < size:
        return False
    for i in range(size):
        if words.at[index][i] | 0x20 != name[i]:  # this maps only letters to lower-case letters
            return False
    ends: cython.bint = words.size[index] == size or words.at[index][size] == 0
    return ends


@cython.cfunc
@cython.exceptval(-1, check=True)
def integer_at(words: ArgumentSpans, index: cython.Py_ssize_t, message: str = NOT_AN_INTEGER) -> cython.longlong:
    """Do `integer` for an argument."""
    number: cython.longlong = words.number(index)
    return number if number >= 0 else integer(words.get(index), message)


def read_ids(argv: list[bytes], start: int) -> list[tuple[int, int]]:
    """Return the IDs in argv[start:]; raise CommandError if one of them is invalid."""
    reader = IDReader()
    ids = []
    for position in range(start, len(argv)):
        read_id(reader, argv[position])
        ids.append((reader.ms, reader.seq))
    return ids


@cython.ccall
@cython.exceptval(check=False)
def delete_strategy(word: bytes) -> cython.int:
    """Return the delete strategy that a lower-case word names (KEEPREF, DELREF or ACKED), -1 for other words."""
    if word == b"keepref":
        return _KEEPREF
    if word == b"delref":
        return _DELREF
    if word == b"acked":
        return _ACKED
    return _NO_STRATEGY


@cython.final
@cython.cclass
class Interval:
    """A range of IDs with inclusive ends: `(id` becomes the next or previous ID (streamParseIntervalIDOrReply)."""

    __slots__ = ("_reader", "end_ms", "end_seq", "start_ms", "start_seq")
    start_ms: public[cython.ulonglong]
    start_seq: public[cython.ulonglong]
    end_ms: public[cython.ulonglong]
    end_seq: public[cython.ulonglong]
    _reader: IDReader

    def __init__(self) -> None:
        self._reader = IDReader()
        self.start_ms = 0
        self.start_seq = 0
        self.end_ms = _MAX_U64
        self.end_seq = _MAX_U64

    @cython.ccall
    def read_start(self, word: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Parse the lower end of the range; a missing sequence number is 0."""
        reader: IDReader = self._reader
        if not reader.read_interval(word, size, 0):
            raise CommandError(INVALID_ID)
        self.start_ms = reader.ms
        self.start_seq = reader.seq
        if reader.exclusive:
            if self.start_seq == _MAX_U64 and self.start_ms == _MAX_U64:
                raise CommandError("invalid start ID for the interval")
            self.start_seq = (self.start_seq + 1) & _MAX_U64
            self.start_ms += self.start_seq == 0
        return True

    @cython.ccall
    def read_end(self, word: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Parse the upper end of the range; a missing sequence number is the largest possible one."""
        reader: IDReader = self._reader
        if not reader.read_interval(word, size, _MAX_U64):
            raise CommandError(INVALID_ID)
        self.end_ms = reader.ms
        self.end_seq = reader.seq
        if reader.exclusive:
            if self.end_seq == 0 and self.end_ms == 0:
                raise CommandError("invalid end ID for the interval")
            self.end_ms -= self.end_seq == 0
            self.end_seq = (self.end_seq - 1) & _MAX_U64
        return True


@cython.final
@cython.cclass
class TrimArguments:
    """The options of XADD and XTRIM (t_stream.c: streamParseAddOrTrimArgsOrReply).

    strategy        NO_TRIM, MAXLEN or MINID, with `maxlen` or `minid_ms`, `minid_seq`
    approx, limit   `~`, and the most entries that it may remove (0 = no limit)
    delete_strategy KEEPREF, DELREF or ACKED, for the references of groups (Redis 8.2)
    pid, iid        producer and message, empty unless given; `idmp_auto`: iid is to be computed (Redis 8.6)
    threshold_at    position of the threshold in the words
    id_at           position of the ID of XADD, their number if it is missing
    id_given        an ID was read into `ms`, `seq`; `seq_given` is False for `ms-*`
    """

    __slots__ = (
        "approx", "delete_strategy", "id_at", "id_given", "idmp_auto", "iid", "limit", "limit_given", "maxlen",
        "minid_ms", "minid_seq", "ms", "no_mkstream", "pid", "seq", "seq_given", "strategy", "threshold_at",
    )  # fmt: skip
    strategy: public[cython.int]
    delete_strategy: public[cython.int]
    maxlen: public[cython.longlong]
    minid_ms: public[cython.ulonglong]
    minid_seq: public[cython.ulonglong]
    approx: public[cython.bint]
    limit: public[cython.longlong]
    limit_given: public[cython.bint]
    threshold_at: public[cython.Py_ssize_t]
    id_at: public[cython.Py_ssize_t]
    id_given: public[cython.bint]
    ms: public[cython.ulonglong]
    seq: public[cython.ulonglong]
    seq_given: public[cython.bint]
    no_mkstream: public[cython.bint]
    pid: public[bytes]
    iid: public[bytes]
    idmp_auto: public[cython.bint]

    def __init__(self) -> None:
        self.clear()

    @cython.ccall
    def clear(self) -> cython.bint:
        """Forget all options."""
        self.strategy = _NO_TRIM
        self.delete_strategy = _NO_STRATEGY
        self.maxlen = 0
        self.minid_ms = 0
        self.minid_seq = 0
        self.approx = False
        self.limit = 0
        self.limit_given = False
        self.threshold_at = 0
        self.id_at = 0
        self.id_given = False
        self.ms = 0
        self.seq = 0
        self.seq_given = True
        self.no_mkstream = False
        self.pid = b""
        self.iid = b""
        self.idmp_auto = False
        return True

    @cython.ccall
    def read(self, session: Session, words: ArgumentSpans, xadd: cython.bint) -> cython.bint:
        """Read the options from words[2:], for XADD up to its ID; raise CommandError if they are invalid."""
        at: cython.Py_ssize_t = 2
        while at < words.count:
            if xadd and (words.is_digit(at) or self._is_star(words, at)):
                break  # words[at] is the ID, because options begin with a letter
            taken: cython.Py_ssize_t = self._read_option(session, words, at, xadd)
            if taken == 0:
                break
            at += taken
        self.id_at = at
        if xadd and at < words.count:
            self._read_new_id(words, at)
            # A logged XADD has both an IDMP option and the ID of its entry.
            if self.pid and self.id_given and not session.state & _TRUSTED:
                raise CommandError("syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs")
        return self._settle(session, xadd)

    @cython.cfunc
    def _is_star(self, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        """Return whether an argument is `*`, up to its first NUL byte."""
        return words.is_char(at, 42) or (words.size[at] > 1 and words.at[at][0] == 42 and words.at[at][1] == 0)

    @cython.cfunc
    def _read_option(
        self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t, xadd: cython.bint
    ) -> cython.Py_ssize_t:
        """Read the option at words[at]; return its number of words, or 0 if words[at] is the ID of an XADD."""
        more: cython.Py_ssize_t = words.count - 1 - at
        if more and is_named(words, at, b"maxlen"):
            return self._read_threshold(words, at, _MAXLEN)
        if more and is_named(words, at, b"minid"):
            return self._read_threshold(words, at, _MINID)
        word: bytes = option(words.get(at))
        if more and word == b"limit":
            self.limit = integer_at(words, at + 1)
            if self.limit < 0:
                raise CommandError("The LIMIT argument must be >= 0.")
            self.limit_given = True
            return 2
        # A replay accepts the options of all versions: the log may have been written with a newer `compat`.
        level: cython.int = _MAX_LEVEL if session.state & _TRUSTED else session.engine.settings.compat.level
        if self.delete_strategy == _NO_STRATEGY and level >= 82:
            # A command has one delete strategy. A second one is a syntax error in XTRIM, and read as the ID in XADD.
            self.delete_strategy = delete_strategy(word)
            if self.delete_strategy != _NO_STRATEGY:
                return 1
        if not xadd:
            raise CommandError(SYNTAX_ERROR)
        if word == b"nomkstream":
            self.no_mkstream = True
            return 1
        if level >= 86 and more and (word == b"idmpauto" or (word == b"idmp" and more >= 2)):
            return self._read_producer(words, at, word == b"idmpauto")
        return 0

    @cython.cfunc
    def _read_producer(self, words: ArgumentSpans, at: cython.Py_ssize_t, auto: cython.bint) -> cython.Py_ssize_t:
        """Read the producer ID of IDMP or IDMPAUTO, and the message ID of IDMP."""
        if self.pid:
            raise CommandError("syntax error, IDMP/IDMPAUTO specified multiple times")
        if words.size[at + 1] == 0:
            name: str = "IDMPAUTO" if auto else "IDMP"
            raise CommandError(f"syntax error, {name} requires a non-empty producer ID")
        self.pid = words.get(at + 1)
        self.idmp_auto = auto
        if auto:
            return 2
        if words.size[at + 2] == 0:
            raise CommandError("syntax error, IDMP requires a non-empty idempotent ID")
        self.iid = words.get(at + 2)
        return 3

    @cython.cfunc
    def _read_threshold(
        self, words: ArgumentSpans, at: cython.Py_ssize_t, strategy: cython.int
    ) -> cython.Py_ssize_t:
        """Read a threshold with its operator; return the number of words."""
        taken: cython.Py_ssize_t = 2
        if self.strategy != _NO_TRIM:
            raise CommandError("syntax error, MAXLEN and MINID options at the same time are not compatible")
        if words.count - 1 - at >= 2:
            if words.is_char(at + 1, 126) or words.is_char(at + 1, 61):
                self.approx = words.is_char(at + 1, 126)
                taken = 3
            elif not words.is_digit(at + 1):
                operator: bytes = option(words.get(at + 1))
                if operator == b"~" or operator == b"=":
                    self.approx = operator == b"~"
                    taken = 3
        self.threshold_at = at + taken - 1
        if strategy == _MAXLEN:
            self.maxlen = integer_at(words, self.threshold_at)
            if self.maxlen < 0:
                raise CommandError("The MAXLEN argument must be >= 0.")
        else:
            reader: IDReader = IDReader()
            read_id_at(reader, words, self.threshold_at)
            self.minid_ms = reader.ms
            self.minid_seq = reader.seq
        self.strategy = strategy
        return taken

    @cython.cfunc
    def _read_new_id(self, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        """Read the ID of an XADD."""
        if self._is_star(words, at):
            return True
        reader: IDReader = IDReader()
        word: bytes = words.get(at)
        # Most IDs have the form ms-seq, which `read` parses in a third of the time of `read_new`.
        if not reader.read(word, 0, True):
            if not reader.read_new(word):
                raise CommandError(INVALID_ID)
            self.seq_given = reader.seq_given
        self.id_given = True
        self.ms = reader.ms
        self.seq = reader.seq
        return True

    @cython.cfunc
    def _settle(self, session: Session, xadd: cython.bint) -> cython.bint:
        """Reject options that exclude each other, and set the default limit of an approximate trim."""
        if self.delete_strategy == _NO_STRATEGY:
            self.delete_strategy = _KEEPREF
        if self.strategy == _NO_TRIM:
            if self.limit:
                raise CommandError("syntax error, LIMIT cannot be used without specifying a trimming strategy")
            if not xadd:
                raise CommandError("syntax error, XTRIM must be called with a trimming strategy")
        if session.state & _TRUSTED:
            # A log contains exact thresholds, and a replay must remove all entries before them.
            self.limit = 0
        elif self.limit_given:
            if not self.approx:
                raise CommandError("syntax error, LIMIT cannot be used without the special ~ option")
        elif self.approx:
            self.limit = default_limit(session.db.buffer.stream_entries)
        return True


@cython.ccall
@cython.exceptval(check=False)
def default_limit(node_max_entries: cython.longlong) -> cython.longlong:
    """Return the default LIMIT of an approximate trim: the entries of 100 nodes, at most a million."""
    if node_max_entries <= 0 or node_max_entries > _MAX_I64 // 100:
        return 10_000
    return min(100 * node_max_entries, 1_000_000)
