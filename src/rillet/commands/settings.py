"""The settings: what redis.conf, the command line and CONFIG SET can change, one declaration each.

A parameter has Redis's name; in Python it is an attribute with `_` for `-`
(`settings.stream_node_max_bytes`). Text is parsed and shown as Redis does: memory sizes take
units (`64mb`), booleans are yes and no, an enumeration takes its words only.

Clients and test suites ask for parameters of features that are not here. Those are declared too, with
the one value that is true (`maxmemory 0`, `save ""`, `slowlog-log-slower-than -1`): asking is answered,
and setting anything else is refused with the reason, instead of being taken and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rillet.commands.notifications import Events, letters
from rillet.commands.notifications import parse as parse_events
from rillet.errors import CommandError
from rillet.structs.glob import compiled
from rillet.types.compat import COMPATS, NEWEST, Compat
from rillet.types.idmp import DURATION, DURATION_RANGE, MAX_ENTRIES, MAX_ENTRIES_RANGE

_UNITS = {"b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3, "": 1}


class SettingError(CommandError):
    """A value that a parameter does not take; the text is the one CONFIG SET shows."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting: its Redis name, its default, and how text becomes a value and a value text.

    CONFIG SET leaves alone what is not mutable, or protected (it may name files); needs_door: a change means
    nothing until the server or store acts on it. adapt: what the text means given the other settings, and the value
    that there was; it stands after parse.
    """

    name: str
    default: Any
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    mutable: bool = True
    protected: bool = False
    needs_door: bool = False
    adapt: Callable[[Any, Settings], Any] | None = None
    alias: str = ""

    @property
    def attribute(self) -> str:
        """The attribute of Settings that holds the value; an alias has the one of the parameter that it names."""
        return (self.alias or self.name).replace("-", "_")


def _boolean(name: str, default: bool, mutable: bool = True, needs_door: bool = False) -> Parameter:
    def parse(text: str) -> bool:
        if text.lower() not in ("yes", "no"):
            raise SettingError("argument must be 'yes' or 'no'")
        return text.lower() == "yes"

    return Parameter(name, default, parse, lambda value: "yes" if value else "no", mutable, needs_door=needs_door)


def _integer(name: str, default: int, low: int, high: int, mutable: bool = True, memory: bool = False) -> Parameter:
    def parse(text: str) -> int:
        value = parse_memory(text) if memory else _plain_integer(text)
        if value is None:
            wanted = "must be a memory value" if memory else "couldn't be parsed into an integer"
            raise SettingError(f"argument {wanted}")
        if not low <= value <= high:
            raise SettingError(f"argument must be between {low} and {high} inclusive")
        return value

    return Parameter(name, default, parse, str, mutable)


def _words(name: str, default: str, choices: tuple[str, ...], mutable: bool = True,
           needs_door: bool = False) -> Parameter:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise SettingError("argument(s) must be one of the following: " + ", ".join(choices))
        return text.lower()

    return Parameter(name, default, parse, str, mutable, needs_door=needs_door)


def _string(name: str, default: str, mutable: bool = True, protected: bool = False) -> Parameter:
    return Parameter(name, default, str, str, mutable, protected)


def _fixed(value: str, reason: str, *names: str) -> list[Parameter]:
    """Return parameters of something that is not here: any value but the one they have is refused with the reason."""

    def parse(text: str) -> str:
        if text.lower() != value:
            raise SettingError(reason)
        return value

    return [Parameter(name, value, parse) for name in names]


def _plain_integer(text: str) -> int | None:
    digits = text[1:] if text[:1] == "-" else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def parse_memory(text: str) -> int | None:
    """Return the bytes that a text such as "64mb" stands for, or None (util.c: memtoull)."""
    digits = text.rstrip("bBkKmMgG")
    unit = text[len(digits) :].lower()
    value = _plain_integer(digits)
    return None if value is None or unit not in _UNITS else value * _UNITS[unit]


def _compat(text: str) -> Compat:
    """Return the server to be compatible with."""
    if text.lower() not in COMPATS:
        raise SettingError("argument(s) must be one of the following: " + ", ".join(COMPATS))
    return COMPATS[text.lower()]


# Bytes that may wait for any client.
UNCOUNTED_OUTPUT = 16 * 1024


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much may wait for a client that does not read: bytes at once; bytes for longer than some seconds. 0: any."""

    hard: int = 0
    soft: int = 0
    seconds: int = 0

    def reached(self, waiting: int, above_since: int, now: int) -> tuple[bool, int]:
        """Return whether so many waiting bytes are too many at `now` (ms), and since when they are above soft, or 0.

        networking.c: checkClientOutputBufferLimits. What Redis keeps in a client's fixed buffer is not counted there.
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
    """client-output-buffer-limit: a limit for each class of clients."""

    normal: OutputLimit = OutputLimit()
    replica: OutputLimit = OutputLimit(256 * 1024**2, 64 * 1024**2, 60)
    pubsub: OutputLimit = OutputLimit(32 * 1024**2, 8 * 1024**2, 60)

    def __str__(self) -> str:
        return f"normal {self.normal} slave {self.replica} pubsub {self.pubsub}"


_OUTPUT_CLASSES = {"normal": "normal", "slave": "replica", "replica": "replica", "pubsub": "pubsub"}


def _output_limits(text: str, settings: Settings) -> OutputLimits:
    """Return the limits with those of the named classes replaced (config.c: updateClientOutputBufferLimit)."""
    words = text.split()
    if len(words) % 4:
        raise SettingError("Wrong number of arguments in buffer limit configuration.")
    changed: dict[str, OutputLimit] = {}
    for at in range(0, len(words), 4):
        kind = _OUTPUT_CLASSES.get(words[at].lower())
        if kind is None:
            raise SettingError("Invalid client class specified in buffer limit configuration.")
        hard, soft, seconds = parse_memory(words[at + 1]), parse_memory(words[at + 2]), _plain_integer(words[at + 3])
        if hard is None or soft is None or seconds is None or min(hard, soft, seconds) < 0:
            raise SettingError("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
        changed[kind] = OutputLimit(hard, soft, seconds)
    return replace(settings.client_output_buffer_limit, **changed)


def _events(text: str, settings: Settings) -> Events:
    """Return the classes of events that the letters stand for."""
    events = parse_events(text, settings.compat)
    if events is None:
        raise SettingError(f"Invalid event class character. Use '{letters(settings.compat)}'.")
    return events


_LARGE = 2**63 - 1
PARAMETERS: dict[str, Parameter] = {
    entry.name: entry
    for entry in (
        Parameter("compat", NEWEST, _compat),
        _string("bind", "127.0.0.1 -::1", mutable=False),
        _integer("port", 6379, 0, 65535, mutable=False),
        _string("unixsocket", "", mutable=False),
        _string("dir", ".", protected=True),
        _integer("databases", 16, 1, 2**31 - 1, mutable=False),
        _string("requirepass", ""),
        _integer("timeout", 0, 0, 2**31 - 1),
        _integer("maxclients", 10000, 1, 2**32 - 1),
        _integer("tcp-backlog", 511, 0, 2**31 - 1, mutable=False),
        _integer("hz", 10, 1, 500),
        _boolean("appendonly", False, needs_door=True),
        _words("appendfsync", "everysec", ("everysec", "always", "no"), needs_door=True),
        _boolean("aof-use-rdb-preamble", True),
        _string("appendfilename", "appendonly.aof", mutable=False),
        _string("appenddirname", "appendonlydir", mutable=False),
        _string("dbfilename", "dump.rdb", protected=True),
        _words("enable-debug-command", "no", ("no", "yes", "local"), mutable=False),
        _boolean("rdbcompression", True),
        _boolean("rdbchecksum", True, mutable=False),
        _words("sanitize-dump-payload", "no", ("no", "yes", "clients")),
        _integer("stream-node-max-bytes", 4096, 0, _LARGE, memory=True),
        _integer("stream-node-max-entries", 100, 0, _LARGE),
        _integer("list-max-listpack-size", -2, -(2**31), 2**31 - 1),
        _integer("list-compress-depth", 0, 0, 2**31 - 1),
        _integer("set-max-intset-entries", 512, 0, _LARGE),
        _integer("set-max-listpack-entries", 128, 0, _LARGE),
        _integer("set-max-listpack-value", 64, 0, _LARGE),
        _integer("stream-idmp-duration", DURATION, *DURATION_RANGE),
        _integer("stream-idmp-maxsize", MAX_ENTRIES, *MAX_ENTRIES_RANGE),
        _words("dump-format", "oldest", ("oldest", "native")),
        _integer("proto-max-bulk-len", 512 * 1024 * 1024, 1024 * 1024, _LARGE, memory=True),
        _integer("client-query-buffer-limit", 1024 * 1024 * 1024, 1024 * 1024, _LARGE, memory=True),
        Parameter("client-output-buffer-limit", OutputLimits(), str, adapt=_output_limits),
        Parameter("notify-keyspace-events", Events(), str, adapt=_events),
        *_fixed("", "snapshots on a schedule are not taken: the append-only file is what endures", "save"),
        *_fixed("0", "memory is not limited", "maxmemory", "maxmemory-clients"),
        *_fixed("noeviction", "keys are not evicted", "maxmemory-policy"),
        *_fixed("5", "keys are not evicted", "maxmemory-samples"),
        *_fixed("-1", "commands are not timed", "slowlog-log-slower-than"),
        *_fixed("0", "commands are not timed", "slowlog-max-len", "latency-monitor-threshold"),
        *_fixed("no", "commands are not timed", "latency-tracking"),
        *_fixed("0", "the append-only file is not rewritten by itself", "auto-aof-rewrite-percentage"),
        *_fixed("no", "values are freed when they go", "lazyfree-lazy-eviction", "lazyfree-lazy-expire",
                "lazyfree-lazy-server-del", "lazyfree-lazy-user-del", "lazyfree-lazy-user-flush", "activedefrag"),
        *_fixed("1", "there is one thread for input and output", "io-threads"),
        *_fixed("no", "there is no cluster mode", "cluster-enabled"),
        *_fixed("0", "there are no replicas", "min-replicas-to-write"),
        *_fixed("yes", "there are no replicas", "repl-diskless-sync", "replica-read-only"),
        *_fixed("5", "there are no replicas", "repl-diskless-sync-delay"),
        *_fixed("disabled", "there are no replicas", "repl-diskless-load"),
        *_fixed("10", "there are no replicas", "repl-ping-replica-period", "min-replicas-max-lag"),
        *_fixed("60", "there are no replicas", "repl-timeout"),
        *_fixed("ignore", "there are no replicas", "propagation-error-behavior"),
        *_fixed("no", "there are no loadable modules", "enable-module-command"),
    )
}
# An old name of a parameter: it is set and shown as well (config.c: the alias of a standardConfig).
PARAMETERS["list-max-ziplist-size"] = replace(
    PARAMETERS["list-max-listpack-size"], name="list-max-ziplist-size", alias="list-max-listpack-size"
)


class Settings:
    """The value of every parameter; attributes for code, get and set for CONFIG."""

    # Read for every XADD, therefore declared one by one.
    stream_node_max_bytes: int
    stream_node_max_entries: int
    databases: int
    requirepass: str
    compat: Compat
    list_max_listpack_size: int
    list_compress_depth: int
    set_max_intset_entries: int
    set_max_listpack_entries: int
    set_max_listpack_value: int
    client_output_buffer_limit: OutputLimits
    notify_keyspace_events: Events

    def __init__(self, **values: Any) -> None:
        self.quicklist_packed_threshold = 0  # no setting: DEBUG QUICKLIST-PACKED-THRESHOLD
        for parameter in PARAMETERS.values():
            if parameter.alias:
                continue
            setattr(self, parameter.attribute, parameter.default)
            value = values.pop(parameter.attribute, parameter.default)
            if isinstance(value, str) and not isinstance(parameter.default, str):
                value = self.value_of(parameter, value)
            setattr(self, parameter.attribute, value)
        if values:
            raise TypeError("unknown settings: " + ", ".join(sorted(values)))

    if TYPE_CHECKING:
        # Every parameter is an attribute. Not defined at run time: it would make every access go the slow way.
        def __getattr__(self, name: str) -> Any: ...

    def set_text(self, name: str, text: str) -> None:
        """Parse and take a value; SettingError says what the parameter wants."""
        parameter = PARAMETERS[name.lower()]
        setattr(self, parameter.attribute, self.value_of(parameter, text))

    def value_of(self, parameter: Parameter, text: str) -> Any:
        """Return what the text means for the parameter, given the settings as they are; SettingError where nothing."""
        value = parameter.parse(text)
        return value if parameter.adapt is None else parameter.adapt(value, self)

    def matching(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Yield (name, text) of the parameters that a name or glob, in any case, names (configGetCommand)."""
        if not any(mark in pattern for mark in "[*?"):
            exact = PARAMETERS.get(pattern.lower())
            if exact is not None:
                yield pattern, exact.show(getattr(self, exact.attribute))
            return
        glob = compiled(pattern.encode("utf-8", "surrogateescape"), True)
        for name, parameter in PARAMETERS.items():
            if glob.matches(name.encode()):
                yield name, parameter.show(getattr(self, parameter.attribute))
