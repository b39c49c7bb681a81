"""DEBUG's sub-commands that fill, slow down or loosen a server, so that a test can look at it meanwhile (debug.c).

What is switched on stays until it is switched off. Three of them have nothing to switch here, and say OK: there are no
hashtables of rillet's own to resize, no scripts, no replicas.
"""

from __future__ import annotations

from rillet.commands.arguments import positive
from rillet.commands.server.debug import action, atoi
from rillet.runtime.session import Session
from rillet.types.string import new_string


@action("populate", 3, 5, "<count> [<prefix>] [<size>]")
def _populate(session: Session, argv: list[bytes]) -> None:
    """Make so many strings, value:0 and following; nothing of it is logged."""
    count = positive(argv[2])
    prefix = argv[3] if len(argv) > 3 else b"key"
    size = positive(argv[4]) if len(argv) > 4 else 0
    database = session.db
    for number in range(count):
        key = b"%b:%d" % (prefix, number)
        if database.lookup(key) is None:
            value = b"value:%d" % number
            database.set(key, new_string(value[:size].ljust(size, b"\0") if size else value))
            database.touch(key)
    session.out.ok()


@action("set-skip-checksum-validation", 3, usage="<0|1>")
def _set_skip_checksum_validation(session: Session, argv: list[bytes]) -> None:
    """Take payloads for RESTORE whatever their checksum says (1), or only those that it vouches for (0)."""
    session.engine.settings.skip_checksum_validation = atoi(argv[2]) != 0
    session.out.ok()


@action("aof-flush-sleep", 3, usage="<microsec>")
def _aof_flush_sleep(session: Session, argv: list[bytes]) -> None:
    """Let everything stand still for so long before the append-only file is written."""
    session.engine.settings.aof_flush_sleep = max(atoi(argv[2]), 0)
    session.out.ok()


@action("pause-cron", 3, usage="<0|1>")
def _pause_cron(session: Session, argv: list[bytes]) -> None:
    """Let nothing happen by the clock (1), or what has to (0)."""
    session.engine.host.pause_cron(atoi(argv[2]) != 0)
    session.out.ok()


@action("dict-resizing", 3, usage="<0|1>")
def _dict_resizing(session: Session, argv: list[bytes]) -> None:
    """Nothing: hashtables are Python's."""
    session.out.ok()


@action("set-disable-deny-scripts", 3, usage="<0|1>")
def _set_disable_deny_scripts(session: Session, argv: list[bytes]) -> None:
    """Nothing: there are no scripts."""
    session.out.ok()


@action("replicate", 3, 1 << 30, "<command> [<arg> ...]")
def _replicate(session: Session, argv: list[bytes]) -> None:
    """Nothing: there are no replicas that the command could be sent to."""
    session.out.ok()
