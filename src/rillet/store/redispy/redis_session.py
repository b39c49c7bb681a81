"""RedisSession: one session of the engine in this process, as a byte stream: command bytes in, reply bytes out.

The connections of redis-py use it in place of a socket: EngineSocket (redis_py) for threads, EngineStream
(redis_asyncio) for an event loop.

    run(data)      feed bytes, run the complete commands      -> Ran
    collect()      the reply of a blocked command, if any     -> Ran, or None at the end of the session
    Ran            reply bytes, and the position of the log that must be safe before the bytes are delivered

No method waits. The frontend waits until `on_wake` is called or `seconds_left()` have passed, then calls `collect`.

**A reply without a receiver.** redis-py closes a connection whose call was cancelled or interrupted. If commands of the
last request took data away and the frontend has not handed out all of their replies, `end` puts the data back
(rillet.store.transports.undelivered). Messages that XREADGROUP delivered stay pending: redis-py's caller finds them
with the ID 0. A request begins when all replies to the one before it were handed out; redis-py sends none earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.errors import Misconf, NestedCall
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_parser import INCOMPLETE, Push, ReplyParser
from rillet.runtime.session_state import UNAUTHENTICATED
from rillet.store.transports.in_process import NESTED, InProcessTransport
from rillet.store.transports.undelivered import executed_of, may_take
from rillet.store.transports.wakeners import Wakener

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

_REPLY_LIMIT = 1 << 62


class Ran(NamedTuple):
    """Reply bytes, the engine's log (None in memory), and the log position that the replies acknowledge (0: none)."""

    replies: bytes
    log: Any
    position: int

    @property
    def settled(self) -> bool:
        """True if the replies may be delivered now; Misconf if the log failed."""
        return not self.position or bool(self.log.settled(self.position))


class _CallbackWakener(Wakener):
    """Calls the frontend's function."""

    __slots__ = ("_on_wake",)

    def __init__(self, engine: Engine, on_wake: Callable[[], None]) -> None:
        super().__init__(engine)
        self._on_wake = on_wake

    def wake(self) -> None:
        """Call the function."""
        self._on_wake()


class RedisSession:
    """A session of the engine; `on_wake` is called, from any thread, when the session has output or has ended."""

    def __init__(self, transport: InProcessTransport, on_wake: Callable[[], None], owner: Any = None) -> None:
        """Open a session. owner: the frontend, with which the session ends, unless `on_wake` refers to it."""
        self.transport = transport
        self._parser = CommandParser()
        self._on_wake = on_wake
        self._wakener = _CallbackWakener(transport.engine, on_wake)
        # The last request and its replies so far, if it may take data away.
        self._sent: list[bytes] = []
        self._replied: list[bytes] = []
        self._session: Any = None
        transport.shielded(self._open, owner)

    def _open(self, owner: Any) -> None:
        with self.transport.lock:
            self._session = self.transport.open_session(self._wakener)
            self._session.transport = self  # CLIENT KILL closes the session through it, and CLIENT PAUSE applies
            self._parser.authenticated = not self._session.state & UNAUTHENTICATED
            if owner is not None:
                self.transport.end_with(owner, self._session, self._end, True)

    @property
    def ended(self) -> bool:
        """True if the session was closed, by either side, or the store was."""
        session = self._session
        return session is None or session.closing or self.transport.closed

    def run(self, data: bytes, unread: bool) -> Ran:
        """Run the commands that are complete after these bytes; BrokenPipeError if the session has ended.

        unread: the frontend has replies that it has not handed out, so these bytes continue its last request.
        """
        if self._sent and not (unread or self._parser.buffered):
            self._sent, self._replied = [], []
        if self._sent or (not self._parser.buffered and may_take(data)):
            self._sent.append(bytes(data))
        steady = self._is_steady(data)
        if not steady and self.transport.runs_here() and b"\r\nEXEC\r\n" in data.upper():
            raise NestedCall(NESTED)  # an exception from outside could tear the transaction
        return self.transport.run_step(steady, self._run, data)

    def _is_steady(self, data: bytes) -> bool:
        """Return whether the bytes are one whole command that nothing can interrupt."""
        if self._parser.buffered or not data.startswith(b"*") or b"\r\n*" in data:
            return False
        words = data.split(b"\r\n", 3)
        return len(words) > 2 and self.transport.is_steady([words[2]])

    def _run(self, data: bytes) -> Ran:
        with self.transport.lock:
            if self._session is None or self.transport.closed:
                raise BrokenPipeError("the connection is closed")
            self._parser.proto_max_bulk_len = self.transport.engine.settings.proto_max_bulk_len
            self._parser.feed(bytes(data))
            return self._drain()

    def collect(self) -> Ran | None:
        """Return the output since the last call; None at the end. Time out a blocked command whose deadline passed."""
        return self.transport.run_step(False, self._collect)

    def _collect(self) -> Ran | None:
        with self.transport.lock:
            session = self._session
            if session is None or self.transport.closed:
                return None
            left = self.seconds_left()
            if left is not None and left <= 0:
                self.transport.engine.blocking.time_has_come(session)
            if session.out.used:
                return self._drain()
            return None if session.closing else Ran(b"", None, 0)

    def _drain(self) -> Ran:
        """Run complete commands and take the output. The caller must hold the lock."""
        session = self._session
        engine = self.transport.engine
        log = engine.log
        # If another client's command served this session, that client may already have failed to write the log.
        since, self._wakener.since = self._wakener.since, None
        began = 0 if log is None else log.position if since is None else since
        engine.drain(session, self._parser, _REPLY_LIMIT)
        replies = session.out.take_bytes()
        if self._sent:
            self._replied.append(replies)
        return Ran(replies, log, 0 if log is None else log.write(began))

    def seconds_left(self) -> float | None:
        """Return the seconds until `collect` must be called for a blocked command's deadline; None without one."""
        blocked = None if self._session is None else self._session.blocked
        if blocked is None or not blocked.wakes_at:
            return None
        return float(blocked.wakes_at - self.transport.engine.clock.uptime_ms()) / 1000

    def failed(self, ran: Ran, error: Misconf) -> bytes:
        """Return the last bytes of a session whose writes are not in the log: the error; then the session ends."""
        return self.transport.shielded(self._fail, ran, error)

    def _fail(self, ran: Ran, error: Misconf) -> bytes:
        with self.transport.lock:
            ran.log.write()  # closes the write gate: the engine rejects later writes
            if self._session is not None:
                self.transport.engine.blocking.fail(self._session, error)
                self._session.out.take_bytes()
                self._session.closing = True
        return b"-%b\r\n" % str(error).encode()

    def end_if_blocked(self) -> bool:
        """End the session if one of its commands is blocked, so that it receives nothing; return whether it was."""
        return self.transport.shielded(self._end_if_blocked)

    def _end_if_blocked(self) -> bool:
        with self.transport.lock:
            if self._session is None or self._session.blocked is None:
                return False
            self._end(unread=True)
            return True

    def kill(self) -> None:
        """End the session, for CLIENT KILL."""
        self.end()

    def end(self, unread: bool = False) -> None:
        """End the session: blocked commands receive nothing from now on. A second call does nothing.

        unread: the frontend has replies that no caller will read. What their commands took is put back.
        """
        self.transport.shielded(self._end, unread)

    def _end(self, unread: bool) -> None:
        with self.transport.lock:
            session, self._session = self._session, None
            if session is not None:
                session.transport = None
                replies = session.out.take_bytes() if self._sent else b""
                self.transport.close_session(session)
                if self._sent and (unread or replies):
                    self._put_back(replies)
        self._on_wake()

    def _put_back(self, replies: bytes) -> None:
        """Put back what the last request took. The caller must hold the lock."""
        answers = [reply for reply in _complete([*self._replied, replies]) if not isinstance(reply, Push)]
        self.transport.put_back(executed_of(_complete(self._sent), answers))
        self._sent, self._replied = [], []


def _complete(pieces: list[bytes]) -> list[Any]:
    """Return the complete values (commands or replies) in RESP-encoded pieces."""
    parser = ReplyParser()
    parser.feed(b"".join(pieces))
    values = []
    while (value := parser.next()) is not INCOMPLETE:
        values.append(value)
    return values
