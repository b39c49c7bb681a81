"""OpenTelemetry spans and metrics for adding, reading, claiming and acknowledging, with the messaging conventions.

    from rillet.opentelemetry import instrument, process

    instrument(store)                      the providers of opentelemetry.trace and .metrics, or those of the arguments
    for message in consumer.messages():
        with process(message):             a span around the application's work
            handle(message)
            message.ack()

A store that is not instrumented pays nothing: `instrument` replaces the three methods through which this one store runs
commands. Only opentelemetry-api is needed (`pip install "rillet[opentelemetry]"`); the application chooses an SDK.

    span                     kind      commands                              operation.type
    add <stream>             PRODUCER  XADD                                  send
    read <stream>            CLIENT    XREAD, XREADGROUP with messages       receive
    claim <stream>           CLIENT    XCLAIM, XAUTOCLAIM with messages      receive
    ack, nack <stream>       CLIENT    XACK, XACKDEL; XNACK                  settle
    process <stream>         CONSUMER  the block of `process`                process

Attributes: messaging.system, .destination.name, .operation.name, .operation.type, .message.id (of one message),
.batch.message_count, .consumer.group.name, .client.id (the consumer), server.address and server.port, error.type.
Metrics: messaging.client.operation.duration, .client.sent.messages, .client.consumed.messages, .process.duration.

A read or claim without messages makes no span, because a waiting consumer would make one every second; its duration is
recorded. Not instrumented: other commands, `store.transaction()` and `store.redis()`.

**Propagation.** With `propagate=True`, each added entry has the field `traceparent` (and `tracestate`) of W3C Trace
Context. A span of a read or claim, and of `process`, links to the spans that added its entries; if no span is active,
`process` continues the trace. Without it, no entry is changed. An entry with IDMPAUTO is never changed, because its
fields are its identity.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from rillet.extras import require
from rillet.real_time import monotonic

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    try:
        require("opentelemetry", "rillet.opentelemetry")
    except ModuleNotFoundError as missing:
        raise missing from error
    raise

import rillet
from rillet.errors import CommandError
from rillet.protocol.reply_parser import parse_all
from rillet.store.aio.store import AsyncStore
from rillet.store.arguments.encoding import decode
from rillet.store.arguments.entry_packing import EntryPacker
from rillet.store.entry import stream_parts
from rillet.store.retries import PATIENCE
from rillet.store.store import Store
from rillet.store.transports.connected import ServerTransport
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.transport import ids_among
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from rillet.store.aio.message import AsyncMessage
    from rillet.store.message import Message

SEND, RECEIVE, SETTLE, PROCESS = "send", "receive", "settle", "process"
REPLACED = ("run", "run_many", "id_of", "add_packed")
"""The methods of a store that an Instrumentation replaces."""
LINKS = 128
"""The most links of a span: OpenTelemetry's default limit."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds of the histograms' buckets, as the conventions advise."""
_TRACE_CONTEXT = TraceContextTextMapPropagator()
_FIELDS = (b"traceparent", b"tracestate")
# Options of XADD before the ID, and the number of their arguments.
_OPTIONS = {b"NOMKSTREAM": 0, b"KEEPREF": 0, b"DELREF": 0, b"ACKED": 0, b"LIMIT": 1, b"IDMP": 2, b"IDMPAUTO": 1}

Argv = list[bytes]


class Operation:
    """A command that sends, receives or settles messages: its names, and how its reply is read."""

    __slots__ = ("client", "count", "destination", "entries", "group", "ids", "name", "type")

    def __init__(self, name: str, type: str, destination: bytes | None, group: bytes | None = None,
                 client: bytes | None = None) -> None:  # fmt: skip
        self.name = name
        self.type = type
        self.destination = destination
        self.group = group
        self.client = client
        self.ids: Sequence[bytes] = ()
        self.count = 1
        self.entries: list[Sequence[Any]] = []

    def finish(self, replies: Sequence[Any]) -> None:
        """Set the number of messages, their IDs, and the fields of received ones, from the replies."""
        if self.type == SEND:
            self.ids = [reply for reply in replies if isinstance(reply, bytes)]
            self.count = len(self.ids)
        elif self.type == RECEIVE:
            rows = [row for reply in replies for row in _rows(self.name, reply)]
            self.entries = [row[1] for row in rows if isinstance(row, (list, tuple)) and row[1]]
            self.ids = [row if isinstance(row, bytes) else row[0] for row in rows]
            self.count = len(rows)
        else:
            self.count = len(self.ids)


def _rows(name: str, reply: Any) -> list[Any]:
    """Return the entries, or IDs, of a reply of XREAD, XREADGROUP, XCLAIM or XAUTOCLAIM."""
    if name == "read":
        return [row for _, part in stream_parts(reply) for row in part]
    if reply and isinstance(reply[0], bytes) and len(reply) > 1 and isinstance(reply[1], list):
        reply = reply[1]  # XAUTOCLAIM: the next position, then the entries
    return [row for row in reply or () if row is not None]


def operation_of(argv: Argv) -> Operation | None:
    """Return what a command does with messages; None for other commands and incomplete ones."""
    describe = _DESCRIBED.get(argv[0].upper())
    try:
        return None if describe is None else describe(argv)
    except (IndexError, ValueError):
        return None  # the server will refuse it


def _read(argv: Argv) -> Operation:
    words = [word.upper() for word in argv]
    keys = argv[words.index(b"STREAMS") + 1 :]
    destination = keys[0] if len(keys) == 2 else None
    if words[0] == b"XREAD":
        return Operation("read", RECEIVE, destination)
    return Operation("read", RECEIVE, destination, argv[2], argv[3])


def _settle(name: str, ids: Callable[[Argv], Argv]) -> Callable[[Argv], Operation]:
    def describe(argv: Argv) -> Operation:
        operation = Operation(name, SETTLE, argv[1], argv[2])
        operation.ids = ids(argv)
        return operation

    return describe


def _counted_ids(argv: Argv) -> Argv:
    """Return the IDs after `IDS count`."""
    at = argv.index(b"IDS")
    return argv[at + 2 : at + 2 + int(argv[at + 1])]


_DESCRIBED: dict[bytes, Callable[[Argv], Operation]] = {
    b"XADD": lambda argv: Operation("add", SEND, argv[1]),
    b"XREAD": _read,
    b"XREADGROUP": _read,
    b"XCLAIM": lambda argv: Operation("claim", RECEIVE, argv[1], argv[2], argv[3]),
    b"XAUTOCLAIM": lambda argv: Operation("claim", RECEIVE, argv[1], argv[2], argv[3]),
    b"XACK": _settle("ack", lambda argv: argv[3:]),
    b"XACKDEL": _settle("ack", _counted_ids),
    b"XNACK": _settle("nack", _counted_ids),
}


def _is_idmpauto(argv: Argv) -> bool:
    """Return whether an XADD computes its message ID from its fields."""
    at = 2
    while at < len(argv):
        word = argv[at].upper()
        if word == b"IDMPAUTO":
            return True
        if word in (b"MAXLEN", b"MINID"):
            at += 2 + (argv[at + 1 : at + 2] in ([b"~"], [b"="]))
        elif word in _OPTIONS:
            at += 1 + _OPTIONS[word]
        else:
            return False  # the ID: fields follow
    return False


class _Call:
    """A call under way: its start, and the span of a send, which must exist before its entries are sent."""

    __slots__ = ("began", "began_ns", "operation", "span")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.began = monotonic()
        self.began_ns = time.time_ns()
        self.span: Span | None = None


class Instrumentation:
    """The spans and metrics of one store; `remove` ends them."""

    def __init__(self, store: Store, tracers: TracerProvider | None, meters: MeterProvider | None, propagate: bool,
                 system: str | None) -> None:  # fmt: skip
        # The store refers to this object: a reference back would keep an abandoned store open until a collection.
        self._store = weakref.ref(store)
        self.propagate = propagate
        self.tracer = trace.get_tracer("rillet", rillet.__version__, tracers)
        meter = metrics.get_meter("rillet", rillet.__version__, meters)
        self.durations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Duration of an operation with messages.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )  # fmt: skip
        self.process_durations = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of the application's work on a message.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )  # fmt: skip
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Added entries.")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Received messages.")
        remote = isinstance(store.transport, ServerTransport) and store.path is None
        self.place: dict[str, Any] = {"messaging.system": system or ("redis" if remote else "rillet")}
        if remote:
            self.place |= _address(store)

    @property
    def store(self) -> Store:
        """The store."""
        store = self._store()
        assert store is not None
        return store

    def remove(self) -> None:
        """Run the store's commands without spans and metrics again; an AsyncStore from before keeps them."""
        store = self._store()
        if store is not None and store.observer is self:
            store.observer = None
            for name in REPLACED:
                del store.__dict__[name]

    # -- how commands run ----------------------------------------------------------------------------

    def run(self, argv: Argv, patience: float = PATIENCE) -> Any:
        """Run one command; see Store.run."""
        operation = operation_of(argv)
        if operation is None:
            return Store.run(self.store, argv, patience)
        call = self.begin(operation)
        try:
            reply = Store.run(self.store, self.with_context(call, argv), patience)
        except BaseException as error:
            self.fail(call, error)
            raise
        self.end(call, [reply])
        return reply

    def id_of(self, argv: Argv) -> Any:
        """Run an XADD; see Store.id_of."""
        store = self.store
        if type(store.transport) is not InProcessTransport:
            return Store.id_of(store, argv)  # calls `run`
        call = self.begin(Operation("add", SEND, argv[1]))
        try:
            made = Store.id_of(store, self.with_context(call, argv))
        except BaseException as error:
            self.fail(call, error)
            raise
        self.end(call, [] if made is None else [str(made).encode()])
        return made

    def run_many(self, commands: Sequence[Argv], patience: float = PATIENCE) -> list[Any]:
        """Run several commands; see Store.run_many."""
        calls, commands = self.begin_many(commands)
        try:
            replies = Store.run_many(self.store, commands, patience)
        except BaseException as error:
            for call, _ in calls:
                self.fail(call, error)
            raise
        self.end_many(calls, commands, replies)
        return replies

    def add_packed(self, key: bytes, packer: EntryPacker) -> list[StreamID | None]:
        """Run the XADDs of a packer; see Store.add_packed."""
        return ids_among(self.run_many(parse_all(packer.take_bytes())))

    # -- spans ---------------------------------------------------------------------------------------

    def begin(self, operation: Operation) -> _Call:
        """Note the start of an operation; start the span of a send."""
        call = _Call(operation)
        if operation.type == SEND:
            call.span = self._start(operation, SpanKind.PRODUCER, call.began_ns)
        return call

    def begin_many(self, commands: Sequence[Argv]) -> tuple[list[tuple[_Call, list[int]]], list[Argv]]:
        """Return a call for the XADDs of each stream and for each other operation, with the places of its commands."""
        sends: dict[bytes, tuple[_Call, list[int]]] = {}
        calls: list[tuple[_Call, list[int]]] = []
        sent = list(commands)
        for place, argv in enumerate(commands):
            operation = operation_of(argv)
            if operation is None:
                continue
            if operation.type == SEND and operation.destination is not None:
                if operation.destination not in sends:
                    sends[operation.destination] = (self.begin(operation), [])
                    calls.append(sends[operation.destination])
                call, places = sends[operation.destination]
                places.append(place)
                sent[place] = self.with_context(call, argv)
            else:
                calls.append((self.begin(operation), [place]))
        return calls, sent

    def with_context(self, call: _Call, argv: Argv) -> Argv:
        """Return an XADD with the fields of the call's span; other commands as they are."""
        if call.span is None or not self.propagate or _is_idmpauto(argv):
            return argv
        carrier: dict[str, str] = {}
        _TRACE_CONTEXT.inject(carrier, trace.set_span_in_context(call.span))
        return [*argv, *(word.encode() for pair in carrier.items() for word in pair)]

    def end_many(self, calls: list[tuple[_Call, list[int]]], commands: Sequence[Argv], replies: list[Any]) -> None:
        """End the calls of several commands."""
        if len(commands) > 1 and (commands[0], commands[-1]) == ([b"MULTI"], [b"EXEC"]):
            executed = replies[-1] or [None] * (len(commands) - 2)
            replies = [None, *executed, None]
        for call, places in calls:
            own = [replies[place] for place in places]
            error = next((reply for reply in own if isinstance(reply, CommandError)), None)
            if error is not None:
                self.fail(call, error)
            else:
                self.end(call, own)

    def end(self, call: _Call, replies: Sequence[Any]) -> None:
        """Record a call that succeeded: its metrics and its span."""
        operation = call.operation
        operation.finish(replies)
        labels = self._labels(operation)
        self.durations.record(monotonic() - call.began, labels)
        if operation.type == SEND:
            self.sent.add(operation.count, labels)
        elif operation.type == RECEIVE:
            if not operation.count:
                return
            self.consumed.add(operation.count, labels)
        span = call.span or self._start(operation, SpanKind.CLIENT, call.began_ns, _links(operation.entries))
        if span.is_recording():
            if operation.count != 1 or operation.type == RECEIVE:
                span.set_attribute("messaging.batch.message_count", operation.count)
            if operation.count == 1:
                span.set_attribute("messaging.message.id", decode(operation.ids[0]))
        span.end()

    def fail(self, call: _Call, error: BaseException) -> None:
        """Record a call that raised an exception."""
        labels = {**self._labels(call.operation), "error.type": error_type(error)}
        self.durations.record(monotonic() - call.began, labels)
        span = call.span or self._start(call.operation, SpanKind.CLIENT, call.began_ns)
        set_error(span, error)
        span.end()

    def _labels(self, operation: Operation) -> dict[str, Any]:
        """Return the attributes of metrics and spans."""
        labels = {**self.place, "messaging.operation.name": operation.name, "messaging.operation.type": operation.type}
        if operation.destination is not None:
            labels["messaging.destination.name"] = _text(operation.destination)
        if operation.group is not None:
            labels["messaging.consumer.group.name"] = _text(operation.group)
        return labels

    def _start(self, operation: Operation, kind: SpanKind, began_ns: int, links: Sequence[Link] = ()) -> Span:
        attributes = self._labels(operation)
        if operation.client is not None:
            attributes["messaging.client.id"] = _text(operation.client)
        name = operation.name
        if operation.destination is not None:
            name = f"{name} {_text(operation.destination)}"
        return self.tracer.start_span(name, kind=kind, attributes=attributes, links=links, start_time=began_ns)

    def process(self, message: Message[Any] | AsyncMessage[Any]) -> AbstractContextManager[Span]:
        """Return the context manager of a span around the work on a message; see `process`."""
        return process(message)

    # -- asyncio ---------------------------------------------------------------------------------------

    def instrument_async(self, store: AsyncStore) -> None:
        """Let an AsyncStore of the store make spans and metrics, too."""
        twin = _AsyncInstrumentation(self, store)
        for name in REPLACED:
            setattr(store, name, getattr(twin, name))


class _AsyncInstrumentation:
    """The three methods of an AsyncStore."""

    def __init__(self, instrumentation: Instrumentation, store: AsyncStore) -> None:
        self._own = instrumentation
        self._store = weakref.ref(store)

    @property
    def store(self) -> AsyncStore:
        """The AsyncStore."""
        return self._store() or AsyncStore(self._own.store)

    async def run(self, argv: Argv, patience: float = PATIENCE) -> Any:
        """Run one command; see AsyncStore.run."""
        operation = operation_of(argv)
        if operation is None:
            return await AsyncStore.run(self.store, argv, patience)
        call = self._own.begin(operation)
        try:
            reply = await AsyncStore.run(self.store, self._own.with_context(call, argv), patience)
        except BaseException as error:
            self._own.fail(call, error)
            raise
        self._own.end(call, [reply])
        return reply

    async def id_of(self, argv: Argv) -> Any:
        """Run an XADD; see AsyncStore.id_of, which calls `run`, or `id_of` of the Store."""
        return await AsyncStore.id_of(self.store, argv)

    async def run_many(self, commands: Sequence[Argv], patience: float = PATIENCE) -> list[Any]:
        """Run several commands; see AsyncStore.run_many."""
        calls, commands = self._own.begin_many(commands)
        try:
            replies = await AsyncStore.run_many(self.store, commands, patience)
        except BaseException as error:
            for call, _ in calls:
                self._own.fail(call, error)
            raise
        self._own.end_many(calls, commands, replies)
        return replies


    async def add_packed(self, key: bytes, packer: EntryPacker) -> list[StreamID | None]:
        """Run the XADDs of a packer; see AsyncStore.add_packed."""
        return ids_among(await self.run_many(parse_all(packer.take_bytes())))


def instrument(store: Store, *, tracer_provider: TracerProvider | None = None,
               meter_provider: MeterProvider | None = None, propagate: bool = False,
               system: str | None = None) -> Instrumentation:  # fmt: skip
    """Make spans and metrics for a store, its streams, groups and consumers, and for `store.aio()` from now on.

    tracer_provider, meter_provider: by default the global ones of OpenTelemetry. propagate: add the field `traceparent`
    to new entries. system: messaging.system; by default "rillet", or "redis" for a store of rillet.connect.
    A second call replaces the first one.
    """
    if isinstance(store, AsyncStore):
        raise TypeError("pass the Store: instrument(store.synchronous), then call store.synchronous.aio() again")
    if store.observer is not None:
        store.observer.remove()
    made = Instrumentation(store, tracer_provider, meter_provider, propagate, system)
    store.observer = made
    for name in REPLACED:
        setattr(store, name, getattr(made, name))
    return made


@contextmanager
def process(message: Message[Any] | AsyncMessage[Any]) -> Iterator[Span]:
    """Make a span around the application's work on a message, and record its duration; for `async` code, too.

    The span links to the span that added the entry, if it has a `traceparent`; without an active span, it continues
    that trace. ValueError if the message's store is not instrumented.
    """
    store = message.group.store
    own = (store.synchronous if isinstance(store, AsyncStore) else store).observer
    if own is None:
        raise ValueError(f"{store!r} is not instrumented: call rillet.opentelemetry.instrument(store) first")
    operation = Operation("process", PROCESS, message.group.stream.key, message.group.key)
    labels = own._labels(operation)
    remote = _context_of(message.flat)
    links = [] if remote is None else [Link(remote)]
    parent = None
    if remote is not None and not trace.get_current_span().get_span_context().is_valid:
        parent = trace.set_span_in_context(trace.NonRecordingSpan(remote), contexts.get_current())
    began = monotonic()
    attributes = {**labels, "messaging.message.id": decode(message.raw_id)}
    with own.tracer.start_as_current_span(
        f"process {_text(message.group.stream.key)}", parent, SpanKind.CONSUMER, attributes, links,
        record_exception=False, set_status_on_exception=False,
    ) as span:  # fmt: skip
        try:
            yield span
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                labels = {**labels, "error.type": error_type(error)}
                set_error(span, error)
            raise
        finally:
            own.process_durations.record(monotonic() - began, labels)


def _links(entries: Iterable[Sequence[Any]]) -> list[Link]:
    """Return a link to the span of each entry that has a traceparent; the same span once."""
    found: dict[tuple[int, int], Link] = {}
    for flat in entries:
        remote = _context_of(flat)
        if remote is not None and len(found) < LINKS:
            found.setdefault((remote.trace_id, remote.span_id), Link(remote))
    return list(found.values())


def _context_of(flat: Sequence[Any]) -> trace.SpanContext | None:
    """Return the span of the fields traceparent and tracestate; None without valid ones."""
    carrier = {
        decode(flat[at]): decode(flat[at + 1]) for at in range(0, len(flat) - 1, 2) if flat[at] in _FIELDS
    }  # fmt: skip
    if not carrier:
        return None
    found = trace.get_current_span(_TRACE_CONTEXT.extract(carrier, contexts.Context())).get_span_context()
    return found if found.is_valid else None


def error_type(error: BaseException) -> str:
    """Return the value of error.type: the word of an error reply, or the class of the exception."""
    return error.prefix if isinstance(error, CommandError) and error.prefix else type(error).__qualname__


def set_error(span: Span, error: BaseException) -> None:
    """Mark a span as failed."""
    span.set_attribute("error.type", error_type(error))
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _address(store: Store) -> dict[str, Any]:
    """Return the attributes of the server's address."""
    transport = store.transport
    assert isinstance(transport, ServerTransport)
    address = transport.options.address()
    if address.unix is not None:
        return {"server.address": address.unix}
    return {"server.address": address.host, "server.port": address.port}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


__all__ = ["Instrumentation", "instrument", "process"]
