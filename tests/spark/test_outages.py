"""A streaming query waits for an unavailable server, and then neither loses nor duplicates entries."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, StaysAway
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.spark.options import parse
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.read.metadata import key_count
from tests.forked import Forked
from tests.judge import Judge, await_ready, free_port, redis_binary
from tests.spark.calls import Query, stopped  # noqa: F401
from tests.spark.test_page_reader import cutting_proxy
from tests.store.process import Other

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("stopped")]

DELIVER = {"group": "g", "groupMode": "deliver"}


class Held:
    """A server with a log, at a port of its own, that is killed and started again."""

    def __init__(self, folder: Path, rillets: bool) -> None:
        self.rillets = rillets
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
                      "--appendonly", "yes", "--appendfsync", "always"]  # fmt: skip
        self.client = redis.Redis(port=self.port, decode_responses=True)
        self.start()

    def start(self, *more: str) -> None:
        words = [*self.words, *more]
        self.process: subprocess.Popen[Any] = (
            Forked(["serve", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if self.rillets
            else subprocess.Popen([str(redis_binary()), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def add(self, numbers: range, stream: str = "events") -> None:
        await_ready(self.port, self.process)
        for n in numbers:
            self.client.xadd(stream, {"n": n}, id=f"{n + 1}-0")


@pytest.fixture
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Held]:
    """A redis-server, or what the parameter says."""
    made = Held(tmp_path, getattr(request, "param", "redis") == "rillet")
    yield made
    made.client.close()
    made.kill()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set once somebody waits for a server."""
    met, again = threading.Event(), Patience.again

    def noted(patience: Patience) -> bool:
        met.set()
        return again(patience)

    monkeypatch.setattr(Patience, "again", noted)
    return met


@contextmanager
def back_when_missed(held: Held, waiting: threading.Event) -> Iterator[None]:
    """Kill a server, and start it again as soon as somebody waits for it."""
    held.kill()
    waiting.clear()

    def start() -> None:
        if waiting.wait(60):
            held.start()

    thread = threading.Thread(target=start)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert waiting.is_set()


@pytest.mark.parametrize(
    ("held", "more"),
    [("redis", {}), ("redis", {"group": "g", "streamPattern": "ev*"}), ("redis", DELIVER), ("rillet", DELIVER)],
    indirect=["held"],
    ids=str,
)
def test_a_query_continues_after_its_server_restarts(
    held: Held, waiting: threading.Event, more: dict[str, Any]
) -> None:
    held.add(range(50))
    query = Query(held.url, maxEntriesPerTrigger="40", **more)
    found = query.batch()
    with back_when_missed(held, waiting):
        found += query.batch()
    held.add(range(50, 70))
    query.plan()
    with back_when_missed(held, waiting):
        told = query.reader.reportLatestOffset()  # after a plan nothing but what waits is asked for
        query.reader.reportLatestOffset()
    assert told["behind"] == {"events": 0}
    found += query.read()
    query.commit()
    with back_when_missed(held, waiting):
        assert query.batch() == []
    assert found == list(range(70))
    if "group" in more:
        (group,) = held.client.xinfo_groups("events")
        assert (group["last-delivered-id"], group["pending"], group["lag"]) == ("70-0", 0, 0)


@pytest.mark.parametrize("more", [{}, DELIVER], ids=str)
def test_a_restarted_query_waits_and_a_new_one_does_not(
    held: Held, waiting: threading.Event, more: dict[str, Any]
) -> None:
    held.add(range(20))
    query = Query(held.url, **more)
    query.plan()
    held.kill()
    with pytest.raises(ConnectionLost, match=f"^rillet: no server answers at 127.0.0.1:{held.port}: [^(]*$"):
        Query(held.url, **more).plan()
    assert not waiting.is_set()
    held.start()
    held.add(range(20, 25))
    assert query.read() == list(range(20))
    query.commit()
    with back_when_missed(held, waiting):
        assert query.restarted().batch() == list(range(20, 25))


def test_a_server_that_stays_away_is_an_error_after_the_timeout(held: Held, waiting: threading.Event) -> None:
    held.add(range(5))
    query = Query(held.url)
    query.batch()
    held.kill()
    query = query.restarted(timeout="300ms")
    told = f"^rillet: no server answers at 127.0.0.1:{held.port}: .* \\(waited for it for 0.3 s\\)$"
    for ask in (query.plan, query.reader.reportLatestOffset):
        with pytest.raises(StaysAway, match=told):
            ask()
    assert waiting.is_set()


@pytest.mark.parametrize("more", [{}, DELIVER], ids=str)
def test_a_connection_that_breaks_anywhere_in_a_trigger(judge: Judge, url: str, more: dict[str, Any]) -> None:
    """What was handed out, and not heard of, is handed out by no other trigger."""
    with judge.client() as client:
        for n in range(300):
            client.execute_command("XADD", "events", f"{n + 1}-0", "n", n)
    found: list[int] = []
    checkpoint: dict[str, Any] = {}
    cuts = [700, 10, 2000, 4000, 300, 1, 5000, 900, 60, 3000, 1500]
    with cutting_proxy(judge.port, cuts) as port:
        planned = Query(f"redis://127.0.0.1:{port}", checkpoint, maxEntriesPerTrigger="70", pageEntries="30", **more)
        while planned.plan():
            reading = Query(url, checkpoint, **more)
            found += reading.read()
            reading.reader.stop()
            planned.commit()
            planned.reader.reportLatestOffset()
        planned.reader.stop()
    assert found == list(range(300))


def test_a_connection_that_breaks_while_a_planned_batch_is_checked(
    judge: Judge, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[object] = []
    with judge.client() as client:
        query = Query(url)
        for batch in (range(20), range(20, 30)):
            for n in batch:
                client.execute_command("XADD", "events", f"{n + 1}-0", "n", n)
            assert query.plan()
            if not batch.start:
                query.commit()
        client.execute_command("XDEL", "events", "30-0")  # what lies behind the first batch has to be counted
        query = query.restarted(failOnDataLoss="false")
        send = Connection.send

        def cutting(connection: Connection, data: bytes | bytearray) -> None:
            if b"XRANGE" in data and not cut:
                cut.append(client.client_kill_filter(_type="normal", skipme=True))
            send(connection, data)

        monkeypatch.setattr(Connection, "send", cutting)
        assert query.read() == list(range(20, 29))
        assert cut
        assert query.lost == {"events": 1}


@pytest.fixture
def forgetful(held: Held) -> Held:
    """A server that has after a crash what was saved before: the last second of one that logs every second."""
    held.kill()
    held.words = held.words[: held.words.index("--appendonly")]
    held.start()
    held.add(range(100))
    return held


def test_a_group_is_moved_again_after_a_crash_moved_it_back(forgetful: Held) -> None:
    query = Query(forgetful.url, group="g", maxEntriesPerTrigger="50")
    assert query.batch() + query.batch() == list(range(100))
    forgetful.client.save()
    assert not query.plan()
    assert forgetful.client.xinfo_groups("events")[0]["last-delivered-id"] == "100-0"
    forgetful.kill()
    forgetful.start()
    await_ready(forgetful.port, forgetful.process)
    assert forgetful.client.xinfo_groups("events")[0]["last-delivered-id"] == "50-0"
    assert not query.plan()
    assert forgetful.client.xinfo_groups("events")[0]["last-delivered-id"] == "100-0"


def test_entries_delivered_and_forgotten_are_an_error_or_read_again(forgetful: Held) -> None:
    query = Query(forgetful.url, None, maxEntriesPerTrigger="50", **DELIVER)
    found = query.batch()
    forgetful.client.save()
    assert query.plan()
    forgetful.kill()
    forgetful.start()
    await_ready(forgetful.port, forgetful.process)
    with pytest.raises(DataLoss, match="the group 'g' .* is at 50-0, although it has delivered entries up to 100-0"):
        query.read()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.read() == []
    counting.commit()
    while more := counting.batch():
        found += more
    assert found == list(range(100))
    assert counting.unsure == {"events"}


def test_requests_to_all_nodes_wait_for_a_loading_server(tmp_path: Path, waiting: threading.Event) -> None:
    alone = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    held = Held(tmp_path, rillets=False)
    held.kill()
    held.words += alone
    held.start()
    try:
        await_ready(held.port, held.process)
        held.client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        chosen = parse({"url": held.url.replace("redis", "redis+cluster"), "stream": "events"})
        with Servers(chosen) as servers:
            for n in range(200):
                key = b"s%d" % n
                servers.call(key, b"XADD", key, b"1-1", b"f", b"v")
        held.kill()
        waiting.clear()
        held.start("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
        with Servers(chosen) as servers:
            servers.waits = True
            assert len(servers.scan("s*")) == 200
            assert key_count(servers) == 200
        assert waiting.is_set()
    finally:
        held.client.close()
        held.kill()


def test_another_process_takes_the_place_of_a_stores_owner(tmp_path: Path) -> None:
    path = tmp_path / "store"

    def add(owner: Other, numbers: range) -> None:
        entries = [(f"{n + 1}-0", {"n": str(n)}) for n in numbers]
        owner.ask(f"len(store.stream('events').add_many({entries!r}))")

    owner = Other(path, appendfsync="always")
    add(owner, range(20))
    query = Query("", path=str(path))
    found = query.batch()
    add(owner, range(20, 30))
    owner.kill()
    with Other(path, appendfsync="always") as other:
        found += query.batch()
        add(other, range(30, 40))
        found += query.batch()
    found += query.batch()  # nobody has it open: this process does from now on
    assert found == list(range(40))
