"""The options of SET, GETEX and MSETEX (Redis: t_string.c, parseExtendedStringArgumentsOrReply).

    SET k v IFEQ old GET EX 10      condition IFEQ with an operand, flag GET, expiry EX 10

Each word is a bit. A command names the words that it takes, and the word that excludes an expiry (KEEPTTL or PERSIST).
"""

from __future__ import annotations

from rillet._cython import cython, readonly
from rillet.commands.arguments import LLONG_MAX, syntax_error
from rillet.commands.span_arguments import integer_at
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.compat import Compat

NX, XX, GET, KEEPTTL, PERSIST = 1, 2, 4, 8, 16
EX, PX, EXAT, PXAT = 32, 64, 128, 256
IFEQ, IFNE, IFDEQ, IFDNE = 512, 1024, 2048, 4096
EXPIRIES = EX | PX | EXAT | PXAT
COMPARISONS = IFEQ | IFNE | IFDEQ | IFDNE
_LARGEST = cython.declare(cython.longlong, LLONG_MAX)
_EXISTENCE = cython.declare(cython.int, NX | XX)
_GET = cython.declare(cython.int, GET)
_EXPIRIES = cython.declare(cython.int, EXPIRIES)
_COMPARISONS = cython.declare(cython.int, COMPARISONS)
_IFEQ = cython.declare(cython.int, IFEQ)
_NX = cython.declare(cython.int, NX)
_XX = cython.declare(cython.int, XX)
_KEEPTTL = cython.declare(cython.int, KEEPTTL)
_PERSIST = cython.declare(cython.int, PERSIST)
_EX = cython.declare(cython.int, EX)
_PX = cython.declare(cython.int, PX)
_EXAT = cython.declare(cython.int, EXAT)
_PXAT = cython.declare(cython.int, PXAT)
_IFNE = cython.declare(cython.int, IFNE)
_IFDEQ = cython.declare(cython.int, IFDEQ)
_IFDNE = cython.declare(cython.int, IFDNE)


@cython.cfunc
def _word(words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.int:
    """Return the bit of an argument in any case, 0 if it is not an option."""
    size: cython.Py_ssize_t = words.size[at]
    if size == 2:
        if words.is_option(at, b"ex"):
            return _EX
        if words.is_option(at, b"nx"):
            return _NX
        if words.is_option(at, b"px"):
            return _PX
        return _XX if words.is_option(at, b"xx") else 0
    if size == 3:
        return _GET if words.is_option(at, b"get") else 0
    if size == 4:
        if words.is_option(at, b"ifeq"):
            return _IFEQ
        if words.is_option(at, b"ifne"):
            return _IFNE
        if words.is_option(at, b"exat"):
            return _EXAT
        return _PXAT if words.is_option(at, b"pxat") else 0
    if size == 5:
        if words.is_option(at, b"ifdeq"):
            return _IFDEQ
        return _IFDNE if words.is_option(at, b"ifdne") else 0
    if size == 7:
        if words.is_option(at, b"keepttl"):
            return _KEEPTTL
        return _PERSIST if words.is_option(at, b"persist") else 0
    return 0


@cython.cfunc
def _comparisons_of(compat: Compat) -> cython.int:
    """Return the comparisons that SET has on a server."""
    if compat.valkey:
        return _IFEQ
    return _COMPARISONS if compat.level >= 84 else 0


@cython.final
@cython.cclass
class SetOptions:
    """The options of one call.

    flags: the words without an argument. expiry: EX, PX, EXAT, PXAT or 0; `expiry_at` is its position.
    condition: a comparison or 0; `operand_at` is the position of its argument. valkey: with one, the server is Valkey.
    """

    __slots__ = ("condition", "expiry", "expiry_at", "flags", "operand_at", "valkey")
    flags: readonly[cython.int]
    expiry: readonly[cython.int]
    expiry_at: readonly[cython.Py_ssize_t]
    condition: readonly[cython.int]
    operand_at: readonly[cython.Py_ssize_t]
    valkey: readonly[cython.bint]

    @cython.ccall
    def read(
        self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t, allowed: cython.int, keep: cython.int
    ) -> cython.bint:
        """Parse the options from words[at] on: those in `allowed`; the word `keep` excludes an expiry.

        Raise CommandError for a syntax error.
        """
        word: cython.int
        self.flags = self.expiry = self.condition = 0
        self.expiry_at = self.operand_at = 0
        self.valkey = False
        while at < words.count:
            word = _word(words, at) & allowed
            if word & _COMPARISONS:
                compat: Compat = session.engine.settings.compat
                self.valkey = compat.valkey
                word &= _comparisons_of(compat)
            if word & _EXPIRIES:
                if at + 1 == words.count or self.flags & keep or (self.expiry and self.expiry != word):
                    raise syntax_error()
                self.expiry = word
                self.expiry_at = at
                at += 1
            elif word & _COMPARISONS:
                # Redis accepts the same comparison again.
                if (at + 1 == words.count or self.flags & _EXISTENCE
                        or (self.condition and (self.valkey or self.condition != word))):  # fmt: skip
                    raise syntax_error()
                self.condition = word
                at += 1
                self.operand_at = at
            elif (
                word == 0 or (word == keep and self.expiry) or (word & _EXISTENCE and self.condition and self.valkey)
            ):
                raise syntax_error()
            else:
                self.flags |= word
            at += 1
        if self.flags & _EXISTENCE == _EXISTENCE:
            raise syntax_error()
        return True

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def expires_at(self, session: Session, words: ArgumentSpans) -> cython.longlong:
        """Return the expiry in ms since the epoch, -1 if none is given (getExpireMillisecondsOrReply)."""
        if self.expiry == 0:
            return -1
        unit: cython.longlong = 1000 if self.expiry & (_EX | _EXAT) else 1
        return expiry_ms(session, integer_at(words, self.expiry_at + 1), unit, self.expiry & (_EX | _PX) != 0)


@cython.ccall
@cython.exceptval(-1, check=True)
def expiry_ms(
    session: Session, value: cython.longlong, unit: cython.longlong, relative: cython.bint
) -> cython.longlong:
    """Return an expiry of `value` units of `unit` ms in ms since the epoch; raise CommandError if it is invalid."""
    now: cython.longlong = session.db.clock.now_ms() if relative else 0
    if value <= 0 or value > (_LARGEST - now) // unit:
        raise CommandError(f"invalid expire time in '{session.command.fullname}' command")
    return value * unit + now


@cython.ccall
def without_get(words: ArgumentSpans, at: cython.Py_ssize_t) -> list[bytes]:
    """Return the words of a valid call without the option GET. The options begin at words[at]."""
    argv: list[bytes] = words.to_list()
    kept: list[bytes] = argv[:at]
    word: cython.int
    while at < words.count:
        word = _word(words, at)
        if word != _GET:
            kept.append(argv[at])
        if word & (_EXPIRIES | _COMPARISONS):
            at += 1
            kept.append(argv[at])
        at += 1
    return kept
