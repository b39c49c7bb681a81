"""The settings: everything that redis.conf, the command line and CONFIG SET can change, one declaration each.

A setting has Redis's name; its Python attribute replaces `-` by `_` (`settings.stream_node_max_bytes`). Text is parsed
and shown as in Redis (`setting_types`).

Clients and test suites also read settings of features that rillet does not have. Those are declared with their one
true value (`maxmemory 0`, `slowlog-log-slower-than -1`); CONFIG SET rejects any other value with the reason. Settings
without an effect (`daemonize`, `tcp-keepalive`) accept every valid value, so that a redis.conf is read and rewritten
without loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rillet.runtime.keyspace_events import Events, letters
from rillet.runtime.keyspace_events import parse as parse_events
from rillet.runtime.setting_types import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    Lines,
    SavePoints,
    SettingError,
    SettingType,
    boolean,
    file_name,
    fixed,
    flags,
    integer,
    memory,
    octal,
    parse_integer,
    parse_memory,
    quoted,
    save_points,
    show_memory,
    show_save,
    string,
    words,
    write_save,
)
from rillet.structs.glob import compiled
from rillet.types.compat import COMPATS, NEWEST, Compat
from rillet.types.stream.idmp import DURATION, DURATION_RANGE, MAX_ENTRIES, MAX_ENTRIES_RANGE


def _compat(text: str) -> Compat:
    """Parse the setting `compat`: the server and version whose behavior rillet shows."""
    if text.lower() not in COMPATS:
        raise SettingError("argument(s) must be one of the following: " + ", ".join(COMPATS))
    return COMPATS[text.lower()]


# Output bytes that client-output-buffer-limit does not count (Redis: the client's fixed buffer).
UNCOUNTED_OUTPUT = 16 * 1024


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """Limits of a client's unread output: `hard` bytes, or `soft` bytes for more than `seconds`; 0 = unlimited."""

    hard: int = 0
    soft: int = 0
    seconds: int = 0

    def reached(self, waiting: int, above_since: int, now: int) -> tuple[bool, int]:
        """Return whether `waiting` bytes exceed a limit at `now` (ms), and since when the soft limit, else 0.

        Source: networking.c, checkClientOutputBufferLimits; Redis does not count a client's fixed buffer.
        """
        if waiting <= UNCOUNTED_OUTPUT:
            return False, 0
        above_since = (above_since or now) if self.soft and waiting >= self.soft else 0
        too_long = above_since != 0 and now - above_since > 1000 * self.seconds
        return too_long or 0 < self.hard <= waiting, above_since

    def __str__(self) -> str:
        return f"{self.hard} {self.soft} {self.seconds}"


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The setting client-output-buffer-limit: one limit for each class of clients."""

    normal: OutputLimit = OutputLimit()
    replica: OutputLimit = OutputLimit(256 * 1024**2, 64 * 1024**2, 60)
    pubsub: OutputLimit = OutputLimit(32 * 1024**2, 8 * 1024**2, 60)

    def __str__(self) -> str:
        return f"normal {self.normal} slave {self.replica} pubsub {self.pubsub}"


_OUTPUT_CLASSES = {"normal": "normal", "slave": "replica", "replica": "replica", "pubsub": "pubsub"}


def _output_limits(words: list[str], settings: Settings) -> OutputLimits:
    """Replace the limits of the named classes of clients (config.c: updateClientOutputBufferLimit)."""
    if len(words) % 4:
        raise SettingError("Wrong number of arguments in buffer limit configuration.")
    changed: dict[str, OutputLimit] = {}
    for at in range(0, len(words), 4):
        kind = _OUTPUT_CLASSES.get(words[at].lower())
        if kind is None:
            raise SettingError("Invalid client class specified in buffer limit configuration.")
        hard, soft, seconds = parse_memory(words[at + 1]), parse_memory(words[at + 2]), parse_integer(words[at + 3])
        if hard is None or soft is None or seconds is None or min(hard, soft, seconds) < 0:
            raise SettingError("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
        changed[kind] = OutputLimit(hard, soft, seconds)
    return replace(settings.client_output_buffer_limit, **changed)


def _events(text: str, settings: Settings) -> Events:
    """Parse the setting notify-keyspace-events: letters of event classes and channels."""
    events = parse_events(text, settings.compat)
    if events is None:
        raise SettingError(f"Invalid event class character. Use '{letters(settings.compat)}'.")
    return events


def _written_events(events: Events) -> Lines:
    return [(quoted(str(events)), events != Events())]


def _written_limits(limits: OutputLimits) -> Lines:
    """Return a line for each class of clients (config.c: rewriteConfigClientOutputBufferLimitOption)."""
    lines = []
    for name in ("normal", "replica", "pubsub"):
        limit: OutputLimit = getattr(limits, name)
        text = f"{name} {show_memory(limit.hard)} {show_memory(limit.soft)} {limit.seconds}"
        lines.append((text, limit != getattr(_LIMITS, name)))
    return lines


_LIMITS = OutputLimits()


def _bind(words: list[str]) -> str:
    """Parse the setting `bind`: the addresses to listen on."""
    return " ".join(word for word in words if word)


def _written_bind(addresses: str) -> Lines:
    if addresses == _LOOPBACK:
        return []
    # A word that needs quotes is not an address; quoted, it stays one word, which the next start rejects.
    written = (word if re.fullmatch(r"[!#-&(-\[\]-~]+", word) else quoted(word) for word in addresses.split(" "))
    return [(" ".join(written), True)]


_LOOPBACK = "127.0.0.1 -::1"


def _oom_scores(words: list[str]) -> str:
    """Parse three scores for the kernel's OOM killer: of a master, a replica and a child process."""
    if len(words) != 3:
        raise SettingError("wrong number of arguments")
    values = [parse_integer(word) for word in words]
    if any(value is None or not -2000 <= value <= 2000 for value in values):
        raise SettingError("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")
    return " ".join(str(value) for value in values)


_POLICIES = (
    "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "volatile-lrm", "allkeys-lru", "allkeys-lfu",
    "allkeys-random", "allkeys-lrm", "noeviction",
)  # fmt: skip


def _policy(word: str, settings: Settings) -> str:
    """Return an eviction policy; only the newest Redis has those that use the time of the last change (lrm)."""
    newer = settings.compat.knows(86)
    choices = [policy for policy in _POLICIES if newer or not policy.endswith("lrm")]
    if word not in choices:
        raise SettingError("argument(s) must be one of the following: " + ", ".join(choices))
    return word


def _client_limit(text: str) -> int:
    """Parse maxmemory-clients: bytes, or a percentage of maxmemory, which becomes a negative number."""
    if text.endswith("%"):
        percent = parse_integer(text[:-1])
        if percent is None or percent < 0:
            raise SettingError("argument must be a memory or percent value")
        if percent > 100:
            raise SettingError("percentage argument must be less or equal to 100")
        return -percent
    value = parse_memory(text)
    if value is None:
        raise SettingError("argument must be a memory or percent value")
    return value


def _shown_client_limit(value: int) -> str:
    return f"{-value}%" if value < 0 else str(value)


def _written_client_limit(value: int) -> Lines:
    return [(_shown_client_limit(value) if value < 0 else show_memory(value), value != 0)]


def _at_hz(value: int, _settings: Settings) -> int:
    """Return the setting `hz`, runs of the periodic jobs per second, clamped to its range (updateHZ)."""
    return min(max(value, 1), 500)


def _power_of_two(value: int, _settings: Settings) -> int:
    if value & (value - 1):
        raise SettingError("array-slice-size must be a power of two")
    return value


def _sparse_most(value: int, settings: Settings) -> int:
    """Return array-sparse-kmax, which is 0 or above array-sparse-kmin."""
    if 0 < value <= settings.array_sparse_kmin:
        raise SettingError("array-sparse-kmax must be greater than array-sparse-kmin when non-zero")
    return value


def _sparse_least(value: int, settings: Settings) -> int:
    """Return array-sparse-kmin, which is below array-sparse-kmax unless that is 0."""
    if 0 < settings.array_sparse_kmax <= value:
        raise SettingError("array-sparse-kmin must be less than array-sparse-kmax")
    return value


DEFAULT_SAVE: SavePoints = ((3600, 1), (300, 100), (60, 10000))
"""The default save points of a server; a store in a process has none."""
_PROTECTED = ("no", "yes", "local")
_SHUTDOWN = ("default", "save", "nosave", "now", "force")
_BOTH = "shutdown options SAVE and NOSAVE can't be used simultaneously"

# A description that begins with "Ignored" belongs to a setting that is accepted, shown and rewritten, without effect.
_OURS = [
    SettingType("compat", "The server whose commands, replies and errors rillet shows; never changes the stored data",
                NEWEST, _compat),
    integer("module-time-limit", "Milliseconds after which a call of a module's code is interrupted; 0: no limit",
            5000, 0, INT_MAX),
    words("dump-format", "The format of DUMP with `compat newest`; every other `compat` always uses its native format",
          "oldest", ("oldest", "native")),
    words("rdb-foreign", "How to load unsupported RDB data: reject the file, omit the data, or keep its bytes",
          "refuse", ("refuse", "skip", "keep")),
    boolean("aof-checksums", "Whether each write to the log has a checksum", False, mutable=False),
    boolean("log-entries-read", "Whether XREADGROUP logs the group's read counter also with `compat` 7.0 and 7.2",
            False),
]  # fmt: skip
_NETWORK = [
    SettingType("bind", "Addresses to listen on; `-` before one: start even if it is unavailable",
                _LOOPBACK, _bind, mutable=False, multi=True, written=_written_bind),
    integer("port", "TCP port; 0: no TCP", 6379, 0, 65535, mutable=False),
    integer("metrics-port", "TCP port of the metrics for Prometheus (GET /metrics); 0: none", 0, 0, 65535,
            mutable=False),
    integer("metrics-streams", "Maximum number of streams in the metrics", 100, 0, 100_000),
    string("unixsocket", "Path of the Unix socket to listen on; empty: none", "", mutable=False, null=True),
    integer("databases", "Number of databases that SELECT accepts", 16, 1, INT_MAX, mutable=False),
    string("requirepass", "Password of the user `default`; empty: none", "", null=True),
    integer("timeout", "Seconds after which an idle client is disconnected; 0: never", 0, 0, INT_MAX),
    integer("maxclients", "Maximum number of connected clients", 10000, 1, 2**32 - 1),
    integer("tcp-backlog", "Connections that the system queues until the server accepts them",
            511, 0, INT_MAX, mutable=False),
    replace(integer("hz", "Runs per second of the periodic jobs (expired keys, idle clients); clamped to 1..500",
                    10, 0, INT_MAX), adapt=_at_hz),
    boolean("activerehashing", "Move tables that grow or shrink also while no client uses them", True),
    integer("active-expire-effort", "How much time the deletion of expired keys may take, from 1 to 10", 1, 1, 10),
    memory("proto-max-bulk-len", "Largest argument of a command, in bytes", 512 * 1024 * 1024, 1024 * 1024, LONG_MAX),
    memory("client-query-buffer-limit", "Largest unprocessed input of a client, in bytes; more disconnects it",
           1024 * 1024 * 1024, 1024 * 1024, LONG_MAX),
    SettingType("client-output-buffer-limit", "Limits of a client's unread replies: hard bytes, soft bytes, seconds",
                _LIMITS, list, adapt=_output_limits, multi=True, written=_written_limits),
    SettingType("notify-keyspace-events", "Letters of the keyspace events to publish; `compat` adds letters",
                Events(), str, adapt=_events, written=_written_events),
    words("enable-debug-command", "Who may run DEBUG; local: clients on this machine", "no", _PROTECTED, mutable=False),
    words("enable-protected-configs", "Who may change protected settings; local: clients on this machine",
          "no", _PROTECTED, mutable=False),
    flags("shutdown-on-sigint", "Options of the SHUTDOWN that SIGINT starts", _SHUTDOWN, ("save", "nosave"), _BOTH),
    flags("shutdown-on-sigterm", "Options of the SHUTDOWN that SIGTERM starts", _SHUTDOWN, ("save", "nosave"), _BOTH),
    integer("shutdown-timeout", "Ignored; in Redis: seconds that SHUTDOWN waits for replicas", 10, 0, INT_MAX),
]  # fmt: skip
_LOG = [
    boolean("appendonly", "Whether every change is written to the append-only file (the log)", False, needs_host=True),
    words("appendfsync", "When the log is synced: before each reply, once a second, or when the system decides",
          "everysec", ("everysec", "always", "no"), needs_host=True),
    boolean("no-appendfsync-on-rewrite", "Whether syncs of the log pause while a child process writes a file", False),
    integer("auto-aof-rewrite-percentage", "Growth in percent that starts a rewrite of the log; 0: never",
            100, 0, INT_MAX),
    memory("auto-aof-rewrite-min-size", "Smallest log that is rewritten automatically, in bytes",
           64 * 1024 * 1024, 0, LONG_MAX),
    boolean("aof-load-truncated", "Whether an incomplete command at the end of the log is cut off; no: do not start",
            True),
    integer("aof-load-corrupt-tail-max-size", "Longest invalid end of the log that is cut off, in bytes",
            0, 0, LONG_MAX),
    boolean("aof-use-rdb-preamble", "Whether a rewritten log begins with an RDB file instead of commands", True),
    boolean("aof-timestamp-enabled", "Whether the log contains timestamps", False),
    boolean("aof-rewrite-incremental-fsync", "Ignored; in Redis: sync a rewritten log every 4 MB", True),
    boolean("aof-disable-auto-gc", "Whether a rewrite keeps the log files that it replaces", False),
    file_name("appendfilename", "Base name of the log's files", "appendonly.aof", mutable=False),
    file_name("appenddirname", "Name of the folder that contains the log, inside `dir`",
              "appendonlydir", "dirname", mutable=False),
]  # fmt: skip
_SNAPSHOT = [
    SettingType("save", "Pairs of seconds and changes: save after so many seconds if there were so many changes",
                (), save_points, show_save, needs_host=True, multi=True, written=write_save),
    boolean("stop-writes-on-bgsave-error", "Whether writes are rejected after a failed automatic BGSAVE", True),
    boolean("rdbcompression", "Whether strings in RDB files are compressed (LZF)", True),
    boolean("rdbchecksum", "Whether RDB files get a checksum, and whether loading verifies it", True, mutable=False),
    boolean("rdb-del-sync-files", "Ignored; in Redis: delete RDB files that only replication needed", False),
    boolean("rdb-save-incremental-fsync", "Ignored; in Redis: sync an RDB file every 4 MB", True),
    file_name("dbfilename", "Name of the RDB file in `dir`; empty: none",
              "dump.rdb", may_be_empty=True, protected=True),
    SettingType("dir", "Folder of the RDB file and of the log",
                ".", str, protected=True, needs_host=True, written=lambda folder: [(quoted(folder), True)]),
    words("sanitize-dump-payload", "Ignored: RESTORE and the loading of files always verify the data",
          "no", ("no", "yes", "clients")),
    integer("rdb-key-save-delay", "Microseconds to sleep after each key that is written to a file, for tests",
            0, INT_MIN, INT_MAX, hidden=True),
    integer("key-load-delay", "Microseconds to sleep after each key that is loaded, for tests",
            0, INT_MIN, INT_MAX, hidden=True),
    integer("loading-process-events-interval-bytes", "Ignored; in Redis: bytes loaded per turn",
            2 * 1024 * 1024, 1024, INT_MAX, hidden=True),
]  # fmt: skip
_TYPES = [
    memory("hll-sparse-max-bytes", "Longest sparse HyperLogLog, in bytes; a longer one becomes dense",
           3000, 0, LONG_MAX),
    memory("stream-node-max-bytes", "Largest listpack of a stream node, in bytes; 0: no limit", 4096, 0, LONG_MAX),
    integer("stream-node-max-entries", "Most entries of a stream node; 0: no limit", 100, 0, LONG_MAX),
    integer("stream-idmp-duration", "Seconds for which a new stream remembers the messages of a producer",
            DURATION, *DURATION_RANGE),
    integer("stream-idmp-maxsize", "Most messages of a producer that a new stream remembers",
            MAX_ENTRIES, *MAX_ENTRIES_RANGE),
    integer("list-max-listpack-size", "Most elements of a list node; -1 to -5: its size instead, 4 to 64 KB",
            -2, INT_MIN, INT_MAX),
    integer("list-compress-depth", "Nodes at each end of a list that are not compressed; 0: no node is compressed",
            0, 0, INT_MAX),
    integer("set-max-intset-entries", "Most members of a set of integers that is stored as an intset",
            512, 0, LONG_MAX),
    integer("set-max-listpack-entries", "Most members of a set that is stored as a listpack", 128, 0, LONG_MAX),
    integer("set-max-listpack-value", "Longest member of a set that is stored as a listpack, in bytes",
            64, 0, LONG_MAX),
    integer("hash-max-listpack-entries", "Most fields of a hash that is stored as a listpack", 512, 0, LONG_MAX),
    memory("hash-max-listpack-value", "Longest field or value of a hash that is stored as a listpack, in bytes",
           64, 0, LONG_MAX),
    integer("zset-max-listpack-entries", "Most members of a sorted set that is stored as a listpack", 128, 0, LONG_MAX),
    memory("zset-max-listpack-value", "Longest member of a sorted set that is stored as a listpack, in bytes",
           64, 0, LONG_MAX),
    integer("array-slice-size", "Indexes per slice of a new array, a power of two", 4096, 256, 65536,
            adapt=_power_of_two),
    integer("array-sparse-kmax", "Most values of a sparse slice of an array; 0: all slices are dense", 10, 0, 256,
            adapt=_sparse_most),
    integer("array-sparse-kmin", "Most values with which a dense slice of an array becomes sparse again", 5, 0, 256,
            adapt=_sparse_least),
]  # fmt: skip
# Settings of a C process, its log file and its allocator.
_PROCESS = [
    boolean("daemonize", "Ignored; in Redis: run in the background", False, mutable=False),
    words("supervised", "Ignored; in Redis: how to notify the service manager",
          "no", ("upstart", "systemd", "auto", "no"), mutable=False),
    string("pidfile", "Ignored; in Redis: file for the process ID", "", mutable=False, null=True),
    words("loglevel", "Lowest level of the lines in the server's own log",
          "notice", ("debug", "verbose", "notice", "warning")),
    string("logfile", "File of the server's own log; empty: the standard output", "", mutable=False),
    boolean("syslog-enabled", "Ignored; in Redis: log to syslog", False, mutable=False),
    string("syslog-ident", "Ignored; in Redis: name in syslog", "redis", mutable=False),
    words("syslog-facility", "Ignored; in Redis: facility of syslog",
          "local0", ("user", *(f"local{number}" for number in range(8))), mutable=False),
    boolean("always-show-logo", "Ignored; in Redis: print the logo at the start", False, mutable=False),
    boolean("set-proc-title", "Ignored; in Redis: set the title of the process", True, mutable=False),
    string("proc-title-template", "Ignored; in Redis: title of the process", "{title} {listen-addr} {server-mode}"),
    string("ignore-warnings", "Ignored; in Redis: warnings at the start that are not fatal", ""),
    boolean("protected-mode", "Ignored; in Redis: without a password, accept only clients on this machine", True),
    integer("tcp-keepalive", "Ignored; in Redis: seconds between TCP keepalive probes", 300, 0, INT_MAX),
    octal("unixsocketperm", "Ignored; in Redis: permissions of the Unix socket, in octal", 0, 0, 0o777, mutable=False),
    boolean("activedefrag", "Whether the nodes of streams and lists are compacted after deletions", False),
    memory("active-defrag-ignore-bytes", "Wasted bytes below which nothing is compacted", 100 * 1024**2, 1, LONG_MAX),
    integer("active-defrag-threshold-lower", "Wasted bytes, in percent of the others, at which compaction starts",
            10, 0, 1000),
    integer("active-defrag-threshold-upper", "Wasted bytes, in percent of the others, for the greatest effort",
            100, 0, 1000),
    integer("active-defrag-cycle-min", "Share of time in percent for compaction, at the lower threshold", 1, 1, 99),
    integer("active-defrag-cycle-max", "Share of time in percent for compaction, at the upper threshold", 25, 1, 99),
    integer("active-defrag-max-scan-fields", "Ignored; in Redis: largest value that is moved without a break",
            1000, 1, LONG_MAX),
    boolean("jemalloc-bg-thread", "Ignored; in Redis: free memory in a background thread", True),
    boolean("dynamic-hz", "Ignored; in Redis: raise `hz` with the number of clients", True),
    boolean("crash-log-enabled", "Ignored; in Redis: log the state after a crash", True),
    boolean("crash-memcheck-enabled", "Ignored; in Redis: test the memory after a crash", True),
    words("oom-score-adj", "Ignored; in Redis: adjust the scores for the kernel's OOM killer",
          "no", ("no", "yes", "relative", "absolute"), same={"relative": "yes"}),
    SettingType("oom-score-adj-values", "Ignored; in Redis: OOM scores of a master, a replica and a child process",
                "0 200 800", _oom_scores, multi=True),
    boolean("disable-thp", "Ignored; in Redis: disable transparent huge pages", True, mutable=False),
    boolean("lazyfree-lazy-eviction", "Whether the log contains UNLINK instead of DEL for evicted keys", False),
    boolean("lazyfree-lazy-expire", "Whether the log contains UNLINK instead of DEL for expired keys", False),
    boolean("lazyfree-lazy-server-del", "Whether commands free the values that they replace later, and log UNLINK",
            False),
    boolean("lazyfree-lazy-user-del", "Whether DEL frees large values later, as UNLINK", False),
    boolean("lazyfree-lazy-user-flush", "Whether FLUSHALL and FLUSHDB free the data later, as with ASYNC", False),
    boolean("lazyexpire-nested-arbitrary-keys", "Whether SCAN and RANDOMKEY delete expired keys inside EXEC, too",
            True, hidden=True),
    words("propagation-error-behavior", "Ignored; in Redis: reaction to an error in a replicated command",
          "ignore", ("ignore", "panic", "panic-on-replicas")),
    words("enable-module-command", "Who may load and unload modules with MODULE: no, yes, or local clients",
          "no", _PROTECTED, mutable=False),
]  # fmt: skip
_MEMORY = [
    memory("maxmemory", "Largest size of the data and the clients' buffers, in bytes; 0: no limit", 0, 0, 2**64 - 1),
    SettingType("maxmemory-policy", "Which keys are evicted when the data reaches `maxmemory`",
                "noeviction", str.lower, adapt=_policy),
    integer("maxmemory-samples", "Keys that an eviction compares; more: closer to the policy, and slower", 5, 1, 64),
    integer("maxmemory-eviction-tenacity", "How long one run of the eviction may take; 0: shortest, 100: no limit",
            10, 0, 100),
    words("maxmemory-streams", "What happens to a stream that should be evicted; trim: it loses its oldest nodes",
          "evict", ("evict", "trim")),
    SettingType("maxmemory-clients", "Largest size of all clients' buffers, in bytes or percent of maxmemory; 0: none",
                0, _client_limit, _shown_client_limit, written=_written_client_limit),
    integer("lfu-log-factor", "How slowly an access frequency grows (LFU policies); 0: by 1 with each access",
            10, 0, INT_MAX),
    integer("lfu-decay-time", "Minutes without access after which a frequency falls by 1; 0: never", 1, 0, INT_MAX),
]  # fmt: skip
_NOT_HERE = [
    *fixed("-1", "rillet has no slow log and no latency monitor", "slowlog-log-slower-than"),
    *fixed("0", "rillet has no slow log and no latency monitor", "slowlog-max-len", "latency-monitor-threshold"),
    *fixed("no", "rillet has no slow log and no latency monitor", "latency-tracking"),
    *fixed("1", "rillet has one thread for input and output", "io-threads"),
    *fixed("no", "rillet has no cluster mode", "cluster-enabled"),
    *fixed("0", "rillet has no replicas", "min-replicas-to-write"),
    *fixed("yes", "rillet has no replicas", "repl-diskless-sync", "replica-read-only", "replica-serve-stale-data"),
    *fixed("5", "rillet has no replicas", "repl-diskless-sync-delay"),
    *fixed("disabled", "rillet has no replicas", "repl-diskless-load"),
    *fixed("10", "rillet has no replicas", "repl-ping-replica-period", "min-replicas-max-lag"),
    *fixed("60", "rillet has no replicas", "repl-timeout"),
]
_ALL = (*_OURS, *_NETWORK, *_LOG, *_SNAPSHOT, *_TYPES, *_MEMORY, *_PROCESS, *_NOT_HERE)
PARAMETERS = {entry.name: entry for entry in _ALL}
# Old names of settings; CONFIG GET and SET accept them, too (config.c: the alias of a standardConfig).
_OLD_NAMES = {
    "list-max-ziplist-size": "list-max-listpack-size",
    "hash-max-ziplist-entries": "hash-max-listpack-entries",
    "hash-max-ziplist-value": "hash-max-listpack-value",
    "zset-max-ziplist-entries": "zset-max-listpack-entries",
    "zset-max-ziplist-value": "zset-max-listpack-value",
    "slave-serve-stale-data": "replica-serve-stale-data",
    "slave-read-only": "replica-read-only",
    "repl-ping-slave-period": "repl-ping-replica-period",
    "min-slaves-to-write": "min-replicas-to-write",
    "min-slaves-max-lag": "min-replicas-max-lag",
}
PARAMETERS.update((old, replace(PARAMETERS[name], name=old, alias=name)) for old, name in _OLD_NAMES.items())


class Settings:
    """The value of every setting: attributes for code, `matching` and `value_of` for CONFIG."""

    # Types for mypy; the settings that are not listed here have the type Any.
    stream_node_max_bytes: int
    stream_node_max_entries: int
    databases: int
    requirepass: str
    save: SavePoints
    compat: Compat
    list_max_listpack_size: int
    list_compress_depth: int
    set_max_intset_entries: int
    set_max_listpack_entries: int
    set_max_listpack_value: int
    array_slice_size: int
    array_sparse_kmax: int
    array_sparse_kmin: int
    client_output_buffer_limit: OutputLimits
    notify_keyspace_events: Events

    def __init__(self, **values: Any) -> None:
        # Switches of DEBUG, not settings: QUICKLIST-PACKED-THRESHOLD, SET-SKIP-CHECKSUM-VALIDATION and
        # AOF-FLUSH-SLEEP (microseconds).
        self.quicklist_packed_threshold = 0
        self.skip_checksum_validation = False
        self.aof_flush_sleep = 0
        # The types and settings of loaded modules, and their names and arguments (rillet.modules).
        self.module_types: dict[int, Any] = {}
        self.module_parameters: dict[str, SettingType] = {}
        self.loaded_modules: list[list[str]] = []
        own = [parameter for parameter in PARAMETERS.values() if not parameter.alias]
        for parameter in own:
            setattr(self, parameter.attribute, parameter.default)
        for parameter in own:
            if parameter.attribute in values:
                setattr(self, parameter.attribute, self._valid(parameter, values.pop(parameter.attribute)))
        if values:
            raise TypeError("unknown settings: " + ", ".join(sorted(values)))

    def _valid(self, parameter: SettingType, value: Any) -> Any:
        """Return the value of an argument: text as in redis.conf, a bool, a number, or an object that needs no check.

        The error names the setting.
        """
        default = parameter.default
        if isinstance(value, type(default)) and not isinstance(default, (str, int)):
            return value
        try:
            if isinstance(value, bool):
                return self.value_of(parameter, "yes" if value else "no")
            if not isinstance(value, (str, int)):
                raise SettingError("text, a number or a bool expected")
            return self.value_of(parameter, str(value))
        except SettingError as error:
            raise SettingError(f"{parameter.attribute}={value!r}: {str(error).removeprefix('ERR ')}") from None

    if TYPE_CHECKING:
        # For mypy: every setting is an attribute. Defined at run time, this method would slow down every access.
        def __getattr__(self, name: str) -> Any: ...

    def parameter(self, name: str) -> SettingType | None:
        """Return the setting of that name in any case, also one of a module, or None."""
        return PARAMETERS.get(name.lower()) or self.module_parameters.get(name.lower())

    def set_text(self, name: str, text: str) -> None:
        """Parse and set the value of a setting; raise SettingError, with the valid values, if it is invalid."""
        parameter = PARAMETERS[name.lower()]
        setattr(self, parameter.attribute, self.value_of(parameter, text))

    def value_of(self, parameter: SettingType, text: str) -> Any:
        """Parse the value of a setting, given the other settings; raise SettingError if the text is invalid."""
        return self.value_of_words(parameter, text.split(" ") if parameter.multi else [text])

    def value_of_words(self, parameter: SettingType, texts: list[str]) -> Any:
        """Parse the value of a setting from a list of words; most settings accept exactly one word."""
        value = parameter.parse(texts if parameter.multi else texts[0])
        return value if parameter.adapt is None else parameter.adapt(value, self)

    def matching(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Yield (name, text) of the settings that match a name or glob, ignoring case (configGetCommand)."""
        if not any(mark in pattern for mark in "[*?"):
            exact = self.parameter(pattern)
            if exact is not None:
                yield pattern, exact.show(getattr(self, exact.attribute))
            return
        glob = compiled(pattern.encode("utf-8", "surrogateescape"), True)
        for name, parameter in (*PARAMETERS.items(), *self.module_parameters.items()):
            if not parameter.hidden and glob.matches(name.encode()):
                yield parameter.name if "." in name else name, parameter.show(getattr(self, parameter.attribute))


__all__ = ["DEFAULT_SAVE", "PARAMETERS", "UNCOUNTED_OUTPUT", "OutputLimit", "OutputLimits", "SavePoints",
           "SettingError", "SettingType", "Settings", "parse_memory"]  # fmt: skip
