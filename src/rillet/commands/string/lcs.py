"""LCS: the longest common subsequence of two strings (Redis: t_string.c, lcsCommand).

The command fills the usual table of lengths forward, and walks it backward from its last cell:

    table[i][j] = the length of the longest common subsequence of a[:i] and b[:j]

If both directions are equally long, the walk steps back in the second string, as in Redis: the choice among several
longest subsequences is visible in the reply. Costs: O(N * M) in time and memory, four bytes per cell, which
proto-max-bulk-len limits.
"""

from __future__ import annotations

from array import array

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.replies import write_tree
from rillet.commands.string import command
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.string import String

Match = tuple[int, int, int]
"""A run of equal bytes: its position in the first string, in the second string, and its length."""


def _table(a: bytes, b: bytes) -> list[array[int]]:
    table = [array("I", bytes(4 * (len(b) + 1)))]
    for byte in a:
        above = table[-1]
        row = array("I", above)
        left = 0
        for at, other in enumerate(b, 1):
            if byte == other:
                left = above[at - 1] + 1
            elif above[at] > left:
                left = above[at]
            row[at] = left
        table.append(row)
    return table


def longest_common(a: bytes, b: bytes) -> tuple[bytes, list[Match]]:
    """Return the longest common subsequence, and its matching runs from last to first. O(N * M)"""
    table = _table(a, b)
    i, j = len(a), len(b)
    found = bytearray()
    runs: list[Match] = []
    length = 0
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j, length = i - 1, j - 1, length + 1
            found.append(a[i])
            continue
        if length:
            runs.append((i, j, length))
            length = 0
        if table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    if length:
        runs.append((i, j, length))
    found.reverse()
    return bytes(found), runs


def _bytes_of(session: Session, key: bytes) -> bytes:
    value = session.db.view_read(key)
    if value is not None and not isinstance(value, String):
        raise CommandError("The specified keys must contain string values")
    return b"" if value is None else value.value()


@command("lcs", arity=-3, flags="readonly", keys=(1, 2, 1), since="7.0.0",
         syntax="key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]",
         complexity="O(N*M) for strings of N and M bytes")
def lcs(session: Session, argv: list[bytes]) -> None:
    """Find the longest common subsequence of two strings."""
    a, b = _bytes_of(session, argv[1]), _bytes_of(session, argv[2])
    words: set[bytes] = set()
    shortest, at = 0, 3
    while at < len(argv):
        word = argv[at].lower()
        if word == b"minmatchlen" and at + 1 < len(argv):
            shortest = max(integer(argv[at + 1]), 0)
            at += 1
        elif word not in (b"idx", b"len", b"withmatchlen"):
            raise syntax_error()
        words.add(word)
        at += 1
    if {b"len", b"idx"} <= words:
        raise CommandError("If you want both the length and indexes, please just use IDX.")
    if 4 * (len(a) + 1) * (len(b) + 1) > session.engine.settings.proto_max_bulk_len:
        raise CommandError("Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
    found, runs = longest_common(a, b)
    if b"idx" in words:
        write_tree(session.out, {b"matches": [
            [[in_a, in_a + size - 1], [in_b, in_b + size - 1], *([size] if b"withmatchlen" in words else ())]
            for in_a, in_b, size in runs if size >= shortest
        ], b"len": len(found)})  # fmt: skip
    elif b"len" in words:
        session.out.integer(len(found))
    else:
        session.out.bulk(found)
