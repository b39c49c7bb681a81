"""DEBUG subcommands with which a test fills, slows down or pauses a server (Redis: debug.c).

A switch stays on until it is turned off. Three switches have no effect and reply OK: rillet has no hash tables to
resize, no scripts and no replicas.
"""

from __future__ import annotations

from rillet.commands.arguments import positive
from rillet.commands.server.debug import action, atoi
from rillet.runtime.session import Session


@action("populate", 3, 5, "<count> [<prefix>] [<size>]")
def _populate(session: Session, argv: list[bytes]) -> None:
    """Create `count` strings such as value:0, without logging them."""
    count = positive(argv[2])
    prefix = argv[3] if len(argv) > 3 else b"key"
    size = positive(argv[4]) if len(argv) > 4 else 0
    database = session.db
    for number in range(count):
        key = b"%b:%d" % (prefix, number)
        if database.find(key) < 0:
            value = b"value:%d" % number
            database.set_string(key, value[:size].ljust(size, b"\0") if size else value)
            database.touch(key)
    session.out.ok()


@action("set-skip-checksum-validation", 3, usage="<0|1>")
def _set_skip_checksum_validation(session: Session, argv: list[bytes]) -> None:
    """Make RESTORE ignore the checksum of payloads (1) or verify it (0)."""
    session.engine.settings.skip_checksum_validation = atoi(argv[2]) != 0
    session.out.ok()


@action("aof-flush-sleep", 3, usage="<microsec>")
def _aof_flush_sleep(session: Session, argv: list[bytes]) -> None:
    """Sleep before each write of the append-only file."""
    session.engine.settings.aof_flush_sleep = max(atoi(argv[2]), 0)
    session.out.ok()


@action("pause-cron", 3, usage="<0|1>")
def _pause_cron(session: Session, argv: list[bytes]) -> None:
    """Stop the periodic jobs (1) or restart them (0)."""
    session.engine.host.pause_cron(atoi(argv[2]) != 0)
    session.out.ok()


@action("dict-resizing", 3, usage="<0|1>")
def _dict_resizing(session: Session, argv: list[bytes]) -> None:
    """Do nothing, because rillet uses Python's hash tables."""
    session.out.ok()


@action("set-disable-deny-scripts", 3, usage="<0|1>")
def _set_disable_deny_scripts(session: Session, argv: list[bytes]) -> None:
    """Do nothing, because there are no scripts."""
    session.out.ok()


@action("replicate", 3, 1 << 30, "<command> [<arg> ...]")
def _replicate(session: Session, argv: list[bytes]) -> None:
    """Do nothing, because there are no replicas."""
    session.out.ok()
