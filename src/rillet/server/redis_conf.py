"""Settings from a redis.conf and the command line, with redis-server's grammar.

    rillet serve redis.conf --port 7000 --appendonly yes
    rillet serve --save 60 1 --save 300 100 "--dbfilename my.rdb"
    rillet serve - < redis.conf

A file has one directive per line: a name and its arguments, split with the quoting rules of redis-cli; a line that
begins with `#` is a comment. `include` reads another file, or all files that match a pattern. Later directives override
earlier ones: first the file, then the standard input (`-`), then the command line. There, an option is a directive
whose arguments need no further quoting (`--save ""`, `"--port 7000"`); a value may begin with `--` if the option
requires one (server.c: main).

`save` accumulates: the first one replaces the default save points, further ones are added, and `save ""` removes all
(config.c: setConfigSaveOption).

`loadmodule` names a module and its arguments; it may occur several times. A directive whose name contains a dot is a
setting of a module (`bloom.error-rate 0.01`). The server loads the modules before the data, and rejects settings that
belong to none of them.

A directive that rillet does not support is an error with its name and line. Exceptions are directives without an effect
for clients (IGNORED): they are accepted, and CONFIG REWRITE leaves them in the file (rillet.server.config_rewrite).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from rillet.errors import StoreError
from rillet.protocol.command_parser import split_args
from rillet.runtime.setting_types import quoted
from rillet.runtime.settings import DEFAULT_SAVE, PARAMETERS, SettingError, Settings, SettingType

# Directives that are accepted without effect: they configure features that rillet lacks.
IGNORED = frozenset(
    "acl-pubsub-default acllog-max-len "
    "aof_rewrite_cpulist bgsave_cpulist bio_cpulist server_cpulist aof-rewrite-cpulist bgsave-cpulist bio-cpulist "
    "server-cpulist busy-reply-threshold lua-time-limit cluster-config-file cluster-node-timeout hll-sparse-max-bytes "
    "io-threads io-threads-do-reads latency-monitor-threshold latency-tracking latency-tracking-info-percentiles "
    "maxmemory-eviction-tenacity maxmemory-samples repl-backlog-size repl-backlog-ttl "
    "repl-disable-tcp-nodelay repl-diskless-load repl-diskless-sync repl-diskless-sync-delay "
    "repl-diskless-sync-max-replicas repl-ping-replica-period repl-ping-slave-period repl-timeout min-replicas-max-lag "
    "min-slaves-max-lag replica-announced replica-ignore-disk-write-errors replica-ignore-maxmemory "
    "slave-ignore-maxmemory replica-lazy-flush slave-lazy-flush replica-priority slave-priority replica-read-only "
    "slave-read-only replica-serve-stale-data slave-serve-stale-data slowlog-log-slower-than slowlog-max-len "
    "socket-mark-id tracking-table-max-keys list-max-ziplist-entries list-max-ziplist-value "
    "lua-replicate-commands locale-collate array-slice-size array-sparse-kmax array-sparse-kmin "
    "hide-user-data-from-log rdb-version-check dual-channel-replication-enabled commandlog-execution-slower-than "
    "commandlog-slow-execution-max-len commandlog-request-larger-than commandlog-large-request-max-len "
    "commandlog-reply-larger-than commandlog-large-reply-max-len slowlog-entry-max-argc "
    "slowlog-entry-max-string-len".split()
)
# The accepted rules of the only user, which has all permissions.
_USER_RULES = frozenset(
    "on nopass sanitize-payload skip-sanitize-payload ~* allkeys &* allchannels +@all allcommands".split()
)
_MOST_INCLUDES = 16


class ConfigurationError(StoreError):
    """An invalid directive; the message contains its file and line (or option) and the reason."""


@dataclass
class Configuration:
    """The settings of a server, the file that CONFIG REWRITE writes, and the names of the settings that were given.

    without_effect: the given directives that change nothing in rillet, for a line in the server's log.
    modules: the modules to load, each with its arguments; module_settings: the values of their settings by full name.
    """

    settings: Settings
    file: Path | None = None
    given: frozenset[str] = frozenset()
    without_effect: tuple[str, ...] = ()
    modules: tuple[tuple[str, ...], ...] = ()
    module_settings: dict[str, str] = field(default_factory=dict)


def load(arguments: Sequence[str], stdin: BinaryIO | None = None) -> Configuration:
    """Return the settings that the command line `[file] [-] [--name value ...]` defines."""
    rest = list(arguments)
    file = Path(rest.pop(0)) if rest and not rest[0].startswith("-") else None
    reader = _DirectiveReader(Settings(save=DEFAULT_SAVE))
    if file is not None:
        reader.read_file(file)
    if rest and "-" in (rest[0], rest[-1]):
        rest.remove("-") if rest[0] == "-" else rest.pop()
        reader.read_lines((stdin or sys.stdin.buffer).read(), "standard input")
    for where, line in _options(rest):
        reader.apply(line, where)
    reader.finish()
    return Configuration(reader.settings, None if file is None else file.absolute(), frozenset(reader.given),
                         tuple(reader.without_effect), tuple(reader.modules), reader.module_settings)  # fmt: skip


def _options(rest: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (name for error messages, line of a configuration file) for each option (server.c: main)."""
    where, line, complete = "", "", True
    for at, word in enumerate(rest):
        if complete and word.startswith("--"):
            if line:
                yield where, _encoded(line)
            where, line = f"option {word}", word[2:] + " "
            complete = len(split_args(_encoded(word)) or [""]) > 1
            if word.lower() == "--save" and (at + 1 == len(rest) or rest[at + 1].startswith("--")):
                line, complete = line + '""', True  # an empty list of save points
        elif not line and word.startswith("-"):
            raise ConfigurationError(f"{word!r} is neither a configuration file nor an option (--name value)")
        else:
            where = where or f"option {word}"
            line, complete = line + quoted(word) + " ", True
    if line:
        yield where, _encoded(line)


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape")


class _DirectiveReader:
    """Applies the directives of redis.conf and of the command line to the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.given: set[str] = set()
        self.without_effect: dict[str, None] = {}
        self.modules: list[tuple[str, ...]] = []
        self.module_settings: dict[str, str] = {}
        self._saved = False
        # A hash of the password, and the line that contains it; compared with the password at the end.
        self._hash: tuple[str, str] | None = None

    def read_file(self, path: Path, depth: int = 0) -> None:
        """Apply the directives of a configuration file."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read the configuration file {path}: {error.strerror}") from error
        self.read_lines(data, str(path), depth)

    def read_lines(self, data: bytes, name: str, depth: int = 0) -> None:
        """Apply the directives of a text, one per line."""
        for number, line in enumerate(data.split(b"\n"), 1):
            self.apply(line, f"{name}, line {number}", depth)

    def apply(self, raw: bytes, where: str, depth: int = 0) -> None:
        """Apply one line; comments and empty lines have no effect (loadServerConfigFromString)."""
        line = raw.strip(b" \t\r\n")
        if not line or line.startswith(b"#"):
            return
        place = f"{where}: '{line.decode('utf-8', 'replace')}'"
        words = split_args(line)
        if words is None:
            raise ConfigurationError(f"{place}: Unbalanced quotes in configuration line")
        texts = [word.decode("utf-8", "surrogateescape") for word in words]
        name = texts[0].lower() if texts else ""
        if name == "include" and len(texts) == 2 and depth < _MOST_INCLUDES:
            self._include(texts[1], depth + 1)
        elif name == "loadmodule" and len(texts) >= 2:
            self.modules.append(tuple(texts[1:]))
        elif "." in name and len(texts) >= 2:
            self.module_settings[texts[0]] = " ".join(texts[1:])
        elif name == "user":
            self._user(texts[1:], place)
        elif name in PARAMETERS and name not in IGNORED:
            try:
                self._set(PARAMETERS[name], texts[1:])
            except SettingError as error:
                raise ConfigurationError(f"{place}: {str(error).removeprefix('ERR ')}") from None
        elif name and name not in IGNORED:
            raise ConfigurationError(f"{place}: unknown directive {texts[0]!r}")
        elif name and (name not in PARAMETERS or texts[1:] != [PARAMETERS[name].default]):
            self.without_effect[name] = None

    def _include(self, pattern: str, depth: int) -> None:
        """Apply an included file, or all files that match the pattern, possibly none."""
        if any(mark in pattern for mark in "*?["):
            for path in sorted(glob(pattern)):
                self.read_file(Path(path), depth)
        else:
            self.read_file(Path(pattern), depth)

    def _set(self, parameter: SettingType, texts: list[str]) -> None:
        if not parameter.multi and len(texts) != 1:
            raise SettingError("wrong number of arguments")
        if parameter.multi and len(texts) == 1 and texts[0]:
            split = split_args(_encoded(texts[0])) or []
            texts = [word.decode("utf-8", "surrogateescape") for word in split]
        value = self.settings.value_of_words(parameter, texts)
        if parameter.name == "save":
            if self._saved and texts != [""]:
                value = (*self.settings.save, *value)
            self._saved = True
        setattr(self.settings, parameter.attribute, value)
        if parameter.ignored and value != parameter.default:
            self.without_effect[parameter.name] = None
        self.given.add(parameter.name)

    def _user(self, rules: list[str], place: str) -> None:
        """Apply a `user` line: it may only set the password of the user `default`."""
        if rules[:1] != ["default"]:
            raise ConfigurationError(f"{place}: the only user is default")
        for rule in rules[1:]:
            if rule.startswith(">"):
                self.settings.requirepass = rule[1:]
            elif rule.startswith("#"):
                self._hash = rule[1:], place
            elif rule.lower() not in _USER_RULES:
                raise ConfigurationError(f"{place}: unsupported rule {rule}: the user default has all permissions")

    def finish(self) -> None:
        """Check the directives that depend on each other."""
        if self._hash is not None:
            password = self.settings.requirepass.encode("utf-8", "surrogateescape")
            if sha256(password).hexdigest() != self._hash[0].lower():
                raise ConfigurationError(f"{self._hash[1]}: the hash does not match the password of requirepass")
