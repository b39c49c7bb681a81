"""WAITAOF: replies as in newer servers, and waiting for the sync, in the server and in the library."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

import pytest

import rillet
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local, Redis
from tests.judge import PEERS, required_binary, running_redis
from tests.server.harness import running

WORDS = """
    WAITAOF 0 0 0                  SET a 1                        WAITAOF 0 0 0                  WAITAOF 0 1 10
    WAITAOF 1 0 0                  WAITAOF 2 0 0                  WAITAOF -1 0 0                 WAITAOF 0 -1 0
    WAITAOF x 0 0                  WAITAOF 0 x 0                  WAITAOF 0 0 x                  WAITAOF 0 0 -1
    WAITAOF 0 1 9223372036854775807   WAITAOF 1 1                 MULTI                          WAITAOF 1 0 0
    WAITAOF 0 3 0                  EXEC                           COMMAND INFO WAITAOF           WAIT 0 0
    WAIT 0 9223372036854775807     WAIT 2 9223372036854775808
"""


@pytest.mark.peer
@pytest.mark.parametrize("compat", PEERS)
def test_replies_without_a_log_are_those_of_redis(compat: str) -> None:
    """With a `compat` below 7.2 the command is unknown."""
    binary = required_binary(compat)
    local = Local(Engine(Settings(compat=compat)))
    with running_redis(binary=binary) as server, Redis(server.port) as redis:
        for line in (line for row in WORDS.strip().splitlines() for line in row.strip().split("  ") if line.strip()):
            argv = line.split()
            ours = local.run([word.encode() for word in argv])
            theirs = redis.run([word.encode() for word in argv])[0]
            assert ours == theirs, line


DONE, NOT_DONE = b"*2\r\n:1\r\n:0\r\n", b"*2\r\n:0\r\n:0\r\n"


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_a_client_waits_for_the_sync(tmp_path: Path, fsync: str) -> None:
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", fsync) as server, server.client() as client:
        for number in range(3):
            client.send(f"SET k {number}", "WAITAOF 1 0 0")
            assert client.reply() == b"+OK\r\n"
            assert client.reply() == DONE
        assert client.call("WAITAOF 1 1 20") == DONE  # a replica never has it
        client.send("MULTI", "SET k v", "WAITAOF 1 0 0", "EXEC")
        assert [client.reply() for _ in range(4)][-1] == b"*2\r\n+OK\r\n" + NOT_DONE


def test_waitaof_starts_no_sync(tmp_path: Path) -> None:
    """With appendfsync no it waits until the time-out, a change of the setting, or the end of the log."""
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "no") as server, server.client() as client:
        assert client.call("SET k v") == b"+OK\r\n"
        assert client.call("WAITAOF 1 0 50") == NOT_DONE
        with server.client() as waiting:
            waiting.wait_in("WAITAOF 1 0 0")
            assert client.call("CONFIG SET appendfsync everysec") == b"+OK\r\n"
            assert waiting.reply() == DONE
            assert client.call("CONFIG SET appendfsync no") == b"+OK\r\n"
            assert client.call("SET k w") == b"+OK\r\n"
            waiting.wait_in("WAITAOF 1 0 0")
            assert client.call("CONFIG SET appendonly no") == b"+OK\r\n"
            assert waiting.reply() == (
                b"-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n"
            )


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_a_store_waits_for_the_sync(tmp_path: Path, fsync: Literal["everysec", "always"]) -> None:
    """In the library, several threads can wait at once."""
    with rillet.open(tmp_path / "store", appendfsync=fsync) as store:
        replies = []

        def write(number: int) -> None:
            store.execute("SET", f"k{number}", "v")
            replies.append(store.execute("WAITAOF", 1, 0, 0))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert replies == [[1, 0]] * 4
        assert store.execute("WAITAOF", 0, 1, 10) == [1, 0]
