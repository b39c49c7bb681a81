"""Executes the commands of one log file while its bytes are read.

    chunk ── CommandParser ──► single commands ──► Engine.run_next   those of the same name in one call
                           └─► MULTI ... EXEC  ──► Engine.execute    kept until EXEC

A command that the engine refuses ends the replay with an error, or is omitted and counted (`refused`) if the setting
`aof-load-refused` permits that, as in Redis and Valkey. The server's log then names the first ten.

`here` is the offset of the next command. `good` is the end of the last complete command outside a transaction: at the
end of the file, the bytes after it are a torn write.

This module is compiled, because a log may contain millions of commands and every start reads it.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, readonly
from rillet.errors import LogCorrupt, NewerFormat, ProtocolError
from rillet.persistence.debug_delay import debug_delay
from rillet.protocol.command_parser import CommandParser, unlimited_parser
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans

# The first letters of MULTI, EXEC and #TS, which this module handles itself.
_MARKED = cython.declare(bytes, b"mMeE#")
_APART = cython.declare(tuple, (b"multi", b"exec"))
_NAMED = cython.declare(cython.int, 10)  # how many omitted commands the server's log names

_REMEDY = "aof_load_refused=True (rillet serve --aof-load-refused yes) logs and omits such commands"


@cython.final
@cython.cclass
class CommandApplier:
    """Executes the commands of one log file in a trusted session; errors name the file's `path`."""

    __slots__ = ("path", "session", "engine", "parser", "here", "good", "fed", "commands", "refused", "delay",
                 "transaction", "words")  # fmt: skip
    path: readonly[str]
    session: readonly[Session]
    engine: Engine
    parser: CommandParser
    here: readonly[cython.longlong]
    good: readonly[cython.longlong]
    fed: readonly[cython.longlong]
    commands: readonly[cython.longlong]
    refused: readonly[cython.longlong]
    delay: cython.longlong
    transaction: readonly[Any]  # list[list[bytes]] | None
    words: ArgumentSpans

    def __init__(self, path: str, session: Session, start: cython.longlong) -> None:
        self.path = path
        self.session = session
        self.engine = session.engine  # type: ignore[assignment]
        # Client limits do not apply: the engine accepted each logged command before, and a base has whole values.
        self.parser = unlimited_parser()
        self.here = self.good = self.fed = start
        self.commands = self.refused = 0
        self.delay = session.engine.settings.key_load_delay
        self.transaction = None
        self.words = ArgumentSpans()

    @cython.ccall
    def feed(self, chunk: bytes) -> cython.bint:
        """Execute the commands that this chunk of the file completes; LogCorrupt if a command fails."""
        start: cython.longlong = self.fed
        at: cython.Py_ssize_t
        ran: cython.longlong = 0
        argv: list[bytes] | None
        self.fed += len(chunk)
        self.parser.feed(chunk)
        while self.here < self.fed:
            if self.parser.pass_notes() and not self._advance():
                return True
            ran = 0
            if self.transaction is None:
                ran = self._run_next()
            if ran == 0:
                # The parser accepts inline commands, but a log contains none.
                at = self.here - start
                if at >= 0 and chunk[at] != 42 and chunk[at] != 35:
                    raise self._malformed(f"a command expected, found {chunk[at : at + 1]!r}")
                argv = self._next()
                if argv is None:
                    return True
                if argv:
                    self._take(argv)
            self._advance()
        return True

    @cython.cfunc
    def _advance(self) -> cython.bint:
        """Update `here` and `good` after a command; return whether the parser has unparsed bytes."""
        parser: CommandParser = self.parser
        self.here = self.fed - (parser.size - parser.pos) - len(parser.tail)
        if self.transaction is None:
            self.good = self.here
        return self.here < self.fed

    @cython.cfunc
    def _next(self) -> list[bytes] | None:
        try:
            return self.parser.next()
        except ProtocolError as error:
            raise self._malformed(str(error)) from None

    def _malformed(self, what: str) -> LogCorrupt:
        # Redis's error text (aof.c: loadSingleAppendOnlyFile, label fmterr)
        return LogCorrupt(self.path, self.here, f"Bad file format reading the append only file: {what}")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _run_next(self) -> cython.longlong:
        """Run the next commands of the same name; return their number, 0 if they must become a list."""
        session: Session = self.session
        ran: cython.longlong = self.engine.run_next(session, self.parser, self.words, _APART)
        if ran == 0:
            return 0
        if self.delay != 0:
            debug_delay(self.delay)
        failed: cython.Py_ssize_t = self.engine.failed_at
        self.commands += ran
        if failed >= 0:
            self.commands -= 1
            self.good = self.here = self.fed - (self.parser.size - self.parser.began) - len(self.parser.tail)
            reason = bytes(session.out.buf[failed : session.out.used]).strip(b"-\r\n").decode("utf-8", "replace")
            session.out.truncate(0)
            self.words.restore()
            self._refused(self.words.to_list(), reason)
        session.out.truncate(0)
        return ran

    @cython.cfunc
    def _take(self, argv: list[bytes]) -> cython.bint:
        """Execute a command, or queue it until EXEC."""
        first: bytes = argv[0]
        if self.transaction is None and (len(first) == 0 or first[0] not in _MARKED):
            return self._run(argv)
        name: bytes = first.upper()
        if name.startswith(b"#"):  # an annotation such as #TS:<seconds>
            return True
        if name == b"MULTI":
            self.transaction = []
        elif name == b"EXEC" and self.transaction is not None:
            whole: list[Any] = self.transaction
            self.transaction = None
            for one in whole:
                self._run(one)
        elif self.transaction is not None:
            self.transaction.append(argv)
        else:
            self._run(argv)
        return True

    @cython.cfunc
    def _run(self, argv: list[bytes]) -> cython.bint:
        session: Session = self.session
        self.engine.execute(session, argv)
        if self.delay != 0:
            debug_delay(self.delay)
        if session.out.used > 0 and session.out.buf[0] == 45:
            self._refused(argv, session.out.take_bytes().strip(b"-\r\n").decode("utf-8", "replace"))
            return True
        session.out.truncate(0)
        self.commands += 1
        return True

    def _refused(self, argv: list[bytes], reason: str) -> None:
        """Omit a command if `aof-load-refused` permits that; else raise NewerFormat or LogCorrupt."""
        command = b" ".join(argv[:3])[:100].decode("utf-8", "replace")
        if self.engine.settings.aof_load_refused:
            self.refused += 1
            if self.refused <= _NAMED:
                text = f"== CRITICAL == {self.path}: offset {self.here}: {command!r} was refused and omitted: {reason}"
                self.engine.services.log_line(text)
            return
        if reason.startswith("ERR unknown command"):
            name = argv[0][:100].decode("utf-8", "replace")
            raise NewerFormat(
                f"{self.path}: offset {self.here}: Unknown command '{name}' reading the append only file: this version "
                f"has no such command; {_REMEDY}"
            )
        raise LogCorrupt(self.path, self.here, f"{command!r} was refused: {reason}; {_REMEDY}")
