"""An exception from outside neither repeats a command of a transaction nor tears it, wherever it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import NestedCall
from rillet.host.engine_lock import COMPILED_STEPS
from rillet.runtime.registry import TABLE, Command
from rillet.store.transports.in_process import InProcessTransport

# An exception may come in a generator that ends, which reports it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TRANSACTION = [["MULTI"], ["XADD", "one", "*", "f", "v"], ["INCR", "count"], ["RPUSH", "list", "v"],
               ["XADD", "two", "*", "f", "v"], ["EXEC"]]  # fmt: skip


class Interrupt(BaseException):
    """An exception that comes from outside."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    for argv in TRANSACTION:  # now: an exception in the middle of an import would leave Python's lock of imports held
        TABLE.find(argv[0].encode())
    with rillet.open(tmp_path / "store", appendfsync="no") as store:
        yield store


def transport_of(store: Store) -> InProcessTransport:
    assert isinstance(store.transport, InProcessTransport)
    return store.transport


class AtCall:
    """Raises in the n-th interpreted call of a function."""

    def __init__(self, place: int) -> None:
        self.left = place

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.left -= 1
            if self.left == 0:
                raise Interrupt


def execute(store: Store, commands: list[list[str]], profile: Any) -> None:
    """Run commands in a session beside a profiler, in this thread, which has the lock."""
    transport = transport_of(store)
    with transport.lock:
        session = transport.engine.session()
        sys.setprofile(profile)
        try:
            for argv in commands:
                transport.engine.execute(session, [word.encode() for word in argv])
        finally:
            sys.setprofile(None)
            transport.engine.close_session(session)
            log = transport.engine.log
            assert log is not None
            log.write()


def test_a_command_that_was_interrupted_before_it_counted_its_change_runs_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of the command is interpreted in both builds."""
    changes: list[int] = []

    def handler(session: Any, argv: list[bytes]) -> None:
        changes.append(1)
        if len(changes) == 2:
            raise Interrupt
        session.modified(argv[1])
        session.out.ok()

    change = Command("change", 2, "write", (1, 1, 1), "generic", "1.0.0", "O(1)", "", "Change data.", handler, None)
    change.index = TABLE[b"incr"].index  # of its counters
    monkeypatch.setitem(TABLE.by_name, b"change", change)
    commands = [["MULTI"], ["CHANGE", "k"], ["INCR", "count"], ["CHANGE", "k"], ["INCR", "count"], ["EXEC"]]
    with pytest.raises(Interrupt):
        execute(store, commands, None)
    assert len(changes) == 2
    assert store.execute("GET", "count") == b"2"  # the commands after it ran


def test_an_exception_at_every_call_while_this_thread_has_the_lock(store: Store) -> None:
    """It comes before the transaction or after it; in the interpreted build, inside it, and no command runs twice."""
    for place in range(1, 400):
        before = figures(store)
        profile = AtCall(place)
        try:
            execute(store, TRANSACTION, profile)
        except Interrupt:
            pass
        made = [int(now or 0) - int(then or 0) for now, then in zip(figures(store), before, strict=True)]
        assert all(one in (0, 1) for one in made), place
        if COMPILED_STEPS:
            assert made in ([0] * 4, [1] * 4), place
            if profile.left > 0:
                break


def figures(store: Store) -> list[Any]:
    return store.execute_many([["XLEN", "one"], ["GET", "count"], ["LLEN", "list"], ["XLEN", "two"]])


def test_an_exception_at_every_call_of_a_transaction(store: Store, tmp_path: Path) -> None:
    """A store runs it in the engine's thread or as steady commands: it is whole, or it has not begun."""
    place = 0
    while True:
        place += 1
        profile = AtCall(place)
        sys.setprofile(profile)
        try:
            store.execute_many(TRANSACTION)
        except Interrupt:
            pass
        finally:
            sys.setprofile(None)
        entries, count, length, others = figures(store)
        assert entries == int(count or 0) == length == others, place
        if profile.left > 0:
            break
    assert place > 5
    expected = figures(store)
    store.close()
    with rillet.open(tmp_path / "store") as again:
        assert figures(again) == expected


@pytest.mark.skipif(not COMPILED_STEPS, reason="interpreted, no command is steady")
def test_transactions_of_steady_commands_need_no_other_thread(store: Store) -> None:
    transport = transport_of(store)
    assert transport.is_steady(*([word.encode() for word in argv] for argv in TRANSACTION))
    assert not transport.is_steady([b"EXEC"])  # its queue may contain any command
    assert not transport.is_steady([b"MULTI"], [b"PUBLISH", b"c", b"m"], [b"EXEC"])
    with transport.lock:  # as in a signal handler
        store.execute_many(TRANSACTION)
    assert figures(store) == [1, b"1", 1, 1]


@pytest.mark.parametrize("inside", ["batch", "transaction", "redis"])
def test_other_transactions_are_refused_where_they_could_be_torn(inside: str) -> None:
    """A thread that has the lock would have to run the commands itself, and an exception could come between them."""
    with rillet.open() as store:
        commands = [["MULTI"], ["XGROUP", "CREATE", "made", "g", "0", "MKSTREAM"], ["INCR", "count"], ["EXEC"]]
        client = store.redis()
        client.ping()

        def execute_inside() -> None:
            if inside == "batch":
                store.execute_many(commands)
            elif inside == "transaction":
                with store.transaction() as transaction:
                    transaction.execute("XGROUP", "CREATE", "made", "g", "0", "MKSTREAM")
            else:
                with client.pipeline() as pipeline:
                    pipeline.xgroup_create("made", "g", 0, mkstream=True)
                    pipeline.execute()

        with transport_of(store).lock, pytest.raises(NestedCall):
            execute_inside()
        assert "made" not in store
        with transport_of(store).lock:  # transactions that only read cannot be torn
            assert store.execute_many([["MULTI"], ["EXISTS", "made"], ["EXEC"]])[-1] == [0]
        store.execute_many(commands)
        assert "made" in store
