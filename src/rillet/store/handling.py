"""`consumer.run(handler)`: loops over messages() that call a handler, acknowledge, and end at a signal.

    consumer.run(handle, concurrency=8)
      worker-1      messages() -> handle(message) -> ack
      worker-1:2    messages() -> handle(message) -> ack        each loop is a consumer of the group
      ...                          |
      worker-1:8                   raises: logged; tried again after the back-off; at last a dead letter with the error

There is no second loop: each of these is `messages()` with its options, so retries, heartbeat, order and the end are
those of that method. Every loop has a consumer of its own, because the messages of a consumer belong to one loop: two
loops with one name would receive each other's messages after a restart. The first loop has the name of the consumer
itself, so a program that is started again with another concurrency finds the messages that were pending.
Rejected: one loop whose messages a pool of threads handles. Its heartbeat and its back-off concern the message that was
handed out last, and a slow message would hold back the end of the others.

**Signals.** SIGTERM and SIGINT end the loops after their current messages. The first signal restores the earlier
handlers, so a second one ends the process, or raises KeyboardInterrupt, as without `run`. A handler of signals may run
between any two instructions, so it sets an attribute and acquires no lock.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.errors import InvalidEntry, StoreClosed
from rillet.loggers import logger
from rillet.store.arguments.argument_checks import whole_number
from rillet.store.arguments.encoding import decode, encode, encode_name
from rillet.store.command_steps import Commands, drive
from rillet.store.consuming.delays import Exponential
from rillet.store.consuming.delivery import dead_letter, given_up
from rillet.store.consuming.delivery_options import STOP_CHECK, Stop

if TYPE_CHECKING:
    from rillet.store.aio.group import AsyncMessageReader
    from rillet.store.aio.message import AsyncMessage
    from rillet.store.group import MessageReader
    from rillet.store.message import Delivered, Message

LOGGER = logger("store")
BACKOFF = Exponential(first=1.0, most=600.0)
_LONGEST_ERROR = 1000  # characters of an error in a dead letter


class Handled(NamedTuple):
    """What `run` did: the number of messages that were acknowledged, and how often a handler failed."""

    succeeded: int
    failed: int


@dataclass(slots=True)
class Handling:
    """A call of `run`: the handler, how many loops call it, the options of messages(), and how it ends."""

    handler: Callable[[Any], object]
    concurrency: int
    signals: Sequence[int] | None
    stop: Stop | None
    options: dict[str, Any]
    stopped: bool = False
    succeeded: int = 0
    failed: int = 0
    failure: BaseException | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for values that are not accepted."""
        if not callable(self.handler):
            raise TypeError(f"handler must be a function of a message, not {self.handler!r:.200}")
        whole_number(self.concurrency, "concurrency", 1)
        if self.stop is not None and not callable(getattr(self.stop, "is_set", self.stop)):
            raise TypeError(f"stop must be a function, or an event with is_set(), not {self.stop!r:.200}")
        for number in self.signals or ():
            if not isinstance(number, int) or number not in signal.valid_signals():
                raise ValueError(f"signals must be numbers such as signal.SIGTERM, not {number!r:.200}")
        if self.options["backoff"] == "exponential":
            self.options["backoff"] = BACKOFF

    def requested(self) -> bool:
        """Return whether the loops end after their current messages; this is the `stop` of messages()."""
        if not self.stopped and self.stop is not None:
            asked: Any = getattr(self.stop, "is_set", self.stop)
            self.stopped = bool(asked())
        return self.stopped

    def end(self, failure: BaseException) -> None:
        """End all loops because one of them failed; `run` raises the first failure."""
        if self.failure is None:
            self.failure = failure
        self.stopped = True

    def result(self) -> Handled:
        """Return the numbers; raise the failure of a loop."""
        if self.failure is not None:
            raise self.failure
        return Handled(self.succeeded, self.failed)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """End the loops at a signal during the block; in another thread than the main one, signals are left alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        chosen = (signal.SIGTERM, signal.SIGINT) if self.signals is None else tuple(self.signals)
        before: dict[int, Any] = {}

        def restore() -> None:
            while before:
                number, handler = before.popitem()
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

        def noticed(_number: int, _frame: object) -> None:
            self.stopped = True
            restore()

        try:
            for number in chosen:
                before[number] = signal.signal(number, noticed)
            yield
        finally:
            restore()

    # -- the parts of a loop -----------------------------------------------------------------------------

    def messages_of(self, reader: Any) -> Any:
        """Return the messages of a reader."""
        return reader.messages(stop=self.requested, **self.options)

    def readers(self, reader: Any) -> list[Any]:
        """Return a reader for each loop: the given one, and others of the same groups."""
        groups = [one.group for one in reader.consumers] if hasattr(reader, "consumers") else reader.group
        others = range(2, self.concurrency + 1)
        return [reader, *(type(reader)(groups, b"%b:%d" % (reader.key, number)) for number in others)]

    def span(self, message: Message[Any] | AsyncMessage[Any]) -> AbstractContextManager[object]:
        """Return the span of OpenTelemetry around the work on a message, if the store is instrumented."""
        store: Any = message.group.store
        observer = getattr(store, "synchronous", store).observer
        return nullcontext() if observer is None else observer.process(message)

    def worked(self) -> None:
        """Count a message that was acknowledged, or settled by its handler."""
        with self._lock:
            self.succeeded += 1

    def broke(self, message: Delivered[Any], error: Exception) -> None:
        """Count and log a message whose handler, or whose acknowledgement, failed."""
        with self._lock:
            self.failed += 1
        LOGGER.logger.warning(
            "message %s of %r was not handled (delivery %d): %s", decode(message.raw_id),
            message.group.stream.name, message.deliveries, _text(error), exc_info=error,
        )  # fmt: skip

    def invalid(self, error: InvalidEntry) -> None:
        """Count and log an entry that is not of the stream's type."""
        with self._lock:
            self.failed += 1
        LOGGER.warning("%s: it stays pending", error)

    def last_failure(self, message: Delivered[Any], error: Exception) -> Commands[None]:
        """Give a message up that failed for the last time, with the error in its dead letter.

        messages() itself gives up messages whose worker was killed, and knows no error of these.
        """
        most, target = self.options["max_deliveries"], self.options["dead_letters"]
        if most is None or target is None or message.settled or message.deliveries < most:
            return
        letter = [*dead_letter(encode_name(target), message), b"_error", encode(_text(error)[:_LONGEST_ERROR])]
        yield from given_up(message, letter)
        message.settled = True


def _text(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode()


# -- threads -------------------------------------------------------------------------------------------


class _NotAwaited(TypeError):
    """A handler that must be awaited, in the synchronous API: its message would be acknowledged without work."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}, which the synchronous run() cannot await: use store.aio()")


def run_in_threads(reader: MessageReader[Any], handling: Handling) -> Handled:
    """Run the loops, one of them in this thread if it is the only one."""
    if iscoroutinefunction(handling.handler):
        raise _NotAwaited("handler is a coroutine function")
    with handling.watched():
        if handling.concurrency == 1:
            _loop(reader, handling)
            return handling.result()
        threads = [threading.Thread(target=_loop, args=(one, handling), name=f"rillet {one.name}", daemon=True)
                   for one in handling.readers(reader)]  # fmt: skip
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                # A signal just before a wait does not wake it: its handler runs when the wait ends.
                while thread.is_alive():
                    thread.join(STOP_CHECK)
        finally:
            handling.stopped = True  # an interrupt: the threads end after their messages
    return handling.result()


def _loop(reader: MessageReader[Any], handling: Handling) -> None:
    """Handle the messages of one consumer."""
    try:
        messages = handling.messages_of(reader)
        try:
            while True:
                try:
                    message = next(messages)
                except StopIteration:
                    return
                except InvalidEntry as error:
                    handling.invalid(error)
                else:
                    _handle(message, handling)
        finally:
            messages.close()
    except BaseException as error:
        handling.end(error)


def _handle(message: Message[Any], handling: Handling) -> None:
    """Call the handler, and acknowledge the message unless the handler acknowledged it or gave it back."""
    try:
        with handling.span(message):
            result = handling.handler(message)
        if isawaitable(result):
            getattr(result, "close", lambda: None)()
            raise _NotAwaited("the handler returned a coroutine")
        if not message.settled:
            message.ack()
        handling.worked()
    except (StoreClosed, _NotAwaited):
        raise
    except Exception as error:
        handling.broke(message, error)
        drive(message.group.store, handling.last_failure(message, error))


# -- tasks ---------------------------------------------------------------------------------------------


async def run_in_tasks(reader: AsyncMessageReader[Any], handling: Handling) -> Handled:
    """Run the loops, each in a task."""
    import asyncio

    with handling.watched():
        tasks = [asyncio.create_task(_loop_async(one, handling), name=f"rillet {one.name}")
                 for one in handling.readers(reader)]  # fmt: skip
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            handling.stopped = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
    return handling.result()


async def _loop_async(reader: AsyncMessageReader[Any], handling: Handling) -> None:
    """Handle the messages of one consumer."""
    try:
        messages = handling.messages_of(reader)
        try:
            while True:
                try:
                    message = await anext(messages)
                except StopAsyncIteration:
                    return
                except InvalidEntry as error:
                    handling.invalid(error)
                else:
                    await _handle_async(message, handling)
        finally:
            await messages.aclose()
    except Exception as error:
        handling.end(error)


async def _handle_async(message: AsyncMessage[Any], handling: Handling) -> None:
    """Call the handler, and acknowledge the message unless the handler acknowledged it or gave it back."""
    from rillet.store.aio.command_steps import drive as drive_async

    try:
        with handling.span(message):
            result = handling.handler(message)
            if isawaitable(result):
                await result
        if not message.settled:
            await message.ack()
        handling.worked()
    except StoreClosed:
        raise
    except Exception as error:
        handling.broke(message, error)
        await drive_async(message.group.store, handling.last_failure(message, error))
