"""`rillet stats`, `rillet groups` and `rillet tail`, mostly as processes, on directories, servers and a cluster."""

from __future__ import annotations

import json
import os
import pty
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.cli import main
from rillet.store.backends import read_access
from tests.cluster import running_cluster
from tests.forked import Forked, ended
from tests.judge import redis_binary, running_redis
from tests.store.process import Other


def run(*arguments: object, status: int = 0) -> str:
    """Run the command to its end; return its output, or the text of its error."""
    found, output, problem = ended(*arguments)
    assert found == status, problem
    assert "Traceback" not in problem
    return output if status == 0 else problem


@contextmanager
def running(*arguments: object) -> Iterator[Any]:
    """Start the command, and yield a function that returns its next line; ^C must end it cleanly."""
    process = Forked(arguments)
    assert process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        yield process.stdout.readline
        process.send_signal(signal.SIGINT)
        _, problem = process.communicate(timeout=60)
        assert (process.returncode, problem) == (0, "")
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def fill(store: rillet.Store) -> None:
    orders = store.stream("orders")
    orders.add_many([(f"{1_795_000_000_000 + n}-0", {"n": n, "customer": f"c {n}"}) for n in range(200)])
    group = orders.group("billing")
    group.consumer("one").read(20)
    group.consumer("two").read(5)
    store.stream("b\x1b[2J\n").add({"raw": b"\xff\x00"}, id="1-1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "s.rillet"
    with rillet.open(path) as store:
        fill(store)
    return path


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip


# -- directories ----------------------------------------------------------------------------------------


def test_a_directory_that_is_not_open_is_not_changed(folder: Path) -> None:
    before = state(folder)
    text = run("stats", folder)
    assert "orders" in text
    assert "billing  175       25" in text
    assert "two" in run("groups", folder)
    assert "customer" in run("tail", folder, "orders", "--no-follow")
    assert state(folder) == before


def test_control_characters_are_escaped(folder: Path) -> None:
    for text in (run("stats", folder), run("groups", folder), run("tail", folder, "b\x1b[2J\n", "--no-follow")):
        assert "\x1b" not in text
        assert "\x00" not in text
    assert run("tail", folder, "b\x1b[2J\n", "--no-follow") == "b\\x1b[2J\\n 1-1 raw=\\xff\\x00\n"


def test_a_directory_that_another_process_owns(folder: Path) -> None:
    with Other(folder) as owner:
        assert json.loads(run("stats", folder, "orders", "--json"))["streams"][0]["length"] == 200
        owner.ask("str(store.stream('orders').add({'n': 200}))")
        assert json.loads(run("stats", folder, "orders", "--json"))["streams"][0]["length"] == 201
        assert owner.ask("store.owner")


def test_a_directory_that_a_server_uses(folder: Path) -> None:
    serving = ("serve", "--port", "0", "--unixsocket", folder / "s.sock", "--dir", folder, "--appendonly", "yes")
    with Forked(serving, stderr=None) as server:
        assert server.stdout is not None
        try:
            while "Ready to accept" not in server.stdout.readline():
                assert server.poll() is None
            with rillet.connect(f"unix://{folder / 's.sock'}") as store:
                store.stream("orders").add({"n": 200})
            assert json.loads(run("stats", folder, "orders", "--json"))["streams"][0]["length"] == 201
        finally:
            server.terminate()
            server.communicate()


def test_json_has_the_figures_of_the_api(folder: Path) -> None:
    found = json.loads(run("stats", folder, "orders", "--json"))
    with rillet.open(folder, readonly=True) as store:
        expected = store.stats("orders").as_dict()
    for one in (found, expected):
        del one["time"]
        for group in one["streams"][0]["groups"]:
            del group["oldest_ms"], group["consumers"]
    assert found == expected


def test_the_table_of_a_group(folder: Path) -> None:
    lines = run("groups", folder, "orders", "-n", "3").splitlines()
    assert lines[0].startswith("orders / billing: lag 175, 25 pending, last delivered 1795000000024-0 (2026-11-18T")
    assert [line.split()[:2] for line in lines[2:4]] == [["one", "20"], ["two", "5"]]
    assert [line.split()[0] for line in lines[5:8]] == [f"17950000000{n:02}-0" for n in range(3)]
    assert lines[8].strip() == "and 22 more"
    found = json.loads(run("groups", folder, "orders", "--json", "-n", "2"))
    assert (found["stream"], found["name"], found["lag"], len(found["messages"])) == ("orders", "billing", 175, 2)
    assert found["messages"][0]["consumer"] == "one"


def test_watch_shows_rates_until_interrupted(folder: Path) -> None:
    with Other(folder) as owner, running("stats", folder, "orders", "--watch", "0.1", "--json") as line:
        assert json.loads(line())["streams"][0]["rate"] is None
        owner.ask("len([store.stream('orders').add({'n': n}) for n in range(10)])")
        while not json.loads(line())["streams"][0]["rate"]:
            pass


def test_watch_follows_a_directory_from_owner_to_owner(folder: Path) -> None:
    with running("stats", folder, "orders", "--watch", "0.1", "--json") as line:
        for number in range(3):
            with Other(folder) as owner:
                owner.ask("str(store.stream('orders').add({'n': 1}))")
                while json.loads(line())["streams"][0]["length"] != 201 + number:
                    pass
                owner.kill()


def test_watch_redraws_a_terminal(folder: Path) -> None:
    terminal, end = pty.openpty()
    watch = Forked(["stats", folder, "orders", "--watch", "0.05"], stdout=end)
    os.close(end)
    shown = b""
    while shown.count(b"\x1b[H\x1b[J") < 3:
        shown += os.read(terminal, 65536)
    watch.send_signal(signal.SIGINT)
    assert (watch.communicate(timeout=60)[1], watch.returncode) == ("", 0)
    os.close(terminal)


def test_a_server_with_a_password_that_uses_the_directory(folder: Path) -> None:
    serving = ("serve", "--port", "0", "--unixsocket", folder / "s.sock", "--dir", folder, "--appendonly", "yes",
               "--requirepass", "secret")  # fmt: skip
    with Forked(serving, stderr=None) as server:
        assert server.stdout is not None
        try:
            while "Ready to accept" not in server.stdout.readline():
                assert server.poll() is None
            error = run("stats", folder, status=2)
            assert f"is served by process {server.pid} at unix://" in error
            assert "NOAUTH" in error
            assert "orders" in run("stats", f"unix://:secret@{folder / 's.sock'}")
        finally:
            server.terminate()
            server.communicate()


# -- tail -------------------------------------------------------------------------------------------------


def test_tail_follows(folder: Path) -> None:
    with Other(folder) as owner, running("tail", folder, "orders", "other", "-n", "1") as line:
        assert line() == '2026-11-18T11:06:40.199Z orders 1795000000199-0 n=199 customer="c 199"\n'
        owner.ask("str(store.stream('other').add({'a': 1}, id='5-1'))")
        assert line() == "other 5-1 a=1\n"
        owner.ask("str(store.stream('orders').add({'a': 2}, id='1795000000200-0'))")
        assert line() == "2026-11-18T11:06:40.200Z orders 1795000000200-0 a=2\n"


def test_tail_selects_entries(tmp_path: Path) -> None:
    place = tmp_path / "store.rillet"
    with rillet.open(place) as store:
        store.stream("s").add_many((n, {"type": "abc"[n % 3], "n": n}) for n in range(1, 10))
        for _ in range(2):  # once with the store open, once without
            text = run("tail", place, "s", "--no-follow", "-n", "2", "--where", "type=a")
            assert [line.split()[-1] for line in text.splitlines()] == ["n=6", "n=9"]
            text = run("tail", place, "s", "--no-follow", "--from", "3", "--where", "type=a", "--where", "type=b",
                       "--where", "n=7", "--json")  # fmt: skip
            assert [json.loads(line)["fields"]["n"] for line in text.splitlines()] == ["7"]
            store.close()


def test_tail_follows_a_directory_from_owner_to_owner(folder: Path) -> None:
    with running("tail", folder, "orders", "-n", "1", "--json") as line:
        assert json.loads(line())["fields"]["n"] == "199"
        for number in range(3):
            with Other(folder) as owner:
                owner.ask(f"str(store.stream('orders').add({{'n': {number}}}))")
                assert json.loads(line())["fields"] == {"n": str(number)}
                owner.kill()


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (["-n", "3"], 197), (["-n", "0"], None), (["--from", "1795000000190"], 190),
        (["--from", "1795000000190-1"], 191), (["--from", "2026-11-18T11:06:40.150Z"], 150),
        (["--from", "2026-11-18T12:06:40.150+01:00"], 150), (["--from", "2026-11-18T11:06:40.150"], 150),
        (["--from", "1000000d"], 0), (["--from", "0"], 0), (["--from", "9999999999999"], None),
        (["--group", "billing"], 25),
    ],
)  # fmt: skip
def test_where_tail_begins(
    folder: Path, start: list[str], first: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tail", str(folder), "orders", "--no-follow", "--json", *start]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [int(json.loads(line)["fields"]["n"]) for line in lines] == list(range(200 if first is None else first, 200))


def test_a_closed_pipe_is_the_end(folder: Path) -> None:
    tail = Forked(["tail", folder, "orders", "-n", "200"])
    assert tail.stdout is not None
    tail.stdout.readline()
    tail.stdout.close()
    with rillet.open(folder) as store:
        for _ in range(1000):
            if tail.poll() is not None:
                break
            store.stream("orders").add({"n": "more" * 100})
            threading.Event().wait(0.05)
    assert tail.stderr is not None
    assert (tail.wait(60), tail.stderr.read()) == (141, "")
    tail.stderr.close()


# -- servers ----------------------------------------------------------------------------------------------


def test_a_redis_server() -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_redis() as judge:
        url = f"redis://default:@127.0.0.1:{judge.port}"
        with rillet.connect(f"redis://127.0.0.1:{judge.port}") as store:
            fill(store)
            text = run("stats", url)
            assert f"redis://127.0.0.1:{judge.port}: redis 7.0" in text
            assert "total only" in text
            assert "billing  175       25" in text
            assert "25 pending" in run("groups", url, "orders")
            with running("tail", url, "orders", "-n", "0") as line:
                for _ in range(200):  # until the tail waits
                    if "cmd=xread" in store.execute("CLIENT", "LIST").decode():
                        break
                    threading.Event().wait(0.05)
                store.stream("orders").add({"a": 1}, id="1795000001000-0")
                assert line().endswith("orders 1795000001000-0 a=1\n")
            store.stream("orders").delete("1795000000190-0")
            assert "lag of billing is unknown: an entry at or after 1795000000024-0 was deleted" in run("stats", url)


def test_a_cluster() -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_cluster() as cluster, rillet.connect(cluster.url) as store:
        names = sorted(cluster.key_of(share, "s") for share in range(3))
        for name in names:
            store.stream(name).add({"n": 1})
        found = json.loads(run("stats", cluster.url, "--json"))
        assert [stream["name"] for stream in found["streams"]] == names
        with running("tail", cluster.url, *names, "-n", "1", "--json") as line:
            assert sorted(json.loads(line())["stream"] for _ in names) == names
            store.stream(names[2]).add({"n": 2})
            assert json.loads(line())["fields"] == {"n": "2"}


# -- errors -----------------------------------------------------------------------------------------------


def test_one_clear_line_for_an_error(tmp_path: Path, folder: Path) -> None:
    assert run("stats", tmp_path / "missing", status=2) == f"rillet: {tmp_path / 'missing'} does not exist\n"
    assert not (tmp_path / "missing").exists()
    assert "no server answers" in run("tail", "redis://127.0.0.1:1", "s", status=2)
    assert "no such key" in run("stats", folder, "missing", status=2)
    assert "has no group 'x'" in run("tail", folder, "orders", "--group", "x", status=2)
    assert "neither an ID" in run("tail", folder, "orders", "--from", "yesterday", status=2)
    assert "seconds above 0" in run("stats", folder, "--watch", "0", status=2)


def test_silent_consumers_are_collected(folder: Path) -> None:
    assert "deleted" not in run("groups", folder, "--collect", "1e6")
    text = run("groups", folder, "orders", "--collect", "0")
    assert text.startswith("orders / billing: deleted the consumer one, handed on 20 pending messages\n")
    assert "25 pending" in text
    with rillet.open(folder) as store:
        billing = store.stream("orders").group("billing")
        assert billing.pending_summary().consumers == {"two": 25}
        billing.create_consumer("three")
        found = [json.loads(line) for line in run("groups", folder, "--collect", "0", "--json").splitlines()]
        assert found[0] == {"stream": "orders", "group": "billing", "deleted": "two", "handed_on": 25}
    assert "--collect must be a number of seconds from 0 on, not -1" in run("groups", folder, "--collect=-1", status=2)
    assert "not nan" in run("groups", folder, "--collect=nan", status=2)


def test_partitioned_streams_are_shown(folder: Path) -> None:
    assert run("partitions", folder) == "there is no partitioned stream\n"
    assert "is not a partitioned stream" in run("partitions", folder, "orders", status=2)
    with rillet.open(folder) as store:
        jobs = store.partitioned("jobs", partitions=2, by="key")
        jobs.add_many({"key": n} for n in range(10))
        lengths = " ".join(str(len(stream)) for stream in jobs.partitions())
        loop: Any = jobs.group("g").consumer("one").messages()
        next(loop).ack()
        lines = run("partitions", folder).splitlines()
        assert lines[0] == "jobs: 2 partitions by key, 10 entries"
        assert lines[1] == f"    epoch 1, receives entries: {lengths}"
        assert lines[2].split() == ["group", "epoch", "lag", "pending", "consumers"]
        assert lines[3].split()[:2] == ["g", "1"]
        assert lines[3].endswith("one: 0 1")
        text = run("partitions", folder, "jobs", "--repartition", "3", "--delete-drained")
        assert text.splitlines()[:2] == ["jobs: 0 keys deleted", "jobs: 3 partitions by key, 10 entries"]
        loop.close()
    found = json.loads(run("partitions", folder, "jobs", "--json"))
    assert (found["stream"], found["partitions"], found["groups"]["g"]["consumers"]) == ("jobs", 3, {})
    run("partitions", folder, "jobs", "--repartition", "4")  # no other process has it open
    assert json.loads(run("partitions", folder, "--json"))["partitions"] == 4
    assert "needs the name of one stream" in run("partitions", folder, "--repartition", "4", status=2)
    assert "a number from 1 to 1024" in run("partitions", folder, "jobs", "--repartition", "0", status=2)


def test_what_waits_is_shown(folder: Path) -> None:
    assert run("delayed", folder) == "nothing is delayed\n"
    with rillet.open(folder) as store:
        orders = store.stream("orders")
        orders.add({"n": "x\x1b"}, at=datetime(2100, 1, 1, tzinfo=UTC))
        orders.group("billing").consumer("one").read(after="0", count=1)[0].retry(at=datetime(2099, 1, 1, tzinfo=UTC))
        store.stream("later").add({"n": 1}, delay=1e9)
        for text in (run("delayed", folder), run("delayed", folder, "later", "orders")):
            assert text.splitlines()[0] == "later: 1 delayed entry"
            assert "orders: 1 delayed entry" in text
            assert "2100-01-01 00:00:00.000Z" in text
            assert "n=x\\x1b" in text
            assert "2099-01-01 00:00:00.000Z  billing: 1795000000000-0 again" in text
        found = [json.loads(line) for line in run("delayed", folder, "--json").splitlines()]
        assert [one["stream"] for one in found] == ["later", "orders", "orders"]
        assert [one.get("fields") for one in found] == [{"n": "1"}, {"n": "x\x1b"}, None]
        text = run("stats", folder, "orders")
        assert "delayed   1 entry waits, the next one due 2100-01-01 00:00:00.000Z, added 20" in text
        assert "retries of billing: 1 message waits, the next one due 2099-01-01 00:00:00.000Z" in text
        assert store.stats("orders").streams[0].delayed.number == 1
        paid = store.stream("paid")
        paid.add_many([{"who": "ada"}, {"who": "ada"}, {"who": "bob"}])
        loop: Any = paid.group("g").consumer("one").messages(order_by="who", batch=3, claim_idle=600)
        assert len(next(loop)) == 2
        for command in ("stats", "groups"):
            text = run(command, folder, "paid")
            assert "order of g by who: 2 keys with pending messages, 1 message waits behind" in text
        keys = [line.split() for line in text.splitlines() if line.split()[:1] in (["ada"], ["bob"])]
        assert sorted((key, consumer, messages) for key, consumer, _, _, messages in keys) == [
            ("ada", "one", "2"), ("bob", "one", "1")]  # fmt: skip
        (line,) = run("groups", folder, "paid", "--json").splitlines()
        assert {one["key"]: one["messages"] for one in json.loads(line)["keys"]} == {"ada": 2, "bob": 1}
        loop.close()
    assert "order of g by who" in run("groups", folder, "paid")  # of a directory that no process has open
    assert "orders: 1 delayed entry" in run("delayed", folder)


def test_a_change_while_the_first_look_begins_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = read_access.visit

    def interrupted(place: str) -> rillet.Store:
        seen = look(place)
        with rillet.open(folder) as owner:
            owner.stream("orders").add({"n": 1})
        return seen

    monkeypatch.setattr(read_access, "visit", interrupted)
    visit = read_access.Visit(folder)
    monkeypatch.undo()
    with visit:
        assert visit.ask(lambda store: len(store.stream("orders"))) == 201
