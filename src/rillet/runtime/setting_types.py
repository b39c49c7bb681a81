"""What a parameter of the settings is: its name, its values, and how they are read, shown and written.

There are kinds of parameters, as in Redis's table of them (config.c): yes or no, a number, an amount of memory, one or
some of several words, a string; and a few with rules of their own. Each kind knows the same five things:

    parse     text -> value; SettingError with Redis's words where it is none
    show      value -> text, as CONFIG GET shows it
    lines     value -> what stands behind the name in redis.conf, a line each, and whether the line is to be
              written though the file never had one (CONFIG REWRITE)
    default   what it is where nobody says anything
    adapt     where what the text means depends on the other settings: value of `parse`, settings -> value

A parameter that takes several words (`save 60 1 300 10`) is parsed from the list of them: CONFIG SET cuts its one
argument at blanks, a file and the command line have quoting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError
from rillet.types.string import string2ll

if TYPE_CHECKING:
    from rillet.runtime.settings import Settings

_UNITS = {"b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3, "": 1}
_ESCAPES = {0x5C: "\\\\", 0x22: '\\"', 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x07: "\\a", 0x08: "\\b"}
INT_MAX = 2**31 - 1
INT_MIN = -(2**31)
LONG_MAX = 2**63 - 1
_MOST_DIGITS = 127  # of an amount of memory: the buffer of memtoull

Lines = list[tuple[str, bool]]


class SettingError(CommandError):
    """A value that a parameter does not take; the text is the one CONFIG SET shows."""


@dataclass(frozen=True, slots=True)
class SettingType:
    """One setting: its Redis name, its default, and how text becomes a value and a value text.

    CONFIG SET leaves alone what is not mutable, and, unless enable-protected-configs allows it, what is protected (it
    may name files); needs_host: only a server or a store in a directory can apply a change; hidden: shown only
    where it is asked for by its name; multi: several words; adapt: what the text means given the other settings, and
    the value that there was; it stands after parse.
    """

    name: str
    default: Any
    parse: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    mutable: bool = True
    protected: bool = False
    needs_host: bool = False
    adapt: Callable[[Any, Settings], Any] | None = None
    alias: str = ""
    hidden: bool = False
    multi: bool = False
    written: Callable[[Any], Lines] | None = None

    @property
    def attribute(self) -> str:
        """The attribute of Settings that holds the value; an alias has the one of the parameter that it names."""
        return (self.alias or self.name).replace("-", "_")

    def lines(self, value: Any) -> Lines:
        """Return what CONFIG REWRITE writes behind the name, line by line; and whether a file without it gets one."""
        if self.written is not None:
            return self.written(value)
        return [(self.show(value), value != self.default)]


def quoted(text: str) -> str:
    """Return the text as split_args reads it back: in double quotes, with escapes (sds.c: sdscatrepr)."""
    raw = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(_ESCAPES.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in raw) + '"'


def parse_integer(text: str) -> int | None:
    """Return the canonical 64-bit integer that the text is, or None (util.c: string2ll)."""
    value = string2ll(text.encode("utf-8", "surrogateescape"))
    return None if value is None else int(value)


def parse_memory(text: str) -> int | None:
    """Return the bytes that a text such as "64mb" stands for, or None; no digits are 0 (util.c: memtoull)."""
    digits = text.rstrip("bBkKmMgG")
    unit = text[len(digits) :].lower()
    if unit not in _UNITS or len(digits) > _MOST_DIGITS or not (digits + "0").isascii() or not (digits + "0").isdigit():
        return None
    return int(digits or "0") * _UNITS[unit]


def show_memory(size: int) -> str:
    """Return a size in the largest unit that it is a multiple of (config.c: rewriteConfigFormatMemory)."""
    for unit, name in ((1024**3, "gb"), (1024**2, "mb"), (1024, "kb")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


# -- kinds ------------------------------------------------------------------------------------------


def boolean(name: str, default: bool, *, mutable: bool = True, needs_host: bool = False) -> SettingType:
    """Return a parameter that is yes or no."""

    def parse(text: str) -> bool:
        if text.lower() not in ("yes", "no"):
            raise SettingError("argument must be 'yes' or 'no'")
        return text.lower() == "yes"

    return SettingType(name, default, parse, lambda value: "yes" if value else "no", mutable, needs_host=needs_host)


def integer(name: str, default: int, low: int, high: int, *, mutable: bool = True, hidden: bool = False) -> SettingType:
    """Return a parameter that is a number."""

    def parse(text: str) -> int:
        value = parse_integer(text)
        if value is None:
            raise SettingError("argument couldn't be parsed into an integer")
        return _within(value, low, high)

    return SettingType(name, default, parse, str, mutable, hidden=hidden)


def octal(name: str, default: int, low: int, high: int, *, mutable: bool = True) -> SettingType:
    """Return a parameter that is a number in octal digits, such as the rights of a file."""

    def parse(text: str) -> int:
        digits = text.lstrip(" \t\n\v\f\r")
        digits = digits[1:] if digits[:1] in ("+", "-") else digits
        if not digits or set(digits) - set("01234567"):
            raise SettingError("argument couldn't be parsed as an octal number")
        value = int(digits, 8)
        if not low <= value <= high or "-" in text:
            raise SettingError(f"argument must be between {low:o} and {high:o} inclusive")
        return value

    return SettingType(name, default, parse, lambda value: f"{value:o}", mutable)


def memory(name: str, default: int, low: int, high: int, *, hidden: bool = False) -> SettingType:
    """Return a parameter that is a number of bytes; its text may have a unit."""

    def parse(text: str) -> int:
        value = parse_memory(text)
        if value is None:
            raise SettingError("argument must be a memory value")
        return _within(value, low, high)

    return SettingType(name, default, parse, str, hidden=hidden,
                     written=lambda value: [(show_memory(value), value != default)])  # fmt: skip


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise SettingError(f"argument must be between {low} and {high} inclusive")
    return value


def words(name: str, default: str, choices: tuple[str, ...], *, mutable: bool = True, needs_host: bool = False,
          same: dict[str, str] | None = None) -> SettingType:
    """Return a parameter that is one of several words; same: a word -> the one that is shown for it."""

    def parse(text: str) -> str:
        word = _one_of(text, choices)
        return word if same is None else same.get(word, word)

    return SettingType(name, default, parse, str, mutable, needs_host=needs_host)


def flags(name: str, choices: tuple[str, ...], exclusive: tuple[str, str], reason: str) -> SettingType:
    """Return a parameter that is some of several words, the first of which stands for none of the others."""

    def parse(texts: list[str]) -> tuple[str, ...]:
        given = {_one_of(text, choices) for text in texts or [""]} - {choices[0]}
        if given.issuperset(exclusive):
            raise SettingError(reason)
        return tuple(word for word in choices if word in given)

    return SettingType(name, (), parse, lambda value: " ".join(value) or choices[0], multi=True)


def _one_of(text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise SettingError("argument(s) must be one of the following: " + ", ".join(choices))
    return text.lower()


def string(name: str, default: str, *, mutable: bool = True, protected: bool = False, null: bool = False,
           valid: Callable[[str], str | None] | None = None) -> SettingType:
    """Return a parameter that is any text; null: no text is the same as none; valid: text -> what is wrong with it."""

    def parse(text: str) -> str:
        wrong = valid(text) if valid is not None else None
        if wrong is not None:
            raise SettingError(wrong)
        return text

    def written(value: str) -> Lines:
        return [] if null and not value else [(quoted(value), value != default)]

    return SettingType(name, default, parse, str, mutable, protected, written=written)


def file_name(name: str, default: str, what: str = "filename", *, may_be_empty: bool = False, mutable: bool = True,
              protected: bool = False) -> SettingType:
    """Return a parameter that names a file, not a path to it (config.c: isValidDBfilename and its like)."""

    def valid(text: str) -> str | None:
        if not text and not may_be_empty:
            return f"{name} can't be empty"
        if "/" in text or "\\" in text:
            return f"{name} can't be a path, just a {what}"
        return None

    return string(name, default, mutable=mutable, protected=protected, valid=valid)


def fixed(value: str, reason: str, *names: str) -> list[SettingType]:
    """Return parameters of something that is not here: any value but the one they have is refused with the reason."""

    def parse(text: str) -> str:
        if text.lower() != value:
            raise SettingError(reason)
        return value

    return [SettingType(name, value, parse) for name in names]


# -- save -------------------------------------------------------------------------------------------

SavePoints = tuple[tuple[int, int], ...]


def save_points(texts: list[str]) -> SavePoints:
    """Return (seconds, changes) pairs; none for the one empty word (config.c: setConfigSaveOption)."""
    if texts == [""]:
        return ()
    if len(texts) % 2:
        raise SettingError("Invalid save parameters")
    numbers = [_strtoll(text) for text in texts]
    points = []
    for seconds, changes in zip(numbers[::2], numbers[1::2], strict=True):
        if seconds is None or changes is None or seconds < 1 or changes < 0:
            raise SettingError("Invalid save parameters")
        points.append((seconds, changes))
    return tuple(points)


def _strtoll(text: str) -> int | None:
    """Return the number that C's strtoll reads if it reads all of the text; it takes a sign and leading blanks."""
    digits = text.lstrip(" \t\n\v\f\r")
    sign, digits = (-1, digits[1:]) if digits[:1] == "-" else (1, digits.removeprefix("+"))
    if not digits:
        return None if text else 0
    return sign * min(int(digits), LONG_MAX) if digits.isascii() and digits.isdigit() else None


def show_save(points: SavePoints) -> str:
    """Return save points as CONFIG GET shows them."""
    return " ".join(f"{seconds} {changes}" for seconds, changes in points)


def write_save(points: SavePoints) -> Lines:
    """Return save points as lines of redis.conf; `save ""` keeps the default ones away."""
    return [(f"{seconds} {changes}", True) for seconds, changes in points] or [('""', True)]
