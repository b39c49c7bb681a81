"""BGSAVE in a child process: content, concurrent writes, failures, save points, and the shutdown of the server.

Most tests also run against redis-server 7.0 and compare the replies.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rillet.protocol.command_parser import pack_command
from tests.judge import running_redis
from tests.server.harness import LOOPS, Client, Running, running
from tests.variants import long
from tests.waiting import until

ENDS = ("SIGTERM", "SIGINT", "SHUTDOWN", "SHUTDOWN SAVE", "SHUTDOWN NOSAVE")
COMMON = ("--compat", "7.0", "--save", "", "--enable-protected-configs", "yes", "--enable-debug-command", "yes")
# Microseconds that a child sleeps at each key: longer than any test.
SLOW = "CONFIG SET rdb-key-save-delay 100000000"


def ended(client: Client, saves: int) -> None:
    """Wait until this number of saves has started and none is running."""
    until(lambda: client.info("rdb_saves") == str(saves) and client.info("rdb_bgsave_in_progress") == "0", "no end")


class Server(NamedTuple):
    """A rillet or Redis server: a client, its folder, its process."""

    client: Client
    folder: Path
    pid: int

    def child(self) -> int:
        """Return the saving process, which has begun to write."""
        until(lambda: bool(list(self.folder.glob("temp-*.rdb"))), "no file is being written")
        [draft] = self.folder.glob("temp-*.rdb")
        return int(draft.stem.removeprefix("temp-"))

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@contextmanager
def ours(folder: Path, *arguments: str) -> Iterator[Server]:
    with running(folder, *COMMON, *arguments) as server, server.client() as client:
        yield Server(client, folder, server.process.pid)


@contextmanager
def theirs(_folder: Path, *arguments: str) -> Iterator[Server]:
    with running_redis(*arguments) as judge:
        one = Running(judge.process, judge.port, judge.folder, "")  # type: ignore[arg-type]
        with one.client() as client:
            yield Server(client, judge.folder, judge.process.pid)


def persistence(client: Client) -> dict[str, str]:
    """Return INFO persistence without times and sizes."""
    text = client.call("INFO persistence").decode()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    for name in ("rdb_last_save_time", "rdb_last_cow_size", "current_cow_peak", "current_cow_size",
                 "current_cow_size_age", "rdb_last_bgsave_time_sec"):  # fmt: skip
        assert fields[name].isdigit() or fields[name] == "-1"
        fields[name] = "a number"
    if fields["rdb_current_bgsave_time_sec"].isdigit():  # -1 if none runs; on a busy machine more than 0
        fields["rdb_current_bgsave_time_sec"] = "a number"
    return fields


def both(tmp_path: Path, scenario: Callable[[Server], list[object]], *arguments: str) -> list[object]:
    """Run the scenario on rillet and on the real server, and return both results."""
    with theirs(tmp_path, *arguments) as server:
        expected = scenario(server)
    with ours(tmp_path, *arguments) as server:
        found = scenario(server)
    assert found == expected
    return found


# -- the same as the real server ----------------------------------------------------------------------


def test_replies_and_info_fields_are_those_of_redis(tmp_path: Path) -> None:
    def scenario(server: Server) -> list[object]:
        client, seen = server.client, list[object]()

        def send(*commands: str) -> None:
            seen.extend((command, client.call(command)) for command in commands)

        def say(*commands: str) -> None:
            send(*commands)
            seen.append(persistence(client))

        say("SET a 1", "SET b 2")
        say("SAVE", "SET c 3", "BGSAVE x", "BGSAVE SCHEDULE SCHEDULE", "SHUTDOWN ABORT", "SHUTDOWN SAVE NOSAVE",
            "SHUTDOWN ABORT NOW", "SHUTDOWN LATER")  # fmt: skip
        send("BGSAVE")  # it may end at any time
        ended(client, 2)
        say(SLOW, "SET d 4", "BGSAVE")
        child = server.child()
        say("SET e 5", "SET f 6", "BGSAVE", "BGSAVE SCHEDULE", "SAVE")
        os.kill(child, signal.SIGKILL)
        ended(client, 3)
        seen.append(server.files())
        send("CONFIG SET rdb-key-save-delay 0", "BGSAVE")
        ended(client, 4)
        say(SLOW, "BGSAVE")
        server.child()
        say("MULTI", "BGSAVE", "BGSAVE SCHEDULE", "EXEC")
        assert client.call("FLUSHALL") == b"+OK\r\n"
        ended(client, 5)
        say("PING")
        seen.append(server.files())
        return seen

    assert ("BGSAVE", b"+Background saving started\r\n") in both(tmp_path, scenario)


def test_changes_during_a_save_count_for_the_next_save(tmp_path: Path) -> None:
    def scenario(server: Server) -> list[object]:
        client = server.client
        for at in range(40):
            client.call(f"SET key{at} before")
        assert client.call("CONFIG SET rdb-key-save-delay 10000") == b"+OK\r\n"
        assert client.call("BGSAVE") == b"+Background saving started\r\n"
        server.child()
        for at in range(40):
            client.call(f"SET key{at} after")
        during = client.info("rdb_changes_since_last_save"), client.info("rdb_bgsave_in_progress")
        ended(client, 1)
        after = client.info("rdb_changes_since_last_save")
        client.call("CONFIG SET rdb-key-save-delay 0")
        client.call("DEBUG RELOAD NOSAVE")
        return [during, after, [client.call(f"GET key{at}") for at in range(40)], server.files()]

    during, after, values, _ = both(tmp_path, scenario)
    assert during == ("80", "1")
    assert after == "40"
    assert values == [b"$6\r\nbefore\r\n"] * 40


def test_a_failed_save_rejects_writes_until_one_succeeds(tmp_path: Path) -> None:
    def scenario(server: Server) -> list[object]:
        client, seen = server.client, list[object]()

        def say(*commands: str) -> None:
            seen.extend((command, client.call(command)) for command in commands)

        say("SET k v")
        (server.folder / "dump.rdb").mkdir()
        say("BGSAVE")
        ended(client, 1)
        say("SET k w", "GET k", "PING", "CONFIG SET stop-writes-on-bgsave-error no", "SET k w", "PING",
            "CONFIG SET stop-writes-on-bgsave-error yes", "SET k v", "MULTI", "SET k v", "GET k", "EXEC",
            "XADD s * a b", "CONFIG GET save", 'CONFIG SET save ""')  # fmt: skip
        client.socket.sendall(pack_command([b"CONFIG", b"SET", b"save", b""]))
        seen.append(client.reply())
        say("SET k x", "CONFIG GET save")
        client.socket.sendall(pack_command([b"CONFIG", b"SET", b"save", b"3600 1 900 10"]))
        seen.append(client.reply())
        say("CONFIG GET save", "SET k y", "GET k", "PING")
        seen.append(persistence(client))
        (server.folder / "dump.rdb").rmdir()
        client.call("BGSAVE")
        until(lambda: client.info("rdb_last_bgsave_status") == "ok", "the file can be written again")
        say("SET k z", "PING", "GET k")
        seen.append(server.files())
        return seen

    said = both(tmp_path, scenario, "--save", "3600", "1")
    refused = [one for one in said if isinstance(one, tuple) and one[0] == "XADD s * a b"]
    assert refused[0][1].startswith(b"-MISCONF Redis is configured to save RDB snapshots, but")


def test_folder_and_file_name_can_change(tmp_path: Path) -> None:
    def scenario(server: Server) -> list[object]:
        client, seen = server.client, list[object]()
        (server.folder / "sub").mkdir()
        (server.folder / "file").touch()
        for command in ("CONFIG SET dir sub", "CONFIG SET dbfilename other.rdb", "SET a 1", "SAVE",
                        "CONFIG SET dir none", f"CONFIG SET dir {server.folder}/file", "CONFIG SET dbfilename a/b",
                        "BGSAVE"):  # fmt: skip
            seen.append(client.call(command).replace(os.fsencode(server.folder), b"FOLDER"))
        ended(client, 2)
        seen.append(client.call("CONFIG GET dir").replace(os.fsencode(server.folder.resolve()), b"F").split(b"\r\n")[4])
        return [*seen, server.files(), sorted(path.name for path in (server.folder / "sub").iterdir())]

    assert both(tmp_path, scenario)[-1] == ["other.rdb"]


def test_the_default_save_points_are_those_of_redis(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.client() as client:
        assert b"3600 1 300 100 60 10000" in client.call("CONFIG GET save")


# -- by themselves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", ["uvloop", *long("asyncio")])
def test_reaching_a_save_point_starts_a_save(tmp_path: Path, loop: str) -> None:
    with running(tmp_path, "--save", "1 2", loop=loop) as server, server.client() as client:
        client.call("SET a 1")
        client.call("SET a 2")
        ended(client, 1)
        assert (tmp_path / "dump.rdb").exists()
        assert client.info("rdb_changes_since_last_save") == "0"
        assert int(client.info("latest_fork_usec")) > 0
        assert client.info("total_forks") == "1"
        assert client.call("CONFIG RESETSTAT") == b"+OK\r\n"
        assert client.info("latest_fork_usec") == "0"
        assert client.info("total_forks") == "0"
        _, said = server.stop()
        assert re.search(r"\* 2 changes in 1 seconds. Saving...\n.*\* Background saving started by pid \d+\n", said)
        assert "* Background saving terminated with success" in said


# -- when there can be no child ------------------------------------------------------------------------


# The real user is `nobody`, the effective user stays for the files, and the capability to exceed the limit of processes
# is dropped; on a signal, the limit is lowered to this process.
_NOBODY = """
import ctypes, os, resource, signal
def limit(number, frame):
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    open({folder!r} + "/limited", "w").close()
signal.signal(signal.SIGUSR1, limit)
if os.getuid() == 0:
    os.setresuid(65534, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can write to."""
    folder = Path(tempfile.mkdtemp(prefix="rillet-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_a_failed_fork_is_reported(open_folder: Path) -> None:
    """The user has reached the limit of processes."""
    arguments = ("--save", "900 1")
    steps = _NOBODY.format(folder=str(open_folder))
    with running(open_folder, *arguments, before=f"exec({steps!r})") as server, server.client() as client:
        server.process.send_signal(signal.SIGUSR1)
        until((open_folder / "limited").exists, "the limit is set")
        assert client.call("SET k v") == b"+OK\r\n"
        reply = client.call("BGSAVE")
        assert reply == b"-ERR Can't save in background: fork: Resource temporarily unavailable\r\n"
        assert client.info("rdb_last_bgsave_status") == "err"
        assert client.info("rdb_saves") == "1"
        assert client.call("SET k w").startswith(b"-MISCONF Redis is configured to save RDB snapshots")
        assert client.call("GET k") == b"$1\r\nv\r\n"
        # SAVE needs no child, so it works and ends the failure.
        assert client.call("SAVE") == b"+OK\r\n"
        assert client.call("SET k w") == b"+OK\r\n"
        assert client.info("rdb_last_bgsave_status") == "ok"
        _, said = server.stop()
        assert "# Can't save in background: fork: Resource temporarily unavailable" in said


def test_a_save_to_a_full_disk_fails(tmp_path: Path) -> None:
    limit = "import resource, sys; sys.dont_write_bytecode = True"  # one that ends at the limit would stay
    limit += "; resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))"
    arguments = ("--save", "900 1", "--rdbcompression", "no")
    with running(tmp_path, *arguments, before=limit) as server, server.client() as client:
        client.call("SET small 1")
        assert client.call("SAVE") == b"+OK\r\n"
        before = (tmp_path / "dump.rdb").read_bytes()
        client.call("SET large " + "x" * 200_000)
        assert client.call("BGSAVE") == b"+Background saving started\r\n"
        ended(client, 2)
        assert client.info("rdb_last_bgsave_status") == "err"
        assert client.call("DEL large").startswith(b"-MISCONF ")
        assert client.call("SAVE") == b"-ERR the RDB file cannot be written: File too large\r\n"
        assert [path.name for path in tmp_path.iterdir()] == ["dump.rdb"]
        assert (tmp_path / "dump.rdb").read_bytes() == before
        assert client.call("SHUTDOWN NOSAVE") == b""
        assert server.ended()[0] == 0


# -- the end ---------------------------------------------------------------------------------------------


def _with_a_child(server: Running, client: Client) -> int:
    assert client.call("SET k v") == b"+OK\r\n"
    assert client.call(SLOW) == b"+OK\r\n"
    assert client.call("BGSAVE") == b"+Background saving started\r\n"
    return Server(client, server.folder, server.process.pid).child()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("loop", "end"), [
    *(("uvloop", end) for end in ENDS), ("asyncio", "SIGTERM"), *long(*(("asyncio", end) for end in ENDS[1:])),
])  # fmt: skip
def test_a_shutdown_kills_the_saving_child(tmp_path: Path, loop: str, end: str) -> None:
    with running(tmp_path, "--save", "900 1", loop=loop) as server, server.client() as client:
        child = _with_a_child(server, client)
        client.call("CONFIG SET rdb-key-save-delay 0")
        client.call("SET later 1")
        if end.startswith("SIG"):
            server.process.send_signal(getattr(signal, end))
        else:
            assert client.call(end) == b""
        status, said = server.ended()
        assert status == 0
        assert not _alive(child)
        assert "# There is a child saving an .rdb. Killing it!" in said
        assert sorted(path.name for path in tmp_path.iterdir()) == ([] if end == "SHUTDOWN NOSAVE" else ["dump.rdb"])
    with running(tmp_path, "--save", "") as server, server.client() as client:
        assert client.call("DBSIZE") == (b":0\r\n" if end == "SHUTDOWN NOSAVE" else b":2\r\n")


def test_a_child_does_not_outlive_its_server(tmp_path: Path) -> None:
    """The child ends before it replaces the file, which a new server may have written."""
    with running(tmp_path, "--save", "") as server, server.client() as client:
        for at in range(20):
            client.call(f"SET key{at} {at}")
        client.call("SAVE")
        before = (tmp_path / "dump.rdb").read_bytes()
        client.call("SET another 1")
        client.call("CONFIG SET rdb-key-save-delay 10000")
        client.call("BGSAVE")
        child = Server(client, tmp_path, server.process.pid).child()
        server.stop(signal.SIGKILL)
    until(lambda: not _alive(child), "it lives on")
    assert [path.name for path in tmp_path.iterdir()] == ["dump.rdb"]
    assert (tmp_path / "dump.rdb").read_bytes() == before


@pytest.mark.parametrize("loop", LOOPS)
def test_a_shutdown_stops_if_the_file_cannot_be_written(tmp_path: Path, loop: str) -> None:
    with running(tmp_path, "--save", "900 1", loop=loop) as server, server.client() as client:
        client.call("SET k v")
        (tmp_path / "dump.rdb").mkdir()
        assert client.call("SHUTDOWN") == b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
        server.process.send_signal(signal.SIGTERM)
        assert client.call("SHUTDOWN NOW") == b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
        assert client.call("SET k w") == b"+OK\r\n"  # no BGSAVE has failed
        assert client.call("SHUTDOWN FORCE") == b""
        status, said = server.ended()
        assert status == 0
        assert said.count("Error trying to save the DB, can't exit.") in (2, 3)
        assert "# Error trying to save the DB, Exit anyway." in said


@pytest.mark.parametrize("loop", LOOPS)
def test_a_second_signal_ends_the_final_save(tmp_path: Path, loop: str) -> None:
    with running(tmp_path, "--save", "900 1", loop=loop) as server, server.client() as client:
        client.call("SET k v")
        client.call(SLOW)
        server.process.send_signal(signal.SIGINT)
        draft = tmp_path / f"temp-{server.process.pid}.rdb"
        until(draft.exists, "the last file is being written")
        server.process.send_signal(signal.SIGINT)
        status, said = server.ended()
        assert status == 1
        assert "# You insist... exiting now." in said
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_sigterm_during_a_slow_rewrite_ends_the_server(tmp_path: Path, preamble: str) -> None:
    with running(tmp_path, "--save", "", "--appendonly", "yes", "--aof-use-rdb-preamble", preamble) as server:
        with server.client() as client:
            client.call("SET k v")
            client.call(SLOW)
            client.call("BGREWRITEAOF")
            assert client.info("aof_rewrite_in_progress") == "1"
            status, said = server.stop()
        assert status == 0
        assert "There is a child rewriting the AOF. Killing it!" in said


def test_settings_select_the_effect_of_a_signal(tmp_path: Path) -> None:
    with running(tmp_path, "--save", "900 1", "--shutdown-on-sigterm", "nosave") as server, server.client() as client:
        client.call("SET k v")
        assert server.stop()[0] == 0
        assert not list(tmp_path.iterdir())
    with running(tmp_path, "--save", "", "--shutdown-on-sigint", "save force") as server, server.client() as client:
        client.call("SET k v")
        assert server.stop(signal.SIGINT)[0] == 0
        assert (tmp_path / "dump.rdb").exists()


def test_the_final_file_contains_every_acknowledged_write(tmp_path: Path) -> None:
    """A client writes as fast as possible during the shutdown."""
    with running(tmp_path, "--save", "900 1") as server, server.client() as client, server.client() as other:
        client.send(*["INCR n"] * 5000)
        assert client.reply() == b":1\r\n"
        other.send("SHUTDOWN")
        told = 1
        while reply := client.reply():
            told = int(reply[1:])
        assert server.ended()[0] == 0
    with running(tmp_path) as server, server.client() as client:
        assert client.call("GET n").split(b"\r\n")[1] == b"%d" % told
