"""`rillet serve`: creates settings, engine, files and server, and runs them until shutdown."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import rillet
from rillet.errors import CommandError, RilletError
from rillet.host.data_directory import serve_store
from rillet.modules.loading import load_all
from rillet.replication.restart import restore
from rillet.runtime.engine import Engine
from rillet.runtime.registry import load_commands
from rillet.runtime.settings.settings import Settings
from rillet.server.acl_file import load_users
from rillet.server.log_lines import JOURNAL, WARNING, configure_log, say
from rillet.server.metrics_http import MetricsListener
from rillet.server.persistence import ServerPersistence
from rillet.server.process import Process, adjust_files, daemonize
from rillet.server.redis_conf import Configuration, load
from rillet.server.server import Server, calm_garbage_collector, event_loop_factory
from rillet.server.server_services import DurableServices


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM, SIGINT or SHUTDOWN; return the exit code. Errors are one line on stderr."""
    try:
        configuration = load(arguments)
        folder = _working_folder(configuration.settings)
        is_store = serve_store(configuration.settings, configuration.given, folder)
        if configuration.settings.daemonize:
            daemonize()
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            loop_name = type(runner.get_loop()).__module__.partition(".")[0]
            return runner.run(_serve(configuration, folder, is_store, loop_name))
    except RilletError as error:
        if JOURNAL.is_separate:  # else the line is in the same place as this one
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


def rename_commands(engine: Engine, configuration: Configuration) -> None:
    """Apply the directives `rename-command`; RilletError names the line that cannot be applied."""
    for old, new, place in configuration.renamed:
        try:
            engine.rename_command(old.encode(), new.encode())
        except CommandError as error:
            raise RilletError(f"{place}: {str(error).removeprefix('ERR ')}") from None


def _master_of(settings: Settings) -> tuple[str, int]:
    host, port = settings.replicaof.split(" ")
    return host, int(port)


def _follow(server: Server, persistence: ServerPersistence) -> None:
    """Take the stored position in the replication stream, and follow the configured master."""
    address = server.settings.replicaof
    expired = persistence.expired.take_commands()
    # If the backlog cannot hold what has expired meanwhile, no replica can continue.
    known = expired is not None and restore(server.engine, persistence.facts(), replica=bool(address))
    if known:
        server.replicas.stream().feed(expired or [])  # all changes from now on count in the position
    if address:
        server.replica.follow(*_master_of(server.settings), resumable=known)


async def _serve(configuration: Configuration, folder: Path, is_store: bool, loop_name: str) -> int:
    settings = configuration.settings
    try:
        configure_log(settings)
    except OSError as error:
        raise RilletError(f"Can't open the log file: {error.strerror} ({settings.logfile})") from error
    build = "compiled" if rillet.compiled() else "interpreted"
    version = f"rillet {rillet.__version__} ({build}, {loop_name})"
    adjust_files(settings)
    load_commands()  # now, not when a client calls them: the package may be upgraded while the server runs
    engine = Engine(settings)
    rename_commands(engine, configuration)
    persistence = ServerPersistence(engine, folder, is_store=is_store)
    server = Server(engine)
    persistence.attach(server)
    server.replicas.use_files(persistence.children, persistence.snapshots)
    process = Process(settings, configuration.file)
    server.timers.jobs.append(process.watch)
    engine.services = DurableServices(server, persistence, configuration, process)
    load_all(engine, configuration.modules, configuration.module_settings)
    load_users(engine, configuration.users)
    engine.loading = True
    if settings.replicaof:
        server.replica.announce(*_master_of(settings))
    metrics: MetricsListener | None = None
    try:
        await server.start()
        process.started()
        if settings.metrics_port:
            metrics = MetricsListener(server)
            await metrics.start()
        say(f"{version} has started, as Redis {settings.compat.redis_version}, PID: {os.getpid()}")
        say("Server initialized")
        if configuration.without_effect:
            say(f"Settings without an effect in rillet: {', '.join(configuration.without_effect)}")
        if not await persistence.open(server.is_stopping):
            return 0
        _follow(server, persistence)
        host = next(iter(settings.bind.split()), "*")
        where = [f"{host}:{server.port}"] if server.port else []
        where += [f"{host}:{settings.tls_port} (TLS)"] if settings.tls_port else []
        where += [settings.unixsocket] if settings.unixsocket else []
        calm_garbage_collector()
        if metrics is not None:
            say(f"Metrics at http://{host}:{settings.metrics_port}/metrics")
        say("Ready to accept connections")
        process.ready()
        print(f"{version} listening on {' and '.join(where)}, PID: {os.getpid()}", flush=True)
        await server.wait()
    finally:
        if metrics is not None:
            await metrics.stop()
        await server.stop()
        persistence.close()
        persistence.shutdown.ignore_signals()
        process.stopped()
    say("rillet is now ready to exit, bye bye...", WARNING)
    return 0
