"""The loggers of the package: `rillet.<name>` of the standard module `logging`.

    rillet.store     recovery of a directory, entries that are not of a typed stream's type, expiry
    rillet.owner     this process owns a directory, or no longer
    rillet.attach    this process is attached to the owner or to a server, or lost it; started an owner process
    rillet.log       the append-only log of a store: rewrites, failed writes, recovery from them
    rillet.server    the lines of `rillet serve`'s log; addresses, clients
    rillet.client    redirections of a cluster, nodes that do not answer
    rillet.spark     the Spark connector

The library adds no handler that prints. Each logger of `logger()` has a NullHandler, so `logging` prints nothing for it
until the application configures logging. `rillet.store` has none: its warnings, which report a killed owner, dropped
bytes or skipped entries, appear without a configuration.
"""

from __future__ import annotations

import logging

NAMES = ("store", "owner", "attach", "log", "server", "client", "spark")


def logger(name: str) -> logging.Logger:
    """Return the logger `rillet.<name>`, which prints nothing until the application configures logging."""
    assert name in NAMES, f"document the logger {name}"
    found = logging.getLogger(f"rillet.{name}")
    if not found.handlers:
        found.addHandler(logging.NullHandler())
    return found


__all__ = ["NAMES", "logger"]
