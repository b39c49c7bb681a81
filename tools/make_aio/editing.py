"""Edits of source lines: continuation lines stay aligned with their brackets, long signatures are wrapped again."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass

from tools.make_aio.config import SKIP, WIDTH
from tools.make_aio.program import Source


@dataclass(frozen=True, order=True)
class Edit:
    """The replacement of a part of one line (columns in characters)."""

    row: int
    start: int
    end: int
    text: str


class Editor:
    """Edits a range of lines of a source, and aligns continuation lines with their brackets again."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.edits: set[Edit] = set()

    def insert(self, row: int, column: int, text: str) -> None:
        self.edits.add(Edit(row, column, column, text))

    def replace(self, node: ast.expr, text: str) -> None:
        """Replace an expression on one line."""
        assert node.lineno == node.end_lineno, ast.unparse(node)
        assert node.end_col_offset is not None
        self.edits.add(Edit(node.lineno, node.col_offset, node.end_col_offset, text))

    def lines(self, first: int, last: int) -> list[str]:
        """Return the lines of a range (from 1, both included), edited."""
        by_row: dict[int, list[Edit]] = {}
        for edit in sorted(self.edits):
            by_row.setdefault(edit.row, []).append(edit)
        aligned = _alignments(self.source.lines, first, last)
        shifts: dict[int, int] = {}
        result = []

        def moved(row: int, column: int) -> int:
            before = [edit for edit in by_row.get(row, ()) if edit.start <= column]
            return column + shifts.get(row, 0) + sum(len(edit.text) - (edit.end - edit.start) for edit in before)

        for row in range(first, last + 1):
            line = self.source.lines[row - 1]
            for edit in sorted(by_row.get(row, ()), reverse=True):
                line = line[: edit.start] + edit.text + line[edit.end :]
            if row in aligned:
                opening_row, opening_column = aligned[row]
                shifts[row] = moved(opening_row, opening_column) - opening_column
                line = " " * shifts[row] + line if shifts[row] >= 0 else line[-shifts[row] :]
            result.append(line)
        return result


def _alignments(lines: list[str], first: int, last: int) -> dict[int, tuple[int, int]]:
    """Return the bracket (row, column) with which each continuation line is aligned, by its row."""
    text = "\n".join(lines[first - 1 : last]) + "\n"
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    text = "".join(line.removeprefix(" " * indent) for line in text.splitlines(keepends=True))
    brackets: list[tuple[int, int]] = []
    aligned: dict[int, tuple[int, int]] = {}
    row = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT):
            continue
        if token.start[0] != row:
            row = token.start[0]
            if brackets and brackets[-1][0] < row and token.start[1] == brackets[-1][1] + 1:
                opening = brackets[-1]
                aligned[row + first - 1] = (opening[0] + first - 1, opening[1] + indent)
        if token.type == tokenize.OP and token.string in "([{":
            brackets.append(token.start)
        elif token.type == tokenize.OP and token.string in ")]}":
            brackets.pop()
    return aligned


def tidy(lines: list[str]) -> list[str]:
    """Remove headings of sections that became empty, and double blank lines."""
    result: list[str] = []
    for line in lines:
        if line.strip().startswith("# --") or not line.strip():
            if line.strip():
                while result and (not result[-1].strip() or result[-1].strip().startswith("# --")):
                    result.pop()
                result.append("")
            elif result and not result[-1].strip():
                continue
        result.append(line)
    while result and (not result[-1].strip() or result[-1].strip().startswith("# --")):
        result.pop()
    return result


def wrapped(header: list[str]) -> list[str]:
    """Return a signature with as many arguments on each line as fit."""
    text = " ".join(line.strip() for line in header)
    text, _, comment = text.partition("  # ")
    indent = " " * (len(header[0]) - len(header[0].lstrip()))
    opening = text.index("(") + 1
    closing = _closing(text, opening - 1)
    arguments = _split(text[opening:closing])
    return filled(indent, text[:opening], arguments, text[closing:], "" if comment.startswith("fmt") else comment)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth:
            return place
    raise ValueError(text)


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append(text[start:place].strip())
            start = place + 1
    return [part for part in (*parts, text[start:].strip()) if part]


def filled(indent: str, opening: str, arguments: list[str], closing: str = "", comment: str = "") -> list[str]:
    """Return a call or signature: the arguments follow each other, aligned with the bracket."""
    if not closing:  # a call: the first part of `arguments` follows a function that is the first argument
        arguments = [opening.rpartition("(")[2], *arguments] if "in_thread(" in opening else arguments
        head, _, rest = opening.partition("in_thread(")
        opening, arguments, closing = head + "in_thread(", [rest, *arguments[1:]], ")"
    aligned = " " * (len(indent) + len(opening))
    lines = [indent + opening]
    for number, argument in enumerate(arguments):
        last = number == len(arguments) - 1
        piece = argument + (closing if last else ",")
        separator = "" if lines[-1].endswith("(") or lines[-1] == aligned else " "
        room = WIDTH - (len(SKIP) if last and len(lines) > 1 else 0)
        if len(lines[-1]) + len(separator) + len(piece) > room and number:
            lines.append(aligned)
            separator = ""
        lines[-1] += separator + piece
    if len(lines) > 1 and len(lines[-1]) + len(SKIP) <= WIDTH:
        lines[-1] += SKIP
    if comment:
        lines[0] += f"  # {comment}"
    return lines
