"""Field expiry with moving time: hashes of an engine and of a real server whose clocks the comparison sets.

As moving_time.py, with the commands of hashes: replies, events of keys and of fields, counters, the number of hashes
with field expiry in INFO, payloads, and the log, after each command. Replies and payloads of a hashtable are compared
sorted, because its order depends on a random seed. Both expiry cycles run until they leave the same data.

    python -m tests.differential.moving_fields --steps 100000 --seed 1 --compat newest
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any

from rillet.types.compat import COMPATS
from rillet.types.hash import Hash
from tests.differential.logs import commands_in, file_of, kept
from tests.differential.moving_time import Comparison, Source, TimedServer, library, server
from tests.differential.templates import Word
from tests.differential.wire import Local

LOGGING = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")
FIELDS: tuple[Word, ...] = ("f1", "f2", "f3", "f4", 7)
VALUES: dict[str, tuple[Word, ...]] = {
    "hash": ("h1", "h1", "h2", "h3"), "f": FIELDS, "v": ("v", 1, 42, "", "x" * 65), "text": ("text",),
    "ms": (1, 2, 10, 49, 50, 51, 100, 500, 999, 1000, 1001, 3000, 3999, 4000, 4001, 10_000, 60_000, 0, -1, "x",
           2**63 - 1, 2**46 - 1, 2**46),
    "s": (1, 1, 2, 3, 10, 60, 3600, 0, -1, "x", 2**63 - 1, 9223372036854775, 70368744177, 70368744178),
    "offset": (-1000, -50, -1, 0, 1, 2, 10, 50, 100, 999, 1000, 1001, 5000, 60_000, 10_000_000),
    "db": (0, 0, 0, 1), "yes": ("yes", "no"), "events": ("EVENTS", "EVENTS", "AKE", "Kh", "Ex", "gKE", "", "", ""),
}  # fmt: skip
OPTIONS = {
    "condition": ("NX", "XX", "GT", "LT", "bogus"),
    "time": ("EX $s", "PX $ms", "PX $ms", "PX $ms", "EXAT @s", "PXAT @ms", "PXAT @ms"),
    "getex": ("EX $s", "PX $ms", "PX $ms", "PXAT @ms", "EXAT @s", "PERSIST", "PERSIST", "KEEPTTL", "FNX", "bogus"),
    "setex": ("EX $s", "PX $ms", "PX $ms", "PXAT @ms", "EXAT @s", "KEEPTTL", "KEEPTTL", "FNX", "FXX", "NX", "XX",
              "PERSIST", "bogus"),
}  # fmt: skip
TEMPLATES = """
    HSET $hash $f $v                HSET $hash $f $v $f $v          HSET $hash f1 1 f2 2 f3 3 f4 4   HSETNX $hash $f $v
    HGET $hash $f                   HMGET $hash $f $f $f            HEXISTS|HSTRLEN $hash $f         HLEN $hash
    HGETALL|HKEYS|HVALS $hash       HSCAN $hash 0 COUNT 100         HRANDFIELD $hash 100             HINCRBY $hash $f 1
    HINCRBYFLOAT $hash $f 1.5       HDEL $hash $f                   HDEL $hash $f $f                 HINCRBY $hash 7 -2
    HPEXPIRE $hash $ms FIELDS 1 $f  HPEXPIRE $hash $ms FIELDS 2 $f $f                                HMSET $hash $f $v
    HPEXPIRE $hash $ms %condition FIELDS 2 $f $f
    HPEXPIREAT $hash @ms FIELDS 3 $f $f $f
    HEXPIRE $hash $s FIELDS 1 $f    HEXPIREAT $hash @s NX|XX|GT|LT FIELDS 1 $f                       GET $hash
    HPEXPIRE $hash 50 FIELDS 4 f1 f2 f3 f4
    HPEXPIRE $hash $ms NX|XX|GT|LT FIELDS 2 $f $f
    HPEXPIRE $hash 5000 GT|LT XX|LT FIELDS 1 $f
    HPEXPIREAT $hash @ms FIELDS 1 $f NX|XX
    HPTTL|HTTL $hash FIELDS 1 $f    HPTTL|HTTL $hash FIELDS 3 $f $f $f
    HPTTL $hash FIELDS 2 $f
    HEXPIRETIME|HPEXPIRETIME $hash FIELDS 3 $f $f $f                HPERSIST $hash FIELDS 1 $f
    HPERSIST $hash FIELDS 2 $f $f   HPERSIST $hash FIELDS 0 $f      HPERSIST $hash FIELDS x $f
    HPERSIST $hash f f f
    HGETEX $hash FIELDS 2 $f $f     HGETEX $hash %getex FIELDS 2 $f $f                               TYPE $hash
    HGETEX $hash PX $ms FIELDS 1 $f
    HGETEX $hash FIELDS 1 $f PERSIST
    HGETEX $hash FIELDS 1 $f PX $ms
    HGETEX $hash PERSIST FIELDS 1 $f
    HSETEX $hash FIELDS 1 $f $v     HSETEX $hash PX $ms FIELDS 2 $f $v $f $v
    HSETEX $hash PXAT @ms FIELDS 1 $f $v
    HSETEX $hash %setex FIELDS 2 $f $v $f $v                        HSETEX $hash FXX|FNX %time FIELDS 1 $f $v
    HSETEX $hash FNX|FXX FIELDS 1 $f $v PX|EX $ms                   HSETEX $hash KEEPTTL FIELDS 2 $f $v $f $v
    HGETDEL $hash FIELDS 1 $f       HGETDEL $hash FIELDS 2 $f $f    HGETDEL $hash FIELDS 2 $f
    HGETEX $hash EX FIELDS 1 $f
    HSETEX $hash EX FIELDS          HPEXPIRE $hash $ms FIELDS 3 $f $f
    HEXPIRE text 5 FIELDS 1 f
    HTTL text FIELDS 1 f            HGETEX text FIELDS 1 f          HSETEX text FIELDS 1 f v
    HGETDEL text FIELDS 1 f
    RENAME|RENAMENX $hash $hash     COPY $hash $hash REPLACE        COPY $hash $hash              MOVE $hash $db
    DUMP $hash                      DUMP $hash                      OBJECT ENCODING $hash         OBJECT ENCODING $hash
    DEL|UNLINK $hash                SET $hash x                     PEXPIRE $hash $ms             PERSIST|PTTL $hash
    MULTI                           EXEC                            EXEC                          WATCH $hash
    DISCARD                         SELECT 0|1                      SELECT 0
    DEBUG DIGEST-VALUE $hash
    TOUCH $hash                     EXISTS $hash                     HRANDFIELD $hash 0
"""
GLOBALS = """
    SWAPDB 0 1                      FLUSHDB                         CONFIG SET notify-keyspace-events $events
    CONFIG SET hash-max-listpack-entries 3|512|512                  CONFIG SET lazyfree-lazy-expire $yes
    CONFIG SET notify-keyspace-events EVENTS                        CONFIG SET hash-max-listpack-value 64|64|4
    SET text x                      SET text x                      CONFIG SET hash-max-listpack-entries 512
"""
_SORTED = (b"hgetall", b"hkeys", b"hvals", b"hscan", b"hrandfield", b"dump")
_UNORDERED_PAYLOADS = (4, 22, 24)


class FieldComparison(Comparison):
    """One round with hashes."""

    SOURCE: Source = (TEMPLATES, VALUES, OPTIONS)
    GLOBALS = GLOBALS
    in_any_order = False
    COUNTERS = ("expired_keys", "keyspace_hits", "keyspace_misses", "expired_subkeys", "expired_fields",
                "expired_subkeys_active")  # fmt: skip

    def __init__(self, server: TimedServer, compat: str, seed: int, closely: bool = False) -> None:
        self.compat = compat
        super().__init__(server, compat, seed, closely)
        self.evicts = False
        self.path = file_of(server.judge)
        self.log = kept(self.ours.engine)
        self.read = 0
        self.marker = Local(self.ours.engine)
        self._align_logs()

    def classes(self, compat: str) -> str:
        return "AKEmnoc" + ("STIV" if COMPATS[compat].knows(88) else "") if COMPATS[compat].knows(82) else "AKEmn"

    def _settings(self) -> list[list[bytes]]:
        names = (b"hash-max-listpack-entries", b"512", b"hash-max-listpack-value", b"64")
        return [*super()._settings(), [b"CONFIG", b"SET", *names]]

    def _command(self, client: int, argv: list[bytes]) -> bytes:
        if b"EVENTS" in argv:
            argv = [self.events.encode() if word == b"EVENTS" else word for word in argv]
        if argv[0].lower() == b"hsetex" and self.compat == "8.6" and len(set(argv[2:])) < len(argv[2:]):
            return b""  # 8.6.3 crashes if a field is named twice
        self.in_a_table = False
        key = argv[1] if len(argv) > 1 else b""
        if argv[0].lower() == b"copy" and self.compat == "valkey" and self._has_expired(client, key):
            return b""  # Valkey makes a hash without fields
        if argv[0].lower() in _SORTED:
            value = self.ours.clients[client].session.db.peek(key)
            self.in_a_table = value is not None and getattr(value, "table", None) is not None
            if self.ours.clients[client].session.state:
                return b""  # its reply would be a part of the reply to EXEC
        # It removes all expired fields: those of a hashtable with equal times in any order.
        self.in_any_order = argv[0].lower() == b"hrandfield"
        reply = super()._command(client, argv)
        keyspaces = [_without_average(side.info(b"keyspace")) for side in (self.ours, self.server)]
        self._equal("INFO keyspace", *keyspaces)
        self._compare_logs(not self.in_any_order)
        self.in_any_order = False
        return reply

    def _has_expired(self, client: int, key: bytes) -> bool:
        """Return whether all fields of a hash have expired."""
        value = self.ours.clients[client].session.db.peek(key)
        return isinstance(value, Hash) and value.count_before(self.stamp.ms) == len(value)

    def _equal(self, what: str, ours: Any, theirs: Any) -> None:
        if what == "events" and self.in_any_order:
            ours, theirs = (
                sorted((name, b",".join(sorted(re.split(rb"[|,]", text)))) for name, text in side)
                for side in (ours, theirs)
            )
        super()._equal(what, ours, theirs)

    def comparable(self, argv: list[bytes], ours: bytes, theirs: bytes) -> tuple[bytes, bytes]:
        if not self.in_a_table:
            return ours, theirs
        if argv[0].lower() == b"dump" and ours != theirs:
            one, two = (reply.partition(b"\r\n")[2][:-12] for reply in (ours, theirs))
            assert one[:1] == two[:1], (ours, theirs)
            assert one[0] in _UNORDERED_PAYLOADS, (ours, theirs)
            return bytes(sorted(one)), bytes(sorted(two))
        return b"\r\n".join(sorted(ours.split(b"\r\n"))), b"\r\n".join(sorted(theirs.split(b"\r\n")))

    def _align_logs(self) -> None:
        """Let both logs continue in another database than any command's, so that a SELECT comes next."""
        words = ([b"SELECT", b"15"], [b"SET", b"k", b"v"], [b"DEL", b"k"])
        for argv in words:
            self.marker.run(argv)
            self.server.control.run(argv)
        self.log.feed.take_bytes()
        self.read = self.path.stat().st_size
        self.ours.events()
        self.server.events()

    def _compare_logs(self, ordered: bool) -> None:
        mine, real = commands_in(self.log.feed.take_bytes()), self._new_commands()
        if not ordered:
            mine, real = (
                sorted([*one[:2], *sorted(one[2:])] for one in log if one[0] != b"SELECT") for log in (mine, real)
            )
            self._align_logs()
        self._equal("log", [as_set(one) for one in mine], [as_set(one) for one in real])

    def _new_commands(self) -> list[list[bytes]]:
        with self.path.open("rb") as file:
            file.seek(self.read)
            data = file.read()
        self.read += len(data)
        return commands_in(data)

    def _random_key(self) -> None:
        self._settle()

    def _scan(self) -> None:
        self._settle()

    def _settle(self) -> None:
        """Let both expiry cycles remove all expired fields; compare events, digests, counters and logs."""
        self.done.append("active expiry")
        engine = self.ours.engine
        engine.active_expire = True
        for _ in range(100):
            engine.expire_cycle()
        engine.active_expire = False
        self.server.control.run([b"DEBUG", b"SET-ACTIVE-EXPIRE", b"1"])
        wanted = self._state(self.ours.info, lambda argv: self.ours.run(1, argv))
        for _ in range(2_000):
            theirs = self._state(self.server.info, lambda argv: self.server.run(1, argv))
            if theirs == wanted:
                break
            time.sleep(0.0005)
        self.server.control.run([b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"])
        self._equal("state", wanted, theirs)
        self.in_any_order = True
        self._unordered_events()
        self.in_any_order = False
        self._compare_logs(False)
        self._counters_are_equal()
        engine.check()

    def _state(self, info: Any, run: Any) -> list[Any]:
        stats, before = self._counters(info(b"stats")), self.before if info == self.server.info else {}
        numbers = {name: number - before.get(name, 0) for name, number in stats.items()}
        return [_without_average(info(b"keyspace")), run([b"DEBUG", b"DIGEST"]),
                {name: number for name, number in numbers.items() if name.startswith("expired")}]  # fmt: skip


def as_set(argv: list[bytes]) -> list[bytes]:
    """Return HSET for the HSETEX with KEEPTTL that Redis logs for every HINCRBYFLOAT."""
    if argv[0] == b"HSETEX" and argv[2:5] == [b"KEEPTTL", b"FIELDS", b"1"]:
        return [b"HSET", argv[1], *argv[5:]]
    return argv


def _without_average(info: dict[str, str]) -> dict[str, str]:
    """Return INFO keyspace without the mean time to live, which both sides sample."""
    return {name: ",".join(part for part in text.split(",") if not part.startswith("avg_ttl"))
            for name, text in info.items()}  # fmt: skip


def main() -> int:
    """Run rounds until the number of steps is reached; print the seed of each difference."""
    from tests.judge import peer_binary

    parser = argparse.ArgumentParser(description="Compare field expiry with a real server while time moves.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--compat", default="newest")
    parser.add_argument("--closely", action="store_true", help="compare the counters after each command")
    options = parser.parse_args()
    if library() is None:
        print("libfaketime is not installed (Debian: faketime)")
        return 5
    done = failures = 0
    seed = options.seed
    with server(options.compat, peer_binary(options.compat), *LOGGING) as one:
        while done < options.steps and failures < 5:
            steps = min(1_000, options.steps - done)
            try:
                FieldComparison(one, options.compat, seed, options.closely).run(steps)
            except AssertionError as error:
                failures += 1
                print(f"seed {seed}: {error}", flush=True)
            done += steps
            seed += 1
    print(f"compat {options.compat}, seeds {options.seed} to {seed - 1}: {done} steps, {failures} failures", flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
