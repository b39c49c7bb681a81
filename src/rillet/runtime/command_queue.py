"""The commands between MULTI and EXEC: their declarations, and their arguments as RESP in one buffer (multiState).

    MULTI, SET a 1, INCR a     entries   [SET, INCR]
                               feed      *3 $3 SET $1 a $1 1 *2 $4 INCR $1 a

EXEC runs the buffer as it runs a pipeline. A queued command so costs a copy of its bytes. The engine keeps an empty
queue, with its parser, for the next transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

from rillet._cython import cython, readonly
from rillet.protocol.command_parser import CommandParser, unlimited_parser
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.registry import Command
from rillet.structs.argument_spans import ArgumentSpans

_KEPT = cython.declare(cython.Py_ssize_t, 1 << 16)  # the most bytes of a buffer that an empty queue keeps


def _parser() -> CommandParser:
    parser = unlimited_parser()
    parser.exact = False  # no annotations follow a command
    return parser


@cython.final
@cython.cclass
class CommandQueue:
    """Queued commands, in their order."""

    __slots__ = ("entries", "feed", "_parser")
    entries: readonly[list[Command]]
    feed: PropagationBuffer
    _parser: CommandParser

    def __init__(self) -> None:
        self.entries = []
        self.feed = PropagationBuffer()
        self._parser = _parser()

    @cython.ccall
    def add(self, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Append a command: all of it or, with MemoryError, nothing (multi.c: queueMultiCommand)."""
        self.feed.reserve_spans(words)
        self.entries.append(entry)
        return self.feed.spans(words)

    @cython.ccall
    def add_calls(self, entry: Command, calls: cython.Py_ssize_t, packed: bytes) -> cython.bint:
        """Append calls of a command, in Redis's own form: all of them or, with MemoryError, nothing."""
        self.feed.out.reserve(len(packed))
        self.entries += [entry] * calls
        return self.feed.raw(packed)

    @cython.ccall
    def parser(self) -> CommandParser:
        """Return a parser of the commands, which begins anew with each call. O(bytes)"""
        parser: CommandParser = self._parser
        if parser.pos < parser.size:  # it was interrupted
            parser = self._parser = _parser()
        parser.feed(self.feed.copy())
        parser.commands = self.entries
        parser.ordinal = 0
        return parser

    @cython.ccall
    def clear(self) -> cython.bint:
        """Forget all commands; return whether the queue is small enough to be kept."""
        self.entries = []
        parser: CommandParser = self._parser
        if parser.pos < parser.size or len(self.feed.out.buf) > _KEPT:
            return False
        parser.feed(b"")
        return self.feed.out.truncate(0)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[tuple[Command, list[bytes]]]:
        """Yield the declaration and the arguments of each command. O(bytes)"""
        parser = _parser()
        parser.feed(self.feed.copy())
        for entry in list(self.entries):
            argv = parser.next()
            assert argv
            yield entry, argv
