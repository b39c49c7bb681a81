"""The owner of a directory is killed: the other processes continue, and no message is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rillet
from rillet import Store
from rillet.errors import OutcomeUnknown
from rillet.store.aio import AsyncStore
from rillet.store.transports.connected import AttachedTransport
from tests.forked import Forked
from tests.store.owner_processes import announced_pid, await_end, end
from tests.variants import covering

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

WORKER = """
import pathlib, sys, rillet
folder = pathlib.Path(sys.argv[1])
name = sys.argv[2]
with rillet.open(folder / "store", appendfsync="always") as store, (folder / name).open("w") as handled:
    consumer = store.stream("jobs").group("workers").consumer(name)
    print("ready", flush=True)
    for message in consumer.messages(block=.2, claim_idle=1, stop=(folder / "stop").exists):
        handled.write(message["n"] + "\\n")
        handled.flush()
        message.ack()
"""
MESSAGES = 400


def start(folder: Path, name: str) -> subprocess.Popen[str]:
    worker = Forked([WORKER, folder, name], function="tests.forked:run_text")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def handled(folder: Path, names: list[str]) -> set[int]:
    return {int(line) for name in names for line in (folder / name).read_text().split("\n")[:-1]}


def test_workers_continue_after_their_owner_was_killed(tmp_path: Path) -> None:
    names = ["one", "two", "three", "four"]
    with rillet.open(tmp_path / "store", appendfsync="always") as store:
        store.stream("jobs").add_many({"n": n} for n in range(MESSAGES))
    owner, *others = [start(tmp_path, name) for name in names]
    while len(handled(tmp_path, names)) < MESSAGES // 10:
        time.sleep(0.001)
    owner.kill()
    owner.wait()
    while len(handled(tmp_path, names)) < MESSAGES:
        assert [other.poll() for other in others] == [None] * 3, [other.stderr.read() for other in others]  # type: ignore
        time.sleep(0.01)
    (tmp_path / "stop").touch()
    for other in others:
        said = other.communicate(timeout=60)[1]  # the new owner reports the end of the old one
        assert not said or said.count("\n") == 1 and "ended without closing" in said
        assert other.returncode == 0
    assert handled(tmp_path, names) == set(range(MESSAGES))
    with rillet.open(tmp_path / "store") as store:
        assert store.stream("jobs").group("workers").pending_count() == 0
    owner.communicate()


def test_an_idle_client_sends_its_next_command_to_the_next_owner(tmp_path: Path) -> None:
    owner = start(tmp_path, "one")
    with rillet.open(tmp_path / "store") as store:
        assert isinstance(store.transport, AttachedTransport)
        assert store.execute("SET", "k", 1) == b"OK"
        os.kill(owner.pid, signal.SIGKILL)
        owner.communicate()
        assert store.execute("INCR", "k") == 2
        assert store.owner


def test_tasks_of_an_attached_process_continue_or_learn_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    owner = start(tmp_path, "one")
    outcomes: list[object] = []

    async def call(store: AsyncStore, number: int) -> None:
        try:
            outcomes.append(await store.execute(*(("INCR", "n"), ("BLPOP", "empty", 1), ("GET", "k"))[number % 3]))
        except OutcomeUnknown:
            outcomes.append(OutcomeUnknown)

    async def body(store: Store) -> None:
        aio = store.aio()
        await aio.execute("SET", "k", 1)
        waiting = [asyncio.create_task(call(aio, 1)) for _ in range(5)]
        await asyncio.sleep(0.05)
        os.kill(owner.pid, signal.SIGKILL)
        tasks = [asyncio.create_task(call(aio, number)) for number in range(60)]
        store.replace_transport(store.transport)  # another thread has noticed the end of the owner first
        await asyncio.gather(*waiting, *tasks)

    with rillet.open(tmp_path / "store", appendfsync="always") as store:
        asyncio.run(body(store))
        assert set(outcomes) - {OutcomeUnknown, None, b"1"} <= set(range(1, 61))
    owner.communicate()


@pytest.mark.parametrize(("owner", "watch"), covering(["process", "this"], [[], ["n"]]))
def test_transactions_continue_at_the_next_owner(tmp_path: Path, owner: str, watch: list[str]) -> None:
    first = start(tmp_path, "one") if owner == "this" else None
    with rillet.open(tmp_path / "store", owner=owner, owner_grace=0) as store:  # type: ignore[arg-type]
        with store.transaction(watch) as transaction:
            count = transaction.execute("INCR", "n")
        assert count.result == 1
        end(announced_pid(tmp_path / "store"))
        with store.transaction(watch) as transaction:
            count = transaction.execute("INCR", "n")
        assert count.result == 2
    await_end(tmp_path)
    if first is not None:
        first.communicate()


@pytest.mark.parametrize(("owner", "watch"), covering(["this", "process"], [[], ["n"]]))
def test_transactions_of_tasks_continue_at_the_next_owner(tmp_path: Path, owner: str, watch: list[str]) -> None:
    first = start(tmp_path, "one") if owner == "this" else None

    async def body() -> None:
        store = rillet.open(tmp_path / "store", owner=owner, owner_grace=0)  # type: ignore[arg-type]
        async with store.aio() as aio:
            async with aio.transaction(watch) as transaction:
                count = transaction.execute("INCR", "n")
            assert count.result == 1
            await asyncio.to_thread(end, announced_pid(tmp_path / "store"))
            async with aio.transaction(watch) as transaction:
                count = transaction.execute("INCR", "n")
            assert count.result == 2

    asyncio.run(body())
    await_end(tmp_path)
    if first is not None:
        first.communicate()
