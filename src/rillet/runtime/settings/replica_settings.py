"""The settings of a server that follows a master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.runtime.settings.setting_types import (
    INT_MAX,
    LONG_MAX,
    Lines,
    SettingError,
    SettingType,
    boolean,
    integer,
    memory,
    parse_integer,
    string,
    words,
)

if TYPE_CHECKING:
    from rillet.runtime.settings.settings import Settings

_PORTS = range(65536)


def _master(words: list[str]) -> str:
    """Parse the address of the master: host and port, NO ONE, or nothing (config.c: setConfigReplicaOfOption)."""
    if words == [""]:
        return ""
    if len(words) != 2:
        raise SettingError("wrong number of arguments")
    if [word.lower() for word in words] == ["no", "one"]:
        return ""
    port = parse_integer(words[1])
    if port is None or port not in _PORTS:
        raise SettingError("Invalid master port")
    return f"{words[0]} {port}"


def _written_master(address: str) -> Lines:
    return [(address, True)] if address else []


def _diskless_load(word: str, settings: Settings) -> str:
    """Check a value of repl-diskless-load, some of which only newer servers accept, and return it."""
    compat = settings.compat
    if word == "flushdb" and (compat.valkey or not compat.knows(80)):
        raise SettingError("argument(s) must be one of the following: " + ", ".join(_LOADS[:3]))
    if word == "flush-before-load" and not compat.valkey:
        raise SettingError("argument(s) must be one of the following: " + ", ".join(_LOADS[:3]))
    return word


_LOADS = ("disabled", "on-empty-db", "swapdb", "flushdb", "flush-before-load")

REPLICA = [
    SettingType("replicaof", "Host and port of the master that the server follows; NO ONE: it is a master",
                "", _master, mutable=False, multi=True, written=_written_master),
    string("masterauth", "Password that the server sends to its master; empty: none", "", null=True, whole=True),
    string("masteruser", "User that the server sends to its master; empty: `default`", "", null=True),
    integer("repl-timeout", "Seconds without a byte after which the link of a replica and its master is cut",
            60, 1, INT_MAX),
    SettingType("repl-diskless-load", "When the master's snapshot is loaded without a file: never, into an empty "
                "database, beside the old data (swapdb), or after the old data is deleted",
                "disabled", words("", "", "disabled", _LOADS).parse, adapt=_diskless_load),
    memory("replica-full-sync-buffer-limit", "Bytes of the stream that a replica keeps while it loads a snapshot of a "
           "second connection; 0: the hard limit of client-output-buffer-limit replica", 0, 0, LONG_MAX,
           since=80, valkey=False),
    boolean("replica-serve-stale-data", "Whether a replica without a link to its master answers reads", True),
    boolean("replica-read-only", "Whether a replica refuses the writes of its clients", True),
    boolean("replica-lazy-flush", "Whether a replica frees its old data in steps before it loads a snapshot",
            False, valkey_default=True),
    boolean("replica-ignore-maxmemory", "Whether a replica evicts no keys, and waits for those of its master", True),
    boolean("replica-ignore-disk-write-errors",
            "Whether a replica that cannot write its files continues; no: it ends", False),
    words("propagation-error-behavior", "Whether a replica ends if it refuses a command of its master",
          "ignore", ("ignore", "panic", "panic-on-replicas")),
    integer("replica-priority", "Order in which Sentinel promotes replicas, lowest first; 0: never", 100, 0, INT_MAX),
    boolean("replica-announced", "Whether Sentinel reports the replica to its clients", True),
    string("replica-announce-ip", "Address of the replica that its master reports; empty: that of the socket",
           "", null=True),
    integer("replica-announce-port", "Port of the replica that its master reports; 0: `port`", 0, 0, 65535),
    boolean("tls-replication", "Whether the link to the master uses TLS", False),
    string("bind-source-addr", "Local address of the link to the master; empty: the system chooses", "", null=True),
    string("tls-client-cert-file", "Certificate of the link to the master; empty: tls-cert-file", "", null=True),
    string("tls-client-key-file", "Key of tls-client-cert-file", "", null=True),
    string("tls-client-key-file-pass", "Password of tls-client-key-file", "", null=True),
    boolean("rdb-del-sync-files", "Whether a server without log and save points deletes a transferred RDB file",
            False),
]  # fmt: skip
