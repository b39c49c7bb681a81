"""DEBUG subcommands with which a test fills, slows down or pauses a server (Redis: debug.c).

A switch stays on until it is turned off. Three switches have no effect and reply OK: rillet has no hash tables to
resize, no scripts and no replicas.
"""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import integer, positive, subcommand_error, text
from rillet.commands.server.debug import action, atoi
from rillet.errors import CommandError
from rillet.runtime.engine import PEAK_RESET_MS
from rillet.runtime.session import Session
from rillet.structs.glob import matches
from rillet.types.module import KeyPlace
from rillet.types.rdb import value as rdb

_STEPS = (b"after-fork", b"before-rdb-channel", b"on-streaming-repl-buf")


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
    session.engine.services.pause_cron(atoi(argv[2]) != 0)
    session.out.ok()


@action("repl-pause", 3, usage="<clear|after-fork|before-rdb-channel|on-streaming-repl-buf>")
def _repl_pause(session: Session, argv: list[bytes]) -> None:
    """Stop the server's process (SIGSTOP) when it reaches the given step of a replication."""
    step, pauses = argv[2].lower(), session.engine.replication.pauses
    if step == b"clear":
        pauses.clear()
    elif step in _STEPS:
        pauses.add(text(step))
    else:
        raise subcommand_error(argv)
    session.out.ok()


@action("replybuffer", 4, usage="<peak-reset-time <NEVER | RESET | milliseconds> | resizing <0 | 1>>")
def _replybuffer(session: Session, argv: list[bytes]) -> None:
    """Set how soon the peak of a client's replies is forgotten, or whether output buffers shrink."""
    engine, value = session.engine, argv[3]
    if argv[2].lower() == b"peak-reset-time":
        word = value.lower()
        engine.peak_reset_ms = -1 if word == b"never" else PEAK_RESET_MS if word == b"reset" else integer(value)
    elif argv[2].lower() == b"resizing":
        engine.shrinks_buffers = atoi(value) != 0
    else:
        raise subcommand_error(argv)
    session.out.ok()


@action("reply-copy-avoidance", 3, usage="<0|1>")
def _reply_copy_avoidance(session: Session, argv: list[bytes]) -> None:
    """Do nothing, because rillet copies every value into the output buffer."""
    session.out.ok()


@action("dict-resizing", 3, usage="<0|1>")
def _dict_resizing(session: Session, argv: list[bytes]) -> None:
    """Do nothing, because rillet uses Python's hash tables."""
    session.out.ok()


@action("set-disable-deny-scripts", 3, usage="<0|1>")
def _set_disable_deny_scripts(session: Session, argv: list[bytes]) -> None:
    """Set whether scripts may call the commands that have the flag `noscript`."""
    session.engine.settings.allow_noscript = atoi(argv[2]) != 0
    session.out.ok()


@action("replicate", 3, 1 << 30, "<command> [<arg> ...]")
def _replicate(session: Session, argv: list[bytes]) -> None:
    """Send a command to the replicas that this server does not run itself."""
    stream = session.engine.replication.stream
    if stream is not None and session.engine.replication.master is None:
        stream.feed_words(argv[2:])
    session.out.ok()


@action("allocsize-slots-assert", 3, usage="<0|1>")
def _allocsize_slots_assert(session: Session, argv: list[bytes]) -> None:
    """Do nothing: the sizes of slots are not counted without cluster mode."""
    session.out.ok()


@action("listpack", 3, usage="<key>")
def _listpack(session: Session, argv: list[bytes]) -> None:
    """Write the bytes of a value that is a listpack to the server's log."""
    value: Any = session.db.view_untouched(argv[2], False)
    if value is None:
        raise CommandError("no such key")
    if not value.encoding().startswith("listpack"):
        raise CommandError("Not a listpack encoded object.")
    place = KeyPlace(session.db.index, argv[2])
    payload = rdb.dump(value, session.engine.settings.rdbcompression, place=place)
    session.engine.services.log_line(f"DEBUG LISTPACK {text(argv[2])}: {payload[:-10].hex(' ')}")
    session.out.simple(b"Listpack structure printed on stdout")


@action("stringmatch-len", 4, usage="<length> <pattern>")
def _stringmatch_len(session: Session, argv: list[bytes]) -> None:
    """Match a pattern with a string of so many letters A."""
    session.out.integer(int(matches(argv[3], b"A" * positive(argv[2]))))
