"""Retries: a call of a server that is away waits in growing pauses until the server is back.

    not sent       no connection could be made, or the server was not ready (LOADING; CLUSTERDOWN or TRYAGAIN in a
                   cluster): the command was not executed
    unknown        the connection broke after the command was sent: only a repeatable command is sent again

A server is away if it was reached before: a wrong address fails at once. A call waits at most PATIENCE seconds, then
raises the error. `messages()` waits without limit (rillet.store.group), and looks at `stop` and `timeout` each second.

The same applies to a batch, if nothing of it was executed, to a transaction, and to a subscription, which connects and
subscribes again. A call of a cluster first follows redirections (rillet.client.redirection), as long. A store in a
directory has another way to continue: it attaches to the next owner, or becomes it (rillet.store.backends.backend).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from rillet.errors import CommandError, StoreError
from rillet.real_time import monotonic
from rillet.store.transports.transport import NOT_READY, NotReady, Transport

if TYPE_CHECKING:
    from rillet.store.store import Store

Result = TypeVar("Result")
PATIENCE = 3.0  # seconds; as long as a store in a directory waits for a server that ended
_FIRST, _LONGEST = 0.005, 0.25
Failures: TypeAlias = "tuple[type[StoreError] | type[CommandError], ...]"
FAILURES: Failures = (StoreError, NotReady)  # of several commands
FAILURES_OF_ONE: Failures = (StoreError, *NOT_READY)


class Retries:
    """The attempts of one call: growing pauses, for at most `patience` seconds.

    unknown: the error of an attempt that may have changed data; then the call does not fail with a later NotSent.
    """

    __slots__ = ("_next", "_until", "failures", "pause", "unknown")

    def __init__(self, patience: float = PATIENCE) -> None:
        self._until = monotonic() + patience
        self._next = _FIRST
        self.failures = 0
        self.pause = 0.0  # seconds to wait before the next attempt
        self.unknown: StoreError | None = None

    def again(self) -> bool:
        """Count a failure and set `pause` for the next attempt; return False if the time is over."""
        self.failures += 1
        left = self._until - monotonic()
        self.pause = max(0.0, min(self._next, left))
        self._next = min(2 * self._next, _LONGEST)
        return left > 0

    def failed(self, error: StoreError | CommandError) -> StoreError | CommandError:
        """Return the error to raise after the last attempt failed with `error`."""
        return self.unknown or error


def patiently(store: Store, attempt: Callable[[Transport], Result], commands: Sequence[list[bytes]],
              patience: float = PATIENCE) -> Result:  # fmt: skip
    """Return attempt(transport), which sends the commands; call it again while the server is away, as described above.

    It raises NotReady if the server executed none of the commands.
    """
    transport = store.transport
    try:
        return attempt(transport)
    except FAILURES as error:
        retries = Retries(patience)
        transport = store.replacement(transport, error, retries, commands)
    return again(store, attempt, commands, transport, retries, FAILURES)


def again(store: Store, attempt: Callable[[Transport], Result], commands: Sequence[list[bytes]],
          transport: Transport, retries: Retries, failures: Failures) -> Result:  # fmt: skip
    """Return attempt(transport) after a pause, and after each failure: the attempts after the first one."""
    while True:
        if retries.pause:
            time.sleep(retries.pause)
        try:
            return attempt(transport)
        except failures as error:
            transport = store.replacement(transport, error, retries, commands)
