"""Effects: what follows a command besides its reply.

    before the calls   _begin         what clients see who track keys or watch commands (MONITOR); import-mode
    each call          take_effects   dirty, the log and replicas (runtime/propagation.py)
                       _show          if anything shows each call: the lines of MONITOR, the slow log
    after the calls    statistics, latency, the slow log
                       _end           keys that a client has read, invalidations

A command reports its changes to the session (runtime/session.py). Watchers, clients that cache keys, and keyspace
events are served at once, from there. Everything here is behind a flag: `observed`, `shows`, `logged`.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly
from rillet.errors import CommandError
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.lru import AccessClock
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import registry, session_state
from rillet.runtime.acl.user import User
from rillet.runtime.command_finder import CommandFinder
from rillet.runtime.engine_stats import CommandStats
from rillet.runtime.implementation import Implementation
from rillet.runtime.monitors import Monitors
from rillet.runtime.propagation import Propagation
from rillet.runtime.redaction import redact
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings
from rillet.runtime.slowlog import CommandLog
from rillet.runtime.tracking import Tracking
from rillet.structs.argument_spans import ArgumentSpans

_HIDDEN = cython.declare(cython.int, registry.HIDDEN | registry.RUNS_SCRIPT)
_RUNS_SCRIPT = cython.declare(cython.int, registry.RUNS_SCRIPT)
_HAS_SECRETS = cython.declare(cython.int, registry.HAS_SECRETS)
_LOADING = cython.declare(cython.int, session_state.LOADING)
_IMPORT_SOURCE = cython.declare(cython.int, session_state.IMPORT_SOURCE)
_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)
# A session with TRUSTED and without MASTER repeats a log: its changes are not logged.
_FROM_OTHERS = cython.declare(cython.int, session_state.TRUSTED | session_state.MASTER)
_RESTRICTED = cython.declare(cython.int, session_state.RESTRICTED)
_RUNNING = cython.declare(cython.int, session_state.RUNNING)
_NO_TOUCH = cython.declare(cython.int, session_state.NO_TOUCH)
# Values that wait to be measured before a command settles the ledger (keyspace/memory_usage.py).
_WAITING = cython.declare(cython.Py_ssize_t, 32)
# Bytes of replies to consecutive calls after which `maxmemory` is compared again: 16 replies of SET.
_UNCHECKED = cython.declare(cython.Py_ssize_t, 80)
_NEVER = cython.declare(cython.longlong, 2**62)
SAME, OTHER = 1, 2  # what `follows` returns
_SAME = cython.declare(cython.int, SAME)
_OTHER = cython.declare(cython.int, OTHER)
# Bytes of consecutive calls after which their time, and the data with `maxmemory`, is compared with the limit.
_TIMED_INPUT = cython.declare(cython.Py_ssize_t, 4096)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=True)
def follows(
    session: Session, entry: Command, words: ArgumentSpans, parser: CommandParser, count: cython.Py_ssize_t
) -> cython.int:
    """Look at what follows a call with `count` arguments in the parser.

    Return SAME if it is another call of the command, which the parser has passed then; OTHER if `words` has a call of
    another command, which the parser is before; 0 if there is none, or it needs the parser's `next`.
    """
    if parser.scan(words) == 0:
        return 0
    if parser.commands is not None:  # those of EXEC
        if parser.commands[parser.ordinal] is not entry:
            return _OTHER
    elif not words.is_option(0, entry.word) or (words.count != count and not entry.accepts(words.count)):
        return _OTHER
    if session.state & _RESTRICTED:
        user: User = session.account
        if not user.surely_permits(entry, words):
            return _OTHER
    parser.step()
    return _SAME


@cython.cfunc
@cython.inline
def _is_postponed(session: Session) -> cython.bint:
    """Return whether the command waits for the disk, and begins again later (host.cold_reads)."""
    return session.blocked is not None and session.blocked.postponed


@cython.cclass
class Effects(CommandFinder):
    """The effects of commands; a part of the engine."""

    __slots__ = (
        "command_log", "failed_at", "limited", "monitors", "observed", "ran", "scripts", "tracking", "tracks_latency",
        "_since",
    )  # fmt: skip
    scripts: public[Any]
    tracking: readonly[Tracking]
    monitors: readonly[Monitors]
    observed: public[cython.bint]
    limited: readonly[cython.bint]
    command_log: readonly[CommandLog]
    tracks_latency: readonly[cython.bint]
    _since: cython.longlong
    failed_at: readonly[cython.Py_ssize_t]
    ran: cython.longlong

    def __init__(self, settings: Settings, clock: Clock) -> None:
        CommandFinder.__init__(self, settings, clock)
        self.command_log = CommandLog(self)  # type: ignore[arg-type]
        # Whether each command's times are counted in a histogram.
        self.tracks_latency = True
        # Whether `maxmemory` is set.
        self.limited = False
        self.tracking = Tracking(self)  # type: ignore[arg-type]
        self.monitors = Monitors(self)  # type: ignore[arg-type]
        # Whether a client tracks keys or watches commands, or import-mode is on.
        self.observed = False
        # The Lua scripts (rillet.scripting.scripts.Scripts), or None before the first one.
        self.scripts = None
        # Where the reply begins to the last command that failed.
        self.failed_at = -1
        # The calls that the last run of a command has begun.
        self.ran = 0
        # The time (in ticks) at which the last command of a batch ended; 0 outside of a batch. It is also the start of
        # the next command: a batch reads the clock once per command, and parsing counts as part of the command.
        self._since = 0

    @cython.cfunc
    def _run(
        self, session: Session, entry: Command, words: ArgumentSpans, parser: CommandParser | None,
        limit: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Run a call and act on its effects; then the calls of the same command that follow it in the parser.

        Stop after `limit` bytes of replies, or when anything else has to be done. Return whether `words` has the next
        command of the parser, which is before it.
        """
        implementation: Implementation = self._implementation(entry)
        propagation: Propagation = self.propagation
        access: AccessClock = self.access
        out: ReplyWriter = session.out
        feed: PropagationBuffer | None = None
        start: cython.Py_ssize_t = -1
        mark: cython.Py_ssize_t = out.mark()
        ran: cython.longlong = 0
        shown: cython.longlong = 0
        failed: cython.longlong = 0
        located: cython.bint = False
        outer: cython.int = session.state & _RUNNING
        observed: cython.bint = self.observed
        log: CommandLog = self.command_log
        shows: cython.bint = log.each or (observed and len(self.monitors.sessions) > 0)
        if (parser is None or not implementation.on_spans or not words.received or self._renamed
                or (observed and session.tracking is not None)):  # fmt: skip
            limit = -1
        elif log.slow_ns < _NEVER or self.limited:
            start = parser.began
            parser.scan_stop = start + _TIMED_INPUT
            if self.limited and entry.write and limit < _NEVER:  # EXEC's commands are not compared
                limit = min(limit, out.used + _UNCHECKED - 1)
        session.state |= _RUNNING
        session.command = entry
        session.logged = propagation.log is not None and session.state & _FROM_OTHERS != _TRUSTED
        if session.logged and entry.write:
            feed = propagation.feed
        if not outer and len(session.db.ledger.waiting) > _WAITING:
            session.db.ledger.settle()
        began: cython.longlong = self._since or self.clock.ticks()
        if began >= access.due:
            access.update()
        untouched: cython.bint = access.untouched
        if session.state & _NO_TOUCH:
            access.untouched = entry.fullname != "touch"
            access.choose_stamp()
        tracking: Tracking = self.tracking
        writer: object = tracking.writer
        outermost: cython.bint = False
        sees: cython.bint = self._sees_expired
        writes: cython.bint = self._writes
        if observed:
            outermost = self._begin(session, entry, words)
        count: cython.Py_ssize_t = words.count
        running: cython.bint = False
        session.commands += 1
        session.propagated = None
        session.batch_ms = 0
        try:
            while True:
                session.dirty = 0
                if feed is not None:
                    feed.reserve_spans(words)  # a change that cannot be logged must not begin
                running = True
                propagation.depth += 1
                ran += 1
                implementation.run(session, words)
                propagation.depth -= 1
                running = False
                if session.logged or session.propagated is not None or propagation.pending:
                    self._log(session, entry, words)
                else:
                    propagation.dirty += session.dirty
                if (parser is None or out.used > limit or session.db.ready_keys or session.pushes is not None
                        or session.blocked is not None):  # fmt: skip
                    break
                if shows:
                    began = self._part(session, entry, words, began, out.used - mark)
                    shown = ran
                following: cython.int = follows(session, entry, words, parser, count)
                if following != _SAME:
                    located = following == _OTHER
                    break
                mark = out.mark()
        except CommandError as error:
            failed = 1
            located = False
            self.failed_at = mark
            session.reply_error(mark, error)
        finally:
            if running:  # log changes also after KeyboardInterrupt or MemoryError: the data may already have changed
                propagation.depth -= 1
                self._log(session, entry, words)
            if session.batch_value is not None:
                session.batch_value = None
            if ran > 1:
                session.commands += ran - 1
            self.ran = ran
            if not outer:
                session.state &= ~_RUNNING
            if access.untouched != untouched:
                access.untouched = untouched
                access.choose_stamp()
            ended: cython.longlong = self.clock.ticks()
            if self._since:
                self._since = ended
            self.stats.commands_processed += ran
            counters: CommandStats = self.stats.of_command(entry)
            counters.failed += failed
            if session.blocked is None:
                if ran > shown:
                    counters.count(ended - began, ran - shown, self.tracks_latency)
            elif _is_postponed(session):
                if ran - 1 > shown:
                    counters.count(ended - began, ran - 1 - shown, self.tracks_latency)
            else:
                self._begin_wait(session, entry, ended - began)
            if shows and ran > shown and not _is_postponed(session):
                self._show(session, entry, words, ended - began, out.used - mark)
            if observed:
                tracking.writer = writer
                self._sees_expired = sees
                self._writes = writes
                self._end(session, entry, words, outermost)
        if not shows and ended - began >= log.slow_ns and not _is_postponed(session):
            if start >= 0 and parser is not None:
                log.record_longest(session, entry, parser.data[start : parser.pos], ended - began)
            else:
                self._show(session, entry, words, ended - began, out.used - mark)
        if propagation.depth == 0:  # no command holds a value that it may still change
            database: Database = session.db
            if database.created or len(database.awake) - database._first_awake > database.awake_limit:
                database.rest_oldest()
        return located

    @cython.cfunc
    def _log(self, session: Session, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Count the changes of a call and log them; after an outermost call, also those of the calls inside it."""
        propagation: Propagation = self.propagation
        if session.dirty or session.propagated is not None:
            propagation.take_effects(session, words)
        if not propagation.pending or propagation.depth:
            return True
        if len(propagation.pending) > 1 and "touches_arbitrary_keys" in entry.flags:
            return propagation.flush_each()
        return propagation.flush_pending()

    @cython.cfunc
    def _begin(self, session: Session, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Begin a command while clients watch commands (MONITOR) or cache keys (CLIENT TRACKING), or in import-mode.

        Return whether no other command runs.
        """
        tracking: Tracking = self.tracking
        outermost: cython.bint = tracking.current is None
        if outermost:
            tracking.current = session
        tracking.writer = session
        if self.importing:
            current: Session = tracking.current
            self._sees_expired = current.state & _IMPORT_SOURCE != 0
            self._writes = entry.write
        if entry.traits & _RUNS_SCRIPT and self.monitors.sessions and not self.conditions & _LOADING:
            self.monitors.feed(session, words, session)
        return outermost

    @cython.cfunc
    def _end(self, session: Session, entry: Command, words: ArgumentSpans, outermost: cython.bint) -> cython.bint:
        """End what `_begin` has begun: remember the keys that the command read, send invalidations."""
        tracking: Tracking = self.tracking
        current: Session = tracking.current
        # Of a script that only reads, the commands count, and not the script itself (server.c: call).
        if current.tracking is not None and "readonly" in entry.flags and not entry.traits & _RUNS_SCRIPT:
            words.restore()
            if session is current or self.settings.compat.knows(72):
                tracking.remember(current, entry, words.to_list())
            else:  # up to 7.0, all keys of the script that called it
                tracking.remember(current, current.command, current.argv)
        if outermost:
            tracking.command_ended(current, entry)
            tracking.current = None
            tracking.schedule()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _part(
        self, session: Session, entry: Command, words: ArgumentSpans, began: cython.longlong, reply: cython.Py_ssize_t
    ) -> cython.longlong:
        """Count and show a call that another call follows; return the time."""
        now: cython.longlong = self.clock.ticks()
        counters: CommandStats = self.stats.of_command(entry)
        counters.count(now - began, 1, self.tracks_latency)
        self._show(session, entry, words, now - began, reply)
        return now

    @cython.cfunc
    def _show(
        self, session: Session, entry: Command, words: ArgumentSpans, nanoseconds: cython.longlong,
        reply: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Show a call to clients that watch, and in the logs of unusual commands, as the client has sent it."""
        current: Session = self.tracking.current
        words.restore()
        if entry.traits & _HAS_SECRETS:
            redact(entry.fullname, words, self.settings.compat)
        if self.monitors.sessions and not entry.traits & _HIDDEN and not self.conditions & _LOADING:
            self.monitors.feed(session, words, current)
        if session.state & _TRUSTED:
            return True
        return self.command_log.record(session, entry, words, nanoseconds, reply)

    def _begin_wait(self, session: Session, entry: Command, nanoseconds: int) -> None:
        """Keep the time of a call that blocks its client; Redis before 7.2 counts the call now."""
        session.blocked.spent = nanoseconds
        if not self.settings.compat.knows(72):
            counters = self.stats.of_command(entry)
            counters.calls += 1
            counters.nanoseconds += nanoseconds
