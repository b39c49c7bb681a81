"""The options of SET, GETEX and MSETEX (Redis: t_string.c, parseExtendedStringArgumentsOrReply).

    SET k v IFEQ old GET EX 10      condition IFEQ with an operand, flag GET, expiry EX 10

Each word is a bit. A command names the words that it takes, and the word that excludes an expiry (KEEPTTL or PERSIST).
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import syntax_error
from rillet.types.compat import Compat

NX, XX, GET, KEEPTTL, PERSIST = 1, 2, 4, 8, 16
EX, PX, EXAT, PXAT = 32, 64, 128, 256
IFEQ, IFNE, IFDEQ, IFDNE = 512, 1024, 2048, 4096
_EXISTENCE = cython.declare(cython.int, NX | XX)
_GET = cython.declare(cython.int, GET)
_EXPIRIES = cython.declare(cython.int, EX | PX | EXAT | PXAT)
_COMPARISONS = cython.declare(cython.int, IFEQ | IFNE | IFDEQ | IFDNE)
_IFEQ = cython.declare(cython.int, IFEQ)
_NAMES = (b"NX", b"XX", b"GET", b"KEEPTTL", b"PERSIST", b"EX", b"PX", b"EXAT", b"PXAT", b"IFEQ", b"IFNE", b"IFDEQ",
          b"IFDNE")  # fmt: skip
_WORDS = {name: 1 << at for at, name in enumerate(_NAMES)}


@cython.cfunc
@cython.exceptval(-1, check=False)
def _word(raw: bytes) -> cython.int:
    """Return the bit of a word in any case, 0 if it is unknown."""
    found: object = _WORDS.get(raw)
    if found is None:
        found = _WORDS.get(raw.upper(), 0)
    return found  # type: ignore[return-value]


@cython.cfunc
@cython.exceptval(-1, check=False)
def _comparisons_of(compat: Compat | None) -> cython.int:
    """Return the comparisons that SET has on a server."""
    if compat is None:
        return 0
    if compat.valkey:
        return _IFEQ
    return _COMPARISONS if compat.level >= 84 else 0


@cython.final
@cython.cclass
class SetOptions:
    """The options of one call.

    flags: the words without an argument.
    expiry: the argument of EX, PX, EXAT or PXAT, or None; `expiry_option` is that word, `expiry_at` its position.
    condition: the word of a comparison, b"" if there is none; `operand` is its argument.
    """

    __slots__ = ("condition", "expiry", "expiry_at", "expiry_option", "flags", "operand")
    flags: cython.int
    expiry: bytes | None
    expiry_option: bytes
    expiry_at: cython.Py_ssize_t
    condition: bytes
    operand: bytes

    def __init__(
        self,
        argv: list[bytes],
        start: cython.Py_ssize_t,
        allowed: cython.int,
        keep: cython.int,
        compat: Compat | None = None,
    ) -> None:
        """Parse the options from argv[start] on: words from `allowed`, and an expiry unless the word `keep` is given.

        compat: accept the comparisons of this server. Raise CommandError for a syntax error.
        """
        at: cython.Py_ssize_t = start
        word: cython.int
        expiry: cython.int = 0
        condition: cython.int = 0
        comparisons: cython.int = _comparisons_of(compat)
        valkey: cython.bint = compat is not None and compat.valkey
        self.flags = 0
        self.expiry = None
        self.expiry_option = b""
        self.expiry_at = 0
        self.condition = b""
        self.operand = b""
        while at < len(argv):
            word = _word(argv[at])
            if word & _EXPIRIES:
                if at + 1 == len(argv) or self.flags & keep or (expiry and expiry != word):
                    raise syntax_error()
                expiry = word
                self.expiry_at = at
                at += 1
                self.expiry = argv[at]
            elif word & comparisons:
                # Redis accepts the same comparison again.
                if at + 1 == len(argv) or self.flags & _EXISTENCE or (condition and (valkey or condition != word)):
                    raise syntax_error()
                condition = word
                at += 1
                self.operand = argv[at]
            elif (
                not word & allowed or (word == keep and expiry) or (word & _EXISTENCE and condition and valkey)
            ):
                raise syntax_error()
            else:
                self.flags |= word
            at += 1
        if self.flags & _EXISTENCE == _EXISTENCE:
            raise syntax_error()
        if expiry:
            self.expiry_option = argv[self.expiry_at].upper()
        if condition:
            self.condition = _name(condition)


@cython.cfunc
def _name(word: cython.int) -> bytes:
    """Return the text of a bit."""
    return _NAMES[int(word).bit_length() - 1]


@cython.ccall
def without_get(argv: list[bytes], start: cython.Py_ssize_t) -> list[bytes]:
    """Return the words of a valid call without the option GET. The options begin at argv[start]."""
    kept: list[bytes] = argv[:start]
    at: cython.Py_ssize_t = start
    word: cython.int
    while at < len(argv):
        word = _word(argv[at])
        if word != _GET:
            kept.append(argv[at])
        if word & (_EXPIRIES | _COMPARISONS):
            at += 1
            kept.append(argv[at])
        at += 1
    return kept


__all__ = [
    "EX", "EXAT", "GET", "IFDEQ", "IFDNE", "IFEQ", "IFNE", "KEEPTTL", "NX", "PERSIST", "PX", "PXAT", "XX", "SetOptions",
    "without_get",
]  # fmt: skip
