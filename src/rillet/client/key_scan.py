"""Divides the keys of a server or a cluster into parts, and lists the keys of one part, each key once.

A program reads the parts in parallel, in processes that do not communicate. Three kinds of parts:

    CURSORS   a range of SCAN's cursors on one server       the work of SCAN is divided among the parts
    SHARES    crc32(key) mod n = i                          every part scans all keys; for servers with other cursors,
                                                            and for an embedded store, whose owner may change
    SLOTS     slots of a cluster (CLUSTER GETKEYSINSLOT)    the work is divided among the parts

**Cursors.** Redis numbers the buckets of its hash table and visits them in the order of their reversed bits
(dict.c, dictScan). So the reversed cursor rises from 0 to 2^64, and its top bits are the low bits of the hash:

    bits = 2      position 0         1         2         3
    low bits of the hash   ..00      ..10      ..01      ..11
                           SCAN 0 ──►SCAN 2 ──►SCAN 1 ──►SCAN 3 ──► 0

The keys of a position are the same for every size of the table, also while it is rehashed, as long as it has at least
2^bits buckets. A part begins at the cursor of its first position and ends where the next part begins. A call of SCAN
may run past this end. Then the part drops the reply and repeats the call with a smaller COUNT. With COUNT 1, SCAN stops
at the first bucket that contains a key; if it runs past the end, all returned keys belong to the next part.

A table of n keys has at least n / 35 buckets in every server that uses this scheme. The planner requires
KEYS_PER_POSITION keys for each position, and a part fails with an error if FEWEST keys or fewer are left for each: only
then could a bucket belong to two parts. A restart changes the hash function, so a part also fails if the server has
another run ID than at planning. (A single part starts again instead.) The planner tests one call of SCAN at the start
of each part. If a cursor is unexpected, or INFO shows a server of another family, the parts are SHARES.

SCAN may return a key twice when the table shrinks. Each part remembers its keys, about 100 bytes for each. Since a key
belongs to one part, no key occurs twice.

**Slots.** A key belongs to the part of its slot, also while the slot moves to another node. If the owners of slots have
changed during the read, or a slot is moving, the part asks all masters again for the keys of its slots.

Rejected: SCAN on the planner, which would hold all keys; SCAN in every part of a single server (n times the work for n
parts); SCAN on the nodes of a cluster, because a key that moves could be in two parts or in none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from rillet.client.cluster import SLOTS as ALL_SLOTS
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, refused
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.client.transaction import retry
from rillet.protocol.reply_parser import ReplyError
from rillet.structs.glob import matches

CURSORS, SHARES, SLOTS = "cursors", "shares", "slots"
KEYS_PER_POSITION = 4096
FEWEST = 64
MOST_BITS = 16
_END = 1 << 64
_SLOTS_AT_ONCE = 64
_MOST_KEYS = b"1000000000"
# Versions in INFO of servers whose SCAN is Redis's; any other `<name>_version` is of another family.
_FAMILY = frozenset(("redis_version", "valkey_version", "rillet_version", "python_version", "gcc_version"))


@dataclass(frozen=True)
class ScanPart:
    """The keys that one task reads: positions [low, high) of 2^bits, or share `low` of `high`, or slots."""

    kind: str
    low: int = 0
    high: int = 1
    bits: int = 0
    run_id: str = ""
    slots: tuple[int, ...] = ()


def reversed_bits(number: int, bits: int = 64) -> int:
    """Return a number of `bits` bits with its bits in reverse order."""
    return int(f"{number:0{bits}b}"[::-1], 2) if bits else 0


def plan_scan(servers: Servers, parts: int, lasting: bool = True) -> list[ScanPart]:
    """Divide the keys of the servers into up to `parts` parts.

    lasting: whether the process that serves the keys now will also serve the readers; else, the parts are SHARES.
    """
    if servers.is_cluster:
        return _slot_parts(servers, parts)
    keys = _ask(servers, b"DBSIZE")
    most = max(keys // KEYS_PER_POSITION, 1).bit_length() - 1
    parts = min(parts, 1 << most)
    whole = (parts - 1).bit_length()  # enough for a power of 2; other numbers of parts divide evenly with three more
    bits = min(most, MOST_BITS, whole if parts == 1 << whole else whole + 3)
    run_id = _run_id(servers) if lasting else None
    if parts == 1:
        return [ScanPart(CURSORS, run_id=run_id or "")]
    if run_id is not None:
        cuts = [(part << bits) // parts for part in range(parts + 1)]
        planned = [ScanPart(CURSORS, cuts[i], cuts[i + 1], bits, run_id) for i in range(parts)]
        if all(_as_expected(servers, part) for part in planned):
            return planned
    return [ScanPart(SHARES, share, parts) for share in range(parts)]


def _slot_parts(servers: Servers, parts: int) -> list[ScanPart]:
    """Divide the slots into parts, each with slots of one node; each node gets parts in proportion to its slots."""
    owned: dict[Any, list[int]] = {}
    for slot, owner in enumerate(servers.owners()):
        owned.setdefault(owner, []).append(slot)
    planned = []
    for slots in owned.values():
        count = max(1, round(parts * len(slots) / ALL_SLOTS))
        cuts = [len(slots) * i // count for i in range(count + 1)]
        planned += [ScanPart(SLOTS, slots=tuple(slots[cuts[i] : cuts[i + 1]])) for i in range(count)]
    return [part for part in planned if part.slots]


def _run_id(servers: Servers) -> str | None:
    """Return the run ID of the only server; None if it has another family of cursors, or does not answer INFO."""
    try:
        reply = _ask(servers, b"INFO", b"server")
    except ConnectionLost:
        raise
    except ConnectorError:
        return None
    lines = dict(line.split(":", 1) for line in reply.decode(errors="replace").splitlines() if ":" in line)
    if any(name.endswith("_version") and name not in _FAMILY for name in lines):
        return None
    return lines.get("run_id")


def _ask(servers: Servers, *words: bytes) -> Any:
    """Send one command to the only server and return its reply; repeat it after a lost connection."""
    return retry(servers, lambda: servers.ask(next(servers.masters()), *words))


def _as_expected(servers: Servers, part: ScanPart) -> bool:
    """Return whether a call of SCAN at the start of a part returns a cursor that continues there."""
    start = reversed_bits(part.low, part.bits)
    following, _ = _ask(servers, b"SCAN", b"%d" % start, b"COUNT", b"1")
    first = part.low << (64 - part.bits)
    after = reversed_bits(int(following)) or _END
    return first < after <= first + (1 << (64 - part.bits))


class KeyScan:
    """Lists the keys of one part that match a glob and, on a single server, have a type.

    Nothing else may use the connections of `servers` until all keys are listed, because SCAN is sent ahead.
    """

    def __init__(self, servers: Servers, part: ScanPart, glob: bytes, kind: bytes = b"", count: int = 1000) -> None:
        self.servers = servers
        self.part = part
        self.glob = glob
        self.kind = kind  # empty: any type
        self.count = count
        self.seen: set[bytes] = set()
        self._ahead: tuple[Connection, int] | None = None  # the SCAN that was sent before its keys are needed

    def batches(self, size: int) -> Iterator[list[bytes]]:
        """Yield the keys in batches of `size`."""
        waiting: list[bytes] = []
        for found in self._found():
            waiting = waiting + found if waiting else found
            at = 0
            while at + size <= len(waiting):
                yield waiting[at : at + size]
                at += size
            waiting = waiting[at:]
        if waiting:
            yield waiting

    def _found(self) -> Iterator[list[bytes]]:
        if self.part.kind == SLOTS:
            yield from self._in_slots()
        elif self.part.kind == SHARES:
            share, shares = self.part.low, self.part.high
            for found in self._scan(0, _END):
                yield [key for key in found if crc32(key) % shares == share]
        else:
            self._require_same_server()
            unit = 64 - self.part.bits
            yield from self._scan(reversed_bits(self.part.low, self.part.bits), self.part.high << unit)
            if self.part.bits:
                self._require_large_table()

    def _new(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys that were not listed before."""
        before = len(self.seen)
        fresh = list(keys) if self.seen.isdisjoint(keys) else [key for key in keys if key not in self.seen]
        self.seen.update(fresh)
        return fresh if len(self.seen) - before == len(fresh) else list(dict.fromkeys(fresh))

    # ---- one server ----

    def _scan(self, start: int, limit: int) -> Iterator[list[bytes]]:
        """Yield the keys from a cursor up to the reversed cursor `limit`."""
        cursor, count = start, self.count
        patience: Patience | None = None
        while True:
            try:
                following, keys = self._call(cursor, count)
            except ConnectionLost:
                patience = patience or Patience(self.servers.options.timeout)
                if not patience.again():
                    raise
                cursor = self._after_reconnect(cursor)
                continue
            patience = None
            after = reversed_bits(int(following)) or _END
            if after > limit:
                if count == 1:
                    return
                count = max(1, count // 10)
                continue
            cursor = int(following)
            if after < limit:
                self._send_ahead(cursor)
            fresh = self._new(keys)
            if fresh:
                yield fresh
            if after == limit:
                return

    def _words(self, cursor: int, count: int) -> tuple[bytes, ...]:
        options = [] if self.glob == b"*" else [b"MATCH", self.glob]
        options += [b"TYPE", self.kind] if self.kind else []
        return (b"SCAN", b"%d" % cursor, b"COUNT", b"%d" % count, *options)

    def _send_ahead(self, cursor: int) -> None:
        """Send the next SCAN, so that the server executes it while the caller uses the keys of this one."""
        connection = next(self.servers.masters())
        with suppress(ConnectionLost):  # `_call` repeats it
            connection.send_all([self._words(cursor, self.count)])
            self._ahead = connection, cursor

    def _call(self, cursor: int, count: int) -> Any:
        """Return the reply to SCAN: to the one that was sent ahead, or to a new one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            connection, sent = ahead
            try:
                reply = connection.reply()
            except ConnectionLost:
                self.servers.forget(connection)
                raise
            if sent == cursor and count == self.count and not isinstance(reply, ReplyError):
                return reply
        return self.servers.ask(next(self.servers.masters()), *self._words(cursor, count))

    def _after_reconnect(self, cursor: int) -> int:
        """Return the cursor at which to continue after a lost connection: 0 if the server may be another one."""
        if self.part.bits:
            self._require_same_server()
            return cursor
        return 0

    def _require_same_server(self) -> None:
        if self.part.bits and _run_id(self.servers) != self.part.run_id:
            raise ConnectorError(
                f"rillet: {self.servers} was restarted or replaced after the read of its keys was planned, which "
                "changes the order of SCAN: load the DataFrame again"
            )

    def _require_large_table(self) -> None:
        keys = _ask(self.servers, b"DBSIZE")
        if keys <= FEWEST << self.part.bits:
            raise ConnectorError(
                f"rillet: nearly all keys at {self.servers} were deleted after the read was planned, {keys} are left: "
                "load the DataFrame again"
            )

    # ---- slots of a cluster ----

    def _in_slots(self) -> Iterator[list[bytes]]:
        before = retry(self.servers, self.servers.slot_texts)
        for at in range(0, len(self.part.slots), _SLOTS_AT_ONCE):
            slots = self.part.slots[at : at + _SLOTS_AT_ONCE]
            yield from self._keys_of(slots, None)
        self.servers.map_is_stale()
        after = retry(self.servers, self.servers.slot_texts)
        if before != after or "[" in "".join(after):
            for number in range(len(after)):
                for at in range(0, len(self.part.slots), 8 * _SLOTS_AT_ONCE):
                    yield from self._keys_of(self.part.slots[at : at + 8 * _SLOTS_AT_ONCE], number)

    def _keys_of(self, slots: Sequence[int], master: int | None) -> Iterator[list[bytes]]:
        """Yield the keys of slots at their owners, or at the master of this number."""
        patience = Patience(self.servers.options.timeout)
        while True:
            try:
                replies = self._slot_replies(slots, master)
                break
            except ConnectionLost:
                self.servers.map_is_stale()
                if not patience.again():
                    raise
        for keys in replies:
            fresh = self._new([key for key in keys if self.glob == b"*" or matches(self.glob, key)])
            if fresh:
                yield fresh

    def _slot_replies(self, slots: Sequence[int], master: int | None) -> list[list[bytes]]:
        """Return the keys of each slot, with one pipeline for each node."""
        nodes: dict[Connection, list[tuple[bytes, ...]]] = {}
        node = None if master is None else list(self.servers.masters())[master]
        for slot in slots:
            connection = self.servers.slot_connection(slot) if node is None else node
            nodes.setdefault(connection, []).append((b"CLUSTER", b"GETKEYSINSLOT", b"%d" % slot, _MOST_KEYS))
        replies = []
        for connection, commands in nodes.items():
            try:
                received = connection.replies(commands)
            except ConnectionLost:
                self.servers.forget(connection)
                raise
            for reply in received:
                if isinstance(reply, ReplyError):
                    raise refused(connection.address, "CLUSTER GETKEYSINSLOT", str(reply))
            replies += received
        return replies
