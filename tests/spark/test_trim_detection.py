"""A trim that overtakes a task between two pages is noticed; a trim up to its position is no loss."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import redis

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from rillet.client.connection import Connection
from rillet.spark.options import parse
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.source import BatchReader
from rillet.types.stream.id import StreamID
from tests.cluster import Cluster
from tests.judge import redis_binary, running_redis
from tests.spark.calls import Query, server, stopped  # noqa: F401
from tests.variants import seeds

pytestmark = [pytest.mark.usefixtures("stopped"), pytest.mark.peer]

SCHEMA = StructType().add("stream", "string").add("n", "long")
ENTRIES = 60
PAGES = (b"\r\nXRANGE\r\n", b"\r\nRILLET.XNODES\r\n")


@pytest.fixture(scope="module", params=["7.0", "rillet", "newest", "valkey"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Servers of each kind, one after the other, whose nodes hold four entries."""
    with server(request.param, tmp_path_factory.mktemp(request.param)) as url:
        with redis.Redis.from_url(url) as connected:
            connected.config_set("stream-node-max-entries", 4)
        yield url


@pytest.fixture
def client(place: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(place) as connected:
        connected.flushall()
        yield connected


class Asked(NamedTuple):
    """A request for a page of a stream, that begins behind an entry or at it.

    after: for pages that are requested together, the start of the first one.
    """

    stream: str
    after: StreamID
    sent: int  # how many XRANGE have been sent before it


@pytest.fixture
def before_pages(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Asked], object]]:
    """What is called before a request for a page leaves."""
    called: list[Callable[[Asked], object]] = []
    send = Connection.send
    sent = 0

    def hooked(connection: Connection, data: bytes | bytearray) -> None:
        nonlocal sent
        if data.count(b"\r\nCOUNT\r\n") and any(word in data for word in PAGES) and called:
            first: dict[bytes, bytes] = {}
            for request in bytes(data).split(b"*6\r\n")[1:]:
                words = request.split(b"\r\n")[1::2]
                if words[2] != b"-":  # the proof of a part
                    after = first.setdefault(words[1], words[2])
                    for call in called:
                        call(Asked(words[1].decode(), StreamID.parse(after), sent))
            sent += bytes(data).count(PAGES[0])
        send(connection, data)

    monkeypatch.setattr(Connection, "send", hooked)
    return called


def fill(client: redis.Redis, stream: str = "events", first: int = 1, last: int = ENTRIES) -> None:
    with client.pipeline() as pipeline:
        for n in range(first, last + 1):
            pipeline.xadd(stream, {"n": n}, id=f"{n}-0")
        pipeline.execute()


def there(client: redis.Redis, stream: str = "events") -> list[int]:
    entries: Any = client.xrange(stream)
    return [int(name.split(b"-")[0]) for name, _ in entries]


def until_executed(client: redis.Redis, ranges: int) -> None:
    """Wait until the server has executed so many XRANGE."""
    while client.info("commandstats").get("cmdstat_xrange", {}).get("calls", 0) < ranges:
        pass


def read(
    url: str, before_pages: list[Callable[[Asked], object]], hook: Callable[[Asked], object], **options: str
) -> list[int]:
    """Plan a batch whose losses count, unless options say otherwise, then read it."""
    reader = BatchReader(parse({"url": url, "stream": "events", "failOnDataLoss": "true", **options}), SCHEMA, 1)
    parts = reader.partitions()
    with redis.Redis.from_url(url) as connected:
        connected.config_resetstat()
    before_pages[:] = [hook]
    return [n for part in parts for batch in reader.read(part) for n in batch.column("n").to_pylist()]


class Trimmer:
    """Removes entries before one of a task's pages, and knows whether it took what nobody had read."""

    def __init__(self, client: redis.Redis, chance: random.Random, planned: list[int]) -> None:
        self.client = client
        self.chance = chance
        self.planned = planned
        self.turn = chance.choice((0, 1, 1, 2, 3, 5))
        self.lost = False
        self.unsure = False  # pages that were requested earlier may be lost with the connection

    def __call__(self, asked: Asked) -> None:
        self.turn -= 1
        if self.turn != -1:
            return
        until_executed(self.client, asked.sent)
        read = asked.after.ms
        self._remove(read)
        left = set(there(self.client))
        self.lost = any(n > read and n not in left for n in self.planned)
        if self.chance.random() < 0.3:
            self.unsure = any(n not in left for n in self.planned)
            self.client.client_kill_filter(_type="normal", skipme=True)

    def _remove(self, read: int) -> None:
        what = self.chance.random()
        if what < 0.15:  # what was read, one by one
            gone = [n for n in self.planned if n <= read and self.chance.random() < 0.8]
            self.client.xdel("events", "0-1", *(f"{n}-0" for n in gone))
        elif what < 0.2:
            self.client.delete("events")
        else:
            bound = max(0, read + self.chance.choice((-9, -1, 0, 1, 1, 1, 2, 9, 99)))
            self.client.xtrim("events", minid=f"{bound}-0", approximate=self.chance.random() < 0.3)


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_a_task_reads_everything_planned_or_raises_a_loss(
    place: str, client: redis.Redis, before_pages: list[Callable[[Asked], object]], seed: int
) -> None:
    chance = random.Random(seed)
    fill(client)
    for n in chance.sample(range(1, ENTRIES), chance.choice((0, 0, 5))):  # holes from before
        client.xdel("events", f"{n}-0")
    trimmer = Trimmer(client, chance, there(client))
    pages = {"pageEntries": str(chance.choice((1, 2, 3, 7))), "batchEntries": str(chance.choice((1, 5, 100)))}
    told, found = "", []
    try:
        found = read(place, before_pages, trimmer, **pages)
    except DataLoss as loss:
        told = str(loss)
    if trimmer.lost:
        assert told.startswith(
            "rillet: entries may have been lost before being read: the stream 'events' at 127.0.0.1:"
        )
    elif told:
        assert trimmer.unsure
    else:
        assert found == trimmer.planned


@pytest.mark.parametrize("seed", seeds(3, 12))
def test_tasks_with_several_ranges_miss_nothing_silently(
    place: str, client: redis.Redis, before_pages: list[Callable[[Asked], object]], seed: int
) -> None:
    chance = random.Random(seed)
    streams = ["events", "others", "more"]
    for stream in streams:
        fill(client, stream, last=10)
    query = Query(place, None, streams=",".join(streams), pageEntries="9", batchEntries="5", minPartitions="2")
    assert len(query.batch()) == 30
    for stream in streams:
        fill(client, stream, 11, ENTRIES)
        client.xtrim(stream, minid=f"{chance.choice((2, 10, 11))}-0", approximate=False)
    turn, bound = chance.randint(0, 12), chance.randint(11, ENTRIES)
    chosen = chance.choice(streams)

    def trim(asked: Asked) -> None:
        nonlocal turn
        turn -= 1
        if turn == -1:
            client.xtrim(chosen, minid=f"{bound}-0", approximate=False)

    assert query.plan()
    before_pages.append(trim)
    told, found = "", []
    try:
        found = query.read()
    except DataLoss as loss:
        told = str(loss)
    if told:
        assert repr(chosen) in told
        assert there(client, chosen)[0] > 11
    else:
        assert sorted(found) == sorted([*range(11, ENTRIES + 1)] * 3)


def test_the_error_contains_the_position(
    place: str, client: redis.Redis, before_pages: list[Callable[[Asked], object]]
) -> None:
    fill(client)

    def trim(asked: Asked) -> None:
        if asked.after.ms:  # not the first page
            client.xtrim("events", minid="30-0", approximate=False)

    with pytest.raises(
        DataLoss,
        match=r"from 0-\d+ to 60-0 were planned and read up to \S+, and now it begins at 30-0. Set failOnDataLoss=",
    ):
        read(place, before_pages, trim, pageEntries="1")
    fill(client, last=ENTRIES, first=ENTRIES + 1)
    with pytest.raises(DataLoss, match="'events' at .* now it is gone. Set"):
        read(place, before_pages, lambda asked: client.delete("events"))


def test_a_stream_is_not_checked_before_its_first_entry_is_read(place: str, client: redis.Redis) -> None:
    for stream in ("events", "later"):
        fill(client, stream)
    bounds = '{"events": "50-0", "later": "55-0"}'
    query = Query(place, None, streams="events,later", startingOffsets=bounds, maxEntriesPerTrigger="1")
    assert query.batch() == [50]
    query = query.restarted(maxEntriesPerTrigger="100")
    assert query.plan()
    client.xtrim("later", minid="57-0", approximate=False)
    assert query.read() == [*range(51, ENTRIES + 1), *range(57, ENTRIES + 1)]
    query.commit()
    fill(client, "later", ENTRIES + 1, ENTRIES + 2)
    assert query.plan()
    client.xtrim("later", minid=f"{ENTRIES + 2}-0", approximate=False)
    with pytest.raises(DataLoss, match="the stream 'later' .* now it begins at 62-0"):
        query.read()


def test_no_check_is_made_if_losses_are_ignored(
    place: str, client: redis.Redis, before_pages: list[Callable[[Asked], object]]
) -> None:
    fill(client)
    asked: list[Asked] = []

    def trim(page: Asked) -> None:
        asked.append(page)
        if len(asked) == 3:
            client.xtrim("events", minid="50-0", approximate=False)

    found = read(place, before_pages, trim, failOnDataLoss="false", pageEntries="3")
    assert found == sorted(set(found))
    assert found[-1] == ENTRIES
    assert 49 not in found
    # Pages of a rillet server and the second one of Redis begin behind the last entry that was read, not at it.
    begins = [page.after for page in asked]
    assert StreamID(3, 1) in begins or all(begin.seq for begin in begins if begin.ms > 1)


def test_a_lagging_replica_gives_the_same_proof_as_its_master(before_pages: list[Callable[[Asked], object]]) -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_redis("--repl-diskless-sync-delay", "0") as master, running_redis() as replica:
        copied = redis.Redis(port=replica.port)
        with redis.Redis(port=master.port) as first, copied:
            fill(first)
            copied.execute_command("REPLICAOF", "127.0.0.1", str(master.port))
            while not (first.execute_command("WAIT", 1, 1000) and len(there(copied)) == ENTRIES):
                pass
            url = f"redis://127.0.0.1:{master.port}"
            chosen = {"readFrom": "replica", "pageEntries": "7"}
            assert read(url, before_pages, lambda asked: None, **chosen) == list(range(1, ENTRIES + 1))
            # The replica stops here: it does not hear of the trim, and its pages are whole.
            copied.execute_command("REPLICAOF", "NO", "ONE")
            trims = iter([None, None, "40-0"])

            def trim(asked: Asked) -> None:
                if bound := next(trims, None):
                    copied.xtrim("events", minid=bound, approximate=False)

            with pytest.raises(DataLoss, match="now it begins at 40-0"):
                read(f"redis://127.0.0.1:{replica.port}", before_pages, trim, **chosen)


@pytest.mark.parametrize("asked", ["master", "replica"])
def test_a_migrating_slot_neither_causes_nor_hides_an_alarm(
    cluster: Cluster, before_pages: list[Callable[[Asked], object]], asked: str
) -> None:
    stream = cluster.key_of(1, "events:")
    master = cluster.owner(stream)
    for n in range(1, ENTRIES + 1):
        master.run("XADD", stream, f"{n}-0", "n", n)
    assert master.run("WAIT", 1, 10_000) == 1
    chosen = {"url": cluster.url, "stream": stream, "readFrom": asked, "pageEntries": "7", "batchEntries": "5"}
    reader = BatchReader(parse({**chosen, "failOnDataLoss": "true"}), SCHEMA, 1)
    (part,) = reader.partitions()
    turn = 0
    with cluster.moving(stream) as move:

        def happen(page: Asked) -> None:
            nonlocal turn
            turn += 1
            if turn == 4:
                move.migrate()  # a replica loses the key
            if turn == 8:
                move.finish()

        before_pages[:] = [happen]
        found = [n for batch in reader.read(part) for n in batch.column("n").to_pylist()]
        assert found == list(range(1, ENTRIES + 1))
        assert turn >= 8

        def trim(page: Asked) -> None:
            if page.after.ms:
                cluster.run(stream, "XTRIM", stream, "MINID", "40-0")
                assert cluster.run(stream, "WAIT", 1, 10_000) == 1

        before_pages[:] = [trim]
        with pytest.raises(DataLoss, match=f"'{stream}' at 127.0.0.1:.* now it begins at 40-0"):
            list(reader.read(part))
