"""Genuine servers follow rillet: random commands of every type, cut links, and equal data afterwards."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.differential.test_log_differential import Mixed
from tests.judge import required_binary, running_redis
from tests.server.harness import running
from tests.waiting import until

DATABASES = 16
ROUNDS = int(os.environ.get("RILLET_REPLICATION_ROUNDS", "20"))
WAYS = {
    "7.0": (),
    "8.6": ("--repl-diskless-sync", "no", "--appendonly", "yes"),
    "newest": ("--appendonly", "yes", "--aof-timestamp-enabled", "yes"),
    "valkey": ("--repl-diskless-sync", "no"),
}


def client(port: int) -> redis.Redis:
    """Return a connection that shows replies as they are."""
    made = redis.Redis(host="127.0.0.1", port=port, protocol=2, single_connection_client=True)
    made.response_callbacks.clear()
    return made


def fields(server: redis.Redis, section: str) -> dict[str, str]:
    """Return the fields of a section of INFO."""
    text = server.execute_command("INFO", section).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def digests(server: redis.Redis) -> dict[tuple[int, bytes], Any]:
    """Return the digest of each value."""
    found: dict[tuple[int, bytes], Any] = {}
    for database in range(DATABASES):
        server.execute_command("SELECT", database)
        keys = sorted(server.execute_command("KEYS", "*"))
        if keys:
            values = server.execute_command("DEBUG", "DIGEST-VALUE", *keys)
            found.update({(database, key): value for key, value in zip(keys, values, strict=True)})
    return found


def write(made: Mixed, one: redis.Redis, count: int) -> None:
    """Send commands; errors are replies."""
    for _ in range(count):
        try:
            one.execute_command(*made.next())
        except redis.ResponseError:
            continue


def follow(folder: Path, compat: str, seed: int, steps: int, cuts: int, *arguments: str) -> None:
    """Let a genuine server follow rillet under load, and cut their link."""
    binary, chance = required_binary(compat), random.Random(seed)
    with running(folder, "--compat", compat, "--enable-debug-command", "yes", "--save", "",
                 "--repl-diskless-sync-delay", "0", *arguments) as server:  # fmt: skip
        made, one, master = Mixed(seed, compat), client(server.port), client(server.port)
        write(made, one, steps // 3)
        with running_redis("--replicaof", f"127.0.0.1 {server.port}", binary=binary) as judge:
            replica = client(judge.port)
            write(made, one, steps // 3)
            until(lambda: fields(replica, "replication")["master_link_status"] == "up", "the replica synchronises")
            for cut in range(cuts):
                write(made, one, steps // 3 // cuts)
                # A link that is not there again could not be cut.
                until(lambda cut=cut: int(fields(master, "stats")["sync_partial_ok"]) == cut, f"link {cut} begins")  # type: ignore[misc]
                victim, kind = chance.choice(((master, "replica"), (replica, "master")))
                victim.execute_command("CLIENT", "KILL", "TYPE", kind)
            write(made, one, 20)
            try:
                one.execute_command("EXEC")
            except redis.ResponseError:
                pass
            assert master.execute_command("WAIT", 1, 60_000) == 1
            until(lambda: int(fields(master, "stats")["sync_partial_ok"]) == cuts, "the last link begins")
            ours, theirs = digests(master), digests(replica)
            assert {key for key in ours | theirs if ours.get(key) != theirs.get(key)} == set()
            facts = fields(master, "stats")
            assert (facts["sync_full"], facts["sync_partial_err"]) == ("1", "0")
            assert int(facts["sync_partial_ok"]) == cuts


@pytest.mark.parametrize("compat", WAYS)
def test_a_genuine_replica_has_the_same_data(tmp_path: Path, compat: str) -> None:
    follow(tmp_path, compat, 1, 600, 3, *WAYS[compat])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 2 + ROUNDS))
@pytest.mark.parametrize("compat", WAYS)
def test_a_genuine_replica_has_the_same_data_in_many_rounds(tmp_path: Path, compat: str, seed: int) -> None:
    ways = list(WAYS.values())
    follow(tmp_path, compat, seed, 3000, 6, *ways[seed % len(ways)])


def test_a_failover_hands_the_role_over_and_back(tmp_path: Path) -> None:
    with (running(tmp_path, "--compat", "7.0", "--save", "", "--repl-diskless-sync-delay", "0") as server,
          running_redis("--replicaof", f"127.0.0.1 {server.port}", "--repl-diskless-sync-delay",
                        "0") as judge):  # fmt: skip
        ours, theirs = client(server.port), client(judge.port)
        until(lambda: fields(ours, "replication").get("slave0", "").find("state=online") > 0, "the replica is online")
        ours.execute_command("SET", "a", "1")
        for words, error in (
            (("TO", "127.0.0.1", "1"), "FAILOVER target HOST and PORT is not a replica."),
            (("TO", "127.0.0.1", str(judge.port), "FORCE"), "FAILOVER with force option requires both a timeout"),
            (("ABORT",), "No failover in progress."),
        ):
            with pytest.raises(redis.ResponseError, match=error):
                ours.execute_command("FAILOVER", *words)
        history = fields(ours, "replication")["master_replid"]
        assert ours.execute_command("FAILOVER", "TO", "127.0.0.1", str(judge.port), "TIMEOUT", "60000") == b"OK"
        until(lambda: fields(ours, "replication").get("master_link_status") == "up", "this server follows")
        assert fields(ours, "replication")["master_failover_state"] == "no-failover"
        assert fields(theirs, "replication")["master_replid2"] == history
        theirs.execute_command("SET", "b", "2")
        assert theirs.execute_command("WAIT", 1, 60_000) == 1
        assert ours.execute_command("GET", "b") == b"2"
        assert (fields(theirs, "stats")["sync_full"], fields(theirs, "stats")["sync_partial_ok"]) == ("0", "1")
        assert theirs.execute_command("FAILOVER") == b"OK"
        until(lambda: fields(theirs, "replication").get("master_link_status") == "up", "the judge follows again")
        assert fields(ours, "replication")["role"] == "master"
        assert fields(ours, "stats")["sync_partial_ok"] == "1"
        ours.execute_command("SET", "c", "3")
        assert ours.execute_command("WAIT", 1, 60_000) == 1
        assert theirs.execute_command("GET", "c") == b"3"
