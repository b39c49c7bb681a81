"""The loggers of the package: `rillet.<name>` of the standard module `logging`.

    rillet.store     recovery of a directory, entries that are not of a typed stream's type, expiry,
                     retention
    rillet.owner     this process owns a directory, or no longer
    rillet.attach    this process is attached to the owner or to a server, or lost it; started an owner process
    rillet.log       the append-only log of a store: rewrites, failed writes, recovery from them
    rillet.server    the lines of `rillet serve`'s log; addresses, clients
    rillet.client    redirections of a cluster, nodes that do not answer
    rillet.spark     the Spark connector

The library adds no handler that prints. Each logger of `logger()` has a NullHandler, so `logging` prints nothing for it
until the application configures logging. `rillet.store` has none: its warnings, which report a killed owner, dropped
bytes or skipped entries, appear without a configuration.

**Interrupted calls.** An exception from outside (a signal handler that raises, PyThreadState_SetAsyncExc) can come
between the acquisition of a lock and the `try` that releases it, in functions of `logging`. The lock is then held
forever, and the next thread that needs it waits forever. `Logger.isEnabledFor` acquires the lock of the module
whenever a logger's cache is empty, and `Handler.handle` that of the handler. A SteadyLogger computes the level without
a lock, and after an exception it releases the locks of handlers that its thread still holds. Rejected: to fill the
caches when a store is opened, because each later `setLevel` of any logger empties them. To log in another thread: a
handler that calls the store would wait for the thread that waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

NAMES = ("store", "owner", "attach", "log", "server", "client", "spark")


class SteadyLogger:
    """Logs to a logger of the module `logging`; an exception that interrupts it leaves no lock behind."""

    __slots__ = ("logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger

    def is_enabled_for(self, level: int) -> bool:
        """Return whether a record of that level would be logged. O(depth of the logger's name), without a lock"""
        logger = self.logger
        return not logger.disabled and logger.manager.disable < level and level >= logger.getEffectiveLevel()

    def debug(self, text: str, *args: object) -> None:
        """Log a line of level DEBUG."""
        self._log(logging.DEBUG, text, args)

    def info(self, text: str, *args: object) -> None:
        """Log a line of level INFO."""
        self._log(logging.INFO, text, args)

    def warning(self, text: str, *args: object) -> None:
        """Log a line of level WARNING."""
        self._log(logging.WARNING, text, args)

    def error(self, text: str, *args: object) -> None:
        """Log a line of level ERROR."""
        self._log(logging.ERROR, text, args)

    def exception(self, text: str, *args: object) -> None:
        """Log a line of level ERROR with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, text, args, exc_info=True)

    def log(self, level: int, text: str, *args: object) -> None:
        """Log a line of any level."""
        self._log(level, text, args)

    def _log(self, level: int, text: str, args: tuple[object, ...], **options: Any) -> None:
        if not self.is_enabled_for(level):
            return
        held = [lock for lock in self._locks() if lock._is_owned()]  # a handler of this thread logs
        try:
            self.logger._log(level, text, args, stacklevel=3, **options)
        except BaseException:
            for lock in self._locks():
                while lock not in held and lock._is_owned():
                    lock.release()
            raise

    def _locks(self) -> Iterator[Any]:
        """Yield the locks of the handlers that receive the logger's records."""
        one: logging.Logger | None = self.logger
        handlers = [] if logging.lastResort is None else [logging.lastResort]
        while one is not None:
            handlers += one.handlers
            one = one.parent if one.propagate else None
        for handler in handlers:
            if hasattr(handler.lock, "_is_owned"):  # the handlers of `logging` have reentrant locks
                yield handler.lock


def logger(name: str) -> SteadyLogger:
    """Return the logger `rillet.<name>`, which prints nothing until the application configures logging."""
    assert name in NAMES, f"document the logger {name}"
    found = logging.getLogger(f"rillet.{name}")
    if not found.handlers and name not in PRINTED:
        found.addHandler(logging.NullHandler())
    return SteadyLogger(found)


PRINTED = ("spark", "store")  # without a NullHandler: `logging` prints warnings also without a configuration
