"""`rillet.open(path, owner="process")`: a separate process owns the directory as long as a client uses it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.errors import LogCorrupt, NotAStore, StoreBusy, StoreError
from rillet.store.sharing import separate_backend
from rillet.store.sharing.owner_start import OwnerKilled
from tests.judge import running_redis
from tests.server.harness import running
from tests.server.test_lifecycle import LOG
from tests.store.owner_processes import announced_pid, await_end, end, owner_processes
from tests.store.process import Other
from tests.variants import by_speed

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
GRACE = 0.2
SPANS = by_speed(3, 3, 12)  # times that each process opens the store


@pytest.fixture(autouse=True)
def no_process_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    await_end(tmp_path)


def opened(path: Path, grace: float = GRACE) -> rillet.Store:
    return rillet.open(path, owner="process", owner_grace=grace)


def other(path: Path, grace: float = GRACE) -> Other:
    return Other(path, owner="process", owner_grace=grace)


def test_it_starts_with_the_first_client_and_ends_with_the_last(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        owner = announced_pid(path)
        assert owner_processes(tmp_path) == [owner]
        assert not store.owner
        assert f"attached to process {owner}" in repr(store)
        assert store.recovery is not None
        entry = store.stream("s").add({"a": 1})
        with opened(path) as second, other(path) as third:
            assert second.stream("s").last_id == entry
            assert third.ask("len(store.stream('s'))") == 1
            assert owner_processes(tmp_path) == [owner]
    await_end(tmp_path)
    assert sorted(os.listdir(path)) == ["appendonlydir", "lock", "rillet.json"]
    with rillet.open(path) as store:
        assert store.owner
        assert store.recovery is not None
        assert store.recovery.killed is None
        assert store.recovery.dropped == 0
        assert len(store.stream("s")) == 1


def test_it_keeps_nothing_of_its_client(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path):
        owner = announced_pid(path)
        assert os.getsid(owner) != os.getsid(0)  # ^C in the client's terminal does not reach it
        assert os.getpgid(owner) != os.getpgid(0)
        assert os.readlink(f"/proc/{owner}/cwd") == "/"
        files = {number: os.readlink(f"/proc/{owner}/fd/{number}") for number in os.listdir(f"/proc/{owner}/fd")}
        pipes = [target for target in files.values() if target.startswith("pipe:")]
        assert all(pipes.count(pipe) == 2 for pipe in pipes)  # it has both ends of each: the pipes of its event loop
        assert (files["0"], files["1"], files["2"]) == ("/dev/null", "/dev/null", str(path / "owner.log"))
        with pytest.raises(ChildProcessError):
            os.waitpid(owner, os.WNOHANG)  # the application has no child to wait for


def test_several_first_clients_race(tmp_path: Path) -> None:
    for attempt in range(by_speed(1, 1, 4)):
        path = tmp_path / str(attempt)
        with ThreadPoolExecutor(4) as pool:
            others = list(pool.map(lambda _, path=path: other(path), range(4)))
        try:
            assert len({one.opened for one in others}) == 1
            assert f"attached to process {announced_pid(path)}" in others[0].opened
            for one in others:
                assert one.ask("store.stream('s').add({'a': 1}) is not None") is True
            assert others[0].ask("len(store.stream('s'))") == 4
        finally:
            for one in others:
                one.end()


def test_the_client_that_started_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first = other(path)
    with opened(path) as store:
        owner = announced_pid(path)
        first.kill()
        for number in range(100):
            store.stream("s").add({"n": number})
        assert announced_pid(path) == owner


def test_an_idle_client_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path, grace=0) as store:
        owner = announced_pid(path)
        with opened(path):
            pass
        threading.Event().wait(0.5)  # several times as long as the owner needs to notice that a client left
        assert announced_pid(path) == owner
        assert store.execute("PING") == b"PONG"


def test_the_next_call_starts_another_one_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        acknowledged = [store.stream("s").add({"n": number}) for number in range(100)]
        for _ in range(by_speed(2, 2, 3)):
            end(announced_pid(path))
            acknowledged.append(store.stream("s").add({"n": "after"}))  # it was not sent to the one that was killed
            assert not store.owner
            assert store.recovery is not None
            assert store.recovery.killed is not None
        assert [entry.id for entry in store.stream("s")] == acknowledged
        assert owner_processes(tmp_path) == [announced_pid(path)]


def test_messages_and_reads_continue_after_kills(tmp_path: Path) -> None:
    path = tmp_path / "store"
    handled: set[str] = set()
    with opened(path) as store:
        store.stream("jobs").add_many({"n": n} for n in range(300))
        worker = store.stream("jobs").group("workers").consumer("one")
        for number, message in enumerate(worker.messages(count=10, block=0.1, stop_when_empty=True)):
            handled.add(message["n"])
            message.ack()
            if number in (50, 150):
                os.kill(announced_pid(path), signal.SIGKILL)
        assert handled == {str(n) for n in range(300)}
        end(announced_pid(path))
        assert len(store.stream("jobs").range()) == 300


def test_a_killer_and_several_processes(tmp_path: Path) -> None:
    """Each acknowledged entry is present once, however often the owner is killed."""
    path = tmp_path / "store"
    adding = (
        'exec(\'def add(n):\\n try:\\n  return str(store.stream("s").add({"n": n}))\\n except rillet.OutcomeUnknown:'
        "\\n  return None\\nadded = [add(n) for n in range(1500)]', globals()) or [one for one in added if one]"
    )
    others = [other(path) for _ in range(3)]
    try:
        for one in others:
            one.tell(adding)
        for _ in range(by_speed(2, 2, 4)):
            threading.Event().wait(0.3)
            for pid in owner_processes(tmp_path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        acknowledged = [entry for one in others for entry in eval(one.answer())]
        assert not [entry for entry in acknowledged if entry.startswith("!")]
        with opened(path) as store:
            present = [str(entry.id) for entry in store.stream("s")]
        assert len(present) == len(set(present))
        assert set(acknowledged) <= set(present)
        assert len(acknowledged) > 4000
    finally:
        for one in others:
            one.end()


def test_a_client_that_connects_while_it_ends(tmp_path: Path) -> None:
    """Without a grace period the owner ends again and again, while clients come and go."""
    path = tmp_path / "store"
    opening = (
        f"exec('import time\\nfor n in range({SPANS}):"
        '\\n with rillet.open(path, owner="process", owner_grace=0) as s:\\n  '
        "s.stream(\"s\").add({\"n\": n})\\n time.sleep(n % 5 * .03)', {'rillet': rillet, 'path': store.path})"
    )
    others = [Other(tmp_path / "driver") for _ in range(3)]
    try:
        for one in others:
            one.tell(opening.replace("store.path", repr(str(path))))
        assert [one.answer() for one in others] == ["None"] * 3
        await_end(tmp_path)
        with rillet.open(path) as store:
            assert len(store.stream("s")) == 3 * SPANS
            assert store.recovery is not None
            assert store.recovery.killed is None  # each one ended cleanly
    finally:
        for one in others:
            one.end()


def test_sigterm_ends_it_after_its_last_client(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path, grace=3600) as store:
        owner = announced_pid(path)
        os.kill(owner, signal.SIGTERM)
        threading.Event().wait(0.3)
        store.stream("s").add({"a": 1})
        assert announced_pid(path) == owner
    await_end(tmp_path)


def test_sigint_ends_it_and_a_client_starts_the_next(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        store.stream("s").add({"a": 1})
        end(announced_pid(path), signal.SIGINT)
        store.stream("s").add({"a": 2})
        assert len(store.stream("s")) == 2
        assert store.recovery is not None
        assert store.recovery.killed is None


def test_a_directory_that_another_owner_has(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Other(path) as owner, opened(path) as store:
        assert announced_pid(path) == owner.process.pid
        store.stream("s").add({"a": 1})
        assert owner_processes(tmp_path) == []
        assert owner.ask("store.close()") is None
        store.stream("s").add({"a": 2})
        assert owner_processes(tmp_path) == [announced_pid(path)]
        with rillet.open(path) as attached:  # owner="this" does not take the directory from it
            assert not attached.owner
            assert len(attached.stream("s")) == 2


def test_a_directory_that_a_server_uses(tmp_path: Path) -> None:
    path = tmp_path / "served"
    path.mkdir()
    with running(path, *LOG) as server, opened(path) as store:
        assert server.process.pid == announced_pid(path)
        store.execute("SET", "k", "v")
        assert store.execute("GET", "k") == b"v"
        assert owner_processes(tmp_path) == []


def _failure(path: Path, **options: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        rillet.open(path, **options)
    return caught.value


@pytest.mark.parametrize("kind", ["damaged log", "two logs", "file", "damaged marker", "setting"])
def test_it_fails_as_an_opening_in_this_process(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    options: dict[str, Any] = {}
    expected: type[Exception] = StoreError
    if kind == "file":
        path.write_text("text")
        expected = NotAStore
    else:
        with rillet.open(path, aof_checksums=False) as store:
            store.execute("SET", "a", "1" * 1000)
            store.execute("SET", "b", "2" * 1000)
    if kind == "damaged log":
        (log,) = (path / "appendonlydir").glob("*.incr.aof")
        log.write_bytes(log.read_bytes().replace(b"$3", b"$4", 1))
        expected = LogCorrupt
    elif kind == "two logs":
        (manifest,) = (path / "appendonlydir").glob("*.manifest")
        (path / "appendonlydir" / "other.aof.manifest").write_bytes(manifest.read_bytes())
    elif kind == "damaged marker":
        (path / "rillet.json").write_text("{")
        expected = NotAStore
    elif kind == "setting":
        options, expected = {"io_threads": 4}, ValueError
    here, there = _failure(path, **options), _failure(path, owner="process", **options)
    assert isinstance(here, expected)
    assert (type(here), str(here)) == (type(there), str(there))
    assert "\n" not in str(there)
    await_end(tmp_path)


def test_it_rejects_the_directory_of_a_redis_server(tmp_path: Path) -> None:
    with running_redis("--dir", str(tmp_path), "--appendonly", "yes"):
        with pytest.raises(StoreBusy, match=r"is in use by process \d+ \(redis-server\)"):
            opened(tmp_path)
        await_end(tmp_path)


def test_it_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    folder = tmp_path / "modules"
    (folder / "rillet").mkdir(parents=True)
    (folder / "rillet" / "__init__.py").write_text("raise RuntimeError('broken installation')")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    with pytest.raises(StoreError, match="ended while it opened it: RuntimeError: broken installation$"):
        opened(path)


def test_owners_that_are_killed_while_they_start_do_not_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner ends, the process that this one starts is killed, and another becomes the owner; three times."""
    path = tmp_path / "store"
    others: list[Other] = []

    def killed(*_arguments: Any) -> None:
        others.append(other(path))
        raise OwnerKilled("it was killed")

    with opened(path) as store:
        monkeypatch.setattr(separate_backend, "start_owner", killed)
        try:
            for n in range(3):
                end(announced_pid(path))
                store.stream("s").add({"n": n})
            assert [entry["n"] for entry in store.stream("s")] == [str(n) for n in range(3)]
            assert len(others) == 3
        finally:
            for one in others:
                one.end()


def test_the_settings_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    settings: Any = {"appendfsync": "always", "hash_max_listpack_entries": 7}
    with rillet.open(path, owner="process", owner_grace=GRACE, **settings) as store:
        assert store.execute("CONFIG", "GET", "appendfsync")[1] == b"always"
        assert store.execute("CONFIG", "GET", "hash-max-listpack-entries")[1] == b"7"
        with pytest.warns(RuntimeWarning, match="appendfsync is 'always', not 'no'"):
            rillet.open(path, owner="process", appendfsync="no").close()


def test_wrong_arguments(tmp_path: Path) -> None:
    for options in ({"owner": "thread"}, {"owner_grace": -1}, {"timeout": 0}, {"timeout": float("inf")}):
        with pytest.raises(ValueError, match=next(iter(options))):
            rillet.open(tmp_path / "store", **options)
    with pytest.raises(ValueError, match="needs the path of a directory"):
        rillet.open(owner="process")
    with pytest.raises(ValueError, match="readonly=True needs no owner"):
        rillet.open(tmp_path / "store", owner="process", readonly=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_a_client(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path, grace=0) as store:
        store.stream("s").add({"from": "parent"})
        owner = announced_pid(path)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                made = store.stream("s").add({"from": "child"})
                code = 0 if made is not None and announced_pid(path) == owner else 2
                store.close()
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        threading.Event().wait(0.3)
        store.stream("s").add({"from": "parent"})
        assert announced_pid(path) == owner
        assert [entry["from"] for entry in store.stream("s")] == ["parent", "child", "parent"]


def test_a_pickled_store_keeps_its_kind_of_owner(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        stream = pickle.dumps(store.stream("s"))
        owner = announced_pid(path)
    await_end(tmp_path)
    program = """if True:
        import pickle, sys
        stream = pickle.load(sys.stdin.buffer)
        stream.add({'a': 1})
        print(open(sys.argv[1]).read())"""
    environment = {**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", program, str(path / "owner.json")], input=stream, env=environment,
                          stdout=subprocess.PIPE, check=True, timeout=60)  # fmt: skip
    assert json.loads(done.stdout)["pid"] != owner
    with opened(path) as store:
        assert len(store.stream("s")) == 1


def test_asyncio(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def run() -> None:
        async with opened(path).aio() as store:
            stream = store.stream("s")
            await asyncio.gather(*[stream.add({"n": n}) for n in range(100)])
            waiting = asyncio.ensure_future(stream.read("$", block=30))
            while b"cmd=xread" not in await store.execute("CLIENT", "LIST"):
                await asyncio.sleep(0.01)
            await asyncio.to_thread(end, announced_pid(path))
            await stream.add({"n": "after"})
            waiting.cancel()
            assert await stream.length() == 101

    asyncio.run(run())


def test_a_subscription_continues_at_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store, store.subscribe("news") as subscription:
        store.publish("news", "first")
        assert subscription.get(timeout=60).data == "first"  # type: ignore[union-attr]
        end(announced_pid(path))
        assert subscription.get(timeout=0.01) is None  # it notices, and subscribes again
        while not store.publish("news", "second"):
            subscription.get(timeout=0.01)
        assert subscription.get(timeout=60).data == "second"  # type: ignore[union-attr]


def test_the_end_of_a_store_waits_for_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        observer = rillet.connect(str(store.url))
        with opened(path) as writer:
            writer.execute("SET", "k", "v" * 100_000)
        assert observer.execute("WAITAOF", 1, 0, 1) == [1, 0]  # within a millisecond: it is on the disk already
        observer.close()


def test_its_warnings_are_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        store.execute("SET", "k", "v")
        end(announced_pid(path))
        assert store.execute("GET", "k") == b"v"
    await_end(tmp_path)
    assert "ended without closing it" in (path / "owner.log").read_text()
    assert "protocol" not in json.loads((path / "rillet.json").read_text())
