"""The settings that `rillet.open` accepts: those that have an effect on a store of that kind.

    every store               encodings, limits of clients, keyspace events, passwords, `hz`, `compat` ...
    a store in a directory    also the log and the RDB file
    neither                   the sockets, the process and the log file of `rillet serve`; features that rillet lacks
                              (`io-threads`)

A setting that would have no effect is refused: a store with `io_threads=4` would still have one thread. The value that
describes rillet correctly (`io_threads=1`) is accepted everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import PARAMETERS, Settings
from rillet.store.arguments.encoding import decode

if TYPE_CHECKING:
    from rillet.modules.loading import OpenModules
    from rillet.store.store import Store

FILES = "a store in a directory"
MEMORY = "a store in memory"

_SERVER_ONLY = frozenset(
    "bind metrics-port metrics-streams port unixsocket unixsocketperm unixsocketgroup socket-mark-id tls-port "
    "tls-cert-file tls-key-file tls-key-file-pass tls-ca-cert-file tls-ca-cert-dir tls-dh-params-file "
    "tls-auth-clients tls-auth-clients-user tls-protocols tls-ciphers tls-ciphersuites tls-prefer-server-ciphers "
    "tls-auto-reload-interval daemonize supervised pidfile syslog-enabled syslog-ident syslog-facility "
    "set-proc-title proc-title-template dynamic-hz crash-log-enabled oom-score-adj oom-score-adj-values disable-thp "
    "log-format log-timestamp-format hide-user-data-from-log tcp-backlog "
    "replicaof masterauth masteruser replica-serve-stale-data replica-read-only replica-lazy-flush "
    "replica-ignore-maxmemory replica-ignore-disk-write-errors propagation-error-behavior replica-priority "
    "replica-announced replica-announce-ip replica-announce-port repl-diskless-load repl-diskless-sync "
    "repl-diskless-sync-delay repl-diskless-sync-max-replicas repl-rdb-channel replica-full-sync-buffer-limit "
    "tls-replication bind-source-addr "
    "tls-client-cert-file tls-client-key-file tls-client-key-file-pass rdb-del-sync-files "
    "shutdown-on-sigint shutdown-on-sigterm shutdown-timeout appendonly appenddirname dir loglevel logfile".split()
)
_FILES_ONLY = frozenset(
    "stream-memory stream-compression aof-checksums log-entries-read appendfsync no-appendfsync-on-rewrite "
    "auto-aof-rewrite-percentage auto-aof-rewrite-min-size aof-load-truncated aof-load-refused "
    "aof-load-corrupt-tail-max-size aof-use-rdb-preamble aof-timestamp-enabled aof-rewrite-incremental-fsync "
    "rdb-save-incremental-fsync "
    "aof-disable-auto-gc appendfilename save stop-writes-on-bgsave-error dbfilename "
    "rdb-key-save-delay key-load-delay lazyfree-lazy-eviction lazyfree-lazy-expire "
    "lazyfree-lazy-server-del lazyfree-lazy-user-del".split()
)
_INSTEAD = {
    "metrics-port": "serve the directory with `rillet serve --metrics-port`",
    "bind": "store.serve() listens on a socket",
    "port": "store.serve() listens on a socket",
    "unixsocket": "store.serve() listens on a socket",
    "appendonly": "a store with a path has a log",
    "dir": "the path of the store is its directory",
}
_OLD_NAMES = {old.replace("-", "_"): entry.attribute for old, entry in PARAMETERS.items() if entry.alias}


def settings_of(kind: str, given: Mapping[str, Any]) -> Settings:
    """Return the settings of a store (FILES or MEMORY); ValueError if one is invalid or would have no effect."""
    try:
        settings = Settings(**{_OLD_NAMES.get(name, name): value for name, value in given.items()})
    except SettingError as error:
        raise ValueError(str(error).removeprefix("ERR ")) from None
    for argument, value in given.items():
        name = _OLD_NAMES.get(argument, argument).replace("_", "-")
        parameter = PARAMETERS[name]
        if getattr(settings, parameter.attribute) == parameter.default_in(settings.compat):
            continue
        if name in _SERVER_ONLY:
            reason = f"is a setting of rillet serve and has no effect on a store; {_INSTEAD.get(name, 'omit it')}"
        elif name in _FILES_ONLY and kind == MEMORY:
            reason = "has no effect on a store in memory; pass a path to open a store with files"
        else:
            continue
        raise ValueError(f"{parameter.attribute}={value!r} {reason}")
    return settings


def differences(store: Store, settings: Settings, names: Iterable[str]) -> list[str]:
    """Return those settings of an attached store that its owner has with other values; the owner's values apply."""
    found = []
    for name in names:
        parameter = PARAMETERS[_OLD_NAMES.get(name, name).replace("_", "-")]
        reply = store.execute("CONFIG", "GET", parameter.name)
        ours, theirs = parameter.show(getattr(settings, parameter.attribute)), decode(reply[1]) if reply else "unknown"
        if ours != theirs:
            found.append(f"{parameter.attribute} is {theirs!r}, not {ours!r}")
    return found


def missing_modules(store: Store, modules: OpenModules) -> list[str]:
    """Return those modules of rillet.open that the owner of an attached store has not loaded."""
    listed = [dict(zip(row[::2], row[1::2], strict=True)) for row in store.execute("MODULE", "LIST")]
    paths = {decode(row[b"path"]) for row in listed}
    return [str(spec) for spec, *_ in modules[0] if str(spec) not in paths]
