"""Settings from a redis.conf and the command line, as redis-server takes them.

    rillet serve redis.conf --port 7000 --appendonly yes

A file holds one directive a line: a name and its arguments, split with the quoting of redis-cli; `#`
begins a comment line. `include` reads another file. The command line is read after the file, so it
wins. A directive of Redis that rillet has no use for is an error that names it, with its line,
unless it is one of those that change nothing for a client (IGNORED).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rillet.commands.settings import PARAMETERS, SettingError, Settings
from rillet.errors import StoreError
from rillet.protocol.parser import split_args

# Directives that are accepted and change nothing here: logging, daemons, memory of a C allocator.
IGNORED = frozenset(
    "daemonize supervised pidfile loglevel logfile syslog-enabled syslog-ident syslog-facility always-show-logo "
    "set-proc-title proc-title-template protected-mode tcp-keepalive activerehashing jemalloc-bg-thread "
    "dynamic-hz latency-tracking rdb-save-incremental-fsync aof-rewrite-incremental-fsync crash-log-enabled "
    "enable-protected-configs enable-module-command oom-score-adj disable-thp".split()
)


class ConfigurationError(StoreError):
    """A directive that cannot be taken; the message says where it stands and why."""


def load(arguments: Sequence[str]) -> Settings:
    """Return the settings that `[file] [--name value ...]` asks for."""
    settings = Settings()
    rest = list(arguments)
    if rest and not rest[0].startswith("-"):
        _read(Path(rest.pop(0)), settings)
    for where, words in _options(rest):
        _apply(settings, words, where)
    return settings


def _options(rest: list[str]) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for word in rest:
        if word.startswith("--"):
            found.append((f"option {word}", [word[2:]]))
        elif found:
            found[-1][1].append(word)
        else:
            raise ConfigurationError(f"{word!r} is neither a configuration file nor an option (--name value)")
    return found


def _read(path: Path, settings: Settings, depth: int = 0) -> None:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration file {path}: {error.strerror}") from error
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith(b"#"):
            continue
        where = f"{path}, line {number}"
        words = split_args(line)
        if words is None:
            raise ConfigurationError(f"{where}: unbalanced quotes")
        decoded = [word.decode("utf-8", "surrogateescape") for word in words]
        if decoded[0].lower() == "include" and len(decoded) == 2 and depth < 16:
            _read(Path(decoded[1]), settings, depth + 1)
        else:
            _apply(settings, decoded, where)


def _apply(settings: Settings, words: list[str], where: str) -> None:
    name = words[0].lower()
    if name in IGNORED:
        return
    if name not in PARAMETERS:
        raise ConfigurationError(f"{where}: unknown directive {words[0]!r}")
    if len(words) < 2:
        raise ConfigurationError(f"{where}: {words[0]!r} needs a value")
    try:
        settings.set_text(name, " ".join(words[1:]))
    except SettingError as error:
        reason = str(error).removeprefix("ERR ")
        raise ConfigurationError(f"{where}: {words[0]} {' '.join(words[1:])}: {reason}") from None
