"""Dispatch: the only way to run a command, for every frontend.

    bytes, a list -> ArgumentSpans -> command_of -> admit -> Implementation.run -> effects -> blocked clients are served
"""

from __future__ import annotations

from rillet._cython import cython, readonly
from rillet.errors import Busy, ProtocolError
from rillet.keyspace.clock import Clock
from rillet.protocol.command_parser import CommandParser, QueryBufferExceeded
from rillet.runtime import session_state
from rillet.runtime.acl.user import User
from rillet.runtime.admission import QUEUES, REFUSED, admit
from rillet.runtime.engine_stats import EngineStats
from rillet.runtime.pause import PausedClients
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings
from rillet.runtime.tracking import Tracking
from rillet.runtime.transactions import Transactions
from rillet.structs.argument_spans import ArgumentSpans

_SPECIAL = cython.declare(cython.int, session_state.SPECIAL)
_SILENT = cython.declare(cython.int, session_state.MUTED | session_state.REPLY_SKIP_NEXT)
_RESTRICTED = cython.declare(cython.int, session_state.RESTRICTED)
_PAUSED = cython.declare(cython.int, session_state.PAUSED)
_FOR_CLIENTS = cython.declare(cython.int, session_state.FOR_CLIENTS)
_REPLY_SKIP_NEXT = cython.declare(cython.int, session_state.REPLY_SKIP_NEXT)
_UNAUTHENTICATED = cython.declare(cython.int, session_state.UNAUTHENTICATED)
_CLOSING = cython.declare(cython.int, session_state.CLOSING)
_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)
_IN_MULTI = cython.declare(cython.int, session_state.IN_MULTI)
_REFUSED = cython.declare(cython.int, REFUSED)
_QUEUES = cython.declare(cython.int, QUEUES)
# Replies to a replayed log have no reader: the output is emptied after this many bytes.
_REPLAY_BATCH = cython.declare(cython.Py_ssize_t, 1 << 15)
_NO_STOP = cython.declare(cython.Py_ssize_t, 2**62)
_MINUS = cython.declare(cython.int, 45)


@cython.cclass
class Dispatch(Transactions):
    """Finding and running commands; a part of the engine."""

    __slots__ = ("paused_clients",)
    paused_clients: readonly[PausedClients]

    def __init__(self, settings: Settings, clock: Clock) -> None:
        Transactions.__init__(self, settings, clock)
        self.paused_clients = PausedClients(self)  # type: ignore[arg-type]

    # -- running commands ----------------------------------------------------------------------------

    # A call of a command, from its bytes to its effects:
    #
    #     execute, drain, run_next, call   find the command; admit it, if anything is unusual
    #     _run                             run it, and the calls of the same command that follow it; count and time them
    #     _begin, _end                     what clients see who track keys or watch commands; import-mode

    @cython.ccall
    def execute(self, session: Session, argv: list[bytes]) -> cython.bint:
        """Run one command, which replies in session.out; return False if the session blocked instead."""
        words: ArgumentSpans = self.take_spans()
        words.point_to(argv, 0, len(argv))
        try:
            self._admit_and_run(session, self.command_of(words), words, None, -1)
        finally:
            self.give_spans(words)
        return session.blocked is None

    @cython.cfunc
    def _admit_and_run(
        self, session: Session, entry: Command | None, words: ArgumentSpans, parser: CommandParser | None,
        limit: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Run a command of a client if it is admitted, and calls that follow it; return whether `words` has the next.

        A parser is after the command already.
        """
        flags: cython.int = self._flags(session)
        if flags & _SILENT:
            return self._run_silently(session, entry, words, flags)
        if flags & _RESTRICTED and entry is not None:
            user: User = session.account
            if user.surely_permits(entry, words):
                flags &= ~_RESTRICTED
        if (entry is None or flags or not entry.accepts(words.count)
                or (entry.subcommands is not None and words.count > 1)):  # fmt: skip
            admitted: cython.int = admit(self, session, entry, words, flags)  # type: ignore[arg-type]
            if admitted == _QUEUES:
                assert entry is not None
                if flags != _IN_MULTI or not words.received or self._renamed:
                    limit = -1
                return self._queue(session, entry, words, parser, limit)
            if admitted == _REFUSED:
                if session.blocked is None and session.tracking is not None:
                    self.tracking.command_ended(session, entry)
                return False
            limit = -1
        assert entry is not None
        located: cython.bint = self._run(session, entry, words, parser, limit)
        if session.pushes is not None:
            session.flush_pushes()
        if self.blocking.ready and not self.busy:
            self.blocking.serve_ready()
            if self._since:
                self._since = self.clock.ticks()
        return located

    @cython.cfunc
    def _flags(self, session: Session) -> cython.int:
        """Return the flags of a session that are special, and the conditions of the engine that concern it."""
        if session.state & _TRUSTED:
            return (session.state & _SPECIAL) | (self.conditions & ~_FOR_CLIENTS)
        # Between two commands nothing grows: a queue of MULTI is looked at once.
        if ((self.limited and self._fitted != self.stats.commands_processed)
                or (self.observed and self.tracking.is_full())):  # fmt: skip
            self._make_rooms(session)
            if self._since:
                self._since = self.clock.ticks()  # the eviction is not a part of the command
        return (session.state & _SPECIAL) | self.conditions

    @cython.cfunc
    def _make_rooms(self, session: Session) -> cython.bint:
        """Evict keys above `maxmemory`, and tracked keys above `tracking-table-max-keys`, before a command runs."""
        tracking: Tracking = self.tracking
        tracking.current = session
        try:
            if self.limited:
                self.make_room()
            if self.observed:
                tracking.make_room()
        finally:
            tracking.current = None
        return True

    @cython.cfunc
    def _run_silently(
        self, session: Session, entry: Command | None, words: ArgumentSpans, flags: cython.int
    ) -> cython.bint:
        """Run a command whose reply is dropped (CLIENT REPLY OFF and SKIP); return False."""
        if self.conditions & _PAUSED and self.paused_clients.postpone(session, entry, words.to_list()):
            return False
        mark: cython.Py_ssize_t = session.out.mark()
        if session.state & _REPLY_SKIP_NEXT:
            session.enter("skipped call starts")
        admitted: cython.int = admit(self, session, entry, words, flags)  # type: ignore[arg-type]
        if admitted != _REFUSED:
            assert entry is not None
            if admitted == _QUEUES:
                self._queue(session, entry, words, None, -1)
            else:
                self._run(session, entry, words, None, -1)
        if session.blocked is None:
            session.mute(mark)
        if session.pushes is not None:
            session.flush_pushes()
        if self.blocking.ready and not self.busy:
            self.blocking.serve_ready()
        return False

    @cython.ccall
    def call(self, session: Session, entry: Command, argv: list[bytes]) -> cython.bint:
        """Run an admitted command, and act on its effects."""
        words: ArgumentSpans = self.take_spans()
        words.point_to(argv, 0, len(argv))
        try:
            self._run(session, entry, words, None, -1)
        finally:
            self.give_spans(words)
        return True

    @cython.ccall
    def call_spans(self, session: Session, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Do `call` for arguments that are spans."""
        self._run(session, entry, words, None, -1)
        return True

    # -- running a buffer of commands ----------------------------------------------------------------

    @cython.ccall
    def drain(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.bint:
        """Run the complete commands in the parser; return True if the caller must send the replies and call again.

        Stop when the session blocks or closes, when the parser needs more bytes, or after `limit` bytes of replies.
        After a protocol error, Redis's error text is the last reply, and the session is closed.
        """
        stats: EngineStats = self.stats
        ran: cython.longlong = stats.commands_processed
        began: cython.longlong = self.clock.ticks()
        self._since = began
        try:
            return self._drain(session, parser, limit)
        finally:
            ran = stats.commands_processed - ran
            if ran != 0:
                stats.count_turn(max(ran, 1), self._since - began)
            self._since = 0

    @cython.cfunc
    def _drain(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.bint:
        words: ArgumentSpans = self.take_spans()
        argv: list[bytes] | None
        located: cython.bint = False
        while session.blocked is None and not session.state & _CLOSING:
            if session.out.used > limit:
                self.give_spans(words)
                return True
            parser.authenticated = session.state & _UNAUTHENTICATED == 0
            parser.scan_stop = _NO_STOP
            if located or parser.scan(words):
                parser.step()
            else:
                argv = self._next(session, parser)
                if argv is None:
                    break
                if not argv:
                    continue
                words.point_to(argv, 0, len(argv))
            located = self._admit_and_run(session, self.command_of(words), words, parser, limit)
        self.give_spans(words)
        return False

    @cython.cfunc
    def _next(self, session: Session, parser: CommandParser) -> list[bytes] | None:
        """Return the next command in any form, [] if it is empty, None if there is none; reply to a protocol error."""
        try:
            return parser.next()
        except ProtocolError as error:
            # A full query buffer closes the connection without an error reply (readQueryFromClient).
            if isinstance(error, QueryBufferExceeded):
                self.stats.input_limit_hits += 1
            else:
                session.out.error(f"ERR {error}".encode("utf-8", "surrogateescape"))
            session.enter("close")
            return None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run_next(
        self, session: Session, parser: CommandParser, words: ArgumentSpans, apart: tuple[bytes, ...]
    ) -> cython.longlong:
        """Run the next command of a log or a master, and the calls of the same command that follow it.

        The replies stay in session.out. If one is an error, it is the last one, at `failed_at`, and `words` has the
        command. Return the number of commands; 0 if the next one is in an unusual form, or one of those in `apart`,
        which are lower-case names.
        """
        self.failed_at = -1
        self.ran = 0
        if parser.scan(words) == 0:
            return 0
        for name in apart:
            if words.is_option(0, name):
                return 0
        parser.step()
        self._since = self.clock.ticks()
        try:
            self._admit_and_run(session, self.command_of(words), words, parser, _REPLAY_BATCH)
        finally:
            self._since = 0
        ran: cython.longlong = max(self.ran, 1)
        if ran == 1 and session.out.used and session.out.buf[0] == _MINUS:
            self.failed_at = 0
        return ran

    def busy_error(self) -> Busy:
        """Return the error for commands while a script runs for too long (server.c: slowscripterr, slowevalerr)."""
        server = "Valkey" if self.settings.compat.valkey else "Redis"
        kind = "FUNCTION" if self.scripts.calls.function else "SCRIPT"
        return Busy(f"{server} is busy running a script. You can only call {kind} KILL or SHUTDOWN NOSAVE.")
