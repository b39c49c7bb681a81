"""Several processes on one directory: one owns it, the others are attached, and any of them may be killed."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rillet
from rillet import Store
from rillet.errors import StoreBusy, StoreError
from rillet.store.sharing import directory_backend
from rillet.store.transports.connected import ServerTransport
from rillet.types.stream.id import StreamID
from tests.store.conftest import only
from tests.store.process import Other, repeat


def test_several_processes_add_at_once(tmp_path: Path) -> None:
    others = [Other(tmp_path / "store") for _ in range(3)]
    try:
        assert sum("owner" in other.opened for other in others) == 1
        for index, other in enumerate(others):
            other.tell(f"[store.stream('s').add({{'from': {index}, 'n': n}}) for n in range(300)] and 1")
        assert [other.answer() for other in others] == ["1"] * 3
        with rillet.open(tmp_path / "store") as store:
            assert not store.owner
            assert len(store.stream("s")) == 900
            for index in range(3):
                mine = [entry["n"] for entry in store.stream("s") if entry["from"] == str(index)]
                assert mine == [str(n) for n in range(300)]
    finally:
        for other in others:
            other.end()


def test_two_processes_race_to_open(tmp_path: Path) -> None:
    for attempt in range(3):
        path = tmp_path / str(attempt)
        with ThreadPoolExecutor(4) as pool:
            others = list(pool.map(lambda _, path=path: Other(path), range(4)))
        try:
            assert sorted("owner" in other.opened for other in others) == [False, False, False, True]
            for other in others:
                assert other.ask("store.stream('s').add({'a': 1}) is not None") is True
            assert others[0].ask("len(store.stream('s'))") == 4
        finally:
            for other in others:
                other.end()


def test_threads_race_to_open_in_one_process(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: rillet.open(tmp_path / "store"), range(4)))
    assert sum(store.owner for store in stores) == 1
    for store in stores:
        store.stream("s").add({"a": 1})
    assert len(stores[0].stream("s")) == 4
    for store in stores:
        store.close()


def test_the_owner_is_killed_at_work_and_an_attached_store_takes_its_place(tmp_path: Path) -> None:
    """No acknowledged entry is lost: neither the owner's own nor the attached store's."""
    owner = Other(tmp_path / "store")
    acknowledged: list[StreamID | None] = []
    with rillet.open(tmp_path / "store") as store:
        stream = store.stream("s")
        assert not store.owner
        owner.tell("[store.stream('owners').add({'n': n}) for n in range(10**6)]")
        acknowledged.append(stream.add({"n": 0}))
        timer = threading.Timer(0.5, owner.kill)
        timer.start()
        with pytest.raises(
            StoreError, match="ended before it replied .*; the command may or may not have been executed"
        ):
            repeat(lambda: acknowledged.append(stream.add({"n": len(acknowledged)})))
        timer.join()
        # Once; from now on this process is the owner.
        acknowledged.append(stream.add({"n": "after"}))
        assert store.owner
        ids = [entry.id for entry in stream]
        assert len(acknowledged) > 1
        assert set(ids) >= set(acknowledged)
        assert len(ids) - len(acknowledged) in (0, 1)  # the one of which nobody knew
        owners = [entry["n"] for entry in store.stream("owners")]
        assert owners == [str(n) for n in range(len(owners))]
    with rillet.open(tmp_path / "store") as store:
        assert {entry.id for entry in store.stream("s")} == set(ids)


def test_several_attached_stores_agree_on_the_new_owner(tmp_path: Path) -> None:
    owner = Other(tmp_path / "store")
    others = [Other(tmp_path / "store") for _ in range(3)]
    try:
        for other in others:
            other.ask("store.stream('s').add({'a': 1}) is not None")
        owner.kill()
        for other in others:
            other.tell("store.stream('s').add({'a': 2}) is not None")
        assert [other.answer() for other in others] == ["True"] * 3
        assert sum(other.ask("store.owner") for other in others) == 1
        assert [other.ask("len(store.stream('s'))") for other in others] == [6, 6, 6]
    finally:
        for other in others:
            other.end()


def test_the_owner_closes_in_good_order(tmp_path: Path) -> None:
    with Other(tmp_path / "store") as owner:
        assert owner.ask("len(store.stream('s').add_many([{'a': 1}] * 100))") == 100
        with rillet.open(tmp_path / "store") as store:
            assert len(store.stream("s")) == 100
            assert owner.ask("store.close()") is None
            assert store.stream("s").add({"a": 2}) is not None  # nothing was sent to the first owner
            assert len(store.stream("s")) == 101
            assert store.owner


def test_a_thread_without_a_connection_yet_does_not_notice_that_the_owner_went(tmp_path: Path) -> None:
    owner = Other(tmp_path / "store")
    with rillet.open(tmp_path / "store") as store:
        owner.kill()
        assert store.stream("s").add({"a": 1}) is not None
        assert store.owner


def test_an_attached_store_waits_while_the_owner_reads_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_backend, "ATTACH_SECONDS", 0.1)
    with Other(tmp_path / "store") as owner:
        os.kill(owner.process.pid, signal.SIGSTOP)
        (tmp_path / "store" / "owner.json").rename(tmp_path / "owner.json")  # as before it is announced
        try:
            who = f"(process {owner.process.pid}|another process)"
            with pytest.raises(StoreBusy, match=f"is open in {who}, which does not respond"):
                rillet.open(tmp_path / "store")
        finally:
            os.kill(owner.process.pid, signal.SIGCONT)
        (tmp_path / "owner.json").rename(tmp_path / "store" / "owner.json")
        with rillet.open(tmp_path / "store") as store:
            assert store.execute("PING") == b"PONG"


def test_large_pipelines_through_a_socket(tmp_path: Path) -> None:
    """Neither side waits for the other while both directions are full."""
    with rillet.open(tmp_path / "store"), rillet.open(tmp_path / "store") as attached:
        value = b"x" * 100_000
        assert attached.execute_many([["SET", "k", value]] * 30 + [["GET", "k"]] * 100)[-1] == value
        assert attached.stream("s").add({"large": b"y" * 3_000_000}) is not None
        assert len(attached.stream("s").range()[0].pairs[0][1]) == 3_000_000


def test_client_kill_from_the_owner_and_from_an_attached_store(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as store, rillet.open(tmp_path / "store") as attached:
        number = attached.execute("CLIENT", "ID")
        assert store.execute("CLIENT", "KILL", "ID", number) == 1
        with pytest.raises(StoreError):
            repeat(lambda: attached.execute("PING"))
        assert attached.execute("PING") == b"PONG"
        assert not attached.owner


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kind", ["owner", "attached", "memory"])
def test_a_forked_child_leaves_the_parents_files_alone(tmp_path: Path, kind: str) -> None:
    if kind == "memory":
        stores = [rillet.open()]
    else:
        stores = [rillet.open(tmp_path / "store") for _ in range(2)]
    store = stores[0 if kind == "owner" else -1]
    store.stream("s").add({"from": "parent"})
    ready, told = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            made = store.stream("s").add({"from": "child"})
            code = 0 if made is not None and store.owner == (kind == "memory") else 2
            os.write(ready[1], b"x")
            os.read(told[0], 1)
            if kind != "memory":  # the parent's store is closed by now: the directory is free
                try:
                    store.stream("s").add({"from": "child"})
                except StoreError:
                    store.stream("s").add({"from": "child"})
                code = code or (0 if store.owner else 3)
                store.close()
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    store.stream("s").add({"from": "parent"})
    expected = ["parent", "parent"] if kind == "memory" else ["parent", "child", "parent"]
    assert [entry["from"] for entry in store.stream("s")] == expected
    for one in stores:
        one.close()
    os.write(told[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*ready, *told):
        os.close(end)
    if kind != "memory":
        with rillet.open(tmp_path / "store") as again:
            assert [entry["from"] for entry in again.stream("s")] == ["parent", "child", "parent", "child"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@only("redis", "socket")
def test_a_forked_child_of_a_connected_store_has_its_own_connections(store: Store) -> None:
    transport = store.transport
    assert isinstance(transport, ServerTransport)
    store.execute("PING")  # now this thread has a connection
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transport._guard:
            held.set()
            release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    child = os.fork()
    words = [f"{child} {n}".encode() for n in range(300)]
    if child == 0:
        status = 1
        try:
            status = int([store.execute("ECHO", word) for word in words] != words)
        finally:
            os._exit(status)
    assert [store.execute("ECHO", word) for word in words] == words
    assert os.waitpid(child, 0)[1] == 0
    release.set()
    holder.join(60)
