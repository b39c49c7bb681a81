"""rillet.opentelemetry: spans and metrics, collected by the exporters of the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import rillet
from rillet.opentelemetry import SECONDS, Instrumentation, instrument, process
from rillet.store.store import Store
from tests.judge import Judge
from tests.store.conftest import Frontend, only


class Telemetry:
    """The spans and metrics of a test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def instrument(self, store: Store, **options: Any) -> Instrumentation:
        return instrument(store, tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self) -> list[ReadableSpan]:
        """Return the spans since the last call."""
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found

    def span(self) -> ReadableSpan:
        (found,) = self.spans()
        return found

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def sums(self, name: str) -> dict[str, float]:
        """Return the sum of a counter by operation."""
        return {str(point.attributes["messaging.operation.name"]): point.value for point in self.points(name)}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be slow: a consumer does not claim its own messages again, which would make a span."""
    monkeypatch.setattr("rillet.store.consuming.delivery.CURRENT", 60.0)
    monkeypatch.setattr("rillet.store.consuming.prefetch.CHECK_AFTER", 60.0)


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    found = Telemetry()
    yield found
    found.tracers.shutdown()
    found.meters.shutdown()


@pytest.fixture
def store(frontend: Frontend, telemetry: Telemetry) -> Store:
    telemetry.instrument(frontend.store)
    return frontend.store


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span under `messaging.`, and error.type."""
    found = {name.removeprefix("messaging."): value for name, value in (span.attributes or {}).items()}
    return {name: value for name, value in found.items() if not name.startswith("server.") and name != "system"}


def test_add(store: Store, telemetry: Telemetry) -> None:
    made = store.stream("orders").add({"n": 1})
    span = telemetry.span()
    assert (span.name, span.kind, span.status.status_code) == ("add orders", SpanKind.PRODUCER, StatusCode.UNSET)
    assert attributes(span) == {
        "operation.name": "add", "operation.type": "send", "destination.name": "orders", "message.id": str(made),
    }  # fmt: skip
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time
    assert [entry.fields for entry in store.stream("orders")] == [{"n": "1"}]  # nothing is added without propagate


def test_add_many(store: Store, telemetry: Telemetry) -> None:
    store.stream("orders").add_many([{"n": n} for n in range(25)], batch=10)
    spans = telemetry.spans()
    assert [attributes(span)["batch.message_count"] for span in spans] == [10, 10, 5]
    assert all("message.id" not in attributes(span) for span in spans)
    assert telemetry.sums("messaging.client.sent.messages") == {"add": 25}


def test_a_consumer(store: Store, telemetry: Telemetry) -> None:
    orders = store.stream("orders")
    orders.add_many([{"n": n} for n in range(3)])
    group = orders.group("billing")
    group.create()
    telemetry.spans()
    one, two = group.consumer("one"), group.consumer("two")
    messages = one.read(2)
    read = telemetry.span()
    assert (read.name, read.kind) == ("read orders", SpanKind.CLIENT)
    common = {"destination.name": "orders", "consumer.group.name": "billing"}
    assert attributes(read) == {
        **common, "operation.name": "read", "operation.type": "receive", "client.id": "one", "batch.message_count": 2,
    }  # fmt: skip
    messages[0].ack()
    acknowledged = telemetry.span()
    assert (acknowledged.name, acknowledged.kind) == ("ack orders", SpanKind.CLIENT)
    assert attributes(acknowledged) == {
        **common, "operation.name": "ack", "operation.type": "settle", "message.id": str(messages[0].id),
    }  # fmt: skip
    (claimed,) = two.claim(0)[1]
    claim = telemetry.span()
    assert (claim.name, attributes(claim)["client.id"], attributes(claim)["operation.type"]) == (
        "claim orders", "two", "receive",
    )  # fmt: skip
    assert attributes(claim)["message.id"] == str(claimed.id)
    assert one.claim_ids(claimed.id, just_ids=True) == [claimed.id]
    assert attributes(telemetry.span())["batch.message_count"] == 1
    assert len(one.read()) == 1
    telemetry.spans()
    group.ack(*(entry.id for entry in group.pending()))
    assert attributes(telemetry.span())["batch.message_count"] == 2
    assert telemetry.sums("messaging.client.consumed.messages") == {"read": 3, "claim": 2}


def test_a_loop_over_messages_makes_no_span_without_messages(store: Store, telemetry: Telemetry) -> None:
    store.stream("orders").add_many([{"n": n} for n in range(3)])
    telemetry.spans()
    for message in store.stream("orders").group("g").consumer("c").messages(timeout=0.2, block=0.05):
        message.ack()
    assert [span.name for span in telemetry.spans()] == ["read orders", *["ack orders"] * 3]
    reads = [point for point in telemetry.points("messaging.client.operation.duration")
             if point.attributes["messaging.operation.name"] == "read"]  # fmt: skip
    assert sum(point.count for point in reads) > 2  # also those without messages


def test_several_streams(store: Store, telemetry: Telemetry) -> None:
    for name in ("a", "b"):
        store.stream(name).add({"n": 1})
    telemetry.spans()
    assert len(store.read({"a": "0", "b": "0"})) == 2
    span = telemetry.span()
    assert span.name == "read"
    assert "destination.name" not in attributes(span)
    assert attributes(span)["batch.message_count"] == 2


def test_an_error(store: Store, telemetry: Telemetry) -> None:
    store.execute("SET", "orders", "no stream")
    with pytest.raises(rillet.WrongType):
        store.stream("orders").add({"n": 1})
    span = telemetry.span()
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "WRONGTYPE")
    with pytest.raises(rillet.CommandError):
        store.stream("missing").group("g", create=False).consumer("c").read()
    span = telemetry.span()
    assert (span.name, attributes(span)["error.type"]) == ("read missing", "NOGROUP")
    (failed,) = [point for point in telemetry.points("messaging.client.operation.duration")
                 if point.attributes.get("error.type") == "NOGROUP"]  # fmt: skip
    assert failed.count == 1


def test_other_commands_make_nothing(store: Store, telemetry: Telemetry) -> None:
    store.execute("SET", "k", "v")
    store.stream("s").group("g").create()
    store.stats()
    list(store.keys())
    store.stream("s").trim(maxlen=0)
    assert telemetry.spans() == []
    assert telemetry.points("messaging.client.operation.duration") == []


def test_metrics(store: Store, telemetry: Telemetry) -> None:
    store.stream("orders").add({"n": 1})
    (point,) = telemetry.points("messaging.client.operation.duration")
    assert (point.count, tuple(point.explicit_bounds)) == (1, SECONDS)
    assert point.attributes["messaging.destination.name"] == "orders"
    assert "messaging.message.id" not in point.attributes


# -- propagation and processing ---------------------------------------------------------------------------


def test_propagation(frontend: Frontend, telemetry: Telemetry) -> None:
    store = frontend.store
    telemetry.instrument(store, propagate=True)
    tracer = telemetry.tracers.get_tracer("application")
    orders = store.stream("orders")
    with tracer.start_as_current_span("request") as request:
        orders.add({"n": 1})
        orders.add_many([{"n": 2}, {"n": 3}])
    first, others, _ = telemetry.spans()
    trace_id = request.get_span_context().trace_id
    assert first.context.trace_id == others.context.trace_id == trace_id
    entries = list(orders)
    assert [entry["traceparent"].split("-")[2] for entry in entries] == [
        f"{span.context.span_id:016x}" for span in (first, others, others)
    ]  # fmt: skip
    messages = orders.group("billing").consumer("one").read()
    read = telemetry.span()
    assert [link.context.span_id for link in read.links] == [first.context.span_id, others.context.span_id]
    with process(messages[0]) as span:
        assert span.is_recording()
        with tracer.start_as_current_span("inner"):
            messages[0].ack()
    acknowledged, inner, processed = telemetry.spans()
    assert (processed.name, processed.kind) == ("process orders", SpanKind.CONSUMER)
    assert attributes(processed) == {
        "operation.name": "process", "operation.type": "process", "destination.name": "orders",
        "consumer.group.name": "billing", "message.id": str(messages[0].id),
    }  # fmt: skip
    assert processed.parent is not None
    assert (processed.context.trace_id, processed.parent.span_id) == (trace_id, first.context.span_id)
    assert [link.context.span_id for link in processed.links] == [first.context.span_id]
    assert inner.parent is not None
    assert inner.parent.span_id == processed.context.span_id
    assert acknowledged.parent is not None
    assert acknowledged.parent.span_id == inner.context.span_id
    with tracer.start_as_current_span("batch") as batch, process(messages[1]):
        pass
    processed = telemetry.spans()[0]
    assert processed.parent is not None
    assert processed.parent.span_id == batch.get_span_context().span_id
    assert [link.context.span_id for link in processed.links] == [others.context.span_id]


def test_process_records_an_error(store: Store, telemetry: Telemetry) -> None:
    store.stream("s").add({"n": 1})
    (message,) = store.stream("s").group("g").consumer("c").read()
    telemetry.spans()

    def fail() -> None:
        with process(message):
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    span = telemetry.span()
    assert (span.status.status_code, attributes(span)["error.type"], span.parent) == (StatusCode.ERROR, "OSError", None)
    (point,) = telemetry.points("messaging.process.duration")
    assert (point.count, point.attributes["error.type"]) == (1, "OSError")


@only("memory")
def test_process_without_instrumentation(frontend: Frontend) -> None:
    frontend.store.stream("s").add({"n": 1})
    (message,) = frontend.store.stream("s").group("g").consumer("c").read()
    with pytest.raises(ValueError, match="not instrumented"):
        process(message).__enter__()


@only("memory")
def test_what_propagation_does_not_change(frontend: Frontend, telemetry: Telemetry) -> None:
    store = frontend.store
    telemetry.instrument(store, propagate=True)
    stream = store.stream("s")
    first = stream.add({"n": 1}, idmpauto="p")
    assert stream.add({"n": 1}, idmpauto="p") == first
    assert stream.get(first) == rillet.Entry(str(first).encode(), [b"n", b"1"])
    second = stream.add({"IDMPAUTO": 1}, maxlen=10, idmp=("p", "m"))
    assert "traceparent" in (stream.get(second) or {})


@only("memory")
def test_a_broken_traceparent_is_ignored(frontend: Frontend, telemetry: Telemetry) -> None:
    store = frontend.store
    telemetry.instrument(store)
    for value in ("", "x", b"\xff", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"):
        store.stream("s").add({"traceparent": value})
    messages = store.stream("s").group("g").consumer("c").read()
    assert telemetry.spans()[-1].links == ()
    for message in messages:
        with process(message):
            pass
        assert telemetry.span().parent is None


@dataclass
class Order:
    customer: str
    total: float


@only("memory")
@pytest.mark.parametrize("codec", ["fields", "json"])
def test_typed_streams_with_propagation(frontend: Frontend, telemetry: Telemetry, codec: Any) -> None:
    store = frontend.store
    telemetry.instrument(store, propagate=True)
    orders = store.stream("orders", type=Order, codec=codec)
    orders.add(Order("a", 1.5))
    (message,) = orders.group("g").consumer("c").read()
    assert message.value == Order("a", 1.5)
    with process(message):
        pass
    assert len(telemetry.spans()[-1].links) == 1


# -- asyncio --------------------------------------------------------------------------------------------


def test_asyncio(frontend: Frontend, telemetry: Telemetry) -> None:
    telemetry.instrument(frontend.store, propagate=True)

    async def work() -> None:
        aio = frontend.store.aio()
        orders = aio.stream("orders")
        await orders.add({"n": 1})
        await orders.add_many([{"n": 2}, {"n": 3}])
        group = await orders.group("g")
        async for message in group.consumer("c").messages(stop_when_empty=True):
            with process(message):
                await message.ack()
        with pytest.raises(rillet.CommandError):
            await aio.execute("XADD", "orders", "0-0", "f", "v")

    asyncio.run(work())
    spans = telemetry.spans()
    names = ["add orders", "add orders", "read orders", *["ack orders", "process orders"] * 3, "add orders"]
    assert [span.name for span in spans] == names
    assert [attributes(span).get("batch.message_count") for span in spans[:3]] == [None, 2, 3]
    assert attributes(spans[-1])["error.type"] == "ERR"
    assert telemetry.sums("messaging.client.sent.messages") == {"add": 3}
    assert telemetry.sums("messaging.client.consumed.messages") == {"read": 3}


def test_a_cancelled_read(frontend: Frontend, telemetry: Telemetry) -> None:
    telemetry.instrument(frontend.store)

    async def work() -> None:
        stream = frontend.store.aio().stream("s")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.read("$", block=20), 0.1)

    asyncio.run(work())
    assert attributes(telemetry.span())["error.type"] == "CancelledError"


# -- on and off -----------------------------------------------------------------------------------------


@only("memory", "owner")
def test_a_store_without_instrumentation_runs_its_own_methods(frontend: Frontend, telemetry: Telemetry) -> None:
    store = frontend.store

    def replaced() -> set[str]:
        return {"run", "run_many", "id_of"} & vars(store).keys()

    assert replaced() == set()
    instrumentation = telemetry.instrument(store)
    assert replaced() == {"run", "run_many", "id_of"}
    telemetry.instrument(store)  # a second call replaces the first
    store.stream("s").add({"n": 1})
    assert len(telemetry.spans()) == 1
    instrumentation.remove()  # of the first call: no effect
    assert replaced()
    telemetry.instrument(store).remove()
    assert (replaced(), store.observer) == (set(), None)
    store.stream("s").add({"n": 1})
    assert telemetry.spans() == []
    with pytest.raises(TypeError, match="pass the Store"):
        instrument(store.aio())  # type: ignore[arg-type]


def test_an_abandoned_store_is_closed_at_once(telemetry: Telemetry) -> None:
    gc.disable()
    try:
        store = rillet.open()
        telemetry.instrument(store)
        store.stream("s").add({"n": 1})
        gone = weakref.ref(store)
        del store
        assert gone() is None
    finally:
        gc.enable()


@only("memory", "owner", "attached", "redis")
def test_the_system_and_the_address(frontend: Frontend, telemetry: Telemetry, request: pytest.FixtureRequest) -> None:
    telemetry.instrument(frontend.store)
    frontend.store.stream("s").add({"n": 1})
    found = telemetry.span().attributes or {}
    if frontend.kind == "redis":
        judge: Judge = request.getfixturevalue("judge")
        assert (found["messaging.system"], found["server.address"], found["server.port"]) == (
            "redis", "127.0.0.1", judge.port,
        )  # fmt: skip
    else:
        assert found["messaging.system"] == "rillet"
        assert "server.address" not in found
    telemetry.instrument(frontend.store, system="valkey")
    frontend.store.stream("s").add({"n": 1})
    assert (telemetry.span().attributes or {})["messaging.system"] == "valkey"


def test_one_clear_line_without_the_package() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import rillet.opentelemetry"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={"PYTHONPATH": str(Path(rillet.__file__).parent.parent)})  # fmt: skip
    assert done.stderr.splitlines()[-1] == (
        "rillet.errors.MissingExtra: rillet.opentelemetry needs opentelemetry-api: "
        "pip install 'rillet[opentelemetry]'"
    )


def test_opening_a_store_does_not_import_opentelemetry() -> None:
    code = "import sys, rillet; rillet.open().stream('s').add({'n': 1}); print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={"PYTHONPATH": str(Path(rillet.__file__).parent.parent)})  # fmt: skip
    assert (done.stdout, done.stderr) == ("False\n", "")
