"""Text for terminals and the ends of commands, shared by the subcommands.

Names and values come from other programs, so each control character is written as an escape sequence: data cannot move
the cursor or change colours.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence

from rillet.cli.ends import interrupted
from rillet.errors import LogCorrupt, NewerFormat, RilletError
from rillet.types.stream.id import StreamID

FAILED = 2
STYLES = {"bold": "1", "red": "31", "green": "32"}


def guarded(work: Callable[[], int | None], *, damaged: int = FAILED, place: object = "the output") -> int:
    """Run a command; print an error as one line; return the exit status.

    damaged: the status for damaged files. place: what an OSError without a file name concerns. An interrupt and a
    closed pipe are raised: `rillet.cli.main` ends the command.
    """
    try:
        return work() or 0
    except BrokenPipeError:
        raise
    except (RilletError, OSError) as error:
        if interrupted(error):  # a clean-up after ^C failed
            raise
        if isinstance(error, OSError) and not isinstance(error, RilletError):
            text = f"{error.filename or place}: {error.strerror or error}"
        else:
            text = str(error).removeprefix("rillet: ")
        print(f"rillet: {safe(text)}", file=sys.stderr)
        return damaged if isinstance(error, (LogCorrupt, NewerFormat)) else FAILED


def coloured(text: str, style: str) -> str:
    """Return text in a style of STYLES if the output is a terminal that wants colours (https://no-color.org)."""
    if not text or sys.stdout is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return text if os.environ.get("TERM") == "dumb" else f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def json_argument(parser: argparse._ActionsContainer, what: str = "the result as one line of JSON") -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help=f"print {what}")


def until_interrupted(work: Callable[[], None]) -> None:
    """Run a command that has no other end than ^C, which is its success."""
    with contextlib.suppress(KeyboardInterrupt):
        work()


def safe(text: str) -> str:
    """Return text with each character that is not printable, and each backslash, as an escape sequence."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(one if one.isprintable() and one != "\\" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8 (rillet.store.arguments.encoding)
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode()


def number(value: float | None) -> str:
    """Return a number with separators; "?" for None."""
    if value is None:
        return "?"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def moment(id: StreamID | None) -> str:
    """Return the time of an ID; "" if its milliseconds are not a time since 2000, as in 1-1."""
    if id is None or not 946_684_800_000 <= id.ms < 253_402_300_800_000:
        return ""
    return id.datetime.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def identity(id: StreamID | None) -> str:
    """Return an ID with its time; "-" for None."""
    if id is None:
        return "-"
    return f"{id} ({moment(id)})" if moment(id) else str(id)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[int] = frozenset((0,)),
          indent: str = "") -> list[str]:  # fmt: skip
    """Return the lines of a table; columns outside of `left` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    first, *others = [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    return [indent + coloured(first, "bold"), *(indent + line for line in others)]
