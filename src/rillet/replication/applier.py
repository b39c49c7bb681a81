"""Applies the stream of changes of a master while its bytes arrive.

    chunk ── CommandParser ──► single commands ──► Engine.run_next      those of the same name in one call
                           ├─► MULTI ... EXEC            ──► kept until EXEC, then one change
                           ├─► REPLCONF GETACK           ──► `ack_wanted`
                           └─► the others                ──► Engine.execute

`offset` is the position in the stream up to which everything is applied. It lies between two commands, and never inside
a transaction: a link that breaks there continues with MULTI. The bytes up to the offset are forwarded unchanged to the
replicas of this replica (`ReplicationState.stream`), so that all servers of a chain count the same bytes.

The session is trusted, and its changes go to the log but not to the stream (session_state.MASTER). While it runs, keys
do not expire: the stream contains the deletions (`Engine.applying`).

A command that the engine refuses is a difference between master and replica. As in Redis, the stream continues, and the
callback `on_refused` receives the reason for a line in the log. Commands that are newer than `compat` are applied.

This module is compiled: a replica must apply at least as fast as its master executes.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly
from rillet.errors import ProtocolError
from rillet.protocol.command_parser import CommandParser, unlimited_parser
from rillet.protocol.reply_writer import ReplyWriter
from rillet.replication.errors import LinkError
from rillet.runtime.engine import Engine
from rillet.runtime.propagation import Propagation
from rillet.runtime.registry import Command
from rillet.runtime.replication import ReplicationState
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans

# The first letters of MULTI, EXEC and REPLCONF, which this module handles itself.
_MARKED = cython.declare(bytes, b"mMeErR")
_APART = cython.declare(tuple, (b"multi", b"exec", b"replconf"))
_STAR = cython.declare(cython.int, 42)
_MINUS = cython.declare(cython.int, 45)


@cython.final
@cython.cclass
class Applier:
    """Applies a stream that begins at `offset` in a session of the master; on_refused(text) reports a difference."""

    __slots__ = ("session", "engine", "parser", "offset", "here", "fed", "commands", "refused", "ack_wanted",
                 "transaction", "on_refused", "words", "_chunks", "_kept")  # fmt: skip
    session: readonly[Session]
    engine: Engine
    parser: CommandParser
    offset: readonly[cython.longlong]
    here: readonly[cython.longlong]
    fed: readonly[cython.longlong]
    commands: readonly[cython.longlong]
    refused: readonly[cython.longlong]
    ack_wanted: public[cython.bint]
    transaction: readonly[Any]  # list[list[bytes]] | None
    on_refused: Any
    words: ArgumentSpans
    _chunks: list[bytes]
    _kept: cython.longlong

    def __init__(self, session: Session, offset: cython.longlong, on_refused: Any) -> None:
        self.session = session
        self.engine = session.engine  # type: ignore[assignment]
        # Client limits do not apply: the master accepted each command before.
        self.parser = unlimited_parser()
        # `fed`: the position of the last received byte; `here`: that of the next command.
        self.offset = self.here = self.fed = offset
        self.commands = 0
        self.refused = 0
        self.ack_wanted = False
        self.transaction = None
        self.on_refused = on_refused
        self.words = ArgumentSpans()
        # The received bytes that are not forwarded yet, and their number.
        self._chunks = []
        self._kept = 0

    @cython.ccall
    def feed(self, chunk: bytes) -> cython.bint:
        """Apply the commands that this chunk completes; LinkError if the bytes are not commands. O(bytes)"""
        engine: Engine = self.engine
        before: cython.longlong = self.offset
        self.parser.feed(chunk)
        self.fed += len(chunk)
        self._chunks.append(chunk)
        self._kept += len(chunk)
        engine.applying = True
        try:
            self._apply(self.fed - len(chunk), chunk)
        finally:
            engine.applying = False
            if self.offset != before:
                self._forward(self.offset - before)
        return True

    @cython.cfunc
    def _apply(self, start: cython.longlong, chunk: bytes) -> cython.bint:
        """Apply the complete commands; `start` is the position of the chunk."""
        here: cython.longlong = self.here
        at: cython.longlong
        ran: cython.longlong
        argv: list[bytes] | None
        while here < self.fed:
            ran = 0
            if self.transaction is None:
                ran = self.engine.run_next(self.session, self.parser, self.words, _APART)
                self.commands += ran
                if self.engine.failed_at >= 0:
                    self.words.restore()
                    self._drop_reply(self.words.to_list(), self.engine.failed_at)
                self.session.out.truncate(0)
            if ran == 0:
                at = here - start
                if at >= 0 and chunk[at] != _STAR:
                    raise LinkError(f"the stream of the master contains {chunk[at : at + 20]!r} instead of a command")
                try:
                    argv = self.parser.next()
                except ProtocolError as error:
                    raise LinkError(f"the stream of the master is malformed: {error}") from None
                if argv is None:
                    return True
                if argv:
                    self._take(argv)
            here = self.here = self._position()
            if self.transaction is None:
                self.offset = here
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _position(self) -> cython.longlong:
        """Return the position after the last parsed command."""
        parser: CommandParser = self.parser
        return self.fed - (parser.size - parser.pos) - len(parser.tail)

    @cython.cfunc
    def _forward(self, count: cython.longlong) -> cython.bint:
        """Publish the new offset, and forward the bytes up to it."""
        state: ReplicationState = self.engine.replication
        self._kept -= count
        if state.stream is not None:
            whole: bytes = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks = [] if self._kept == 0 else [whole[count:]]
            state.stream.feed_raw(whole if self._kept == 0 else whole[:count])
        elif self._kept == 0:
            self._chunks = []
        else:
            self._chunks = [b"".join(self._chunks)[count:]]
        state.offset = self.offset
        state.db = self.session.db.index
        return True

    @cython.cfunc
    def _take(self, argv: list[bytes]) -> cython.bint:
        """Apply a command, or keep it until EXEC."""
        first: bytes = argv[0]
        if len(first) == 0 or first[0] not in _MARKED:
            if self.transaction is None:
                return self._run(argv)
            self.transaction.append(argv)
            return True
        name: bytes = first.upper()
        if name == b"MULTI":
            self.transaction = []
        elif name == b"EXEC" and self.transaction is not None:
            whole: list[Any] = self.transaction
            self.transaction = None
            self._run_all(whole)
        elif name == b"REPLCONF":
            if len(argv) > 1 and argv[1].upper() == b"GETACK":
                self.ack_wanted = True
        elif self.transaction is not None:
            self.transaction.append(argv)
        else:
            self._run(argv)
        return True

    @cython.cfunc
    def _run(self, argv: list[bytes]) -> cython.bint:
        self.engine.execute(self.session, argv)
        if self.session.out.used > 0:
            self._drop_reply(argv, 0)
        self.commands += 1
        return True

    @cython.cfunc
    def _run_all(self, whole: list[Any]) -> cython.bint:
        """Run the commands of a transaction as one change: blocked clients are served, and it is logged, at its end."""
        engine: Engine = self.engine
        propagation: Propagation = engine.propagation
        entry: Command | None
        argv: list[bytes]
        propagation.depth += 1
        try:
            for argv in whole:
                entry = engine.lookup(argv)
                if entry is None or not entry.accepts(len(argv)) or entry.fullname == "exec":
                    self._retry(argv, "unknown command or wrong number of arguments")
                else:
                    engine.call(self.session, entry, argv)
                    if self.session.out.used > 0:
                        self._drop_reply(argv, 0)
                self.commands += 1
        finally:
            propagation.depth -= 1
            if propagation.pending and propagation.depth == 0:
                propagation.flush_pending()
        if engine.blocking.ready and not engine.busy:
            engine.blocking.serve_ready()
        return True

    @cython.cfunc
    def _drop_reply(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.bint:
        """Empty the output; an error reply, which begins at `at`, is a difference between master and replica."""
        out: ReplyWriter = self.session.out
        if out.buf[at] == _MINUS:
            reason = bytes(out.buf[at : out.used]).strip(b"-\r\n").decode("utf-8", "backslashreplace")
            out.truncate(0)
            self._retry(argv, reason)
        return out.truncate(0)

    def _retry(self, argv: list[bytes], reason: str) -> None:
        """Run a command that the engine refused because `compat` does not know it, or report the difference."""
        engine, session = self.engine, self.session
        if "unknown" in reason and not engine.loading:
            engine.loading = True  # commands of all versions exist
            try:
                entry = engine.lookup(argv)
                if entry is not None and entry.accepts(len(argv)):
                    engine.call(session, entry, argv)
                    reason = ""
                    if session.out.used > 0 and session.out.buf[0] == _MINUS:
                        reason = session.out.take_bytes().strip(b"-\r\n").decode("utf-8", "backslashreplace")
                    session.out.truncate(0)
            finally:
                engine.loading = False
        if reason:
            self.refused += 1
            # As Redis's log says it (networking.c: afterErrorReply).
            entry = engine.lookup(argv)
            name = "<unknown>" if entry is None else entry.fullname
            self.on_refused(f"This replica is sending an error to its master: '{reason}' after processing the command "
                            f"'{name}'")  # fmt: skip
