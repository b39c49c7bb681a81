"""The server's RDB file: SAVE, BGSAVE, save points, and the shutdown.

rillet.persistence.rdb.snapshots works on the data. This module connects it with the event loop (a pipe reports the
end of a child), CONFIG SET, SHUTDOWN and the signals.

Shutdown on SHUTDOWN, SIGTERM or SIGINT (server.c: prepareForShutdown, finishShutdown):

    kill a child that writes the file, and remove its draft
    write the log; an initial rewrite that is not complete prevents the shutdown
    with save points, or on SHUTDOWN SAVE, write the file; all clients wait
    run no further command of a client: every acknowledged write is in the file
    Server.stop, ServerPersistence.close

If the file cannot be written, the server keeps running: SHUTDOWN returns an error, a signal writes a line to the log.
FORCE shuts down all the same. No replicas are awaited, so SHUTDOWN is complete when its reply is sent, and ABORT is
always too late. A second SIGINT during the final save ends the process immediately, with status 1 and without the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from rillet.errors import CommandError, LogCorrupt, StoreError
from rillet.persistence.fork import Child, Children
from rillet.persistence.rdb.snapshots import PURPOSE, Snapshots, draft_name
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.settings import SettingError
from rillet.server.log_lines import WARNING, say, say_line
from rillet.server.server import Server

_FOREVER_MS = 1 << 62
_SIGNAL_SETTINGS = {signal.SIGINT: "shutdown_on_sigint", signal.SIGTERM: "shutdown_on_sigterm"}


class RdbService:
    """The RDB file of a server's engine; `end_log(force)` writes the log before a shutdown or raises CommandError."""

    def __init__(self, engine: Engine, children: Children, refusals: WriteGate,
                 end_log: Callable[[bool], None]) -> None:  # fmt: skip
        self._engine = engine
        self._settings: Any = engine.settings
        self._children = children
        self._end_log = end_log
        self._server: Server
        self._ending = False
        self._folder: str = engine.settings.dir
        self.snapshots = Snapshots(engine, children=children, refusals=refusals, say=say_line)

    def open(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Load the RDB file, if it exists, and log the result; StoreError if the file cannot be read."""
        path = self.snapshots.path
        if path.exists():
            try:
                loaded = self.snapshots.load(progress)
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror}") from error
            except LogCorrupt as error:
                say(f"Internal error in RDB reading offset {error.offset}: {error.reason}", WARNING)
                say("Terminating server after rdb file reading failure.", WARNING)
                raise
            say(f"Done loading RDB, keys loaded: {loaded.keys}, keys expired: {loaded.expired}, "
                f"empty keys skipped: {loaded.empty}.")  # fmt: skip

    def attach(self, server: Server) -> None:
        """Watch child processes with the event loop, and shut the server down on signals."""
        self._server = server
        loop = asyncio.get_running_loop()

        def unwatch(number: int) -> None:
            loop.remove_reader(number)

        def watch(child: Child) -> None:
            child.on_close = unwatch
            loop.add_reader(child.fileno(), self._children.poll)

        self._children.watch = watch
        for number in _SIGNAL_SETTINGS:
            try:
                loop.add_signal_handler(number, self._signalled, number)
            except NotImplementedError:  # on Windows
                signal.signal(number, lambda received, _: loop.call_soon_threadsafe(self._signalled, received))

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the RDB file that CONFIG SET changed; SettingError if that is impossible."""
        if name == "dir":
            self._enter(self._settings.dir)
        elif name in ("save", "stop-writes-on-bgsave-error"):
            self.snapshots.refuse_or_not()

    def _enter(self, folder: str) -> None:
        """Change the folder of the RDB file; a relative path is relative to the previous folder (setConfigDirOption).

        The working directory of the process does not change, because sys.path may contain relative paths.
        """
        path = os.path.join(self._folder, folder)
        try:
            os.stat(os.path.join(path, "."))  # raises OSError for the same paths as chdir would
        except OSError as error:
            raise SettingError(str(error.strerror)) from error
        self._folder = self._settings.dir = os.path.realpath(path)

    def facts(self) -> dict[str, object]:
        """Return the fields of INFO persistence about child processes and the RDB file."""
        return {**self._children.facts(), **self.snapshots.facts()}

    # -- shutdown ------------------------------------------------------------------------------------

    def shutdown(self, save: bool = False, nosave: bool = False, force: bool = False) -> None:
        """Save the data, then stop the server (prepareForShutdown); after CommandError the server keeps running."""
        if self._ending:
            return
        say("User requested shutdown...", WARNING)
        try:
            loading = self._engine.loading  # the databases hold only a part of the files' data
            self._prepare(save and not loading, nosave or loading, force)
        except CommandError:
            say("Errors trying to shut down the server. Check the logs for more information.", WARNING)
            raise CommandError("Errors trying to SHUTDOWN. Check logs.") from None
        self._ending = True
        self._server.pause(_FOREVER_MS, writes_only=False)
        self._server.request_stop()

    def _prepare(self, save: bool, nosave: bool, force: bool) -> None:
        if self._children.is_at(PURPOSE):
            say("There is a child saving an .rdb. Killing it!", WARNING)
            self.snapshots.stop_child()
        self._end_log(force)
        if save or (self._settings.save and not nosave):
            say("Saving the final RDB snapshot before exiting.")
            try:
                with self._insisting():
                    self.snapshots.write()
            except CommandError:
                what = "Exit anyway." if force else "can't exit."
                say(f"Error trying to save the DB, {what}", WARNING)
                if not force:
                    raise

    @contextlib.contextmanager
    def _insisting(self) -> Iterator[None]:
        """Let SIGINT end the process immediately during the final save (server.c: sigShutdownHandler)."""
        draft = self.snapshots.path.with_name(draft_name(os.getpid()))

        def insist(_number: int, _frame: object) -> None:
            say("You insist... exiting now.", WARNING)
            draft.unlink(missing_ok=True)
            os._exit(1)

        before = signal.signal(signal.SIGINT, insist)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _signalled(self, number: int) -> None:
        """Shut down on a signal, with the flags of shutdown-on-sigterm and shutdown-on-sigint."""
        say(f"Received {signal.Signals(number).name} scheduling shutdown...", WARNING)
        flags: tuple[str, ...] = getattr(self._settings, _SIGNAL_SETTINGS[signal.Signals(number)])
        with contextlib.suppress(CommandError):  # `shutdown` has logged the reason
            self.shutdown("save" in flags, "nosave" in flags, "force" in flags)


__all__ = ["RdbService"]
