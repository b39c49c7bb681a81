"""Transactions: commands are queued after MULTI, and run by EXEC, both in runs of calls of the same command.

    parser -> ArgumentSpans -> CommandQueue -> parser -> ArgumentSpans -> Implementation.run -> effects
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public
from rillet.keyspace.clock import Clock
from rillet.protocol.command_parser import CommandParser
from rillet.runtime import session_state
from rillet.runtime.command_queue import CommandQueue
from rillet.runtime.effects import OTHER, SAME, Effects, follows
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings
from rillet.structs.argument_spans import ArgumentSpans

_RESTRICTED = cython.declare(cython.int, session_state.RESTRICTED)
_SAME = cython.declare(cython.int, SAME)
_OTHER = cython.declare(cython.int, OTHER)
_QUEUED_REPLY = cython.declare(bytes, b"+QUEUED\r\n")
_NO_STOP = cython.declare(cython.Py_ssize_t, 2**62)
_KEPT = cython.declare(cython.Py_ssize_t, 16)  # empty queues


@cython.cclass
class Transactions(Effects):
    """Queueing commands and running the queue; a part of the engine."""

    __slots__ = ("acl", "_queues")
    acl: public[Any]
    _queues: list[CommandQueue]

    def __init__(self, settings: Settings, clock: Clock) -> None:
        Effects.__init__(self, settings, clock)
        self.acl = None
        self._queues = []  # empty, for the next transactions

    @cython.cfunc
    def _queue(
        self, session: Session, entry: Command, words: ArgumentSpans, parser: CommandParser | None,
        limit: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Queue a command of a transaction, and the calls of it that follow it in the parser.

        Stop after `limit` bytes of replies. Return whether `words` has the next command of the parser.
        """
        if not session.queue:
            session.queue = self._queues.pop() if self._queues else CommandQueue()
        queue: CommandQueue = session.queue
        session.command = entry
        if parser is None or limit < 0 or parser.exact or session.tracking is not None:
            queue.add(entry, words)
            session.out.raw(_QUEUED_REPLY)
            if session.tracking is not None:
                self.tracking.command_ended(session, entry)
            return False
        start: cython.Py_ssize_t = parser.began
        count: cython.Py_ssize_t = words.count
        calls: cython.Py_ssize_t = 1
        following: cython.int = _SAME
        while session.out.used + calls * len(_QUEUED_REPLY) <= limit:
            following = follows(session, entry, words, parser, count)
            if following != _SAME:
                break
            calls += 1
        queue.add_calls(entry, calls, parser.data[start : parser.pos])
        session.out.raw(_QUEUED_REPLY * calls)
        return following == _OTHER

    @cython.ccall
    def run_queue(self, session: Session, queue: CommandQueue) -> cython.bint:
        """Run every queued command once; an interrupt (KeyboardInterrupt ...) is raised after the last one.

        A store runs transactions only where nothing can interrupt them: in the engine's thread or, if it is compiled,
        as steady commands (host.engine_thread). Where that does not hold, each command still runs at most
        once: it is repeated only if it has not begun, because it may have changed data before it counted the change.
        """
        parser: CommandParser = queue.parser()
        words: ArgumentSpans = self.take_spans()
        entries: list[Command] = queue.entries
        at: cython.Py_ssize_t = 0
        repeated: cython.Py_ssize_t = -1
        mark: cython.Py_ssize_t = 0
        located: cython.bint = False
        interrupt: BaseException | None = None
        while at < len(entries):
            try:
                while at < len(entries):
                    self.ran = 0
                    mark = session.out.mark()
                    parser.scan_stop = _NO_STOP
                    if located or parser.scan(words):
                        parser.step()
                    else:
                        argv: list[bytes] = parser.next() or []
                        parser.ordinal = at + 1
                        words.point_to(argv, 0, len(argv))
                    entry: Command = entries[at]
                    denied: object = None
                    located = False
                    if session.state & _RESTRICTED:
                        denied = self.acl.exec_error(session, entry, words)
                    if denied is None:
                        located = self._run(session, entry, words, parser, _NO_STOP)
                        at += self.ran
                    else:
                        session.reply_error(mark, denied)
                        at += 1
            except BaseException as error:
                interrupt = error
                if self.ran == 0 and repeated != at:
                    session.out.truncate(mark)
                    repeated = at
                else:
                    at += max(self.ran, 1)
                located = False
                parser = queue.parser()
                for _ in range(at):
                    parser.next()
                parser.ordinal = at
        self.give_spans(words)
        if interrupt is not None:
            raise interrupt
        return True

    @cython.ccall
    def end_queue(self, queue: CommandQueue) -> cython.bint:
        """Empty a queue whose commands have run, and keep it for another transaction."""
        if len(self._queues) < _KEPT and queue.clear():
            self._queues.append(queue)
        return True
