"""consumer.run(): handlers, failures and their dead letters, several loops, the end by signals, the asyncio form."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Message, Store
from rillet.aio import AsyncMessage
from rillet.errors import StoreClosed, WrongType
from rillet.records import Handled
from rillet.store.handling import BACKOFF
from tests.forked import Forked
from tests.store.conftest import only

QUICK = rillet.Exponential(first=0.001, most=0.01)


def _at_once(_deliveries: int) -> float:
    return 0.0


def _filled(store: Store, count: int) -> rillet.Consumer:
    stream = store.stream("jobs")
    stream.add_many((n, {"n": n}) for n in range(1, count + 1))
    return stream.group("workers").consumer("one")


def test_handled_messages_are_acknowledged(store: Store) -> None:
    worker = _filled(store, 5)
    seen: list[str] = []
    assert worker.run(lambda message: seen.append(message["n"]), stop_when_empty=True) == Handled(5, 0)
    assert seen == list("12345")
    assert worker.group.pending_count() == 0
    assert store.stream("jobs.dead").length() == 0


def _settled(worker: rillet.Consumer) -> bool:
    """Return whether every message is acknowledged or a dead letter, and there is one."""
    return worker.group.store.stream("jobs.dead").exists() and worker.group.pending_count() == 0


def test_a_handler_that_fails_is_called_again_and_its_message_becomes_a_dead_letter_with_the_error(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    worker = _filled(store, 3)
    calls: Counter[str] = Counter()

    def handle(message: Message) -> None:
        calls[message["n"]] += 1
        if message["n"] == "2" or (message["n"] == "3" and message.deliveries == 1):
            raise ValueError(f"bad total of {message['n']}")

    done = worker.run(handle, max_deliveries=3, backoff=QUICK, stop=lambda: _settled(worker))
    assert done == Handled(2, 4)
    assert calls == {"1": 1, "2": 3, "3": 2}
    assert worker.group.pending_count() == 0
    (letter,) = store.stream("jobs.dead")
    assert letter.fields == {"n": "2", "_stream": "jobs", "_group": "workers", "_id": "2-0", "_deliveries": "3",
                             "_error": "ValueError: bad total of 2"}  # fmt: skip
    assert "message 2-0 of 'jobs' was not handled (delivery 3): ValueError: bad total of 2" in caplog.text
    assert "Traceback" in caplog.text


def test_a_handler_may_settle_its_message_itself(store: Store) -> None:
    worker = _filled(store, 3)

    def handle(message: Message) -> None:
        if message["n"] == "1":
            message.ack()
        elif message["n"] == "2":
            message.retry(delay=3600)

    assert worker.run(handle, stop_when_empty=True, on_exhausted="drop") == Handled(3, 0)
    assert [entry.id.ms for entry in worker.group.pending()] == [2]
    assert [retry.id.ms for retry in worker.group.retries()] == [2]


def test_without_a_limit_there_are_no_dead_letters(store: Store) -> None:
    worker = _filled(store, 1)
    failures = iter([OSError("away")] * 7)

    def handle(message: Message) -> None:
        for error in failures:
            raise error
        handled.set()

    handled = threading.Event()
    done = worker.run(handle, max_deliveries=None, backoff=_at_once, stop=handled)
    assert done == Handled(1, 7)
    assert store.keys() is not None
    assert not store.stream("jobs.dead").exists()


def test_several_loops_share_the_messages_and_each_has_its_own_consumer(store: Store) -> None:
    worker = _filled(store, 40)
    together = threading.Barrier(4, timeout=20)
    seen: list[str] = []

    def handle(message: Message) -> None:
        if message.id.ms <= 4:
            together.wait()  # only if four handlers work at the same time
        seen.append(message["n"])

    assert worker.run(handle, concurrency=4, stop_when_empty=True) == Handled(40, 0)
    assert sorted(map(int, seen)) == list(range(1, 41))
    assert [one.name for one in worker.group.consumers()] == ["one", "one:2", "one:3", "one:4"]


def test_an_order_by_key_holds_with_several_loops(store: Store) -> None:
    stream = store.stream("orders")
    stream.add_many({"customer": n % 3, "n": n} for n in range(30))
    seen: dict[str, list[int]] = {}
    done = stream.group("billing").consumer("w").run(
        lambda message: seen.setdefault(message["customer"], []).append(int(message["n"])),
        concurrency=3, order_by="customer", stop_when_empty=True,
    )  # fmt: skip
    assert done.failed == 0
    assert {key: sorted(found) == found for key, found in seen.items()} == dict.fromkeys("012", True)
    assert sum(map(len, seen.values())) == 30


def test_a_reader_of_several_streams_needs_the_name_of_the_dead_letters(store: Store) -> None:
    store.stream("a").add({"n": 1})
    store.stream("b").add({"n": 2})
    worker = store.consumer("group", "one", streams=["a", "b"])
    with pytest.raises(ValueError, match="max_deliveries needs a place"):
        worker.run(print)
    seen: list[str] = []
    done = worker.run(lambda message: seen.append(message.stream.name), concurrency=2, dead_letters="dead",
                      stop_when_empty=True)  # fmt: skip
    assert (done, sorted(seen)) == (Handled(2, 0), ["a", "b"])


def test_a_partitioned_consumer_runs_handlers_too(store: Store) -> None:
    orders = store.partitioned("orders", partitions=4, by="customer")
    orders.add_many({"customer": n, "n": n} for n in range(20))
    seen: list[int] = []
    worker = orders.group("billing").consumer("w")
    done = worker.run(lambda message: seen.append(int(message["n"])), concurrency=2, stop=lambda: len(seen) == 20)
    assert (done, sorted(seen)) == (Handled(20, 0), list(range(20)))


def test_invalid_entries_are_logged_and_the_loop_continues(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Job:
        n: int

    store.stream("jobs").add_many([(1, {"n": "1"}), (2, {"n": "x"}), (3, {"n": "3"})])
    worker = store.stream("jobs", type=Job).group("workers").consumer("one")
    seen: list[int] = []
    done = worker.run(lambda message: seen.append(message.value.n), stop_when_empty=True)
    assert (done, seen) == (Handled(2, 1), [1, 3])
    assert "entry 2-0" in caplog.text
    assert [entry.id.ms for entry in worker.group.pending()] == [2]


@only("memory")
def test_what_the_loops_cannot_handle_is_raised_and_ends_all_of_them(store: Store) -> None:
    worker = _filled(store, 10)
    store.execute("SET", "jobs.dead", "a string")

    def fail(message: Message) -> None:
        raise ValueError

    with pytest.raises(WrongType):
        worker.run(fail, concurrency=3, max_deliveries=1)
    assert worker.group.pending_count() > 0  # nothing is lost

    def leave(message: Message) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.run(leave, concurrency=2, max_deliveries=9)

    with pytest.raises(StoreClosed):
        worker.run(lambda message: store.close(), max_deliveries=9)


@only("memory")
@pytest.mark.parametrize(("options", "text"), [
    ({"concurrency": 0}, "concurrency"), ({"concurrency": 1.5}, "concurrency"), ({"stop": 5}, "stop must be"),
    ({"max_deliveries": 0}, "max_deliveries"), ({"claim_idle": None}, "heartbeat renews"),
    ({"backoff": "linear"}, "backoff must be"), ({"signals": ["TERM"]}, "signal"),
])  # fmt: skip
def test_bad_options_are_errors_before_the_first_read(store: Store, options: dict[str, Any], text: str) -> None:
    worker = _filled(store, 1)
    with pytest.raises((ValueError, TypeError), match=text):
        worker.run(print, stop_when_empty=True, **options)
    with pytest.raises(TypeError, match="handler must be a function"):
        worker.run(None)  # type: ignore[arg-type]
    assert worker.group.stream.groups() == []


def test_a_coroutine_that_nothing_awaits_is_an_error_and_acknowledges_nothing(store: Store) -> None:
    async def handle(_message: Message) -> None: ...

    worker = _filled(store, 1)
    with pytest.raises(TypeError, match=r"handler is a coroutine function, .* use store\.aio\(\)"):
        worker.run(handle, stop_when_empty=True)
    assert worker.group.stream.groups() == []
    with pytest.raises(TypeError, match="the handler returned a coroutine"):
        worker.run(lambda message: handle(message), stop_when_empty=True)
    assert worker.group.pending_count() == 1


def test_the_default_back_off_is_seconds_that_double_up_to_ten_minutes() -> None:
    for count, wait in ((1, 1.0), (2, 2.0), (4, 8.0), (50, 600.0)):
        assert 0.9 * wait <= BACKOFF(count) <= wait


@only("memory")
def test_stop_ends_the_loops_after_their_messages(store: Store) -> None:
    worker = _filled(store, 100)
    stop = threading.Event()
    done = worker.run(lambda message: stop.set(), concurrency=2, stop=stop)
    assert 1 <= done.succeeded <= 3
    assert worker.group.pending_count() <= 2  # a message that was read and not handed out is given back


@only("memory")
def test_handlers_of_signals_are_as_before_afterwards(store: Store) -> None:
    worker = _filled(store, 3)

    def noticed(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGUSR1, noticed)
    try:
        def handle(message: Message) -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert signal.getsignal(signal.SIGUSR1) is noticed  # a second one would end the program

        assert worker.run(handle, signals=[signal.SIGUSR1]) == Handled(1, 0)
        assert signal.getsignal(signal.SIGUSR1) is noticed
        worker.run(lambda message: None, stop_when_empty=True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGUSR1, before)


WORKER = """
import sys, time, rillet
async def handle_async(message):
    handle(message)
def handle(message):
    print(f"begin {message['n']}\\n", end="", flush=True)  # in one piece: other threads write, too
    sys.stdin.readline()
    print(f"end {message['n']}\\n", end="", flush=True)
def synchronous(store):
    print(store.stream("jobs").group("workers").consumer("one").run(handle, concurrency=CONCURRENCY), flush=True)
async def main(store):
    group = await store.aio().stream("jobs").group("workers")
    print(await group.consumer("one").run(handle_async, concurrency=CONCURRENCY), flush=True)
with rillet.open(sys.argv[1]) as store:
    MAIN
print("closed", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("main", ["synchronous(store)", "import asyncio; asyncio.run(main(store))"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_sigterm_lets_the_handlers_finish(
    tmp_path: Path, main: str, concurrency: int
) -> None:
    with rillet.open(tmp_path / "store") as store:
        store.stream("jobs").add_many({"n": n} for n in range(1, 2 + concurrency))
        store.stream("jobs").group("workers").create()
    program = WORKER.replace("MAIN", main).replace("CONCURRENCY", str(concurrency))
    with Forked(
        [program, tmp_path / "store"], function="tests.forked:run_text", stdin=subprocess.PIPE, stderr=None
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline().startswith("begin")
        worker.send_signal(signal.SIGTERM)
        worker.stdin.write("\n" * 5)
        worker.stdin.close()
        rest = worker.stdout.read().splitlines()
    assert worker.returncode == 0
    assert rest[-1] == "closed"
    assert sum(line.startswith("begin") for line in rest) + 1 == sum(line.startswith("end") for line in rest)
    number = next(n for n in range(1, 9) if f"Handled(succeeded={n}, failed=0)" in rest)
    with rillet.open(tmp_path / "store") as store:
        group = store.stream("jobs").group("workers")
        given_back = group.pending_count()  # read, and not handed out
        assert (group.lag or 0) + given_back == 1 + concurrency - number


def test_the_asyncio_form_awaits_handlers(store: Store) -> None:
    worker = _filled(store, 6)
    seen: list[str] = []

    async def main() -> None:
        group = store.aio().stream("jobs").group("workers")
        gate = asyncio.Barrier(3)

        async def handle(message: AsyncMessage) -> None:
            if message.id.ms <= 3:
                async with asyncio.timeout(20):
                    await gate.wait()  # only if three handlers work at the same time
            if message["n"] == "5":
                raise OSError("away")
            seen.append(message["n"])

        done = await (await group).consumer("one").run(handle, concurrency=3, max_deliveries=2, backoff=_at_once,
                                               stop=lambda: _settled(worker))  # fmt: skip
        assert done == Handled(5, 2)

    asyncio.run(main())
    assert sorted(seen) == list("12346")
    assert worker.group.pending_count() == 0
    assert [letter["_error"] for letter in store.stream("jobs.dead")] == ["OSError: away"]


@only("memory")
def test_a_cancelled_run_ends_all_loops(store: Store) -> None:
    _filled(store, 2)

    async def main() -> list[str]:
        ended: list[str] = []
        began = asyncio.Event()

        async def handle(message: AsyncMessage) -> None:
            try:
                began.set()
                await asyncio.sleep(3600)
            finally:
                ended.append(message["n"])

        group = await store.aio().stream("jobs").group("workers")
        task = asyncio.create_task(group.consumer("one").run(handle, concurrency=2))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1
        return ended

    assert asyncio.run(main())[0] == "1"


@only("memory")
def test_an_instrumented_store_has_a_span_for_each_message(store: Store) -> None:
    opentelemetry = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from rillet.opentelemetry import instrument

    exporter = memory.InMemorySpanExporter()
    provider = opentelemetry.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    worker = _filled(store, 2)
    instrument(store, tracer_provider=provider)

    def handle(message: Message) -> None:
        if message["n"] == "2":
            raise ValueError("no")

    worker.run(handle, max_deliveries=1, stop_when_empty=True)
    spans = [span for span in exporter.get_finished_spans() if span.name == "process jobs"]
    assert [span.attributes.get("error.type") for span in spans] == [None, "ValueError"]


# -- streams and groups: first, last, the reverse range, the position of a group --------------------------------------


def test_the_first_and_the_last_entry(store: Store) -> None:
    stream = store.stream("s")
    assert (stream.first(), stream.last()) == (None, None)
    stream.add_many((n, {"n": n}) for n in range(1, 4))
    first, last = stream.first(), stream.last()
    assert first is not None
    assert last is not None
    assert (first["n"], last["n"]) == ("1", "3")
    stream.delete(3)
    assert [entry["n"] for entry in (stream.last(),) if entry] == ["2"]


@pytest.mark.parametrize("where", [None, {"n": ["1", "2", "3"]}])
def test_a_reverse_range_has_the_bounds_of_the_range(store: Store, where: dict[str, list[str]] | None) -> None:
    stream = store.stream("s")
    stream.add_many((n, {"n": n}) for n in range(1, 6))
    for start, end in (("-", "+"), (2, 3), ("(1", "(4"), (3, 2)):
        forward = [entry.id.ms for entry in stream.range(start, end, where=where)]
        assert [entry.id.ms for entry in stream.range(start, end, reverse=True, where=where)] == forward[::-1]
    assert [entry.id.ms for entry in stream.range(count=2, reverse=True)] == [5, 4]


@pytest.mark.parametrize(("position", "expected"), [
    ("-", [1, 2, 3]), (2, [2, 3]), ("2-0", [2, 3]), (rillet.StreamID(2, 1), [3]), ("$", []), ("9-9", []),
])  # fmt: skip
def test_a_group_is_reset_to_an_entry(store: Store, position: Any, expected: list[int]) -> None:
    worker = _filled(store, 3)
    for message in worker.read():
        message.ack()
    worker.group.reset_to(position)
    assert [message.id.ms for message in worker.read()] == expected


def test_a_group_is_reset_to_a_time_and_a_missing_one_is_created_there(store: Store) -> None:
    worker = _filled(store, 3)
    worker.group.reset_to(rillet.StreamID(3, 0).datetime)
    assert [message.id.ms for message in worker.read()] == [3]
    worker.group.delete()
    with pytest.raises(rillet.NoGroup):
        worker.group.reset_to("-")
    with pytest.raises(rillet.InvalidID):
        worker.group.reset_to("+")
    with pytest.raises(rillet.NoGroup):
        store.stream("jobs").group("none", create=False).reset_to(1)


def test_execute_returns_bytes_or_text(store: Store) -> None:
    store.execute("RPUSH", "list", "a", b"\xff", 3)
    assert store.execute("LRANGE", "list", 0, -1) == [b"a", b"\xff", b"3"]
    assert store.execute("LRANGE", "list", 0, -1, text=True) == ["a", "\udcff", "3"]
    assert store.execute("XADD", "s", "5-*", "a", 1, text=True) == "5-0"
    assert store.execute("XRANGE", "s", "-", "+", text=True) == [["5-0", ["a", "1"]]]
    assert store.execute_many([("LLEN", "list"), ("LINDEX", "list", 0), ("GET", "none")], text=True) == [3, "a", None]
    with pytest.raises(TypeError, match="text must be"):
        store.execute("PING", text="yes")  # type: ignore[arg-type]


def test_calls(store: Store) -> None:
    """The type checker knows what a handler receives."""
    handler: Callable[[Message], None] = print
    assert store.stream("empty").group("g").consumer("c").run(handler, stop_when_empty=True) == (0, 0)
