"""The settings: everything that redis.conf, the command line and CONFIG SET can change, one declaration each.

A setting has Redis's name; its Python attribute replaces `-` by `_` (`settings.stream_node_max_bytes`). Text is parsed
and shown as in Redis (`setting_types`).

Every setting does what it says. Clients and test suites also read settings of features that rillet does not have: those
show their default and reject any other value with the reason (`absent_settings`). A setting belongs to some servers;
with another `compat`, CONFIG GET with a pattern does not show it. A few defaults differ in Valkey.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rillet.runtime.keyspace_events import Events, letters
from rillet.runtime.keyspace_events import parse as parse_events
from rillet.runtime.settings.absent_settings import ABSENT, OLD_NAMES
from rillet.runtime.settings.master_settings import MASTER
from rillet.runtime.settings.replica_settings import REPLICA
from rillet.runtime.settings.server_settings import SERVER
from rillet.runtime.settings.setting_types import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    Lines,
    SavePoints,
    SettingError,
    SettingType,
    boolean,
    file_name,
    flags,
    integer,
    memory,
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
from rillet.runtime.settings.tls_settings import TLS
from rillet.structs.glob import matches
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

    def at_least(self, hard: int) -> OutputLimit:
        """Return the limits with a hard limit of at least so many bytes, unless there is none."""
        return self if not self.hard or self.hard >= hard else replace(self, hard=hard)

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


def _stream_memory(limit: int, _settings: Settings) -> int:
    """Check the limit of the streams in memory: a few nodes must fit."""
    if 0 < limit < LEAST_STREAM_MEMORY:
        raise SettingError("argument must be 0 (no limit) or at least 64kb")
    return limit


def _compression(word: str, _settings: Settings) -> str:
    """Check that the package for zstd is there."""
    if word == "zstd" and find_spec("zstandard") is None:
        raise SettingError("zstd is missing: pip install 'rillet[zstd]'")
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


LEAST_STREAM_MEMORY = 64 * 1024
"""The smallest `stream-memory`, in bytes."""
DEFAULT_SAVE: SavePoints = ((3600, 1), (300, 100), (60, 10000))
"""The default save points of a server; a store in a process has none."""
_PROTECTED = ("no", "yes", "local")
_SHUTDOWN = ("default", "save", "nosave", "now", "force")
_BOTH = "shutdown options SAVE and NOSAVE can't be used simultaneously"

_OURS = [
    SettingType("compat", "The server whose commands, replies and errors rillet shows; never changes the stored data",
                NEWEST, _compat),
    integer("module-time-limit", "Milliseconds after which a call of a module's code is interrupted; 0: no limit",
            5000, 0, INT_MAX),
    memory("lua-memory-limit", "Most bytes that Lua scripts may use together; 0: no limit", 512 * 1024**2, 0, LONG_MAX),
    words("dump-format", "The format of DUMP with `compat newest`; every other `compat` always uses its native format",
          "oldest", ("oldest", "native")),
    words("rdb-foreign", "How to load unsupported RDB data: reject the file, omit the data, or keep its bytes",
          "refuse", ("refuse", "skip", "keep")),
    boolean("aof-load-refused", "Whether a command of the log that is refused is logged and omitted; no: do not start",
            False),
    memory("stream-memory", "Bytes of streams in memory; what exceeds them goes into segments on disk; 0: everything "
           "stays in memory", 0, 0, LONG_MAX, mutable=False, hidden=True, adapt=_stream_memory),
    replace(words("stream-compression", "How nodes in segments are compressed; auto: as at the last opening", "auto",
                  ("auto", "none", "zstd"), mutable=False, hidden=True), adapt=_compression),
    boolean("aof-checksums", "Whether each write to the log has a checksum", False, mutable=False, hidden=True),
    words("repl-compat", "The server that replicas are: what it lacks is not sent to them. auto: each one is asked",
          "auto", ("auto", *COMPATS)),
    boolean("log-entries-read", "Whether XREADGROUP logs the group's read counter also with `compat` 7.0 and 7.2",
            False),
]  # fmt: skip
_NETWORK = [
    SettingType("bind", "Addresses to listen on; `-` before one: start even if it is unavailable",
                _LOOPBACK, _bind, needs_host=True, multi=True, written=_written_bind),
    integer("port", "TCP port; 0: no TCP", 6379, 0, 65535, needs_host=True),
    integer("metrics-port", "TCP port of the metrics for Prometheus (GET /metrics); 0: none", 0, 0, 65535,
            mutable=False, hidden=True),
    integer("metrics-streams", "Maximum number of streams in the metrics", 100, 0, 100_000),
    string("unixsocket", "Path of the Unix socket to listen on; empty: none", "", mutable=False, null=True),
    integer("databases", "Number of databases that SELECT accepts", 16, 1, INT_MAX, mutable=False),
    string("requirepass", "Password of the user `default`; empty: none", "", null=True, whole=True),
    string("aclfile", "File that defines the users (ACL LOAD, ACL SAVE); empty: none", "", mutable=False, null=True),
    words("acl-pubsub-default", "Channels that a new user may access", "resetchannels",
          ("allchannels", "resetchannels")),
    integer("acllog-max-len", "Largest number of entries in ACL LOG", 128, 0, LONG_MAX),
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
    words("enable-module-command", "Who may load and unload modules with MODULE: no, yes, or local clients",
          "no", _PROTECTED, mutable=False),
    flags("shutdown-on-sigint", "Options of the SHUTDOWN that SIGINT starts", _SHUTDOWN, ("save", "nosave"), _BOTH),
    flags("shutdown-on-sigterm", "Options of the SHUTDOWN that SIGTERM starts", _SHUTDOWN, ("save", "nosave"), _BOTH),
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
            0, 0, LONG_MAX, since=84, valkey=False),
    boolean("aof-use-rdb-preamble", "Whether a rewritten log begins with an RDB file instead of commands", True),
    boolean("aof-timestamp-enabled", "Whether the log contains timestamps", False),
    boolean("aof-rewrite-incremental-fsync", "Whether a log that is rewritten is synced every 4 MB", True),
    boolean("aof-disable-auto-gc", "Whether a rewrite keeps the log files that it replaces", False,
            until=72, valkey=False),
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
    boolean("rdb-save-incremental-fsync", "Whether an RDB file that is written is synced every 4 MB", True),
    file_name("dbfilename", "Name of the RDB file in `dir`; empty: none",
              "dump.rdb", may_be_empty=True, protected=True),
    SettingType("dir", "Folder of the RDB file and of the log",
                ".", str, protected=True, needs_host=True, written=lambda folder: [(quoted(folder), True)]),
    words("sanitize-dump-payload", "Every value is true: RESTORE and the loading of files always verify the data",
          "no", ("no", "yes", "clients"), valkey=False),
    integer("rdb-key-save-delay", "Microseconds to sleep after each key that is written to a file, for tests",
            0, INT_MIN, INT_MAX, hidden=True),
    integer("key-load-delay", "Microseconds to sleep after each key that is loaded, for tests",
            0, INT_MIN, INT_MAX, hidden=True),
    integer("loading-process-events-interval-bytes",
            "Every value is true: the server answers clients every 20 ms while it loads",
            2 * 1024 * 1024, 1024, INT_MAX, hidden=True),
]  # fmt: skip
_SCRIPTS = [
    integer("busy-reply-threshold", "Milliseconds after which other clients get BUSY while a script runs; 0: never",
            5000, 0, LONG_MAX),
    boolean("lua-enable-deprecated-api", "Whether Lua scripts may use getfenv and setfenv", False, mutable=False,
            hidden=True),
]  # fmt: skip
_TYPES = [
    memory("hll-sparse-max-bytes", "Longest sparse HyperLogLog, in bytes; a longer one becomes dense",
           3000, 0, LONG_MAX),
    memory("stream-node-max-bytes", "Largest listpack of a stream node, in bytes; 0: no limit", 4096, 0, LONG_MAX),
    integer("stream-node-max-entries", "Most entries of a stream node; 0: no limit", 100, 0, LONG_MAX),
    integer("stream-idmp-duration", "Seconds for which a new stream remembers the messages of a producer",
            DURATION, *DURATION_RANGE, since=86, valkey=False),
    integer("stream-idmp-maxsize", "Most messages of a producer that a new stream remembers",
            MAX_ENTRIES, *MAX_ENTRIES_RANGE, since=86, valkey=False),
    integer("list-max-listpack-size", "Most elements of a list node; -1 to -5: its size instead, 4 to 64 KB",
            -2, INT_MIN, INT_MAX),
    integer("list-compress-depth", "Nodes at each end of a list that are not compressed; 0: no node is compressed",
            0, 0, INT_MAX),
    integer("set-max-intset-entries", "Most members of a set of integers that is stored as an intset",
            512, 0, LONG_MAX),
    integer("set-max-listpack-entries", "Most members of a set that is stored as a listpack", 128, 0, LONG_MAX,
            since=72),
    integer("set-max-listpack-value", "Longest member of a set that is stored as a listpack, in bytes",
            64, 0, LONG_MAX, since=72),
    integer("hash-max-listpack-entries", "Most fields of a hash that is stored as a listpack", 512, 0, LONG_MAX),
    memory("hash-max-listpack-value", "Longest field or value of a hash that is stored as a listpack, in bytes",
           64, 0, LONG_MAX),
    integer("zset-max-listpack-entries", "Most members of a sorted set that is stored as a listpack", 128, 0, LONG_MAX),
    memory("zset-max-listpack-value", "Longest member of a sorted set that is stored as a listpack, in bytes",
           64, 0, LONG_MAX),
    integer("array-slice-size", "Indexes per slice of a new array, a power of two", 4096, 256, 65536,
            adapt=_power_of_two, since=88, valkey=False),
    integer("array-sparse-kmax", "Most values of a sparse slice of an array; 0: all slices are dense", 10, 0, 256,
            adapt=_sparse_most, since=88, valkey=False),
    integer("array-sparse-kmin", "Most values with which a dense slice of an array becomes sparse again", 5, 0, 256,
            adapt=_sparse_least, since=88, valkey=False),
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
    integer("tracking-table-max-keys", "Keys that the tracking table remembers for client-side caching; 0: no limit",
            1_000_000, 0, 2**63 - 1),
    integer("lfu-log-factor", "How slowly an access frequency grows (LFU policies); 0: by 1 with each access",
            10, 0, INT_MAX),
    integer("lfu-decay-time", "Minutes without access after which a frequency falls by 1; 0: never", 1, 0, INT_MAX),
]  # fmt: skip
_ALL = (*_OURS, *_NETWORK, *_LOG, *_SNAPSHOT, *_SCRIPTS, *_TYPES, *_MEMORY, *SERVER, *MASTER, *TLS, *REPLICA, *ABSENT)
PARAMETERS = {entry.name: entry for entry in _ALL}
# Old and other names of settings; CONFIG GET and SET accept them, too (config.c: the alias of a standardConfig).
PARAMETERS.update(
    (old, replace(PARAMETERS[name], name=old, alias=name, since=since, until=0, valkey=valkey))
    for old, name, since, valkey in OLD_NAMES
)


_BY_ATTRIBUTE = {parameter.attribute: parameter for parameter in PARAMETERS.values() if not parameter.alias}


@lru_cache(maxsize=16)
def _defaults(compat: Compat) -> dict[str, Any]:
    """Return the values of all settings in a server that nobody has configured."""
    return {attribute: parameter.default_in(compat) for attribute, parameter in _BY_ATTRIBUTE.items()}


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
        # Switches of DEBUG, not settings: QUICKLIST-PACKED-THRESHOLD, SET-SKIP-CHECKSUM-VALIDATION,
        # AOF-FLUSH-SLEEP (microseconds) and SET-DISABLE-DENY-SCRIPTS.
        self.quicklist_packed_threshold = 0
        self.skip_checksum_validation = False
        self.aof_flush_sleep = 0
        self.allow_noscript = False
        # The types and settings of loaded modules, and their names and arguments (rillet.modules).
        self.module_types: dict[int, Any] = {}
        self.module_parameters: dict[str, SettingType] = {}
        self.loaded_modules: list[list[str]] = []
        self.__dict__.update(_defaults(self._valid(PARAMETERS["compat"], values.get("compat", NEWEST))))
        for attribute, parameter in _BY_ATTRIBUTE.items() if values else ():
            if attribute in values:
                setattr(self, attribute, self._valid(parameter, values.pop(attribute)))
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
        # For mypy: every setting is an attribute. Defined at run time, these methods would slow down every access.
        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def parameter(self, name: str) -> SettingType | None:
        """Return the setting of that name in any case, also one of a module; None if the server of `compat` lacks it.

        A setting with an effect is found at every `compat`, as a hidden one.
        """
        found = PARAMETERS.get(name.lower()) or self.module_parameters.get(name.lower())
        return None if found is not None and found.absent and not found.known_to(self.compat) else found

    def set_text(self, name: str, text: str) -> None:
        """Parse and set the value of a setting; raise SettingError, with the valid values, if it is invalid."""
        parameter = PARAMETERS[name.lower()]
        setattr(self, parameter.attribute, self.value_of(parameter, text))

    def value_of(self, parameter: SettingType, text: str) -> Any:
        """Parse the value of a setting, given the other settings; raise SettingError if the text is invalid."""
        return self.value_of_words(parameter, text.split(" ") if parameter.multi else [text])

    def value_of_words(self, parameter: SettingType, texts: list[str]) -> Any:
        """Parse the value of a setting from a list of words; most settings accept exactly one word."""
        if not parameter.whole:
            texts = [text.partition("\0")[0] for text in texts]
        value = parameter.parse(texts if parameter.multi else texts[0])
        return value if parameter.adapt is None else parameter.adapt(value, self)

    def matching(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Yield (name, text) of the settings that match a name or glob, ignoring case (configGetCommand)."""
        if not any(mark in pattern for mark in "[*?"):
            exact = self.parameter(pattern)
            if exact is not None:
                yield pattern, exact.show(getattr(self, exact.attribute))
            return
        glob = pattern.encode("utf-8", "surrogateescape")
        for name, parameter in (*PARAMETERS.items(), *self.module_parameters.items()):
            if not parameter.hidden and matches(glob, name.encode(), True) and parameter.known_to(self.compat):
                yield parameter.name if "." in name else name, parameter.show(getattr(self, parameter.attribute))
