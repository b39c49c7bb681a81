"""A call inside a call: signal handlers and interrupts swap no replies, and leave no lock and no session behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import rillet
from rillet import Store
from rillet.errors import NestedCall
from rillet.store.transports.in_process import InProcessTransport
from tests.store.conftest import IN_PROCESS, Frontend, only

fcntl = pytest.importorskip("fcntl")

pytestmark = [pytest.mark.both, pytest.mark.skipif(sys.platform == "win32", reason="sets an interval timer")]


@contextlib.contextmanager
def every(seconds: float, handler: Callable[[], None]) -> Iterator[None]:
    """Call the handler at intervals, as a signal handler of this thread; up to three calls are inside each other."""
    depth = 0

    def on_signal(*_: object) -> None:
        nonlocal depth
        if depth < 3:
            depth += 1
            try:
                handler()
            finally:
                depth -= 1

    gc.disable()  # an exception that the handler raises inside a callback of the collector would be lost
    signal.signal(signal.SIGALRM, on_signal)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def test_a_signal_handler_reads_and_no_reply_is_swapped(store: Store) -> None:
    store.execute("SET", "outer", "o")
    store.execute("SET", "inner", "i")
    seen: list[object] = []

    def handler() -> None:
        seen.append(store.execute("GET", "inner"))

    with every(0.0005, handler):
        while len(seen) < 100:
            assert store.execute("GET", "outer") == b"o"
    assert set(seen) == {b"i"}


def test_a_signal_handler_writes_or_is_refused_and_each_entry_is_there_once(store: Store) -> None:
    outer, inner = store.stream("outer"), store.stream("inner")
    added, refused, asked = [], 0, 0

    def handler() -> None:
        nonlocal refused, asked
        asked += 1
        try:
            added.append(inner.add({"n": asked}))
        except NestedCall:
            refused += 1

    mine: list[object] = []
    with every(0.0005, handler):
        while asked < 100 or not added:
            mine.append(outer.add({"n": len(mine)}))
    assert [entry.id for entry in outer] == mine
    assert [entry.id for entry in inner] == sorted(added)  # a handler may interrupt a handler
    assert len(added) + refused == asked
    if not (store.owner or rillet.compiled()):
        assert refused == 0


def test_a_signal_handler_runs_while_a_call_waits(store: Store) -> None:
    stream = store.stream("s")
    fired: list[object] = []

    def handler() -> None:
        if not fired:
            fired.append(stream.add({"n": 1}))

    with every(0.05, handler):
        entries = stream.read("$", block=20)
    assert [entry.id for entry in entries] == fired


class Interrupt(Exception):
    """What the handler of these tests raises."""


# An interrupt inside socket.create_connection leaves the socket to the garbage collector.
LEAVES_SOCKETS = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:Exception ignored in.*socket:pytest.PytestUnraisableExceptionWarning"
)


@LEAVES_SOCKETS
def test_interrupts_leave_no_lock_and_no_waiting_session(frontend: Frontend) -> None:
    store = frontend.store
    rounds = 0
    armed = [False]

    def handler() -> None:
        if armed[0]:
            armed[0] = False
            raise Interrupt

    with every(0.0007, handler):
        while rounds < 150:
            rounds += 1
            with contextlib.suppress(Interrupt):
                armed[0] = True
                store.execute("BLPOP", "empty", "0.002")
                armed[0] = False
    done = threading.Event()

    def other() -> None:
        store.execute("SET", "k", "v")
        done.set()

    threading.Thread(target=other, daemon=True).start()
    assert done.wait(30), "a lock is still held"
    store.execute("RPUSH", "empty", "x")
    assert store.execute("LLEN", "empty") == 1, "a session of an interrupted call still waits"


@LEAVES_SOCKETS
@only("memory", "owner", "attached", "redis")
def test_an_interrupted_batch_leaves_no_transaction(frontend: Frontend) -> None:
    store = frontend.store
    armed = [False]
    rounds = torn = 0

    def handler() -> None:
        if armed[0]:
            armed[0] = False
            raise Interrupt

    batch = [["MULTI"], ["INCR", "a"], *(["PING"] for _ in range(50)), ["INCR", "b"], ["EXEC"]]
    with every(0.0005, handler):
        while rounds < 120:
            rounds += 1
            with contextlib.suppress(Interrupt):
                armed[0] = True
                store.execute_many(batch)
                armed[0] = False
            first, second = store.execute("MGET", "a", "b")  # the interrupted batch may still be executed meanwhile
            torn += first != second
    assert torn == 0
    assert store.execute("PING") == b"PONG"


@IN_PROCESS
def test_a_signal_handler_runs_while_its_thread_waits_for_the_engine(store: Store) -> None:
    transport = store.transport
    assert isinstance(transport, InProcessTransport)
    held, release = threading.Event(), threading.Event()
    seen: list[object] = []

    def hold() -> None:
        with transport.lock:
            held.set()
            release.wait(30)

    def handler() -> None:
        release.set()
        seen.append(store.execute("ECHO", "inner"))
        seen.append(store.execute("ZADD", "z", 1, "m"))
        seen.append(store.execute("BLPOP", "empty", 0.05))

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    held.wait(30)
    signal.signal(signal.SIGALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert store.execute("ECHO", "outer") == b"outer"
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    holder.join(30)
    assert seen == [b"inner", 1, None]


def test_a_signal_handler_writes_while_its_thread_waits_for_the_disk(tmp_path: Path) -> None:
    added: list[object] = []
    with rillet.open(tmp_path / "store", appendfsync="always") as store:
        stream = store.stream("s")

        def handler() -> None:
            with contextlib.suppress(NestedCall):
                added.append(stream.add({"n": 1}))

        mine: list[object] = []
        with every(0.0005, handler):
            while len(added) < 30:
                mine.append(stream.add({"n": 0}))
        assert sorted(map(str, [*mine, *added])) == sorted(str(entry.id) for entry in stream)


@pytest.mark.skipif(not hasattr(fcntl, "F_NOTIFY"), reason="needs signals for changes in a folder")
def test_a_signal_handler_writes_after_its_thread_has_written_the_log(tmp_path: Path) -> None:
    """The system sends the signal during the write, so it is pending while the file is checked before the reply."""
    added: list[object] = []
    mine: list[object] = []
    with rillet.open(tmp_path / "store", appendfsync="no") as store:
        outer, inner = store.stream("outer"), store.stream("inner")

        armed = [False]

        def on_write(*_: object) -> None:
            if armed[0]:  # the handler's own write sends a signal, too
                armed[0] = False
                added.append(inner.add({"n": len(added)}))

        signal.signal(signal.SIGIO, on_write)
        folder = os.open(tmp_path / "store" / "appendonlydir", os.O_RDONLY)
        try:
            try:
                fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_MODIFY | fcntl.DN_MULTISHOT)
            except OSError:
                pytest.skip("this kernel sends no signals for changes in a folder")
            for number in range(20):
                time.sleep(0.001)  # a write after a pause is checked
                armed[0] = True
                mine.append(outer.add({"n": number}))
        finally:
            os.close(folder)
            signal.signal(signal.SIGIO, signal.SIG_IGN)
        assert [entry.id for entry in outer] == mine
        assert [entry.id for entry in inner] == added
        assert len(added) == 20


class _InThreading:
    """Raises in the n-th place of `threading` where Python looks for exceptions from outside."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename == threading.__file__:
            self.left -= 1
            if self.left == 0:
                raise Interrupt


@LEAVES_SOCKETS
def test_an_interrupt_in_the_first_call_of_a_thread_ends_no_call_of_another(frontend: Frontend) -> None:
    store = frontend.store
    popped: list[object] = []
    waiting = threading.Thread(target=lambda: popped.append(store.execute("BLPOP", "l", 30)), daemon=True)
    waiting.start()
    while int(store.info()["blocked_clients"]) != 1:
        pass

    def first_call(at: int) -> None:
        profile = _InThreading(at)  # CPython 3.11 may use it after it has removed itself
        sys.setprofile(profile)
        try:
            with contextlib.suppress(Interrupt):
                store.execute("ECHO", "x")
        finally:
            sys.setprofile(None)

    for at in range(1, 30):
        thread = threading.Thread(target=first_call, args=(at,))
        thread.start()
        thread.join(30)
        assert waiting.is_alive()
    assert store.execute("RPUSH", "l", "v") == 1
    waiting.join(30)
    assert popped == [[b"l", b"v"]]


@contextlib.contextmanager
def handler_that_blocks(store: Store) -> Iterator[list[object]]:
    """Let another thread hold the engine for a moment; meanwhile a signal handler makes a call that would block."""
    transport = store.transport
    assert isinstance(transport, InProcessTransport)
    replies: list[object] = []
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transport.lock:
            held.set()
            release.wait(10)
        store.execute("RPUSH", "l", "x")  # waits behind the call that was interrupted

    def handler(*_: object) -> None:
        threading.Timer(0.1, release.set).start()
        replies.append(store.execute("BLPOP", "l", 0))

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        yield replies
    finally:
        release.set()
        holder.join()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


@IN_PROCESS
@pytest.mark.parametrize("call", ["transaction", "first call of a thread", "set"])
def test_a_handler_that_blocks_does_not_keep_other_threads_waiting(store: Store, call: str) -> None:
    with handler_that_blocks(store) as replies:
        if call == "transaction":
            with store.transaction() as transaction:
                transaction.execute("SET", "k", 1)
        elif call == "set":
            store.execute("SET", "k", 1)
        else:
            store.transport._thread.own_state().session = None  # type: ignore[attr-defined]
            store.execute("SET", "k", 1)
    assert replies in ([None], [[b"l", b"x"]])


@IN_PROCESS
def test_an_interrupted_transaction_does_not_lose_its_watch(store: Store) -> None:
    transport = store.transport
    assert isinstance(transport, InProcessTransport)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transport.lock:
            held.set()
            release.wait(10)

    def handler(*_: object) -> None:
        threading.Timer(0.1, release.set).start()
        raise ZeroDivisionError

    holder = threading.Thread(target=transport._shield.run, args=(hold,))
    signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(ZeroDivisionError), store.transaction(watch=["k"]) as transaction:  # noqa: PT012
            transaction.execute("SET", "n", 1)
            store.execute("SET", "k", "changed")  # so the transaction must not be executed
            holder.start()
            held.wait()
            signal.setitimer(signal.ITIMER_REAL, 0.2)  # while the end of the block waits for the engine
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        release.set()
        holder.join()
    transport._shield.run(lambda: None)  # after the interrupted batch
    assert store.execute("GET", "n") is None


@only("memory", "owner", "attached", "redis")
def test_a_call_inside_the_first_call_of_a_thread(store: Store) -> None:
    store.execute("SET", "outer", "o")
    store.execute("SET", "inner", "i")
    problems: list[BaseException] = []
    left = 0

    def look(_frame: FrameType, event: str, _argument: object) -> None:
        """Make a call at one of the places where Python runs signal handlers."""
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                with contextlib.suppress(NestedCall):
                    assert store.execute("GET", "inner") == b"i"

    def first() -> None:
        sys.setprofile(look)
        try:
            assert store.execute("GET", "outer") == b"o"
            assert store.execute("GET", "inner") == b"i"
        except BaseException as error:
            problems.append(error)
        finally:
            sys.setprofile(None)

    place = 0
    while left == 0 and not problems:
        place += 1
        left = place
        thread = threading.Thread(target=first)
        thread.start()
        thread.join()
    assert not problems
    assert place > 3
