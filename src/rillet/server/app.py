"""`rillet serve`: settings, engine, log and server put together, from start to orderly end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import rillet
from rillet.commands.settings import Settings
from rillet.engine import Engine
from rillet.errors import RilletError
from rillet.persistence.aof import AppendOnlyLog, TornLog
from rillet.server.configuration import load
from rillet.server.server import Server, calm_garbage_collector, event_loop_factory


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM, SIGINT or SHUTDOWN; return the exit code. Errors are one line on stderr."""
    try:
        settings = load(arguments)
        folder = _working_folder(settings)
        factory = event_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_serve(settings, folder, factory.__module__.partition(".")[0]))
    except RilletError as error:
        print(f"rillet: {error}", file=sys.stderr)
        return 1


def _working_folder(settings: Settings) -> Path:
    folder = Path(settings.dir).absolute()
    if not folder.is_dir():
        raise RilletError(f"the directory {folder} does not exist (--dir)")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise RilletError(f"the directory {folder} cannot be read and written by this user (--dir)")
    settings.dir = str(folder)
    return folder


async def _serve(settings: Settings, folder: Path, loop_name: str) -> int:
    engine = Engine(settings)
    log = _open_log(engine, folder) if settings.appendonly else None
    server = Server(engine)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server_stop, server)
    try:
        await server.start()
        build = "compiled" if rillet.compiled() else "interpreted"
        where = [f"{settings.bind.split()[0]}:{server.port}"] if server.port else []
        where += [settings.unixsocket] if settings.unixsocket else []
        print(f"rillet {rillet.__version__} ({build}, {loop_name}) listening on {' and '.join(where)}, PID: {os.getpid()}",
              flush=True)
        calm_garbage_collector()
        await server.wait()
    finally:
        await server.stop()
        if log is not None:
            engine.log = None
            log.close()
    return 0


def server_stop(server: Server) -> None:
    """Ask the server to stop, from a signal."""
    server.request_stop()


def _open_log(engine: Engine, folder: Path) -> AppendOnlyLog:
    settings = engine.settings

    def failed(reason: str) -> None:
        engine.refusal = reason
        print(f"rillet: {reason}; writes are refused from now on", file=sys.stderr, flush=True)

    log = AppendOnlyLog(folder / settings.appenddirname, name=settings.appendfilename, fsync=settings.appendfsync,
                        on_failure=failed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", TornLog)
        replayed = log.open(engine)
    for one in told:
        print(f"rillet: {one.message}", file=sys.stderr, flush=True)
    if replayed.commands:
        print(f"rillet: {replayed.commands} commands ({replayed.bytes} bytes) replayed in {replayed.seconds:.2f} s", flush=True)
    return log


__all__ = ["main"]
