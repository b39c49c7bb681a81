"""`rillet serve`: creates settings, engine, files and server, and runs them until shutdown."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import rillet
from rillet.errors import RilletError
from rillet.modules.loading import load_all
from rillet.runtime.engine import Engine
from rillet.runtime.settings import Settings
from rillet.server.data_directory import serve_store
from rillet.server.host import DurableHost
from rillet.server.log_lines import JOURNAL, WARNING, say
from rillet.server.metrics_http import MetricsListener
from rillet.server.persistence import ServerPersistence
from rillet.server.redis_conf import Configuration, load
from rillet.server.server import Server, calm_garbage_collector, event_loop_factory


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM, SIGINT or SHUTDOWN; return the exit code. Errors are one line on stderr."""
    try:
        configuration = load(arguments)
        folder = _working_folder(configuration.settings)
        is_store = serve_store(configuration, folder)
        factory = event_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_serve(configuration, folder, is_store, factory.__module__.partition(".")[0]))
    except RilletError as error:
        say(f"{error}; the server exits", WARNING)
        print(f"rillet: {error}", file=sys.stderr)
        return 1


def _working_folder(settings: Settings) -> Path:
    folder = Path(settings.dir).absolute()
    if not folder.is_dir():
        raise RilletError(f"the directory {folder} {'is a file' if folder.exists() else 'does not exist'} (--dir)")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise RilletError(f"the directory {folder} cannot be read and written by this user (--dir)")
    settings.set_text("dir", str(folder))
    return folder


async def _serve(configuration: Configuration, folder: Path, is_store: bool, loop_name: str) -> int:
    settings = configuration.settings
    try:
        JOURNAL.configure(settings.loglevel, settings.logfile)
    except OSError as error:
        raise RilletError(f"Can't open the log file: {error.strerror} ({settings.logfile})") from error
    build = "compiled" if rillet.compiled() else "interpreted"
    version = f"rillet {rillet.__version__} ({build}, {loop_name})"
    engine = Engine(settings)
    persistence = ServerPersistence(engine, folder, is_store=is_store)
    server = Server(engine)
    persistence.attach(server)
    engine.host = DurableHost(server, persistence, configuration)
    load_all(engine, configuration.modules, configuration.module_settings)
    engine.loading = True
    metrics: MetricsListener | None = None
    try:
        await server.start()
        if settings.metrics_port:
            metrics = MetricsListener(server)
            await metrics.start()
        say(f"{version} has started, as Redis {settings.compat.redis_version}, PID: {os.getpid()}")
        if configuration.without_effect:
            say(f"Settings without an effect in rillet: {', '.join(configuration.without_effect)}")
        if not await persistence.open(server.is_stopping):
            return 0
        where = [f"{settings.bind.split()[0]}:{server.port}"] if server.port else []
        where += [settings.unixsocket] if settings.unixsocket else []
        calm_garbage_collector()
        if metrics is not None:
            say(f"Metrics at http://{settings.bind.split()[0]}:{settings.metrics_port}/metrics")
        say("Ready to accept connections")
        print(f"{version} listening on {' and '.join(where)}, PID: {os.getpid()}", flush=True)
        await server.wait()
    finally:
        if metrics is not None:
            await metrics.stop()
        await server.stop()
        persistence.close()
    return 0


__all__ = ["main"]
