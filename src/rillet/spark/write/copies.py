"""Waits until the rows of a batch are on replicas and on disk: waitReplicas and waitAof.

    waitReplicas=n               WAIT n               n replicas have the writes
    waitAof=true                 WAITAOF 1 0          the server has synced them to its append-only file
    both                         WAITAOF 1 n          and so have n replicas

WAIT and WAITAOF cover everything that was written before on their connection, and a server's writes reach replicas and
disk in their order. So one wait for each server suffices: the driver's commit waits after its own last write, which
follows those of all tasks. If that fails, Spark does not commit the batch and repeats it; its rows are recorded, so
nothing is written twice, and the commit writes and waits again.

The driver checks before the first task whether the servers can do this, because otherwise each batch would be written
first and fail later.

Rejected: waiting in each task, which adds a wait to every task and leaves out the driver's own writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from rillet.client.connection import Connection
from rillet.client.errors import ConnectorError, refused
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.spark.options import Options, SinkOptions
from rillet.spark.table_options import TableOptions

_SLICE = 1.0  # seconds of one WAIT: less than the timeout of the connection


def require_servers(options: Options | TableOptions) -> None:
    """Raise ConnectorError at once if a server of a batch write is unreachable or cannot wait as the options demand."""
    if options.url is None:  # a store, which its first user opens
        return
    with Servers(options) as servers:
        for connection in servers.masters():
            servers.ask(connection, b"PING")
        require_copies(servers, options, patient=False)


def require_copies(servers: Servers, options: SinkOptions, patient: bool) -> None:
    """Raise ConnectorError if a server cannot wait as the options demand.

    patient: wait up to waitTimeout for replicas that are missing, because they may return.
    """
    if not options.waits:
        return
    least = options.wait_replicas or 0
    for connection in servers.masters():
        if options.wait_aof:
            _reply(connection, b"WAITAOF", b"1", b"0", b"1")
        until = monotonic() + (options.wait_timeout if patient else 0)
        while (replicas := _reply(connection, b"WAIT", b"%d" % least, _milliseconds(options))) < least:
            if monotonic() >= until:
                raise ConnectorError(
                    f"rillet: {connection.address} has {_counted(replicas)}, and waitReplicas is {least}: add "
                    f"replicas, or set waitReplicas to what there is"
                )


def wait_for_copies(servers: Servers, options: SinkOptions, keys: Sequence[bytes]) -> None:
    """Wait until what was written on the connections of keys is on as many replicas as the options demand, and on disk.

    Raise ConnectorError after waitTimeout.
    """
    if not options.waits:
        return
    least = b"%d" % (options.wait_replicas or 0)
    until = monotonic() + options.wait_timeout
    for connection, _ in servers.by_node(keys):
        while True:
            milliseconds, synced = _milliseconds(options, until), 1
            if options.wait_aof:
                synced, replicas = _reply(connection, b"WAITAOF", b"1", least, milliseconds)
            else:
                replicas = _reply(connection, b"WAIT", least, milliseconds)
            if synced and replicas >= int(least):
                break
            if monotonic() >= until:
                raise ConnectorError(_timed_out(connection, options, bool(synced), replicas))


def _milliseconds(options: SinkOptions, until: float = inf) -> bytes:
    """Return the time of one WAIT, which must be below the timeout of the connection."""
    return b"%d" % max(round(1000 * min(until - monotonic(), _SLICE, options.timeout / 2)), 1)


def _reply(connection: Connection, *words: bytes) -> Any:
    (reply,) = connection.replies([words])
    if isinstance(reply, ReplyError):
        raise _unsupported(connection, words[0].decode(), str(reply))
    return reply


def _timed_out(connection: Connection, options: SinkOptions, synced: bool, replicas: int) -> str:
    missing = [] if synced else ["its append-only file was not synced"]
    if replicas < (options.wait_replicas or 0):
        missing.append(f"{_counted(replicas)} of {options.wait_replicas} had the rows")
    return (
        f"rillet: {connection.address} wrote the batch, but after {options.wait_timeout:g} s (waitTimeout) "
        f"{' and '.join(missing)}. The batch is not committed; if it is repeated, nothing is written twice"
    )


def _counted(replicas: int) -> str:
    return f"{replicas or 'no'} replica{'' if replicas == 1 else 's'}"


def _unsupported(connection: Connection, command: str, line: str) -> ConnectorError:
    if "unknown command" in line:
        return ConnectorError(
            f"rillet: {connection.address} has no WAITAOF, which needs Redis 7.2: leave out waitAof", line
        )
    if "appendonly" in line:
        return ConnectorError(
            f"rillet: {connection.address} has no append-only file: set appendonly to yes there, or leave out waitAof",
            line,
        )
    return refused(connection.address, command, line)
