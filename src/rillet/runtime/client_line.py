"""The line of CLIENT LIST and CLIENT INFO about one client (Redis: networking.c, catClientInfoString).

    id=3 addr=127.0.0.1:52555 laddr=127.0.0.1:6379 fd=8 name= age=855 idle=0 flags=N db=0 sub=0 ... cmd=client|list ...

    qbuf, qbuf-free   bytes that were received and not parsed yet, and the rest of their buffer
    argv-mem          bytes of the command that runs, is blocked, or is not complete yet
    multi-mem         bytes of the commands that MULTI has queued
    rbs, rbp          size of the output buffer, up to Redis's 16 kB, and its recent peak
    obl, oll, omem    replies that the client has not read: the first 16 kB, whether there are more, and how many more
    tot-mem           all memory of the client, as `maxmemory-clients` counts it

The fields follow `compat`: 7.0 ends at resp. Costs: O(queued commands).
"""

from __future__ import annotations

from typing import Any

from rillet.protocol.reply_writer import INITIAL_CAPACITY
from rillet.runtime.memory import session_bytes
from rillet.runtime.session import Session
from rillet.runtime.session_state import (
    BLOCKED,
    IMPORT_SOURCE,
    IN_EXEC,
    IN_MULTI,
    MASTER,
    MONITOR,
    NO_TOUCH,
    REPLICA,
    SUBSCRIBED,
)
from rillet.runtime.settings.settings import UNCOUNTED_OUTPUT
from rillet.runtime.tracking import ClientTracking
from rillet.types.compat import Compat

FLAG_LETTERS = b"OSMPxbtRBdcuAUreTIiEN"
"""All letters of the field `flags`; rillet has no clients of the kinds u, A, i and E."""


def flag_letters(session: Session, compat: Compat) -> bytes:
    """Return the letters of the field `flags`; N if no other letter applies."""
    tracking: ClientTracking | None = session.tracking
    extra, state = session.extra, session.state
    letters = b""
    for is_set, letter in (
        (state & MONITOR, b"O"), (state & REPLICA, b"S"), (state & MASTER, b"M"), (state & SUBSCRIBED, b"P"),
        (state & (IN_MULTI | IN_EXEC), b"x"),
        (state & BLOCKED, b"b"),
        (tracking is not None and tracking.on, b"t"), (tracking is not None and tracking.broken, b"R"),
        (tracking is not None and tracking.bcast, b"B"), (session.watcher.dirty, b"d"), (session.closing, b"c"),
        (getattr(session.transport, "unix", False), b"U"), (extra.get("readonly"), b"r"),
        (extra.get("no_evict"), b"e"),
        (state & NO_TOUCH and compat.knows(72), b"T"), ("replica" in extra and extra["replica"].rdb_channel, b"C"),
        (state & IMPORT_SOURCE, b"I"),
    ):  # fmt: skip
        if is_set:
            letters += letter
    return letters or b"N"


def redirection(session: Session) -> int:
    """Return the ID of the session that receives the messages; 0: the session itself, -1: tracking is off."""
    state: ClientTracking | None = session.tracking
    return state.redirect if state is not None and state.on else -1


def client_memory(session: Session) -> int:
    """Return the bytes of a client: its session, and the buffers of its connection. O(queued commands)"""
    return session_bytes(session) + int(getattr(session.transport, "buffered_bytes", 0))


def client_line(session: Session, caller: Session) -> bytes:
    """Return the line about one session, without the line break; `caller` runs the command."""
    engine = session.engine
    compat: Compat = engine.settings.compat
    now = engine.clock.now_ms()
    transport, own, out = session.transport, session.subscriptions, session.out
    received, free = getattr(transport, "query_buffer", (0, 0))
    unsent: int = getattr(transport, "unsent", 0)
    peak: int = getattr(transport, "reply_peak", 0)
    waiting = len(out) + unsent
    beyond = max(waiting - UNCOUNTED_OUTPUT, 0)
    in_exec = session.state & IN_EXEC != 0
    in_multi = in_exec or session.state & IN_MULTI != 0
    old = compat.valkey or not compat.knows(80)
    queued = sum((8 if old else 0) + len(word) for _, argv in session.queue for word in argv) if in_multi else 0
    words = sum(map(len, session.argv)) if session is caller or session.blocked is not None else 0
    if in_exec:  # the arguments of EXEC, or in later versions those of all queued commands
        words = 4 if old else queued
    if session is caller and not compat.valkey:  # Valkey parses before it runs: the buffer is empty then
        received = getattr(transport, "last_read", 0)
    line: list[Any] = [
        b"id=", session.id, b" addr=", session.address("peer"), b" laddr=", session.address("local"),
        b" fd=", getattr(session.transport, "fd", -1), b" name=", session.name,
        b" age=", now // 1000 - session.created_ms // 1000, b" idle=", max(now - session.last_ms, 0) // 1000,
        b" flags=", flag_letters(session, compat),
    ]  # fmt: skip
    if compat.valkey:
        line += [b" capa=", b"r" if session.extra.get("redirects") else b""]
    line += [
        b" db=", session.db.index, b" sub=", 0 if own is None else len(own.channels),
        b" psub=", 0 if own is None else len(own.patterns), b" ssub=", 0 if own is None else len(own.shards),
        b" multi=", len(session.queue) if in_multi or session.extra.get("transactions") else -1,
    ]  # fmt: skip
    if compat.knows(74) or compat.valkey:
        line += [b" watch=", len(session.watcher.keys)]
    # A buffer that was released is created again with its smallest size.
    size = min(max(len(out.buf), INITIAL_CAPACITY), UNCOUNTED_OUTPUT)
    line += [
        b" qbuf=", received, b" qbuf-free=", free, b" argv-mem=", words + getattr(transport, "partial_bytes", 0),
        b" multi-mem=", queued,
        b" rbs=", size, b" rbp=", min(max(peak, len(out)), size), b" obl=", min(waiting, UNCOUNTED_OUTPUT),
        b" oll=", int(beyond > 0), b" omem=", beyond,
    ]  # fmt: skip
    if compat.knows(88):
        line += [b" omem-shared=", 0, b" omem-unshared=", beyond]
    command = b"NULL" if session.command is None else session.command.fullname.encode()
    line += [
        b" tot-mem=", client_memory(session), b" events=", b"rw" if unsent else b"r",
        b" cmd=", b"exec" if in_exec else command,
        b" user=", session.user, b" redir=", redirection(session), b" resp=", out.resp,
    ]  # fmt: skip
    if compat.knows(72):
        line += [b" lib-name=", session.lib_name, b" lib-ver=", session.lib_ver]
    if compat.knows(80):
        line += [b" io-thread=", 0]
    # A command counts when it ends.
    done = session.commands - (session is caller or session.blocked is not None) - in_exec
    if compat.knows(82) or compat.valkey:
        line += [b" tot-net-in=", getattr(transport, "received", 0), b" tot-net-out=", getattr(transport, "sent", 0),
                 b" tot-cmds=", done]  # fmt: skip
    if compat.knows(88):
        reads, extra = getattr(transport, "reads", 0), session.extra.get("of_scripts", 0)
        line += [b" read-events=", reads, b" avg-pipeline-len-sum=", session.commands - extra,
                 b" avg-pipeline-len-cnt=", reads]  # fmt: skip
    return b"".join([part if isinstance(part, bytes) else str(part).encode() for part in line])
