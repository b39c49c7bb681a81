"""The owner process: `rillet.open(path, owner="process")` starts it, and it ends after its last client.

    client                            python -m rillet.store.sharing.owner_process PATH
    start (owner_start) ── request ─→ fork: the parent ends, so that no client has a child to wait for
                        ←─ answers ── lock the directory, replay the log, listen, announce
    attach ─────────────── socket ──→ serve
    close ─────────────── the last ─→ wait for the grace period; withdraw; write and sync the log; unlock; end

The process is in its own session, so that ^C in a client's terminal does not reach it, and keeps no descriptor of the
client: its standard input and output are /dev/null, its standard error is `owner.log` in the directory. It runs the
engine, the log and the server of an in-process owner (rillet.store.sharing.owner), and no code of the application: a
long computation in a client does not delay the other clients.

**The end.** `grace` seconds after the last connection closed, the process removes its socket's path and `owner.json`.
It then accepts the clients that were connecting; if there is one, it listens and announces itself again. So a client
that connects at that moment is either served, or finds no owner and starts the next one. SIGTERM ends the process
without the grace period, but not before its last client: systemd sends SIGTERM to all processes of a service at once,
and the workers still have to acknowledge their messages. SIGINT ends it immediately; clients start the next one.

When a client leaves, the process syncs the log; so a client that closes its store waits until its changes are on the
disk (AttachedTransport.close), as an in-process owner does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import sys
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from rillet.errors import StoreError
from rillet.host.directory import Directory
from rillet.host.engine_lock import engine_lock
from rillet.modules.loading import NO_MODULES, OpenModules
from rillet.real_time import monotonic
from rillet.server.connection import ClientConnection
from rillet.server.server import Server, calm_garbage_collector
from rillet.server.unix_socket import UnixSocket
from rillet.store.arguments.store_settings import FILES, settings_of
from rillet.store.sharing.guarded_server import TURNS_OF_AN_ACCEPT
from rillet.store.sharing.owner import Owner
from rillet.store.sharing.serving import EngineServer

LOG = "owner.log"
# The kinds of answers: progress (bytes, total); busy (another process owns the directory); failed (exception);
# ready (pid, recovery).
PROGRESS, BUSY, FAILED, READY = "progress", "busy", "failed", "ready"
_CONNECTING = 0.01  # seconds in which a client that found the socket's path has connected


@dataclass(frozen=True)
class OwnerArguments:
    """The arguments of an owner process. settings: those of rillet.open; grace: seconds after the last client.

    modules: those of rillet.open, and the values of their settings.
    """

    path: str
    settings: dict[str, Any] = field(default_factory=dict)
    grace: float = 5.0
    modules: OpenModules = NO_MODULES


class Answers:
    """The pipe to the client that started this process; the client may have ended."""

    def __init__(self) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        self._pipe: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)

    def send(self, kind: str, *values: Any) -> None:
        """Send one answer."""
        with contextlib.suppress(OSError):
            self._pipe.write(pickle.dumps((kind, *values)))
            self._pipe.flush()

    def progress(self, done: int, total: int) -> None:
        """Send the progress of the replay."""
        self.send(PROGRESS, done, total)

    def failed(self, error: BaseException) -> None:
        """Send an exception; one that cannot be pickled is sent as a StoreError with its text."""
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = StoreError(str(error))
        self.send(FAILED, error)

    def close(self) -> None:
        """Close the pipe."""
        with contextlib.suppress(OSError):
            self._pipe.close()


class _ClientServer(Server):
    """A server that syncs the log when a client leaves."""

    def forget(self, connection: ClientConnection) -> None:
        super().forget(connection)
        if self.engine.log is not None:
            self.engine.log.sync_soon()


class SeparateOwner(Owner):
    """The owner in its own process, which stops when it has had no client for `grace` seconds."""

    def __init__(self, directory: Directory, request: OwnerArguments, answers: Answers) -> None:
        self.grace = request.grace
        self._idle_since: float | None = None
        self._ending: asyncio.Task[None] | None = None
        settings = settings_of(FILES, request.settings)
        super().__init__(directory, settings, engine_lock(), answers.progress, separate=True, modules=request.modules)
        self.server().where()  # its client connects at once

    def _new_server(self, kind: type[Server] | None = None) -> EngineServer:
        return super()._new_server(kind or _ClientServer)

    def cron(self) -> None:
        super().cron()
        if self._server is None:
            return
        if self._server.server.connections or self.files.snapshots.saving:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = monotonic()
        elif monotonic() - self._idle_since >= self.grace and self._ending is None:
            self._ending = self._server.server.loop.create_task(self._end_without_clients())

    async def _end_without_clients(self) -> None:
        """Stop listening, accept the clients that were connecting, and end the process if there was none."""
        server = self.server().server
        path = server.addresses.unix_path
        listeners = list(server.addresses.listeners)
        assert path is not None
        self.directory.withdraw()
        await asyncio.sleep(_CONNECTING)
        for _ in range(TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)
        if not server.connections:
            server.request_stop()
            return
        if self.directory.is_here():
            await server.addresses.listen_main_unix(UnixSocket(path, self._settings))
            self.directory.announce(path, separate=True)
        for listener in listeners:
            server.addresses.stop(listener)
        self._ending = self._idle_since = None

    def end_soon(self) -> None:
        """End without a grace period after the last client."""
        self.grace = 0.0

    def end_now(self) -> None:
        """Disconnect the clients and end; in the main thread."""
        server = self.server().server
        with contextlib.suppress(RuntimeError):  # the loop has ended
            server.loop.call_soon_threadsafe(server.request_stop)

    def wait(self) -> None:
        """Return when the thread that serves the clients has ended."""
        self.server().wait()


def _own(request: OwnerArguments, answers: Answers) -> SeparateOwner | None:
    """Become the owner, and send the result; None if that was not possible."""
    try:
        settings = settings_of(FILES, request.settings)
        directory = Directory(request.path, settings.dbfilename)
        if not directory.lock():
            answers.send(BUSY)
            return None
        try:
            _errors_to(directory)
            owner = SeparateOwner(directory, request, answers)
        except BaseException:
            _remove_empty(directory)
            directory.unlock()
            raise
    except BaseException as error:
        answers.failed(error)
        return None
    signal.signal(signal.SIGTERM, lambda *_: owner.end_soon())
    signal.signal(signal.SIGINT, lambda *_: owner.end_now())
    answers.send(READY, os.getpid(), owner.recovery)
    return owner


def _errors_to(directory: Directory) -> None:
    """Let warnings and errors of this process go to owner.log."""
    log = os.open(directory.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o644)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.WARNING)


def _remove_empty(directory: Directory) -> None:
    """Remove an empty owner.log."""
    with contextlib.suppress(OSError):
        if directory.is_here() and (directory.path / LOG).stat().st_size == 0:
            (directory.path / LOG).unlink()


def main() -> None:
    """Read a request from standard input, own its directory until the last client has left."""
    if os.fork():
        os._exit(0)
    request = OwnerArguments(**pickle.load(sys.stdin.buffer))
    answers = Answers()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGTERM, signal.SIGINT):  # until it owns the directory, its client starts another one
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    owner = _own(request, answers)
    answers.close()
    if owner is not None:
        calm_garbage_collector()
        owner.wait()
        _remove_empty(owner.directory)
        owner.close()


if __name__ == "__main__":
    main()
