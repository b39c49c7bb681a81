"""`rillet serve --metrics-port`: a scrape over HTTP, read by prometheus_client's own parsers."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import rillet
from rillet.server import metrics
from rillet.server.server import Server
from tests.judge import free_port
from tests.server.conftest import skip_without
from tests.server.harness import LOOPS, launch, running
from tests.variants import long

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def samples_of(text: str, parse: Callable[[str], Any] = parse_text) -> Samples:
    """Return the samples by name and labels; a sample that occurs twice is an error."""
    found: Samples = {}
    for family in parse(text):
        assert family.documentation
        for sample in family.samples:
            place = (sample.name, tuple(sorted(sample.labels.items())))
            assert place not in found
            found[place] = sample.value
    return found


def fetch(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=60) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


class Scraped:
    """A server with metrics, and a store that is connected to it."""

    def __init__(self, store: rillet.Store, port: int) -> None:
        self.store = store
        self.port = port

    def samples(self) -> Samples:
        status, kind, text = fetch(self.port)
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        return samples_of(text)

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((f"rillet_{name}", tuple(sorted(labels.items()))))


@pytest.fixture(params=["uvloop", *long("asyncio")])
def scraped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scraped]:
    skip_without(request.param)
    port = free_port()
    with (
        running(tmp_path, "--metrics-port", str(port), "--appendonly", "yes", loop=request.param) as server,
        rillet.connect(f"redis://127.0.0.1:{server.port}") as store,
    ):
        yield Scraped(store, port)


def test_the_metrics_of_streams_and_groups(scraped: Scraped) -> None:
    orders = scraped.store.stream("orders")
    orders.add_many([(f"{1_795_000_000_000 + n}-0", {"n": n}) for n in range(100)])
    orders.group("billing").consumer("one").read(30)
    orders.group("done", "$").create()
    orders.trim(maxlen=90)
    place = {"db": "0", "stream": "orders"}
    assert scraped.value("stream_length", **place) == 90
    assert scraped.value("stream_entries_added_total", **place) == 100
    assert scraped.value("stream_last_entry_timestamp_seconds", **place) == 1_795_000_000.099
    assert scraped.value("stream_groups", **place) == 2
    assert scraped.value("group_lag", **place, group="billing") == 70
    assert scraped.value("group_pending", **place, group="billing") == 30
    assert scraped.value("group_consumers", **place, group="billing") == 1
    assert (scraped.value("group_silent_consumer_seconds", **place, group="billing") or 0) >= 0
    assert scraped.value("stream_delayed_entries", **place) == 0
    assert scraped.value("group_retries", **place, group="billing") == 0
    assert scraped.value("group_lag", **place, group="done") == 0
    assert scraped.value("group_oldest_pending_seconds", **place, group="done") == 0
    assert (scraped.value("group_oldest_pending_seconds", **place, group="billing") or 0) > 0
    orders.retain(age=1)
    billing = {**place, "group": "billing"}
    assert scraped.value("group_retention_held_entries", **billing) == 90
    assert scraped.value("group_retention_held_bytes", **billing) == 0
    assert scraped.value("stream_segment_bytes", **place) == 0
    assert scraped.value("stream_retention_drops_entries", **place) == 0
    assert (scraped.value("stream_memory_bytes", **place) or 0) > 90
    assert scraped.value("retention_removed_entries_total") == 0
    orders.retain()
    orders.add({"n": 1}, delay=3600)
    orders.group("billing").consumer("one").read(after="0", count=1)[0].retry(3600)
    assert scraped.value("stream_delayed_entries", **place) == 1
    assert scraped.value("group_retries", **place, group="billing") == 1
    assert scraped.value("group_ordered_keys", **place, group="billing") == 0
    orders.add_many([{"n": 1}, {"n": 1}, {"n": 2}])
    loop = orders.group("other", start="0").consumer("one").messages(order_by="n", claim_idle=9, batch=100)
    assert len(next(loop)) > 2
    held = scraped.value("group_ordered_keys", **place, group="other") or 0
    assert held == len(orders.group("other").ordered_keys(1000))
    assert scraped.value("group_ordered_messages", **place, group="other") == orders.group("other").pending_count()
    assert scraped.value("streams_complete") == 1


def test_the_metrics_of_partitions(scraped: Scraped) -> None:
    orders = scraped.store.partitioned("orders", 3, "n")
    orders.add_many({"n": n} for n in range(9))
    loop = orders.group("billing").consumer("one").messages(claim_idle=60)
    next(loop).ack()
    keys = [stream.name for stream in orders.partitions()]
    for key in keys:
        place = {"db": "0", "stream": key, "group": "billing"}
        assert scraped.value("group_partition_owned", **place) == 1
        assert 0 < (scraped.value("group_partition_lease_seconds", **place) or 0) <= 60
    lags = [scraped.value("group_lag", db="0", stream=key, group="billing") for key in keys]
    assert sum(lag or 0 for lag in lags) == orders.group("billing").info().lag
    loop.close()  # type: ignore[attr-defined]
    assert scraped.value("group_partition_owned", db="0", stream=keys[0], group="billing") == 0
    assert scraped.value("group_partition_owned", db="0", stream="other", group="billing") is None


def test_the_metrics_of_the_server(scraped: Scraped) -> None:
    store = scraped.store
    store.execute("SET", "k", "v", "EX", 100)
    store.execute("GET", "k")
    store.execute("GET", "missing")
    with pytest.raises(rillet.WrongType):
        store.execute("LPUSH", "k", "x")
    with pytest.raises(rillet.CommandError):
        store.execute("GET")
    found = scraped.samples()

    def value(name: str, *labels: tuple[str, str]) -> float:
        return found[f"rillet_{name}", labels]

    assert value("commands_total", ("command", "get")) == 2
    assert value("commands_rejected_total", ("command", "get")) == 1
    assert value("commands_failed_total", ("command", "lpush")) == 1
    assert 0 < value("commands_duration_seconds_total", ("command", "set")) < 60
    assert value("error_replies_total", ("error", "WRONGTYPE")) == 1
    assert (value("keyspace_hits_total"), value("keyspace_misses_total")) == (1, 1)
    assert (value("keys", ("db", "0")), value("expiring_keys", ("db", "0"))) == (1, 1)
    assert value("connected_clients") == 1
    assert value("connections_total") >= 1
    assert value("received_bytes_total") > 0 < value("sent_bytes_total")
    assert value("memory_resident_bytes") > 1e6
    assert (value("aof_enabled"), value("aof_last_write_ok"), value("writes_refused")) == (1, 1, 0)
    assert value("aof_size_bytes") > 0
    compiled = "yes" if rillet.compiled() else "no"
    labels = (("compat", "newest"), ("compiled", compiled), ("version", rillet.__version__))
    assert value("build_info", *labels) == 1


def test_blocked_clients(scraped: Scraped) -> None:
    url = scraped.store.url
    assert url is not None

    def wait() -> None:
        with rillet.connect(url) as other:
            other.execute("BLPOP", "list", 60)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while scraped.value("blocked_clients") != 1:
        pass
    scraped.store.execute("RPUSH", "list", "x")
    waiting.join(60)
    while scraped.value("blocked_clients") != 0:
        pass


def test_openmetrics(scraped: Scraped) -> None:
    scraped.store.stream('a "name"\n\\').add({"n": 1})
    scraped.store.stream(b"\xff\x00").group("g").create()
    status, kind, text = fetch(scraped.port, **OPENMETRICS)
    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    strict, plain = samples_of(text, parse_openmetrics), scraped.samples()
    for found in (strict, plain):
        assert found["rillet_stream_length", (("db", "0"), ("stream", 'a "name"\n\\'))] == 1
        assert found["rillet_stream_length", (("db", "0"), ("stream", "\\xff\x00"))] == 0
    assert {name for name, _ in strict} >= {"rillet_commands_total", "process_cpu_seconds_total"}


def test_other_requests(scraped: Scraped) -> None:
    assert fetch(scraped.port, "/")[0] == 404
    assert fetch(scraped.port, "/metrics?x=1")[0] == 200
    with pytest.raises(HTTPError, match="405"):
        urlopen(Request(f"http://127.0.0.1:{scraped.port}/metrics", data=b"x"), timeout=60)
    head = b"HEAD /metrics HTTP/1.1\r\n\r\n"
    for sent in (b"*1\r\n$4\r\nPING\r\n\r\n\r\n", b"GET /metrics\r\n\r\n", b"\xff" * 20_000, head):
        with socket.create_connection(("127.0.0.1", scraped.port), timeout=60) as client:
            client.sendall(sent)
            reply = b""
            try:
                while data := client.recv(65536):
                    reply += data
            except ConnectionResetError:
                pass
        if sent == head:
            assert reply.startswith(b"HTTP/1.1 200 OK")
            assert reply.endswith(b"\r\n\r\n")
        else:
            assert reply == b"" or reply.startswith(b"HTTP/1.1 400")
    assert scraped.value("connected_clients") == 0


@pytest.mark.parametrize("scraped", LOOPS, indirect=True)
def test_scrapes_at_the_same_time(scraped: Scraped) -> None:
    scraped.store.stream("s").add({"n": 1})
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(fetch(scraped.port)[0])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [200] * 12


def test_a_limit_for_streams(scraped: Scraped) -> None:
    scraped.store.execute("CONFIG", "SET", "metrics-streams", 3)
    for number in range(5):
        scraped.store.stream(f"s{number}").group("g").create()
    names = [labels for name, labels in scraped.samples() if name == "rillet_stream_length"]
    assert len(names) == 3
    assert scraped.value("streams_complete") == 0
    scraped.store.execute("CONFIG", "SET", "metrics-streams", 5)
    assert scraped.value("streams_complete") == 1


def test_loopback_only(scraped: Scraped) -> None:
    addresses = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1"}:
        if not address.startswith("127."):
            with pytest.raises(OSError):
                socket.create_connection((address, scraped.port), timeout=5)


# -- errors at the start ----------------------------------------------------------------------------------


def failed(arguments: list[str], before: str = "pass") -> str:
    with launch(arguments, before=before) as process:
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in said + errors
    return errors


def test_one_clear_line_without_prometheus_client(tmp_path: Path) -> None:
    hide = "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *a: None if 'prom' in n else f(n, *a)"
    arguments = ["--port", str(free_port()), "--dir", str(tmp_path), "--metrics-port", str(free_port())]
    assert failed(arguments, hide) == (
        "rillet: metrics-port needs prometheus_client: pip install 'rillet[metrics]'\n"
    )


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        errors = failed(["--port", str(free_port()), "--dir", str(tmp_path), "--metrics-port", str(port)])
    assert f"Failed listening on port {port} (metrics): 127.0.0.1: Address already in use" in errors


def test_a_store_refuses_the_setting() -> None:
    with pytest.raises(ValueError, match="rillet serve"):
        rillet.open(metrics_port=9121)


# -- bounds and lag ---------------------------------------------------------------------------------------


def turns_of_a_scrape(
    fill: Callable[[rillet.Store], None], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int, Samples]:
    """Return how often the event loop ran other work during a scrape, the keys that were examined, and the samples."""
    with rillet.open() as store:
        fill(store)
        engine = store.transport.engine  # type: ignore[attr-defined]
        examined = 0

        def islice(values: Any, *place: int) -> Any:
            nonlocal examined
            some = list(metrics_islice(values, *place))
            examined += len(some)
            return some

        metrics_islice = metrics.islice  # type: ignore[attr-defined]
        monkeypatch.setattr(metrics, "islice", islice)

        async def scrape() -> tuple[int, list[metrics.Metric]]:
            server, turns, over = Server(engine), 0, False
            await server.start(tcp=False)

            async def other_work() -> None:
                nonlocal turns
                while not over:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other_work())
            found = await metrics.server_metrics(server, metrics.StreamFinder())
            over = True
            await task
            await server.stop()
            return turns, found

        turns, found = asyncio.run(scrape())
    samples: Samples = {}
    for one in found:
        for labels, value in one.samples:
            samples[f"rillet_{one.name}", tuple(zip(one.labels, labels, strict=True))] = value
    return turns, examined, samples


def test_many_keys_are_examined_in_slices_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "KEYS", 10_000)
    monkeypatch.setattr(metrics, "_KEYS_A_SLICE", 2000)

    def fill(store: rillet.Store) -> None:
        store.stream("first").add({"n": 1})
        store.execute_many([("SET", f"k{n}", n) for n in range(20_000)])
        store.stream("last").add({"n": 1})

    turns, examined, found = turns_of_a_scrape(fill, monkeypatch)
    assert examined <= 12_100  # the keys of a slice with streams are read, too
    assert turns >= 5
    # Half of the keys are examined: which streams are among them depends on the order of the table.
    assert {labels[1][1] for name, labels in found if name == "rillet_stream_length"} <= {"first", "last"}
    assert found["rillet_streams_complete", ()] == 0


def test_streams_are_looked_for_again_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("rillet.server.metrics.monotonic", lambda: now)

    async def found_by(finder: metrics.StreamFinder, server: Server) -> list[bytes]:
        return sorted(key for _, key in (await finder.find(server))[0])

    async def scrapes(server: Server) -> None:
        nonlocal now
        finder = metrics.StreamFinder()
        look = finder._look

        async def slowly(*arguments: Any) -> Any:
            nonlocal now
            now += 0.1
            return await look(*arguments)

        monkeypatch.setattr(finder, "_look", slowly)
        assert await found_by(finder, server) == [b"a"]
        store.stream("b").add({"n": 1})
        now += 4.9
        assert await found_by(finder, server) == [b"a"]
        now += 0.2
        assert await found_by(finder, server) == [b"a", b"b"]
        store.delete("a")
        assert await found_by(finder, server) == [b"a", b"b"]
        names = [labels[1] for one in await metrics.server_metrics(server, finder) if one.name == "stream_length"
                 for labels, _ in one.samples]  # fmt: skip
        assert names == ["b"]
        server.settings.set_text("metrics-streams", "1")
        assert await found_by(finder, server) == [b"b"]

    with rillet.open() as store:
        store.stream("a").add({"n": 1})
        asyncio.run(scrapes(Server(store.transport.engine)))  # type: ignore[attr-defined]


def test_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(store: rillet.Store) -> None:
        for number in range(60):
            store.execute_many([("XGROUP", "CREATE", f"s{number}", f"g{g}", "0", "MKSTREAM") for g in range(20)])

    turns, _, found = turns_of_a_scrape(fill, monkeypatch)
    assert sum(name == "rillet_group_lag" for name, _ in found) == metrics.GROUPS
    assert turns >= 60 // 20
    assert found["rillet_streams_complete", ()] == 0


@pytest.mark.parametrize("compat", ["7.0", "valkey", "newest"])
def test_a_lag_is_exact(compat: str) -> None:
    for seed in range(40):
        chosen, added = random.Random(seed), 1
        with rillet.open(compat=compat) as store:
            stream = store.stream("x")
            stream.add({"n": 1}, id="1-0")
            for _ in range(25):
                names = [group.name for group in stream.groups()]
                match chosen.choice("aaaaddtgrrs"):
                    case "a":
                        added += 1
                        stream.add({"n": added}, id=f"{added}-0")
                    case "d":
                        stream.delete(f"{chosen.randrange(1, added + 1)}-0")
                    case "t":
                        stream.trim(maxlen=chosen.randrange(added))
                    case "g":
                        start = chosen.choice(["0", "$", f"{chosen.randrange(added + 1)}-0"])
                        stream.group(f"g{chosen.randrange(3)}", start).create()
                    case "r" if names:
                        stream.group(chosen.choice(names), create=False).consumer("c").read(chosen.randrange(1, 4))
                    case "s" if names:
                        stream.group(chosen.choice(names), create=False).set_id(f"{chosen.randrange(added + 1)}-0")
                engine = store.transport.engine  # type: ignore[attr-defined]
                value = engine.databases[0].peek(b"x")
                for group in value.groups.values():
                    ahead = len(stream.range(f"({group.last_ms}-{group.last_seq}"))
                    assert metrics.lag_of(value, group, engine.settings.compat.lag_rule) == ahead
