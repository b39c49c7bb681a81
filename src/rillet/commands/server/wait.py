"""WAIT and WAITAOF: block until changes are on replicas or on disk (Redis: replication.c).

The replicas are asked for an acknowledgement after the commands so far (REPLCONF GETACK). The client waits for the
offset behind the last change, which may be one of another client. (Redis takes the offset after the client's previous
command.) WAITAOF starts no sync: with `appendfsync everysec` it waits for the next sync, with `no`
until its timeout.

Inside MULTI the commands do not block. The changes of the transaction are not in the log yet.

The thread that syncs the log must not use a session, so the frontend's timer checks each client of WAITAOF every ten
milliseconds. Rejected: a list of blocked clients in the log, which each frontend would have to serve from every thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import LLONG_MAX, integer, positive, timeout_ms
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_NUMLOCAL = "value is out of range, value must between 0 and 1"
_NO_LOG = "WAITAOF cannot be used when numlocal is set but appendonly is disabled."
_ON_REPLICA = (
    "WAIT cannot be used with replica instances. Please also note that {since}if a replica is configured to "
    "be writable (which is not the default) writes to replicas are just local and are not propagated."
)
_AOF_ON_REPLICA = (
    "WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are "
    "not propagated."
)
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
    """Wait until replicas have all changes so far, and reply with their number."""
    if session.engine.replication.master is not None:
        valkey = session.engine.settings.compat.valkey
        raise CommandError(_ON_REPLICA.format(since="" if valkey else "since Redis 4.0 "))
    replicas = integer(argv[1])
    milliseconds = _timeout(session, argv[2])
    waiting = _WaitingForReplicas(session.engine, replicas)
    if waiting.count() >= replicas or not session.can_block:
        waiting.reply(session)
        return
    session.block([], milliseconds, waiting.serve, waiting.reply)
    _ask_replicas(session)


def _ask_replicas(session: Session) -> None:
    """Ask the replicas for acknowledgements, and remember the client that waits for them."""
    stream = session.engine.replication.stream
    if stream is not None:
        stream.waiting.append(session)
        stream.request_acks()


class _WaitingForReplicas:
    """A client blocked in WAIT: the required number of replicas, and the offset that they must have."""

    __slots__ = ("_state", "offset", "replicas")

    def __init__(self, engine: CommandEngine, replicas: int) -> None:
        self._state = engine.replication
        self.replicas = replicas
        self.offset: int = self._state.last_change()

    def count(self, *, on_disk: bool = False) -> int:
        """Return the number of replicas that have the offset, or have it on their disks."""
        stream = self._state.stream
        return 0 if stream is None else int(stream.acknowledged(self.offset, on_disk=on_disk))

    def serve(self, session: Session, key: bytes) -> bool:
        """Reply if enough replicas have the offset."""
        if self.count() < self.replicas:
            return False
        self.reply(session)
        return True

    def reply(self, session: Session) -> None:
        """Reply with the number of replicas that have the offset."""
        session.out.integer(self.count())


@command("waitaof", arity=4, flags="blocking", group="generic", since="7.2.0", syntax="numlocal numreplicas timeout",
         complexity="O(1)")
def waitaof(session: Session, argv: list[bytes]) -> None:
    """Wait until all changes so far are synced to the local disk and to the disks of replicas."""
    local = integer(argv[1])
    if not 0 <= local <= 1:
        raise CommandError(_NUMLOCAL)
    replicas = positive(argv[2])
    milliseconds = _timeout(session, argv[3])
    if session.engine.replication.master is not None:
        raise CommandError(_AOF_ON_REPLICA)
    log = session.engine.aof
    if local and log is None:
        raise CommandError(_NO_LOG)
    waiting = _WaitingForDisks(session.engine, local, replicas, 0 if log is None else log.position)
    if waiting.acknowledged(session) or not session.can_block:
        waiting.reply(session)
        return
    session.block([], milliseconds, waiting.serve, waiting.reply)
    session.engine.blocking.retry_at(session, session.engine.clock.now_ms() + _ASK_AGAIN)
    if replicas:
        _ask_replicas(session)


class _WaitingForDisks(_WaitingForReplicas):
    """A client blocked in WAITAOF: the required number of disks, and the log offset that must be synced."""

    __slots__ = ("local", "position")

    def __init__(self, engine: CommandEngine, local: int, replicas: int, position: int) -> None:
        super().__init__(engine, replicas)
        self.local = local
        self.position = position

    def acknowledged(self, session: Session) -> bool:
        """Return whether enough disks have the changes up to the log offset."""
        return self.count(on_disk=True) >= self.replicas and _synced(session, self.position) >= self.local

    def serve(self, session: Session, key: bytes) -> bool:
        """Reply if enough disks have the changes; raise an error if the log was turned off meanwhile."""
        if self.local and session.engine.aof is None:
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
        session.out.integer(self.count(on_disk=True))


def _synced(session: Session, position: int) -> int:
    """Return 1 if the log is synced up to the offset, else 0."""
    log: Any = session.engine.aof
    return int(log is not None and log.synced >= position and not session.engine.propagation.pending)
