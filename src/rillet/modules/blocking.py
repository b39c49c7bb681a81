"""Calls of a module whose reply comes later (Redis: RM_BlockClient, RM_BlockClientOnKeys).

    on keys       the engine calls `serve` when a key changes, in the order of arrival, as for BLPOP
    from threads  a thread calls `BlockedCall.unblock(value)`; the engine's loop then writes the reply

Inside MULTI, and while a log is loaded, a command cannot wait: it gets an error, as in Redis.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError
from rillet.runtime.session import Session

if TYPE_CHECKING:
    from rillet.modules.module_state import ModuleState

OnTimeout = Callable[..., Any] | None
"""A function of the module that receives a context."""


class _KeepWaiting:
    def __repr__(self) -> str:
        return "KEEP_WAITING"


KEEP_WAITING = _KeepWaiting()
"""The result of a `serve` function that cannot serve the client yet."""
_IN_TRANSACTION = "Blocking module command called from transaction"  # module.c: moduleBlockClient


class BlockedCall:
    """A client that waits for the reply of a module."""

    def __init__(self, module: ModuleState, session: Session | None, argv: list[bytes]) -> None:
        self._module = module
        self._session = session
        self._database = module.engine.databases[0] if session is None else session.db
        self._argv = argv
        self._blocked: Any = None if session is None else session.blocked
        self._done = False

    @property
    def waits(self) -> bool:
        """Whether the client still waits: it was not served, it is connected, and no timeout has passed."""
        return not self._done and self._session is not None and self._session.blocked is self._blocked

    def unblock(self, value: Any = None, reply: Callable[..., Any] | None = None) -> None:
        """Reply with a value, or with the result of reply(context, value), which runs in the engine. Any thread."""

        def answer(context: Any) -> Any:
            return value if reply is None else reply(context, value)

        self._module.services.calls.post(self._finish, answer)

    def fail(self, error: CommandError) -> None:
        """Reply with an error. Any thread."""

        def answer(context: Any) -> Any:
            raise error

        self._module.services.calls.post(self._finish, answer)

    def post(self, function: Callable[..., None]) -> None:
        """Run function(context) in the engine, in the client's database. Any thread."""
        self._module.post(function, self._database)

    def start(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Run a function in a thread, and reply with its result."""
        if self._session is None:
            return
        thread = threading.Thread(target=self._work, args=(function, arguments), name=f"rillet-{self._module.name}",
                                  daemon=True)  # fmt: skip
        thread.start()

    def _work(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            value = self._module.services.guard.call_in_thread(self._module.name, function, arguments)
        except CommandError as error:
            self.fail(error)
        else:
            self.unblock(value)

    def _finish(self, answer: Callable[..., Any]) -> None:
        """Write the reply in the engine, if the client still waits."""
        self._module.waiting.discard(self)
        if not self.waits or self._session is None:
            self._done = True
            return
        self._done = True
        session, engine = self._session, self._module.engine
        engine.blocking.unblock(session)
        mark = session.out.mark()
        self._module.reply_to(session, self._argv, answer)
        session.mute(mark)
        engine.blocking.wake(session)

    def ended(self) -> None:
        """Note that the client was unblocked by its timeout or by an error."""
        self._done = True
        self._module.waiting.discard(self)


def _waiting_session(session: Session | None) -> Session:
    """Return the session of a call that can block; raise the error of one that cannot."""
    if session is None:
        raise RuntimeError("this call has no client that could wait")
    if not session.can_block:
        raise CommandError(_IN_TRANSACTION)
    return session


def block_on_keys(module: ModuleState, session: Session | None, argv: list[bytes], keys: list[bytes],
                  serve: Callable[..., Any], timeout_ms: int, on_timeout: OnTimeout) -> BlockedCall:  # fmt: skip
    """Block the client until one of the keys changes; see Context.block_on_keys."""
    session = _waiting_session(session)

    def try_to_serve(session: Session, key: bytes) -> bool:
        if session.db.find(key) < 0:  # a deletion: Redis does not try
            return False
        session.propagate_nothing()
        return module.reply_to(session, argv, lambda context: serve(context, key), wait=True)

    session.block(keys, timeout_ms, try_to_serve, _expired(module, argv, on_timeout))
    return _register(module, session, argv, on_timeout)


def block_call(module: ModuleState, session: Session | None, argv: list[bytes], timeout_ms: int,
               on_timeout: OnTimeout, on_disconnect: Callable[..., None] | None) -> BlockedCall:  # fmt: skip
    """Block the client until `BlockedCall.unblock`; see Context.block."""
    session = _waiting_session(session)
    session.block([], timeout_ms, lambda _session, _key: False, _expired(module, argv, on_timeout))
    blocked = _register(module, session, argv, on_timeout)
    if on_disconnect is not None:
        session.blocked.on_disconnect = lambda: module.run(on_disconnect, session.db)
    return blocked


def _register(module: ModuleState, session: Session, argv: list[bytes], on_timeout: OnTimeout) -> BlockedCall:
    blocked = BlockedCall(module, session, argv)
    module.waiting.add(blocked)
    session.blocked.on_end = blocked.ended
    session.blocked.unblockable = on_timeout is not None
    return blocked


def _expired(module: ModuleState, argv: list[bytes], on_timeout: OnTimeout) -> Callable[[Session], None]:
    """Return the function that writes the reply of a timeout: null if the module has none."""

    def expired(session: Session) -> None:
        session.dirty, session.propagated = 0, []
        module.reply_to(session, argv, (lambda context: None) if on_timeout is None else on_timeout)

    return expired
