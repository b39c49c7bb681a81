"""The figures of a server as Prometheus metrics, collected without stopping the event loop.

    server_metrics(server, finder) on the event loop, in slices of milliseconds: numbers and names, no text
    families(...)              in a thread: prometheus_client's families; it takes most of the time of a scrape

The names follow Prometheus's conventions: base units (seconds, bytes), `_total` for counters. A counter begins again at
0 after CONFIG RESETSTAT, as after a restart.

**Bounds.** At most `metrics-streams` streams (100) and 1,000 groups are exported: those among the first 300,000 keys
of the databases, in the order in which the keys were created. `rillet_streams_complete` is 0 if any were left out.
Looking for streams among so many keys takes about 0.1 s in all. So the streams that were found are used again until
fifty times as long has passed: a server with few keys is searched at each scrape, one with many every few seconds.
Rejected: SCAN, which numbers all keys of a database at its first call, and so stops the event loop.

**Lag.** As in rillet.store.stats: the edges of the stream are exact, and so is the engine's count, except with the
counters of Redis 7 after entries were removed. Then, and if the count is unknown, the entries are counted in the nodes,
if there are at most 10,000 nodes. A group without a known lag has no sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import rillet
from rillet.commands.server.info import all_commands
from rillet.commands.stream.retention import retention_of
from rillet.host.process_memory import memory
from rillet.keyspace.database import Database
from rillet.keyspace.helper_keys import consumers_key, delayed_key, order_keys, partition_of_key, retries_key
from rillet.real_time import monotonic
from rillet.runtime.session_state import SUBSCRIBED
from rillet.server.server import Server
from rillet.types.compat import LAG_A, LAG_C
from rillet.types.hash import Hash
from rillet.types.stream.counts import counts_of
from rillet.types.stream.group import Group
from rillet.types.stream.stream import Stream
from rillet.types.zset import Zset

KEYS = 300_000
"""The most keys that are examined to find streams."""
GROUPS = 1000
"""The most groups in a scrape."""
_SLICE = 2000  # sessions between two turns of the event loop
_KEYS_A_SLICE = 10_000
_REST = 50  # the time until streams are looked for again, as a multiple of the time that this took
_STREAMS_A_SLICE = 20
_CONSUMERS = 1000  # consumers of a group that are examined
_COUNTED_NODES = 10_000  # the most nodes in which the entries ahead of a group are counted

Labels = tuple[str, ...]


@dataclass
class Metric:
    """A metric: its name, type ("gauge" or "counter"), help, the names of its labels, and (labels, value) pairs."""

    name: str
    type: str
    help: str
    labels: Labels = ()
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: Any, *labels: str) -> None:
        """Add a sample."""
        self.samples.append((labels, float(value)))


async def server_metrics(server: Server, finder: StreamFinder) -> list[Metric]:
    """Return the metrics of a server; the event loop serves clients meanwhile. O(sessions + KEYS)"""
    found = [*_about(server), *await _clients(server), *_memory(), *_persistence(server)]
    found += [*_commands(server), *_keyspace(server)]
    await asyncio.sleep(0)
    return [*found, *await _streams(server, finder)]


def families(metrics: Iterable[Metric]) -> Iterator[Any]:
    """Yield the metrics as families of prometheus_client."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for one in metrics:
        kind = CounterMetricFamily if one.type == "counter" else GaugeMetricFamily
        family = kind(f"rillet_{one.name}", one.help, labels=one.labels)
        for labels, value in dict(one.samples).items():
            family.add_metric(list(labels), value)
        yield family


def _one(name: str, type: str, help: str, value: Any) -> Metric:
    return Metric(name, type, help, (), [((), float(value))])


def _about(server: Server) -> Iterator[Metric]:
    engine = server.engine
    build = Metric("build_info", "gauge", "Version, build and compat of this server; the value is 1.",
                   ("version", "compiled", "compat"))  # fmt: skip
    build.add(1, rillet.__version__, "yes" if rillet.compiled() else "no", engine.settings.compat.name)
    yield build
    yield _one("start_time_seconds", "gauge", "Time of the start, in seconds since 1970.", engine.started_ms / 1000)
    yield _one("loading", "gauge", "1 while the server loads its data.", engine.loading)
    yield _one("writes_refused", "gauge", "1 while writes are refused, because the disk failed.",
               engine.refusal is not None)  # fmt: skip


async def _clients(server: Server) -> list[Metric]:
    blocked = subscribed = received = sent = 0
    sessions, connections = list(server.engine.sessions.values()), list(server.connections)
    for start in range(0, len(sessions), _SLICE):
        for session in sessions[start : start + _SLICE]:
            blocked += session.blocked is not None
            subscribed += bool(session.state & SUBSCRIBED)
        await asyncio.sleep(0)
    for start in range(0, len(connections), _SLICE):
        for connection in connections[start : start + _SLICE]:
            received += connection.received
            sent += connection.sent
        await asyncio.sleep(0)
    closed = server.stats.of_closed()
    return [
        _one("connected_clients", "gauge", "Connected clients.", len(server.connections)),
        _one("blocked_clients", "gauge", "Clients that wait in a blocking command.", blocked),
        _one("subscribed_clients", "gauge", "Clients that are subscribed to channels.", subscribed),
        _one("max_clients", "gauge", "The setting maxclients.", server.settings.maxclients),
        _one("connections", "counter", "Accepted and rejected connections.", server.stats.accepted),
        _one("rejected_connections", "counter", "Connections rejected because of maxclients.", server.stats.refused),
        _one("received_bytes", "counter", "Bytes received from clients.", closed[0] + received),
        _one("sent_bytes", "counter", "Bytes sent to clients.", closed[1] + sent),
    ]


def _memory() -> Iterator[Metric]:
    used = memory()
    yield _one("memory_resident_bytes", "gauge", "Resident memory of the process.", used["used_memory"])
    yield _one("memory_resident_peak_bytes", "gauge", "The most resident memory so far.", used["used_memory_peak"])


def _persistence(server: Server) -> Iterator[Metric]:
    facts = {**server.engine.services.info_sections().get("persistence", dict)()}

    def ok(name: str) -> bool:
        return str(facts.get(name, "ok")) == "ok"

    yield _one("aof_enabled", "gauge", "1 if there is an append-only log.", facts.get("aof_enabled", 0))
    if facts.get("aof_enabled"):
        yield _one("aof_size_bytes", "gauge", "Size of the log's files.", facts["aof_current_size"])
        yield _one("aof_base_size_bytes", "gauge", "Size of the log after its last rewrite.", facts["aof_base_size"])
        yield _one("aof_buffer_bytes", "gauge", "Bytes that are not written yet.", facts["aof_buffer_length"])
    yield _one("aof_last_write_ok", "gauge", "0 while the log cannot be written.", ok("aof_last_write_status"))
    yield _one("aof_rewrites", "counter", "Rewrites of the log that were started.", facts.get("aof_rewrites", 0))
    yield _one("aof_rewrite_in_progress", "gauge", "1 during a rewrite.", facts.get("aof_rewrite_in_progress", 0))
    yield _one("aof_last_rewrite_ok", "gauge", "0 if the last rewrite failed.", ok("aof_last_bgrewrite_status"))
    yield _one("rdb_changes_since_last_save", "gauge", "Changes since the RDB file was written.", server.engine.dirty)
    yield _one("rdb_last_save_timestamp_seconds", "gauge", "Time of the last RDB file, in seconds since 1970.",
               facts.get("rdb_last_save_time", 0))  # fmt: skip
    yield _one("rdb_save_in_progress", "gauge", "1 during BGSAVE.", facts.get("rdb_bgsave_in_progress", 0))
    segments = {**server.engine.services.info_sections().get("rillet", dict)()}
    if "stream_segments" in segments:
        yield _one("segments", "gauge", "Segments of streams on disk.", segments["stream_segments"])
        yield _one("segment_file_bytes", "gauge", "Size of the segments.", segments["stream_segment_bytes"])
        yield _one("stream_memory_used_bytes", "gauge", "Nodes of streams in memory.", segments["stream_memory_used"])
        yield _one("stream_memory_limit_bytes", "gauge", "The setting stream-memory.", segments["stream_memory_limit"])
        yield _one("segment_index_hits", "counter", "Uses of the index of a segment that was in memory.",
                   segments["stream_index_hits"])  # fmt: skip
        yield _one("segment_index_misses", "counter", "Uses of the index of a segment that was read.",
                   segments["stream_index_misses"])  # fmt: skip
    yield _one("retention_removed_entries", "counter", "Entries that the retention of streams has removed.",
               server.engine.stats.retention_removed)  # fmt: skip
    yield _one("rdb_last_save_ok", "gauge", "0 if the last BGSAVE failed.", ok("rdb_last_bgsave_status"))


def _commands(server: Server) -> list[Metric]:
    stats = server.engine.stats
    label = ("command",)
    calls = Metric("commands", "counter", "Calls of a command.", label)
    seconds = Metric("commands_duration_seconds", "counter", "Time in a command, in seconds.", label)
    failed = Metric("commands_failed", "counter", "Calls whose reply was an error.", label)
    rejected = Metric("commands_rejected", "counter", "Calls that were refused before they ran.", label)
    for entry in all_commands(server.engine):
        counters = stats.of_command(entry)
        if counters.calls or counters.rejected:
            calls.add(counters.calls, entry.fullname)
            seconds.add(counters.nanoseconds / 1e9, entry.fullname)
            failed.add(counters.failed, entry.fullname)
            rejected.add(counters.rejected, entry.fullname)
    errors = Metric("error_replies", "counter", "Error replies by their first word.", ("error",))
    for prefix, count in islice(stats.errors.items(), GROUPS):
        errors.add(count, _text(prefix))
    return [calls, seconds, failed, rejected, errors]


def _keyspace(server: Server) -> list[Metric]:
    engine = server.engine
    keys = Metric("keys", "gauge", "Keys of a database.", ("db",))
    expiring = Metric("expiring_keys", "gauge", "Keys of a database that have an expiry.", ("db",))
    for database in engine.databases:
        if len(database) or database.index == 0:
            keys.add(len(database), str(database.index))
            expiring.add(len(database.expires), str(database.index))
    return [
        keys, expiring,
        _one("expired_keys", "counter", "Keys that expired.", engine.stats.expired_keys),
        _one("keyspace_hits", "counter", "Reads that found their key.", sum(one.hits for one in engine.databases)),
        _one("keyspace_misses", "counter", "Reads without a key.", sum(one.misses for one in engine.databases)),
    ]  # fmt: skip


# -- streams ------------------------------------------------------------------------------------------


class StreamFinder:
    """The streams to export: found among the keys, and used again while looking for them would cost too much."""

    def __init__(self) -> None:
        self._found: list[tuple[int, bytes]] = []
        self._complete = True
        self._most = -1
        self._until = 0.0

    async def find(self, server: Server) -> tuple[list[tuple[int, bytes]], bool]:
        """Return (database, key) of the streams, and whether these are all; some may no longer exist. O(KEYS)"""
        most, began = server.settings.metrics_streams, monotonic()
        if most != self._most or began >= self._until:
            self._found, self._complete = await self._look(server, most)
            self._most = most
            self._until = monotonic() + _REST * (monotonic() - began)
        return self._found, self._complete

    async def _look(self, server: Server, most: int) -> tuple[list[tuple[int, bytes]], bool]:
        found: list[tuple[int, bytes]] = []
        examined = 0
        for database in server.engine.databases:
            cursor, streams = 0, dict[bytes, None]()
            while len(database):
                if len(found) + len(streams) > most or examined >= KEYS:
                    return [*found, *((database.index, key) for key in streams)][:most], False
                cursor, some = database.scan_type(cursor, _KEYS_A_SLICE, Stream)
                streams.update(dict.fromkeys(some))
                examined += _KEYS_A_SLICE
                await asyncio.sleep(0)
                if not cursor:
                    break
            found += [(database.index, key) for key in streams]
        return found[:most], len(found) <= most


async def _streams(server: Server, finder: StreamFinder) -> list[Metric]:
    engine = server.engine
    label, of_group = ("db", "stream"), ("db", "stream", "group")
    length = Metric("stream_length", "gauge", "Entries of a stream.", label)
    added = Metric("stream_entries_added", "counter", "Entries that were ever added to a stream.", label)
    last = Metric("stream_last_entry_timestamp_seconds", "gauge", "Time of the last generated ID.", label)
    groups = Metric("stream_groups", "gauge", "Consumer groups of a stream.", label)
    in_memory = Metric("stream_memory_bytes", "gauge", "Bytes of the nodes of a stream in memory.", label)
    in_segments = Metric("stream_segment_bytes", "gauge", "Bytes of the nodes of a stream in segments on disk.", label)
    cold = Metric("stream_segment_entries", "gauge", "Entries of a stream in segments on disk.", label)
    due = Metric("stream_retention_drops_entries", "gauge", "Entries that the retention removes next.", label)
    held = Metric("group_retention_held_entries", "gauge", "Entries beyond the limits that a group needs.", of_group)
    held_bytes = Metric("group_retention_held_bytes", "gauge", "Bytes beyond the limits that a group needs.", of_group)
    delayed = Metric("stream_delayed_entries", "gauge", "Entries that wait until they are due.", label)
    retries = Metric("group_retries", "gauge", "Messages that wait for their retry.", of_group)
    keys = Metric("group_ordered_keys", "gauge", "Keys with pending messages in an order by key.", of_group)
    ordered = Metric("group_ordered_messages", "gauge", "Pending messages of an order by key.", of_group)
    owned = Metric("group_partition_owned", "gauge", "1 if a consumer of the group reads this partition.", of_group)
    lease = Metric("group_partition_lease_seconds", "gauge", "Time until the lease of that consumer ends.", of_group)
    lag = Metric("group_lag", "gauge", "Entries that were not delivered to a group yet.", of_group)
    pending = Metric("group_pending", "gauge", "Delivered messages that were not acknowledged.", of_group)
    oldest = Metric("group_oldest_pending_seconds", "gauge", "Time since the oldest pending delivery.", of_group)
    consumers = Metric("group_consumers", "gauge", "Consumers of a group.", of_group)
    silent = Metric("group_silent_consumer_seconds", "gauge",
                    "The longest time since the last command of a consumer that has pending messages.", of_group)
    wanted, complete = ([], True) if engine.loading else await finder.find(server)
    exported = 0
    for number, (index, key) in enumerate(wanted):
        if number % _STREAMS_A_SLICE == 0:
            await asyncio.sleep(0)
        stream = engine.databases[index].peek(key)
        if type(stream) is not Stream:
            continue  # it was deleted meanwhile
        place = (str(index), _name(key))
        length.add(stream.length, *place)
        added.add(stream.entries_added, *place)
        last.add(stream.last_ms / 1000, *place)
        groups.add(len(stream.groups), *place)
        delayed.add(_waiting(engine.databases[index], delayed_key(key)), *place)
        now = engine.clock.now_ms()
        in_memory.add(stream.node_bytes, *place)
        in_segments.add(stream.sealed_bytes, *place)
        cold.add(stream.sealed_entries, *place)
        kept = retention_of(engine.databases[index], key, stream, now)
        if kept is not None:
            due.add(kept[b"drops-entries"] or 0, *place)
        holding = {} if kept is None else {name: figures for name, *figures in kept[b"held"]}
        for group in list(islice(stream.groups.values(), GROUPS - exported)):
            exported += 1
            name = (*place, _name(group.name))
            pending.add(group.pending_count, *name)
            if kept is not None:
                held.add(holding.get(group.name, (0,))[0], *name)
                held_bytes.add(holding.get(group.name, (0, 0))[1], *name)
            consumers.add(len(group.consumers), *name)
            retries.add(_waiting(engine.databases[index], retries_key(key, group.name)), *name)
            _, lanes, turns = order_keys(key, group.name)
            keys.add(_members(engine.databases[index], turns), *name)
            ordered.add(_members(engine.databases[index], lanes), *name)
            oldest.add(_oldest(group, now), *name)
            silent.add(_silence(group, now), *name)
            ends = _lease_end(engine.databases[index], key, group.name)
            if ends is not None:
                owned.add(ends > now, *name)
                lease.add(max(0, ends - now) / 1000, *name)
            behind = lag_of(stream, group, engine.settings.compat.lag_rule)
            if behind is not None:
                lag.add(behind, *name)
        complete = complete and (exported < GROUPS or number + 1 == len(wanted))
    return [length, added, last, groups, in_memory, in_segments, cold, due, held, held_bytes, delayed, lag, pending,
            oldest, retries, keys, ordered, owned, lease, consumers, silent,
            _one("streams_complete", "gauge", "1 if all streams and groups are in this scrape.", complete)]  # fmt: skip


def _waiting(database: Database, key: bytes) -> int:
    """Return the number of members of a helper key without its last one, which waits for ever."""
    return max(0, _members(database, key) - 1)


def _members(database: Database, key: bytes) -> int:
    value = database.peek(key)
    return len(value) if type(value) is Zset else 0


def _lease_end(database: Database, key: bytes, group: bytes) -> int | None:
    """Return when the lease of the consumer that reads a partition ends, in ms since 1970; 0 if there is none.

    None for a stream that is no partition, or one that the group does not read now.
    """
    place = partition_of_key(key)
    record = None if place is None else database.peek(consumers_key(place[0], group))
    if place is None or type(record) is not Hash:
        return None
    _, epoch, number = place
    if record.get(b"epoch") != b"%d" % epoch or record.get(b"done:%d" % number) is not None:
        return None
    owner = record.get(b"owner:%d" % number)
    member = None if owner is None else record.get(b"member:" + owner.split(b" ", 2)[2])
    return 0 if member is None else int(member.split(b" ", 1)[0])


def _silence(group: Group, now: int) -> float:
    """Return the seconds since the last command of the consumer that holds messages and was silent for longest."""
    some = islice(group.consumers.values(), _CONSUMERS)
    return max((max(0, now - one.seen_time) for one in some if one.pending_count), default=0) / 1000


def _oldest(group: Group, now: int) -> float:
    slot = group.oldest()
    return max(0, now - group.table.delivery_time(slot)) / 1000 if slot >= 0 else 0.0


def lag_of(stream: Stream, group: Group, rule: int) -> int | None:
    """Return the number of entries after a group's position; None if it is unknown. O(nodes), at most _COUNTED_NODES"""
    position = (group.last_ms, group.last_seq)
    if stream.length == 0 or not stream.edge(False, True) or position >= (stream.edge_ms, stream.edge_seq):
        return 0
    if stream.edge(True, True) and position < (stream.edge_ms, stream.edge_seq):
        return stream.length
    if rule != LAG_A or stream.entries_added == stream.length:
        behind = stream.lag(group, LAG_C)
        if behind is not None:
            return behind
    if stream.node_count > _COUNTED_NODES:
        return None
    rank: int = counts_of(stream).rank(stream, *position)
    return stream.length - rank


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _text(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
