"""The types of settings: how a value is parsed, shown and written (Redis: config.c, the macros of createXConfig).

A setting is a boolean, a number, an amount of memory, one or several words of a list, or a string; a few have their own
rules. Each type defines:

    parse     text -> value; SettingError with Redis's message if the text is invalid
    show      value -> text, as CONFIG GET shows it
    lines     value -> the arguments in redis.conf, one item per line, each with a flag: whether CONFIG REWRITE adds the
              line to a file that does not contain the setting
    default   the value without any configuration
    adapt     for text whose meaning depends on other settings: value of `parse`, settings -> value

A setting that takes several words (`save 60 1 300 10`) is parsed from a list of them. CONFIG SET splits its one
argument at blanks; a file and the command line support quoting.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError
from rillet.types.string import string2ll

if TYPE_CHECKING:
    from rillet.runtime.settings.settings import Settings
    from rillet.types.compat import Compat

_UNITS = {"b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3, "": 1}
_ESCAPES = {0x5C: "\\\\", 0x22: '\\"', 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x07: "\\a", 0x08: "\\b"}
INT_MAX = 2**31 - 1
INT_MIN = -(2**31)
LONG_MAX = 2**63 - 1
NEVER = 10_000
"""The value of `since` of a setting that only Valkey has."""
_MOST_DIGITS = 127  # maximum digits of an amount of memory, as in memtoull

Lines = list[tuple[str, bool]]


class SettingError(CommandError):
    """An invalid value; the text is the message of CONFIG SET."""


@dataclass(frozen=True, slots=True)
class SettingType:
    """One setting: its Redis name, its default, and the conversions from text to value and back.

    about: the description for the reference pages, with the unit; mutable: CONFIG SET may change it; protected: CONFIG
    SET needs enable-protected-configs, because the value may name files; needs_host: only a server or a store in a
    directory can apply a change; hidden: CONFIG GET shows it only by its full name; multi: several words; adapt:
    applied after parse, given the other settings; volatile: CONFIG SET applies the value also if it is the current one,
    because it names a file; absent: the setting of a feature that rillet does not have, which keeps its default.

    since, until, valkey: the servers that have the setting: Redis from the level `since` (types.compat) to below
    `until`, and whether Valkey has it. valkey_default: Valkey's default, if it is another one.

    whole: a zero byte does not end the text. Redis reads most values as C strings, and numbers and passwords whole.
    """

    name: str
    about: str
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
    volatile: bool = False
    absent: bool = False
    since: int = 0
    until: int = 0
    valkey: bool = True
    valkey_default: Any = None
    whole: bool = False

    def known_to(self, compat: Compat) -> bool:
        """Return whether a server has the setting."""
        if compat.valkey:
            return self.valkey
        return self.since <= compat.level and (self.until == 0 or compat.level < self.until)

    def default_in(self, compat: Compat) -> Any:
        """Return the default of a server."""
        return self.valkey_default if compat.valkey and self.valkey_default is not None else self.default

    @property
    def attribute(self) -> str:
        """The attribute of Settings that holds the value; an alias has the attribute of its target."""
        return (self.alias or self.name).replace("-", "_")

    def lines(self, value: Any) -> Lines:
        """Return the arguments of each redis.conf line, with a flag: whether CONFIG REWRITE adds a missing line."""
        if self.written is not None:
            return self.written(value)
        return [(self.show(value), value != self.default)]


def quoted(text: str) -> str:
    """Return the text in double quotes, with escapes, as a line of redis.conf contains it (sds.c: sdscatrepr)."""
    raw = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(_ESCAPES.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in raw) + '"'


def parse_integer(text: str) -> int | None:
    """Parse a canonical 64-bit integer; return None if the text is not one (util.c: string2ll)."""
    value = string2ll(text.encode("utf-8", "surrogateescape"))
    return None if value is None else int(value)


def parse_memory(text: str) -> int | None:
    """Parse a size such as "64mb"; return bytes, None if invalid, 0 without digits (util.c: memtoull)."""
    digits = text.rstrip("bBkKmMgG")
    unit = text[len(digits) :].lower()
    if unit not in _UNITS or len(digits) > _MOST_DIGITS or not (digits + "0").isascii() or not (digits + "0").isdigit():
        return None
    return int(digits or "0") * _UNITS[unit]


def show_memory(size: int) -> str:
    """Format a size in the largest unit that divides it (config.c: rewriteConfigFormatMemory)."""
    for unit, name in ((1024**3, "gb"), (1024**2, "mb"), (1024, "kb")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


# -- types (options: further attributes of SettingType, such as mutable=False) --------------------------


def boolean(name: str, about: str, default: bool, **options: Any) -> SettingType:
    """Declare a setting that is yes or no."""

    def parse(text: str) -> bool:
        if text.lower() not in ("yes", "no"):
            raise SettingError("argument must be 'yes' or 'no'")
        return text.lower() == "yes"

    return SettingType(name, about, default, parse, lambda value: "yes" if value else "no", **options)


def integer(name: str, about: str, default: int, low: int, high: int, **options: Any) -> SettingType:
    """Declare a setting that is a number."""

    def parse(text: str) -> int:
        value = parse_integer(text)
        if value is None:
            raise SettingError("argument couldn't be parsed into an integer")
        return _within(value, low, high)

    return SettingType(name, about, default, parse, str, whole=True, **options)


def octal(name: str, about: str, default: int, low: int, high: int, **options: Any) -> SettingType:
    """Declare a setting that is an octal number, such as file permissions."""

    def parse(text: str) -> int:
        digits = text.lstrip(" \t\n\v\f\r")
        digits = digits[1:] if digits[:1] in ("+", "-") else digits
        if not digits or set(digits) - set("01234567"):
            raise SettingError("argument couldn't be parsed as an octal number")
        value = int(digits, 8)
        if not low <= value <= high or "-" in text:
            raise SettingError(f"argument must be between {low:o} and {high:o} inclusive")
        return value

    return SettingType(name, about, default, parse, lambda value: f"{value:o}", **options)


def memory(name: str, about: str, default: int, low: int, high: int, **options: Any) -> SettingType:
    """Declare a setting that is a number of bytes; its text may have a unit."""

    def parse(text: str) -> int:
        value = parse_memory(text)
        if value is None:
            raise SettingError("argument must be a memory value")
        return _within(value, low, high)

    return SettingType(name, about, default, parse, **options,
                       written=lambda value: [(show_memory(value), value != default)])  # fmt: skip


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise SettingError(f"argument must be between {low} and {high} inclusive")
    return value


def words(name: str, about: str, default: str, choices: tuple[str, ...], same: dict[str, str] | None = None,
          **options: Any) -> SettingType:  # fmt: skip
    """Declare a setting that is one of several words; same: synonym -> the word that is shown."""

    def parse(text: str) -> str:
        word = one_of(text, choices)
        return word if same is None else same.get(word, word)

    return SettingType(name, about, default, parse, str, **options)


def flags(name: str, about: str, choices: tuple[str, ...], exclusive: tuple[str, str], reason: str) -> SettingType:
    """Declare a setting that is a set of words; the first word of `choices` means the empty set."""

    def parse(texts: list[str]) -> tuple[str, ...]:
        given = {one_of(text, choices) for text in texts or [""]} - {choices[0]}
        if given.issuperset(exclusive):
            raise SettingError(reason)
        return tuple(word for word in choices if word in given)

    return SettingType(name, about, (), parse, lambda value: " ".join(value) or choices[0], multi=True)


def one_of(text: str, choices: tuple[str, ...]) -> str:
    """Return the word that equals the text, ignoring case; SettingError if there is none."""
    for choice in choices:
        if choice.lower() == text.lower():
            return choice
    raise SettingError("argument(s) must be one of the following: " + ", ".join(choices))


def string(name: str, about: str, default: str, *, null: bool = False,
           valid: Callable[[str], str | None] | None = None, **options: Any) -> SettingType:  # fmt: skip
    """Declare a setting that is any text; null: empty text means unset; valid: text -> error message or None."""

    def parse(text: str) -> str:
        wrong = valid(text) if valid is not None else None
        if wrong is not None:
            raise SettingError(wrong)
        return text

    def written(value: str) -> Lines:
        return [] if null and not value else [(quoted(value), value != default)]

    return SettingType(name, about, default, parse, str, written=written, **options)


def file_name(name: str, about: str, default: str, what: str = "filename", *, may_be_empty: bool = False,
              **options: Any) -> SettingType:  # fmt: skip
    """Declare a setting that is a file name without a path (config.c: isValidDBfilename)."""

    def valid(text: str) -> str | None:
        if not text and not may_be_empty:
            return f"{name} can't be empty"
        if "/" in text or "\\" in text:
            return f"{name} can't be a path, just a {what}"
        return None

    return string(name, about, default, valid=valid, **options)


def fixed(value: str, reason: str, *names: str, **options: Any) -> list[SettingType]:
    """Declare settings of an unsupported feature: every value except the default is rejected with the reason."""
    size = parse_memory(value) if value.isdigit() else None

    def parse(text: str) -> str:
        if text.lower() != value.lower() and (size is None or parse_memory(text) != size):
            raise SettingError(reason)
        return value

    def written(_value: str) -> Lines:
        return [(quoted(value) if " " in value else value, False)] if value else []

    declared = {"written": written, **options}
    return [SettingType(name, f"Fixed: {reason}", value, parse, absent=True, **declared) for name in names]


def numbers(name: str, about: str, default: tuple[float, ...], low: float, high: float, reasons: tuple[str, str],
            **options: Any) -> SettingType:  # fmt: skip
    """Declare a setting that is a list of numbers; reasons: the errors for no number, and for one out of range."""

    def parse(texts: list[str]) -> tuple[float, ...]:
        return tuple(one(text) for text in texts) if texts != [""] else ()

    def one(text: str) -> float:
        try:
            value = float(text if re.fullmatch(r"[-+]?[0-9.eE+-]+", text) else "")
        except ValueError:
            raise SettingError(reasons[0]) from None
        if not low <= value <= high:
            raise SettingError(reasons[1])
        return value

    def show(values: tuple[float, ...]) -> str:
        return " ".join(f"{value:f}".rstrip("0").rstrip(".") for value in values)

    # The line is always written, because without it the default would apply (config.c).
    return SettingType(name, about, default, parse, show, multi=True, whole=True, **options,
                       written=lambda values: [(show(values) or '""', True)])  # fmt: skip


# -- the setting `save` -----------------------------------------------------------------------------

SavePoints = tuple[tuple[int, int], ...]


def save_points(texts: list[str]) -> SavePoints:
    """Parse (seconds, changes) pairs; a single empty word means no save points (config.c: setConfigSaveOption)."""
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
    """Parse a number as C's strtoll does, with leading blanks and a sign; the whole text must match."""
    digits = text.lstrip(" \t\n\v\f\r")
    sign, digits = (-1, digits[1:]) if digits[:1] == "-" else (1, digits.removeprefix("+"))
    if not digits:
        return None if text else 0
    return sign * min(int(digits), LONG_MAX) if digits.isascii() and digits.isdigit() else None


def show_save(points: SavePoints) -> str:
    """Return the text of save points for CONFIG GET."""
    return " ".join(f"{seconds} {changes}" for seconds, changes in points)


def write_save(points: SavePoints) -> Lines:
    """Return save points as lines of redis.conf; `save ""` disables the default ones."""
    return [(f"{seconds} {changes}", True) for seconds, changes in points] or [('""', True)]
