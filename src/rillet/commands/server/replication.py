"""The commands between a master and its replicas, on the master's side (Redis: replication.c).

    replica ──► REPLCONF listening-port 6380 capa eof capa psync2     its address and features; once before PSYNC
            ──► PSYNC ? -1                                            the reply is a snapshot, then the stream
            ──► PSYNC 8fb1...  4711                                   the stream continues at this offset, if possible
            ──► REPLCONF ACK 5000                                     each second; no reply

rillet.replication.master does the work.
"""

from __future__ import annotations

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.replication import NO_FAILOVER, RDB_CHANNEL, WAIT_CHANNEL, offers_channel, properties_of
from rillet.runtime.session import Session
from rillet.runtime.session_state import MONITOR, REPLICA
from rillet.types.string import string2ll

_LONG_ADDRESS = 46  # characters (connection.h: NET_HOST_STR_LEN)


@command("failover", arity=-1, flags="admin noscript stale", since="6.2.0",
         syntax="[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]", complexity="O(1)")
def failover(session: Session, argv: list[bytes]) -> None:
    """Let a replica replace this master, once it has all changes."""
    state = session.engine.replication
    if len(argv) == 2 and argv[1].lower() == b"abort":
        if state.failover_state == NO_FAILOVER:
            raise CommandError("No failover in progress.")
        state.failover.abort("Failover manually aborted")
        session.out.ok()
        return
    at, timeout, host, port, forced = 1, 0, b"", 0, False
    while at < len(argv):
        word, left = argv[at].lower(), len(argv) - at - 1
        if word == b"timeout" and left and not timeout:
            timeout = integer(argv[at + 1])
            if timeout <= 0:
                raise CommandError("FAILOVER timeout must be greater than 0")
            at += 2
        elif word == b"to" and left >= 2 and not host:
            port = integer(argv[at + 2])
            host = argv[at + 1]
            at += 3
        elif word == b"force" and not forced:
            forced = True
            at += 1
        else:
            raise syntax_error()
    if state.failover_state != NO_FAILOVER:
        raise CommandError("FAILOVER already in progress.")
    if state.master is not None:
        raise CommandError("FAILOVER is not valid when server is a replica.")
    if state.stream is None or not state.stream.replicas:
        raise CommandError("FAILOVER requires connected replicas.")
    if forced and not (timeout and host):
        raise CommandError("FAILOVER with force option requires both a timeout and target HOST and IP.")
    state.stream.fail_over((text(host), port) if host else None, timeout, forced)
    session.out.ok()


@command("replconf", arity=-1, flags="admin noscript loading stale allow_busy", since="3.0.0",
         syntax="[option value [option value ...]]", complexity="O(1)")
def replconf(session: Session, argv: list[bytes]) -> None:
    """Take the properties of a replica, and its acknowledgements."""
    if len(argv) % 2 == 0:
        raise syntax_error()
    for at in range(1, len(argv), 2):
        option = argv[at].lower()
        if option == b"ack":
            _acknowledge(session, argv, at)
            return
        if option == b"getack":
            link = session.engine.replication.link
            if link is not None:
                link.acknowledge()
            return
        _declare(session, option, argv[at + 1], text(argv[at]))
    session.out.ok()


def _acknowledge(session: Session, argv: list[bytes], at: int) -> None:
    """Take REPLCONF ACK offset [FACK offset], which has no reply; a wrong number is ignored."""
    offset, on_disk = string2ll(argv[at + 1]), None
    if len(argv) > at + 3 and argv[at + 2].lower() == b"fack":
        on_disk = string2ll(argv[at + 3])
    stream = session.engine.replication.stream
    if session.state & REPLICA and stream is not None and offset is not None:
        stream.acknowledge(session, offset, on_disk)


def _declare(session: Session, option: bytes, value: bytes, name: str) -> None:
    """Record one property of a replica; unknown capabilities are ignored."""
    properties, compat = properties_of(session), session.engine.settings.compat
    if option == b"listening-port":
        properties.port = integer(value)
    elif option == b"ip-address":
        if len(value) >= _LONG_ADDRESS:
            raise CommandError(f"REPLCONF ip-address provided by replica instance is too long: {len(value)} bytes")
        properties.address = text(value)
    elif option == b"capa":
        if value.lower() != RDB_CHANNEL.encode() or offers_channel(session.engine.settings):
            properties.capabilities.add(text(value.lower()))
    elif option == b"rdb-only":
        properties.rdb_only = _flag(value)
        properties.separate = properties.rdb_only and offers_channel(session.engine.settings)
    elif option == b"rdb-channel" and compat.knows(80) and not compat.valkey:
        properties.rdb_channel = _flag(value)
    elif option == b"main-ch-client-id" and compat.knows(80) and not compat.valkey:
        _join(session, integer(value))
    elif option == b"rdb-filter-only":
        properties.filters = _filters(value)
    elif option == b"rdb-no-compress" and compat.knows(84):
        properties.compressed = not _flag(value)
    elif option == b"rdb-no-checksum" and compat.knows(88):
        properties.checked = not _flag(value)
    elif option == b"version":
        if value.count(b".") == 2 and value.replace(b".", b"").isdigit():
            properties.version = text(value)
        elif compat.valkey:
            raise CommandError(f"Unrecognized version format: {text(value)}")
        if not compat.valkey:
            raise CommandError(f"Unrecognized REPLCONF option: {name}")
    else:
        raise CommandError(f"Unrecognized REPLCONF option: {name}")


def _join(session: Session, number: int) -> None:
    """Make a connection the second one of the replica whose first one has this client number."""
    first = session.engine.sessions.get(number)
    main = None if first is None else first.extra.get("attached")
    if main is None or main.state != WAIT_CHANNEL:
        raise CommandError(f"Unrecognized RDB client id: {number}")
    properties = properties_of(session)
    properties.main = main
    properties.compressed = properties.compressed and main.properties.compressed
    properties.checked = properties.checked and main.properties.checked


def _flag(value: bytes) -> bool:
    number = integer(value)
    if not 0 <= number <= 1:
        raise CommandError("value is out of range, value must between 0 and 1")
    return number == 1


def _filters(value: bytes) -> tuple[str, ...]:
    """Return the parts of the data that a replica wants; an empty text excludes all of them."""
    if value.count(b'"') % 2:
        raise CommandError("Missing rdb-filter-only values")
    words = value.replace(b'"', b"").split()
    for word in words:
        if word.lower() != b"functions":
            raise CommandError(f"Unsupported rdb-filter-only option: {text(word)}")
    return tuple(text(word.lower()) for word in words)


@command("psync", arity=-3, flags="admin noscript no_async_loading no_multi", since="2.8.0",
         syntax="replicationid offset", complexity="O(1)")
def psync(session: Session, argv: list[bytes]) -> None:
    """Make this connection that of a replica: the reply is the stream of changes."""
    engine = session.engine
    if session.state & (REPLICA | MONITOR):
        return
    if len(argv) > 3 and argv[3].lower() == b"failover":
        if engine.replication.master is None:
            raise CommandError("PSYNC FAILOVER can't be sent to a master.")
        if text(argv[1]).lower() != engine.replication.id:
            raise CommandError("PSYNC FAILOVER replid must match my replid.")
        engine.services.log_line(f"Failover request received for replid {text(argv[1])}.")
        engine.services.promote()
    try:
        offset = integer(argv[2])
    except CommandError:
        name = f"client id #{session.id}"
        engine.services.log_line(f"Replica {name} asks for synchronization but with a wrong offset")
        raise
    engine.services.attach_replica(session, text(argv[1]), offset)


@command("sync", arity=1, flags="admin noscript no_async_loading no_multi", since="1.0.0", complexity="O(1)")
def sync(session: Session, argv: list[bytes]) -> None:
    """Make this connection that of a replica, with a snapshot and without offsets."""
    if not session.state & (REPLICA | MONITOR):
        session.engine.services.attach_replica(session, None, -1)
