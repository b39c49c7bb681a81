"""CONFIG GET, SET and REWRITE compared with a real server: equal texts, and files that both servers can start from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.differential.wire import Redis, read
from tests.judge import running_redis
from tests.server.harness import running

# What the harness sets, what says where a server is, and what is not here and says so (runtime/settings/settings.py).
OWN = frozenset(
    "port bind dir tcp-backlog enable-protected-configs enable-debug-command save appendonly".split()
)
# Each value is set on both servers; errors and the values shown afterwards must be equal.
CHANGES = {
    "appendfsync": "always everysec no sometimes ALWAYS no\0x n\0o",
    "no-appendfsync-on-rewrite": "yes no maybe YES 1",
    "auto-aof-rewrite-percentage": "0 50 5\0 -1 x 2147483647 2147483648 007 1mb 99999999999999999999",
    "auto-aof-rewrite-min-size": "0 1 64mb 1\0mb \0x 64MB 1k 1kb 2gb x -1 1.5mb 10zb mb 007",
    "aof-load-truncated": "no yes x",
    "aof-use-rdb-preamble": "no yes x",
    "aof-timestamp-enabled": "yes no",
    "aof-rewrite-incremental-fsync": "no yes",
    "aof-disable-auto-gc": "yes no",
    "stop-writes-on-bgsave-error": "no yes x",
    "rdbcompression": "no yes x no\0x",
    "rdbchecksum": "no",
    "rdb-save-incremental-fsync": "no yes",
    "dbfilename": "a.rdb a/b.rdb a\\b.rdb dump.rdb",
    "dir": "/nowhere /etc/passwd",
    "appendfilename": "x",
    "appenddirname": "x",
    "sanitize-dump-payload": "clients yes no x",
    "rdb-key-save-delay": "5 -5 0 x",
    "key-load-delay": "5 -5 0 x",
    "loading-process-events-interval-bytes": "1024 1023 2097152 x 2mb",
    "save": "60|1\0x 60\0|1 60|1 60|1|300|10 60 60|x 0|1 1|-1 -1|5 60||1 1|0 99999999999|1 60|1|",
    "shutdown-on-sigterm": "nosave nosave|now NOW|force|save save|nosave x default|now default",
    "shutdown-timeout": "10 -1 0 300 x",
    "tls-port": "x -1",
    "latency-tracking-info-percentiles": "5\0|6 50|99 | x 101 -1 50.0|99.95|100",
    "slowlog-max-len": "-1 x 12 128",
    "repl-backlog-size": "1mb 0 2mb",
    "tls-auth-clients": "maybe OPTIONAL yes",
    "proc-title-template": "a\0b {port {x} {title}|{{x}",
    "hz": "0 600 -1 x 10",
    "oom-score-adj-values": "1|2|3 1|2 1|2|3000 x|1|2 0|200|800",
    "loglevel": "debug nothing notice",
    "lazyfree-lazy-expire": "yes no x",
    "tcp-keepalive": "0 -1 300",
    "proto-max-bulk-len": "1mb 1023kb 512mb",
    "maxclients": "0 10 10000",
    "list-max-listpack-size": "-5 128 2147483648 -2",
    "hash-max-listpack-value": "1kb x 64",
    "client-output-buffer-limit": "normal|1|2|3 normal|1 x|1|2|3 normal|x|2|3 replica|1mb|1|-1 normal|0|0|0",
    "notify-keyspace-events": "KEA KEx x?",
    "nosuch": "1",
    "databases": "3",
    "enable-protected-configs": "yes",
    "daemonize": "yes",
}


@contextmanager
def both(tmp_path: Path, *arguments: str) -> Iterator[tuple[Redis, Redis]]:
    """Connections to a rillet server and to a real one."""
    common = ("--enable-protected-configs", "yes", "--enable-debug-command", "yes", *arguments)
    with (
        running(tmp_path, "--compat", "7.0", "--save", "", *common) as ours, running_redis(*common) as theirs,
        Redis(ours.port) as mine, Redis(theirs.port) as real,
    ):  # fmt: skip
        yield mine, real


def ask(redis: Redis, *words: str) -> Any:
    """Run a command and return its reply."""
    return read(redis.run([word.encode() for word in words])[0])


def shown(redis: Redis, pattern: str = "*") -> dict[str, str]:
    """Return the output of CONFIG GET."""
    words = [word.decode() for word in ask(redis, "CONFIG", "GET", pattern)]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_settings_are_shown_and_invalid_values_rejected(tmp_path: Path) -> None:
    with both(tmp_path) as (mine, real):
        ours, theirs = shown(mine), shown(real)
        same = (ours.keys() & theirs.keys()) - OWN
        assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
        for name, values in CHANGES.items():
            for value in values.split(" "):
                argv = ("CONFIG", "SET", name, value.replace("|", " "))
                assert ask(mine, *argv) == ask(real, *argv), argv
                if name != "dir":
                    assert ask(mine, "CONFIG", "GET", name) == ask(real, "CONFIG", "GET", name), argv


def test_config_set_changes_all_settings_or_none(tmp_path: Path) -> None:
    """The error names the first invalid setting."""
    with both(tmp_path) as (mine, real):
        before = shown(mine)
        for words in (
            "hz 20 save x", "hz 20 nosuch 1", "databases 3 nosuch 1", "nosuch 1 databases 3", "hz 20 HZ 30",
            "hash-max-listpack-entries 5 hash-max-ziplist-entries x", "auto-aof-rewrite-percentage 5 dir /nowhere",
            "Dir /nowhere", "hz 20 timeout", "appendfsync always dbfilename a/b hz x",
        ):  # fmt: skip
            argv = ("CONFIG", "SET", *words.split())
            assert ask(mine, *argv) == ask(real, *argv), argv
        assert shown(mine) == before


def test_protected_settings_need_enable_protected_configs(tmp_path: Path) -> None:
    with (
        running(tmp_path) as server, running_redis("--enable-protected-configs", "no") as judge,
        Redis(server.port) as mine, Redis(judge.port) as real,
    ):  # fmt: skip
        for argv in (("CONFIG", "SET", "dir", "/tmp"), ("CONFIG", "SET", "hz", "20", "dbfilename", "x")):
            assert ask(mine, *argv) == ask(real, *argv)


FILE = """# The first line

# A comment
port {port}
   hz   20
SAVE 900 1
save 300 10

bogus-line-that-is "unbalanced
# Another
hash-max-ziplist-entries 77
dbfilename 'some file.rdb'


save 60 10000
loglevel notice
client-output-buffer-limit pubsub 1mb 1mb 60
appendfilename "appendonly.aof"
"""
CHANGED = (
    ("hz", "15"), ("save", "60 1 120 2"), ("auto-aof-rewrite-min-size", "96mb"), ("appendfsync", "always"),
    ("dbfilename", "a b\"c.rdb"), ("shutdown-on-sigterm", "nosave now"), ("notify-keyspace-events", "KEx"),
    ("client-output-buffer-limit", "normal 1000 0 5"), ("auto-aof-rewrite-percentage", "33"), ("requirepass", ""),
    ("list-max-listpack-size", "-1"), ("aof-load-truncated", "no"), ("hash-max-listpack-value", "2kb"),
)  # fmt: skip
# A real server writes the first two whatever they are; rillet has not the one, and no need to say the other. Then
# what the two are started with.
VARIED = ("latency-tracking-info-percentiles", "user default", "port", "compat", "bind", "enable-")


def configure(redis: Redis) -> None:
    """Change settings and rewrite the file."""
    for name, value in CHANGED:
        assert ask(redis, "CONFIG", "SET", name, value) == b"OK"
    assert ask(redis, "CONFIG", "REWRITE") == b"OK"


def test_a_file_is_rewritten_as_in_redis(tmp_path: Path) -> None:
    """The lines are equal, except for the order of new lines; also for a second rewrite."""
    texts: list[list[str]] = []
    for who in ("ours", "theirs"):
        folder = tmp_path / who
        folder.mkdir()
        conf = folder / "redis.conf"
        text = FILE.format(port=1).replace('bogus-line-that-is "unbalanced\n', "")
        conf.write_text(text)
        with serving(who, conf, folder) as redis:
            with conf.open("a") as file:
                file.write('bogus-line-that-is "unbalanced\n')
            configure(redis)
            written = [conf.read_text()]
            assert ask(redis, "CONFIG", "REWRITE") == b"OK"
            written.append(conf.read_text())
            assert sorted(path.name for path in folder.iterdir() if path.suffix == ".conf" or "new" in path.name) == [
                "redis.conf"
            ]
        texts.append([text.replace(str(folder), "FOLDER") for text in written])
    for mine, real in zip(*texts, strict=True):
        ours, theirs = ([line for line in text.splitlines() if not line.startswith(VARIED)] for text in (mine, real))
        assert sorted(ours) == sorted(theirs)
        assert ours[: ours.index(SIGNATURE)] == theirs[: theirs.index(SIGNATURE)]


SIGNATURE = "# Generated by CONFIG REWRITE"


@contextmanager
def serving(who: str, conf: Path, folder: Path) -> Iterator[Redis]:
    """Start one of the two servers from the file, as a user does."""
    if who == "ours":
        before = f"sys.argv.insert(2, {str(conf)!r})"
        options = ("--enable-protected-configs", "yes", "--compat", "7.0")
        with running(folder, *options, before=before) as server, Redis(server.port) as redis:
            yield redis
    else:
        with running_redis(conf=conf, folder=folder) as judge, Redis(judge.port) as redis:
            yield redis


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_each_server_starts_from_the_other_servers_file(tmp_path: Path, writer: str) -> None:
    """CONFIG GET * shows the same after a restart from either file."""
    conf = tmp_path / "redis.conf"
    conf.write_text(FILE.format(port=1).replace('bogus-line-that-is "unbalanced\n', ""))
    with serving(writer, conf, tmp_path) as redis:
        configure(redis)
        before = shown(redis)
    for reader in ("ours", "theirs"):
        copy = tmp_path / f"{reader}.conf"
        text = conf.read_text()
        copy.write_text("\n".join(line for line in text.splitlines() if not line.startswith("compat")) + "\n")
        with serving(reader, copy, tmp_path) as redis:
            after = shown(redis)
        names = before.keys() if reader == writer else (before.keys() & after.keys()) - OWN | {"save", "dir"}
        names = names - {"port", "compat", "bind"}
        assert {name: before[name] for name in names} == {name: after[name] for name in names}


def test_a_file_with_every_setting_is_read_back(tmp_path: Path) -> None:
    """DEBUG CONFIG-REWRITE-FORCE-ALL writes every setting."""
    conf = tmp_path / "redis.conf"
    conf.write_text("")
    with serving("ours", conf, tmp_path) as redis:
        assert ask(redis, "DEBUG", "CONFIG-REWRITE-FORCE-ALL").startswith("ERR DEBUG command not allowed")
    conf.write_text("enable-debug-command yes\n")
    with serving("ours", conf, tmp_path) as redis:
        before = shown(redis)
        assert ask(redis, "DEBUG", "CONFIG-REWRITE-FORCE-ALL") == b"OK"
    assert conf.read_text().count("\n") > 80
    with serving("ours", conf, tmp_path) as redis:
        assert {**shown(redis), "port": ""} == {**before, "port": ""}


def test_a_rewrite_that_cannot_be_written_fails_as_in_redis(tmp_path: Path) -> None:
    """Without a file, and in a removed folder; no draft remains."""
    with both(tmp_path) as (mine, real):
        assert ask(mine, "CONFIG", "REWRITE") == ask(real, "CONFIG", "REWRITE")
    told = []
    for who in ("ours", "theirs"):
        folder = tmp_path / who
        (folder / "conf").mkdir(parents=True)
        conf = folder / "conf" / "redis.conf"
        conf.write_text("")
        with serving(who, conf, folder) as redis:
            shutil.rmtree(folder / "conf")
            told.append(ask(redis, "CONFIG", "REWRITE"))
            (folder / "conf").mkdir()
            (folder / "conf" / "redis.conf").mkdir()
            told.append(ask(redis, "CONFIG", "REWRITE"))
            assert os.listdir(folder / "conf") == ["redis.conf"]
            (folder / "conf" / "redis.conf").rmdir()
    assert told[:2] == told[2:]
