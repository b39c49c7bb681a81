"""The settings of the process, its log, its statistics, and of one server only.

The first words of a description say "Every value is true" where a setting chooses between internal steps that rillet
does not have and that no reply shows. Test suites change these settings, so every valid value is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rillet.runtime.settings.setting_types import (
    INT_MAX,
    LONG_MAX,
    NEVER,
    SettingError,
    SettingType,
    boolean,
    integer,
    memory,
    numbers,
    octal,
    parse_integer,
    string,
    words,
)

_PERCENTILES = (
    "Invalid latency-tracking-info-percentiles parameters",
    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
)
_TITLE_VARIABLES = ("title", "listen-addr", "server-mode", "config-file", "port", "tls-port", "unixsocket")


def expand_title(template: str, variables: Mapping[str, str]) -> str | None:
    """Replace the {variables} of a process title; None if one is unknown or not closed (sds.c: sdstemplate)."""
    parts = re.split(r"(\{\{|\{[^}]*\}|\{)", template)
    for at, part in enumerate(parts):
        if part == "{{":
            parts[at] = "{"
        elif part.startswith("{"):
            if part[1:-1] not in variables or not part.endswith("}"):
                return None
            parts[at] = variables[part[1:-1]]
    return "".join(parts).strip(" ")


def _process_title(template: str) -> str | None:
    if not expand_title(template, dict.fromkeys(_TITLE_VARIABLES, "x")):
        return "template format is invalid or contains unknown variables"
    return None


def _oom_scores(words: list[str]) -> str:
    """Parse three scores for the kernel's OOM killer: of a master, a replica and a child process."""
    if len(words) != 3:
        raise SettingError("wrong number of arguments")
    values = [parse_integer(word) for word in words]
    if any(value is None or not -2000 <= value <= 2000 for value in values):
        raise SettingError("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")
    return " ".join(str(value) for value in values)


_PROCESS = [
    boolean("daemonize", "Run in the background: as a child process without a terminal", False, mutable=False),
    words("supervised", "Report readiness to systemd (NOTIFY_SOCKET) or upstart (SIGSTOP); auto: to the one that runs",
          "no", ("upstart", "systemd", "auto", "no"), mutable=False),
    string("pidfile", "File that holds the process ID while the server runs", "", mutable=False, null=True),
    words("loglevel", "Lowest level of the lines in the server's own log",
          "notice", ("debug", "verbose", "notice", "warning")),
    string("logfile", "File of the server's own log; empty: the standard output", "", mutable=False),
    boolean("syslog-enabled", "Whether the lines of the log also go to syslog", False, mutable=False),
    string("syslog-ident", "Name of the server in syslog", "redis", mutable=False, valkey_default="valkey"),
    words("syslog-facility", "Facility of the lines in syslog",
          "local0", ("user", *(f"local{number}" for number in range(8))), mutable=False),
    boolean("set-proc-title", "Whether ps shows proc-title-template (Linux only)", True, mutable=False),
    string("proc-title-template", "Title of the process: text and {title}, {listen-addr}, {port} and others",
           "{title} {listen-addr} {server-mode}", valid=_process_title),
    boolean("protected-mode", "Accept only clients on this machine while the user `default` has no password", True),
    integer("tcp-keepalive", "Seconds after which the system probes an idle client; 0: never", 300, 0, INT_MAX),
    octal("unixsocketperm", "Permissions of the Unix socket, in octal; 0: those of the process's umask",
          0, 0, 0o777, mutable=False),
    string("unixsocketgroup", "Group of the Unix socket: a name or a number", "", mutable=False, null=True,
           since=NEVER),
    integer("socket-mark-id", "Mark of all packets of the server, for the system's firewall (Linux); 0: none",
            0, 0, 2**32 - 1, mutable=False),
    boolean("activedefrag", "Whether the nodes of streams and lists are compacted after deletions", False),
    memory("active-defrag-ignore-bytes", "Wasted bytes below which nothing is compacted", 100 * 1024**2, 1, LONG_MAX),
    integer("active-defrag-threshold-lower", "Wasted bytes, in percent of the others, at which compaction starts",
            10, 0, 1000),
    integer("active-defrag-threshold-upper", "Wasted bytes, in percent of the others, for the greatest effort",
            100, 0, 1000),
    integer("active-defrag-cycle-min", "Share of time in percent for compaction, at the lower threshold", 1, 1, 99),
    integer("active-defrag-cycle-max", "Share of time in percent for compaction, at the upper threshold", 25, 1, 99),
    boolean("dynamic-hz", "Run the periodic jobs more often than `hz` with very many clients", True, valkey=False),
    boolean("crash-log-enabled", "Whether a crash of the process writes the Python stack to stderr", True),
    words("oom-score-adj", "Adjust the scores for Linux's OOM killer: relative to the start (yes), or absolute",
          "no", ("no", "yes", "relative", "absolute"), same={"relative": "yes"}),
    SettingType("oom-score-adj-values", "OOM scores of a master, a replica and a child process (oom-score-adj)",
                "0 200 800", _oom_scores, multi=True),
    boolean("disable-thp", "Disable transparent huge pages for the process (Linux)", True, mutable=False),
    boolean("lazyfree-lazy-eviction", "Whether the log contains UNLINK instead of DEL for evicted keys",
            False, valkey_default=True),
    boolean("lazyfree-lazy-expire", "Whether the log contains UNLINK instead of DEL for expired keys",
            False, valkey_default=True),
    boolean("lazyfree-lazy-server-del", "Whether commands free the values that they replace later, and log UNLINK",
            False, valkey_default=True),
    boolean("lazyfree-lazy-user-del", "Whether DEL frees large values later, as UNLINK",
            False, valkey_default=True),
    boolean("lazyfree-lazy-user-flush", "Whether FLUSHALL and FLUSHDB free the data later, as with ASYNC",
            False, valkey_default=True),
    boolean("lazyexpire-nested-arbitrary-keys", "Whether SCAN and RANDOMKEY delete expired keys inside EXEC, too",
            True, hidden=True, since=76, valkey=False),
    boolean("import-mode", "Whether expired keys stay until the source of an import deletes them (Valkey)", False,
            since=NEVER),
]  # fmt: skip
_SLOW = [
    integer("slowlog-log-slower-than", "Microseconds from which a command is in SLOWLOG; negative: no command is",
            10000, -1, LONG_MAX),
    integer("slowlog-max-len", "Most commands in SLOWLOG", 128, 0, LONG_MAX),
    integer("slowlog-entry-max-argc", "Most arguments of a command in SLOWLOG", 32, 2, INT_MAX, since=88, valkey=False),
    integer("slowlog-entry-max-string-len", "Most bytes of an argument in SLOWLOG", 128, 1, LONG_MAX,
            since=88, valkey=False),
    integer("commandlog-request-larger-than", "Bytes of a request from which COMMANDLOG contains it; -1: none",
            1024 * 1024, -1, LONG_MAX, since=NEVER),
    integer("commandlog-large-request-max-len", "Most large requests in COMMANDLOG", 128, 0, LONG_MAX, since=NEVER),
    integer("commandlog-reply-larger-than", "Bytes of a reply from which COMMANDLOG contains its command; -1: none",
            1024 * 1024, -1, LONG_MAX, since=NEVER),
    integer("commandlog-large-reply-max-len", "Most commands with large replies in COMMANDLOG", 128, 0, LONG_MAX,
            since=NEVER),
    integer("latency-monitor-threshold", "Milliseconds from which an event is in LATENCY; 0: no event is",
            0, 0, LONG_MAX),
    boolean("latency-tracking", "Whether the times of each command are counted for LATENCY HISTOGRAM and INFO", True),
    numbers("latency-tracking-info-percentiles", "Percentiles of the commands' times in INFO latencystats",
            (50.0, 99.0, 99.9), 0, 100, _PERCENTILES),
]  # fmt: skip
_FOR_SUITES = [
    integer("min-string-size-avoid-copy-reply", "Every value is true: the bytes of a reply are the same",
            16384, 0, INT_MAX, since=NEVER, hidden=True),
    integer("min-string-size-avoid-copy-reply-threaded", "Every value is true: the bytes of a reply are the same",
            65536, 0, INT_MAX, since=NEVER, hidden=True),
]  # fmt: skip
_VALKEY = [
    string("availability-zone", "Name that INFO and HELLO show, for clients that choose a near server", "",
           since=NEVER),
    words("log-format", "Form of the lines in the server's own log", "legacy", ("legacy", "logfmt", "json"),
          since=NEVER),
    words("log-timestamp-format", "Form of the times in the server's own log", "legacy",
          ("legacy", "iso8601", "milliseconds"), since=NEVER),
    words("rdb-version-check", "Whether RDB files and payloads of later versions are refused", "strict",
          ("strict", "relaxed"), since=NEVER),
    boolean("extended-redis-compatibility", "Whether Valkey calls itself Redis in HELLO and INFO", False, since=NEVER),
    boolean("hide-user-data-from-log", "Whether the server's own log omits the names and data of keys", False,
            since=74, valkey_default=True),
]  # fmt: skip

SERVER = (*_PROCESS, *_SLOW, *_FOR_SUITES, *_VALKEY)
