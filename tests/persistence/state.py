"""The data of an engine or a server: DUMP, type and expiry of every key of every database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.rewrite_format import InlineBaseWriter
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings

State = dict[tuple[int, bytes], tuple[bytes, int]]


class Opened:
    """An engine with a log, for single commands; the log is flushed after each, as before a reply."""

    def __init__(
        self, folder: Any, fsync: str = "no", now: int = 1_700_000_000_000, settings: Settings | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        # The clock is fixed, because a consumer's seen-time is not logged: it becomes the time of the replay.
        self.clock = ManualClock(now)
        self.engine = Engine(settings or Settings(compat="7.0"), self.clock)
        self.failures: list[str] = []
        self.log = AppendOnlyLog(folder, fsync=fsync, on_failure=self._failed, **options)
        self.replayed = self.log.open(self.engine)
        self.session: Session = self.engine.session()

    def _failed(self, reason: str) -> None:
        self.failures.append(reason)
        self.engine.refusal = reason

    def __call__(self, *argv: Any) -> Any:
        self.engine.execute(self.session, [arg if isinstance(arg, bytes) else str(arg).encode() for arg in argv])
        try:
            if self.engine.log is not None:
                self.engine.log.flush()
        except BaseException:
            self.session.out.take_bytes()
            raise
        return parse_all(self.session.out.take_bytes())[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.log = None
        self.log.close()

    def state(self) -> State:
        return state_of(self)


def rewrite(folder: Path, engine: Engine) -> None:
    """Replace the closed log in the folder by a base of the engine's data."""
    Rewriting(AppendOnlyLog(folder), engine, InlineBaseWriter(engine)).rewrite_now()


def state_of(run: Callable[..., Any]) -> State:
    """Return the data that a function for commands can read."""
    found: State = {}
    for database in range(16):
        run("SELECT", database)
        for key in sorted(run("KEYS", "*")):
            found[database, key] = (run("DUMP", key), run("PEXPIRETIME", key))
    run("SELECT", 0)
    return found


def content_of(run: Callable[..., Any]) -> dict[bytes, Any]:
    """Return the data of database 0 without the read counters of groups (see WORK)."""
    found: dict[bytes, Any] = {}
    for key in sorted(run("KEYS", "*")):
        if run("TYPE", key) != b"stream":
            found[key] = run("GET", key)
            continue
        flat = run("XINFO", "STREAM", key, "FULL", "COUNT", 0)
        info = dict(zip(flat[::2], flat[1::2], strict=True))
        groups = [dict(zip(one[::2], one[1::2], strict=True)) for one in info.pop(b"groups")]
        for group in groups:
            del group[b"entries-read"], group[b"lag"]
        found[key] = (info, groups)
    return found


# A bit of everything that changes something, most of it logged in another form than it was given.
# Redis 7.0 logs a group's read counter with NOACK only, so the state is whole after such a read: the last line.
WORK: list[str] = """
XADD s * a 1 b 2
XADD s 9000000000000-* a 2 b 3
XADD s MAXLEN ~ 2 * other field
XGROUP CREATE s g 0
XREADGROUP GROUP g c COUNT 2 STREAMS s >
XREADGROUP GROUP g d NOACK STREAMS s >
XADD s 9100000000000-5 x y
XREADGROUP GROUP g d STREAMS s >
XACK s g 9100000000000-5
XCLAIM s g e 0 9000000000000-0
XAUTOCLAIM s g f 0 0 COUNT 1
XGROUP CREATECONSUMER s g idle
XGROUP DELCONSUMER s g d
XDEL s 9000000000000-0
XGROUP CREATE t h $ MKSTREAM ENTRIESREAD 3
XADD t 1-1 f v
XADD t 1-2 f v
XADD t 2-1 f w
XTRIM t MINID 1-2
XSETID t 9-9 ENTRIESADDED 20 MAXDELETEDID 5-5
XGROUP SETID t h 2-1
XADD gone 1 a b
XTRIM gone MAXLEN 0
SELECT 3
SET k v
SET counter 10
INCR counter
APPEND k more
SETRANGE k 2 zz
SET short x EX 1000
EXPIRE k 500
PERSIST k
SET number 12345678901
INCRBYFLOAT counter 1.5
SET e v PX 100000
GETEX e EX 77
SELECT 0
SET a 1
RENAME a b
COPY b c
MOVE c 5
DEL b
SELECT 7
SET x y
FLUSHDB
SETEX last 99 z
SELECT 0
XADD s 9200000000000 end 1
XREADGROUP GROUP g d NOACK STREAMS s >
""".strip().splitlines()

# A group with consumers of every kind, entries pending whose stream entry is gone, tombstones, nodes of one entry.
STREAMS = """
CONFIG SET stream-node-max-entries 3
XADD tombs 1-1 a 1 b 2
XADD tombs 1-2 a 1 b 2
XADD tombs 1-3 a 1 c 2
XADD tombs 2-0 long {long}
XADD tombs 18446744073709551615-18446744073709551615 last -1
XGROUP CREATE tombs g 0
XGROUP CREATE tombs middle 1-3 ENTRIESREAD 3
XREADGROUP GROUP g reader COUNT 4 STREAMS tombs >
XREADGROUP GROUP g greedy NOACK STREAMS tombs >
XGROUP CREATECONSUMER tombs g idle
XCLAIM tombs g thief 0 1-2 IDLE 100 RETRYCOUNT 7
XDEL tombs 1-2 1-3
XGROUP CREATE empty g $ MKSTREAM
XADD node 5-5 f v
XTRIM node MAXLEN 0
SET compressible {long}
SET number -2147483648
""".replace("{long}", "abc" * 300)

# Idempotent producers, one of them without messages; released entries, and such whose entry is gone.
LATER = """
XADD sent IDMP shop order-1 * a 1
XADD sent IDMP shop order-2 * a 2
XADD sent IDMP shop order-1 * a 1
XADD sent IDMPAUTO sensor * t 20 h 40
XCFGSET tuned IDMP-DURATION 60 IDMP-MAXSIZE 5
XADD tuned IDMP p i * a b
XCFGSET tuned IDMP-DURATION 70
XADD back 1-1 a 1
XADD back 2-1 a 1
XADD back 3-1 a 1
XADD back 4-1 a 1
XGROUP CREATE back g 0
XGROUP CREATE back h 0 ENTRIESREAD 2
XREADGROUP GROUP g one COUNT 3 STREAMS back >
XREADGROUP GROUP g two STREAMS back >
XNACK back g FAIL IDS 2 3-1 1-1
XNACK back g FATAL IDS 1 4-1
XDEL back 3-1
XREADGROUP GROUP h one COUNT 2 STREAMS back >
"""
