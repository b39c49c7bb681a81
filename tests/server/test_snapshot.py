"""Commands for a server's files: SAVE, BGSAVE, LASTSAVE, DEBUG RELOAD, BGREWRITEAOF, SHUTDOWN, and the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.harness import Client, Running, running
from tests.server.test_bgsave import ended

DEBUG = ("--enable-debug-command", "yes")
STREAM = """
XADD s 1-1 a 1
XADD s 1-2 a 2
XADD s 2-0 b 3
XGROUP CREATE s g 0
XREADGROUP GROUP g reader COUNT 2 STREAMS s >
XREADGROUP GROUP g thief COUNT 1 STREAMS s >
XCLAIM s g thief 0 1-2 RETRYCOUNT 9
XGROUP CREATECONSUMER s g idle
XDEL s 1-1
XGROUP CREATE other g $ MKSTREAM
SET k v PX 1000000
""".strip().splitlines()


def fill(client: Client) -> dict[str, bytes]:
    """Create keys of every type, and return their visible state."""
    for line in STREAM:
        assert not client.call(line).startswith(b"-"), line
    return seen(client)


def seen(client: Client) -> dict[str, bytes]:
    """Return the state that must survive a save and a load; DUMP includes a stream's groups and times."""
    calls = ("DEBUG DIGEST", "DUMP s", "DUMP other", "PEXPIRETIME k", "XINFO GROUPS s", "DBSIZE")
    return {call: client.call(call) for call in calls}


def test_a_saved_file_is_loaded_at_the_next_start(tmp_path: Path) -> None:
    with running(tmp_path, *DEBUG) as server, server.client() as client:
        assert client.info("rdb_saves") == "0"
        assert client.info("rdb_last_load_keys_loaded") == "0"
        before = fill(client)
        assert int(client.info("rdb_changes_since_last_save")) > 0
        saved = int(client.call("LASTSAVE")[1:])
        assert client.call("SAVE") == b"+OK\r\n"
        assert int(client.call("LASTSAVE")[1:]) >= saved
        assert client.info("rdb_saves") == "1"
        assert client.info("rdb_changes_since_last_save") == "0"
        client.call("SET lost 1")
        assert client.call("SHUTDOWN NOSAVE") == b""
        assert server.ended()[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["dump.rdb"]
    with running(tmp_path, *DEBUG) as server, server.client() as client:
        assert seen(client) == before
        assert client.info("rdb_last_load_keys_loaded") == "3"
        client.call("SET kept 1")
        assert client.call("SHUTDOWN SAVE") == b""
        assert "keys loaded: 3, keys expired: 0" in server.ended()[1]
    with running(tmp_path, "--dbfilename", "other.rdb") as server, server.client() as client:
        assert client.call("DBSIZE") == b":0\r\n"
    with running(tmp_path, "--appendonly", "yes", "--save", "") as server, server.client() as client:
        assert client.call("DBSIZE") == b":0\r\n"  # the log takes precedence, as in Redis
    with running(tmp_path) as server, server.client() as client:
        assert client.call("DBSIZE") == b":4\r\n"


def test_bgsave_writes_the_file(tmp_path: Path) -> None:
    with running(tmp_path, *DEBUG) as server, server.client() as client:
        before = fill(client)
        # A transaction that asks for it, and what the client sends behind it in the same piece, are in the file whole.
        client.send("MULTI", "BGSAVE", "SET k2 1", "BGSAVE", "EXEC", "SET k3 1", "INFO persistence")
        assert [client.reply() for _ in range(4)] == [b"+OK\r\n", *[b"+QUEUED\r\n"] * 3]
        assert client.reply() == b"*3\r\n+Background saving scheduled\r\n+OK\r\n+Background saving scheduled\r\n"
        assert client.reply() == b"+OK\r\n"
        assert b"rdb_bgsave_in_progress:0" in client.reply()
        ended(client, 1)
        assert client.info("rdb_changes_since_last_save") == "0"
        assert client.call("BGSAVE NOW") == b"-ERR syntax error\r\n"
        client.send("MULTI", "SAVE")
        assert client.reply() == b"+OK\r\n"
        assert client.reply() == b"-ERR Command not allowed inside a transaction\r\n"
        client.call("DISCARD")
        assert client.call("DEL k2 k3") == b":2\r\n"
        assert seen(client) == before
        assert client.call("SHUTDOWN NOSAVE") == b""
        assert server.ended()[0] == 0
    with running(tmp_path, *DEBUG) as server, server.client() as client:
        assert client.call("DEL k2 k3") == b":2\r\n"
        assert seen(client) == before


def test_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").mkdir()
    (tmp_path / "dump.rdb" / "in the way").touch()
    with running(tmp_path, "--dbfilename", "fine.rdb") as server, server.client() as client:
        assert client.call("SAVE") == b"+OK\r\n"
    (tmp_path / "dump.rdb" / "in the way").unlink()
    (tmp_path / "dump.rdb").rmdir()
    with running(tmp_path, "--save", "") as server, server.client() as client:
        (tmp_path / "dump.rdb").mkdir()
        client.call("SET k v")
        assert client.call("SAVE") == b"-ERR the RDB file cannot be written: Is a directory\r\n"
        assert client.info("rdb_last_bgsave_status") == "ok"
        assert client.info("rdb_saves") == "1"
        assert client.call("BGSAVE") == b"+Background saving started\r\n"
        ended(client, 2)
        assert client.info("rdb_last_bgsave_status") == "err"
        assert client.call("GET k") == b"$1\r\nv\r\n"
        assert client.call("SHUTDOWN SAVE") == b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
        assert client.call("PING") == b"+PONG\r\n"
        _, errors = server.stop()
        assert "# Write error saving DB on disk: Is a directory" in errors
        assert "# Background saving error" in errors
        assert "# Error trying to save the DB, can't exit." in errors
    assert [path.name for path in tmp_path.glob("*.rdb")].count("dump.rdb") == 1
    assert not list(tmp_path.glob("temp-*"))


@pytest.mark.parametrize("log", ["no", "yes"])
def test_debug_reload_keeps_the_data(tmp_path: Path, log: str) -> None:
    with running(tmp_path, *DEBUG, "--appendonly", log) as server, server.client() as client:
        before, waiting = fill(client), server.client()
        waiting.wait_in("XREADGROUP GROUP g waiting BLOCK 0 STREAMS other >")
        assert client.call("DEBUG RELOAD") == b"+OK\r\n"
        assert client.info("blocked_clients") == "1"
        assert {**seen(client), "DUMP other": b""} == {**before, "DUMP other": b""}
        client.call("SET added 1")
        assert client.call("DEBUG RELOAD NOSAVE MERGE NOFLUSH") == b"+OK\r\n"
        assert client.call("DBSIZE") == b":4\r\n"
        assert client.call("DEBUG RELOAD NOSAVE") == b"+OK\r\n"
        assert client.call("DBSIZE") == b":3\r\n"
        assert client.call("DEBUG RELOAD NONSENSE").startswith(b"-ERR DEBUG RELOAD only supports the MERGE, ")
        client.call("XADD other 5-5 woken up")
        assert b"woken" in waiting.reply()
        waiting.close()
    if log == "yes":
        # The log has the data that NOSAVE loaded.
        with running(tmp_path, *DEBUG, "--appendonly", log) as server, server.client() as client:
            assert client.call("DBSIZE") == b":3\r\n"
            assert client.call("XLEN other") == b":1\r\n"


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_rewritten_log_is_loaded_at_the_next_start(tmp_path: Path, preamble: str) -> None:
    arguments = (*DEBUG, "--appendonly", "yes", "--aof-use-rdb-preamble", preamble)
    with running(tmp_path, *arguments) as server, server.client() as client:
        before = fill(client)
        client.send("BGREWRITEAOF", "BGREWRITEAOF", "INFO persistence")
        assert client.reply() == b"+Background append only file rewriting started\r\n"
        assert client.reply() == b"-ERR Background append only file rewriting already in progress\r\n"
        assert b"aof_rewrite_in_progress:1" in client.reply()
        client.rewritten()
        assert client.info("aof_last_bgrewrite_status") == "ok"
        assert client.info("aof_enabled") == "1"
        assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
        assert seen(client) == before
        kind = "rdb" if preamble == "yes" else "aof"
        names = sorted(path.name for path in (tmp_path / "appendonlydir").iterdir())
        assert names == [f"appendonly.aof.2.base.{kind}", "appendonly.aof.2.incr.aof", "appendonly.aof.manifest"]
    with running(tmp_path, *arguments) as server, server.client() as client:
        assert seen(client) == before


def test_debug_loadaof_fails_on_a_damaged_log(tmp_path: Path) -> None:
    with running(tmp_path, *DEBUG, "--appendonly", "yes") as server, server.client() as client:
        fill(client)
        [log] = tmp_path.rglob("*.incr.aof")
        log.write_bytes(log.read_bytes() + b"*1\r\n$3\r\nBAD\r\n" + log.read_bytes())
        size = log.stat().st_size
        assert client.call("DEBUG LOADAOF").startswith(b"-ERR the append-only file cannot be loaded: ")
        assert client.call("SET k v").startswith(b"-MISCONF the append-only file cannot be loaded: ")
        assert client.call("EXISTS s") == b":1\r\n"
        assert log.stat().st_size == size


def test_a_log_can_be_enabled_and_disabled(server: Running, client: Client) -> None:
    before = fill(client)
    for _ in range(2):
        assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
        assert client.info("aof_enabled") == "1"
        client.call("SET between 1")
        client.rewritten()
        assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
        assert client.call("DEL between") == b":1\r\n"
        assert seen(client) == before
        assert client.call("CONFIG SET appendonly no") == b"+OK\r\n"
        assert client.info("aof_enabled") == "0"


def test_debug_loadaof_works_with_the_log_disabled(tmp_path: Path) -> None:
    with running(tmp_path, *DEBUG) as server, server.client() as client:
        assert client.call("DEBUG LOADAOF") == b"-ERR there is no append-only file to load\r\n"
        before = fill(client)
        assert client.call("BGREWRITEAOF") == b"+Background append only file rewriting started\r\n"
        client.rewritten()
        client.call("SET later 1")
        assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
        assert seen(client) == before
        assert client.info("aof_enabled") == "0"
        client.call("SET later 1")
    with running(tmp_path, *DEBUG, "--appendonly", "yes") as server, server.client() as client:
        assert seen(client) == before


def test_a_failed_debug_reload_rejects_writes_until_the_log_is_loaded(tmp_path: Path) -> None:
    """The log has data that the databases have lost, so no write is logged before the log is loaded again."""
    with running(tmp_path, *DEBUG, "--appendonly", "yes") as server, server.client() as client:
        before = fill(client)
        (tmp_path / "dump.rdb").write_bytes(b"REDIS0011 no more")
        assert client.call("DEBUG RELOAD NOSAVE").startswith(b"-ERR Error trying to load the RDB dump: ")
        assert client.call("XADD s 1-1 a 1").startswith(b"-MISCONF Error trying to load the RDB dump: ")
        assert client.call("DBSIZE") == b":0\r\n"
        server.stop()
    with running(tmp_path, *DEBUG, "--appendonly", "yes") as server, server.client() as client:
        after = seen(client)
        assert all(after[call] == before[call] for call in ("DBSIZE", "PEXPIRETIME k", "XINFO GROUPS s"))
