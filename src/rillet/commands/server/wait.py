"""WAIT and WAITAOF: block until changes are on replicas or on disk (Redis: replication.c).

There are no replicas, so only the local disk acknowledges changes. WAITAOF waits until everything that is in the log is
synced, which includes the changes of other clients. (Redis waits only for the client's own changes.)
WAITAOF starts no sync: with `appendfsync everysec` it waits for the next sync, with `no` until its timeout.

Inside MULTI the commands do not block. The changes of the transaction are not in the log yet, so the reply is 0.

The thread that syncs the log must not use a session, so the frontend's timer checks each blocked client every ten
milliseconds. Rejected: a list of blocked clients in the log, which each frontend would have to serve from every thread.
"""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import LLONG_MAX, integer, positive, timeout_ms
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session

_NUMLOCAL = "value is out of range, value must between 0 and 1"
_NO_LOG = "WAITAOF cannot be used when numlocal is set but appendonly is disabled."
_ASK_AGAIN = 10  # milliseconds between two checks of a waiting client


def _timeout(session: Session, raw: bytes) -> int:
    """Parse a timeout in milliseconds; since 7.2 the deadline must fit 64 bits."""
    milliseconds = timeout_ms(raw)
    engine = session.engine
    if engine.settings.compat.knows(72) and milliseconds > LLONG_MAX - engine.clock.now_ms():
        raise CommandError("timeout is out of range")
    return milliseconds


@command("wait", arity=3, flags="noscript", group="generic", since="3.0.0", syntax="numreplicas timeout",
         complexity="O(1)")
def wait(session: Session, argv: list[bytes]) -> None:
    """Wait until replicas have all changes so far; there are no replicas, so the reply is 0 after the timeout."""
    replicas = integer(argv[1])
    milliseconds = _timeout(session, argv[2])
    if replicas <= 0 or not session.can_block:
        session.out.integer(0)
        return
    session.block([], milliseconds, lambda _session, _key: False, lambda waiting: waiting.out.integer(0))


@command("waitaof", arity=4, flags="blocking", group="generic", since="7.2.0", syntax="numlocal numreplicas timeout",
         complexity="O(1)")
def waitaof(session: Session, argv: list[bytes]) -> None:
    """Wait until all changes so far are synced to the local disk and to the disks of replicas."""
    local = integer(argv[1])
    if not 0 <= local <= 1:
        raise CommandError(_NUMLOCAL)
    replicas = positive(argv[2])
    milliseconds = _timeout(session, argv[3])
    log = session.engine.log
    if local and log is None:
        raise CommandError(_NO_LOG)
    waiting = _Waiting(local, replicas, 0 if log is None else log.position)
    if waiting.acknowledged(session) or not session.can_block:
        waiting.reply(session)
        return
    session.block([], milliseconds, waiting.serve, waiting.reply)
    session.engine.blocking.retry_at(session, session.engine.clock.now_ms() + _ASK_AGAIN)


class _Waiting:
    """A client blocked in WAITAOF: the required number of disks, and the log offset that must be synced."""

    __slots__ = ("local", "position", "replicas")

    def __init__(self, local: int, replicas: int, position: int) -> None:
        self.local = local
        self.replicas = replicas
        self.position = position

    def acknowledged(self, session: Session) -> bool:
        """Return whether enough disks have the changes up to the log offset."""
        return self.replicas == 0 and _synced(session, self.position) >= self.local

    def serve(self, session: Session, key: bytes) -> bool:
        """Reply if enough disks have the changes; raise an error if the log was turned off meanwhile."""
        if self.local and session.engine.log is None:
            raise CommandError(_NO_LOG)
        if not self.acknowledged(session):
            session.engine.blocking.retry_at(session, session.engine.clock.now_ms() + _ASK_AGAIN)
            return False
        self.reply(session)
        return True

    def reply(self, session: Session) -> None:
        """Reply with the number of local disks (0 or 1), and of replicas' disks, that have the changes."""
        session.out.array(2)
        session.out.integer(_synced(session, self.position))
        session.out.integer(0)


def _synced(session: Session, position: int) -> int:
    """Return 1 if the log is synced up to the offset, else 0."""
    log: Any = session.engine.log
    return int(log is not None and log.synced >= position and not session.engine.propagation.pending)
