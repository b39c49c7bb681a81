"""A message belongs to one worker: random workers, and a ledger of their own that finds every second handling.

    python -m tests.model.ownership --rounds 2000 --kinds memory,owner,attached,redis,cluster,processes,server

A round has a stream with messages, and workers that handle them with messages(): threads, tasks of asyncio, or other
processes; single messages or batches. Handlers take random times. Some fail, some pause for longer than claim_idle.
Some workers vanish in a handler (a thread keeps its iterator and never continues it; a process gets SIGKILL).

The ledger is a file. A worker appends a line before it handles a message and another one after it has acknowledged it,
with the system's monotonic time. At the end of a round:

1. No message was handled twice, unless the handling before failed, took longer than claim_idle, or never ended.
2. A message was handled at most max_deliveries times, and its last number of deliveries is the number of handlings.
   The handler of a worker that vanished or was killed may lack one count, or have acknowledged without its line.
3. The dead letters are messages that were handled max_deliveries times without success.
4. Every message was acknowledged, and nothing is pending.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rillet
from rillet import Store
from tests.cluster import running_cluster
from tests.forked import BOTH, ROOT, Forked
from tests.judge import running_redis

KINDS = ("memory", "owner", "attached", "redis", "cluster", "processes", "server")
OF_PROCESSES = ("processes", "server")
CLAIM_IDLE = 0.5
PROMPT = 0.5  # a handler that took less than this part of claim_idle, measured here, was prompt
LIMIT = 3  # max_deliveries
_abandoned: list[Any] = []  # iterators of workers that vanished


@dataclass
class Work:
    """What one worker does in a round: made from a seed, and sent to another process as JSON."""

    stream: str
    name: str
    seed: int
    ledger: str
    messages: int
    batch: int | None = None
    prefetch: int | None = None
    tasks: bool = False  # asyncio
    vanishes: bool = False  # a thread that never continues its iterator
    slow: float = 0.0  # the longest prompt handler, in seconds
    fails: float = 0.0  # the share of handlers that fail
    pauses: float = 0.0  # the share of handlers that take longer than claim_idle

    def options(self) -> dict[str, Any]:
        return {
            "claim_idle": CLAIM_IDLE, "max_deliveries": LIMIT, "dead_letters": f"{self.stream}:dead",
            "block": 0.1, "batch": self.batch, "prefetch": self.prefetch,
        }  # fmt: skip


class Ledger:
    """Appends lines to a file: each is one system call, and stays when the process is killed."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, message: Any, worker: str) -> None:
        line = f"{event} {message.id} {message.deliveries} {worker} {time.clock_gettime(time.CLOCK_MONOTONIC):.6f}\n"
        os.write(self._file, line.encode())

    def close(self) -> None:
        os.close(self._file)


class Worker:
    """Runs one Work: the handler, and the end of the loop when every message of the round is settled."""

    def __init__(self, store: Store, work: Work) -> None:
        self.store = store
        self.work = work
        self.random = random.Random(work.seed)
        self.ledger = Ledger(work.ledger)
        self.handled = 0
        self.until = time.clock_gettime(time.CLOCK_MONOTONIC) + 60

    def settled(self) -> bool:
        """Return whether the loop may end: everything was handled and acknowledged, or it took too long."""
        if time.clock_gettime(time.CLOCK_MONOTONIC) > self.until:
            return True
        group = self.store.stream(self.work.stream).group("g", create=False)
        info = group.info()
        return info.pending == 0 and info.lag == 0

    def plan(self, some: list[Any]) -> tuple[float, bool]:
        """Write the begin of a handling; return how long it takes, and whether it succeeds."""
        for message in some:
            self.ledger.write("begin", message, self.work.name)
        pause = self.random.random() < self.work.pauses
        seconds = CLAIM_IDLE * 1.4 if pause else self.random.random() ** 3 * self.work.slow
        return seconds, self.random.random() >= self.work.fails

    def finish(self, some: list[Any], success: bool) -> None:
        self.handled += len(some)
        for message in some:
            self.ledger.write("end" if success else "fail", message, self.work.name)

    def run(self) -> None:
        consumer = self.store.stream(self.work.stream).group("g", create=False).consumer(self.work.name)
        iterator = iter(consumer.messages(stop=self.settled, **self.work.options()))
        vanishes_at = self.random.randrange(5) if self.work.vanishes else -1
        for found in iterator:
            some = found if self.work.batch else [found]
            seconds, success = self.plan(some)
            time.sleep(seconds)
            if vanishes_at == 0:
                _abandoned.append(iterator)
                return
            vanishes_at -= 1
            if success:
                consumer.ack(*some)
            self.finish(some, success)

    async def run_task(self) -> None:
        group = await self.store.aio().stream(self.work.stream).group("g", create=False)
        consumer = group.consumer(self.work.name)
        stop = threading.Event()

        async def watch() -> None:
            while not await asyncio.to_thread(self.settled):
                await asyncio.sleep(0.05)
            stop.set()

        watching = asyncio.ensure_future(watch())
        iterator: Any = consumer.messages(stop=stop, **self.work.options())
        async with contextlib.aclosing(iterator):
            async for found in iterator:
                some = found if self.work.batch else [found]
                seconds, success = self.plan(some)
                await asyncio.sleep(seconds)
                if success:
                    await consumer.ack(*some)
                self.finish(some, success)
        await watching

    def __call__(self) -> None:
        try:
            if self.work.tasks:
                asyncio.run(self.run_task())
            else:
                self.run()
        finally:
            self.ledger.close()


def opened(where: str) -> Store:
    return rillet.connect(where) if "://" in where else rillet.open(where)


class Process:
    """A worker in another process, which does one Work after the other."""

    def __init__(self, where: str) -> None:
        self.process = Forked([where], function="tests.model.ownership:work_of_process", stdin=subprocess.PIPE,
                              stderr=None, environment={"PYTHONPATH": BOTH}, cwd=ROOT)  # fmt: skip
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def begin(self, work: Work) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(work)) + "\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def work_of_process() -> None:
    """Do one work for each line of the input; the argument is the store's place."""
    with opened(sys.argv[1]) as store:
        print("ready", flush=True)
        for line in sys.stdin:
            Worker(store, Work(**json.loads(line)))()
            print("done", flush=True)


@dataclass
class Handling:
    """One handling of a message, as the ledger has it."""

    worker: str
    began: float
    deliveries: int
    ended: float | None = None
    success: bool = False


@dataclass
class Verdict:
    """What the ledger and the store say after a round."""

    handled: int = 0
    twice: int = 0  # with a reason
    dead: int = 0
    problems: list[str] = field(default_factory=list)


def judge(work: Work, store: Store, ids: list[str], killed: bool) -> Verdict:
    """Compare the ledger of a round with the store."""
    found: dict[str, list[Handling]] = {one: [] for one in ids}
    for line in Path(work.ledger).read_text().splitlines():
        event, message, deliveries, worker, at = line.split()
        if event == "begin":
            found[message].append(Handling(worker, float(at), int(deliveries)))
        else:
            handling = next(one for one in reversed(found[message]) if one.worker == worker)
            handling.ended, handling.success = float(at), event == "end"
    verdict = Verdict()
    letters = {letter["_id"]: letter for letter in store.stream(f"{work.stream}:dead")}
    verdict.dead = len(letters)
    for message, handlings in found.items():
        verdict.handled += len(handlings)
        verdict.twice += len(handlings) > 1
        for before, after in zip(handlings, handlings[1:], strict=False):
            lasted = (before.ended or after.began) - before.began
            if before.success and lasted < PROMPT * CLAIM_IDLE:
                workers = f"by {before.worker}, and by {after.worker}"
                verdict.problems.append(f"{message}: handled in {lasted:.3f} s {workers}")
        unfinished = sum(one.ended is None for one in handlings)
        if len(handlings) > LIMIT + unfinished:
            verdict.problems.append(f"{message}: handled {len(handlings)} times")
        if handlings and not killed and not 0 <= len(handlings) - handlings[-1].deliveries <= unfinished:
            counts = [one.deliveries for one in handlings]
            verdict.problems.append(f"{message}: the deliveries of its {len(handlings)} handlings were {counts}")
        prompt = [one for one in handlings if one.success and one.ended and one.ended - one.began < PROMPT * CLAIM_IDLE]
        if message in letters and (prompt or (len(handlings) < LIMIT and not killed)):
            verdict.problems.append(f"{message}: a dead letter after {len(handlings)} handlings, {len(prompt)} prompt")
        if message not in letters and not any(one.success for one in handlings) and not (killed and unfinished):
            verdict.problems.append(f"{message}: never handled, and no dead letter")
    pending = store.stream(work.stream).group("g", create=False).pending()
    if pending:
        verdict.problems.append(f"pending at the end: {pending}")
    return verdict


class World:
    """A store of some kind, and what starts workers on it."""

    def __init__(self, kind: str, store: Store, where: str) -> None:
        self.kind = kind
        self.store = store
        self.where = where
        self.processes: list[Process] = []

    def round(self, seed: int, folder: Path) -> Verdict:
        """Run one round."""
        source = random.Random(seed)
        stream = f"{{r{seed}}}"
        ledger = str(folder / f"{seed}.ledger")
        numbers = source.randrange(8, 40)
        of_processes = self.kind in OF_PROCESSES
        slow = source.choice([0.0, 0.002, 0.02, 0.1 * CLAIM_IDLE])
        works = [
            Work(
                stream, f"w{number}", source.getrandbits(40), ledger, numbers,
                batch=source.choice([None, None, None, 3]), prefetch=source.choice([None, None, 1, 5, 50]),
                tasks=self.kind != "cluster" and source.random() < 0.3, slow=slow, fails=source.choice([0, 0, 0.1]),
                pauses=source.choice([0, 0, 0, 0.03]),
            )
            for number in range(source.randrange(2, 5))
        ]  # fmt: skip
        if not of_processes and source.random() < 0.4:
            works[0].vanishes, works[0].tasks = True, False
        Path(ledger).touch()
        added = self.store.stream(stream)
        added.group("g").create("0")
        ids = [str(added.add({"n": number})) for number in range(numbers)]
        killed = of_processes and source.random() < 0.6
        if of_processes:
            self._in_processes(works, source.random() * 0.3 if killed else None)
        else:
            threads = [threading.Thread(target=Worker(self.store, work)) for work in works]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        Worker(self.store, Work(stream, "last", seed, ledger, numbers))()
        verdict = judge(works[0], self.store, ids, killed)
        self.store.delete(stream)
        self.store.delete(f"{stream}:dead")
        _abandoned.clear()
        return verdict

    def _in_processes(self, works: list[Work], kill_after: float | None) -> None:
        while len(self.processes) < len(works):
            self.processes.append(Process(self.where))
        for process, work in zip(self.processes, works, strict=False):
            process.begin(work)
        if kill_after is not None:
            time.sleep(kill_after)
            self.processes[0].kill()
        for process in self.processes[kill_after is not None : len(works)]:
            process.wait()
        if kill_after is not None:
            self.processes[0] = Process(self.where)

    def close(self) -> None:
        for process in self.processes:
            process.end()


@contextlib.contextmanager
def world(kind: str, folder: Path) -> Iterator[World]:
    """Open a store of a kind, with the servers and processes that it needs."""
    with contextlib.ExitStack() as stack:
        path = str(folder / "store.rillet")
        if kind == "memory":
            made = World(kind, stack.enter_context(rillet.open()), "")
        elif kind in ("owner", "processes"):
            made = World(kind, stack.enter_context(rillet.open(path)), path)
        elif kind == "attached":
            from tests.store.process import Other

            stack.enter_context(Other(path))
            store = stack.enter_context(rillet.open(path))
            assert not store.owner
            made = World(kind, store, path)
        elif kind == "cluster":
            cluster = stack.enter_context(running_cluster())
            made = World(kind, stack.enter_context(rillet.connect(cluster.url)), cluster.url)
        else:
            judge = stack.enter_context(running_redis())
            url = f"redis://127.0.0.1:{judge.port}"
            made = World(kind, stack.enter_context(rillet.connect(url)), url)
        stack.callback(made.close)
        yield made


def main() -> int:
    """Run rounds of all kinds in turn; print what contradicts the rules; return 1 if there is any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    failed = 0
    total: dict[str, list[int]] = {kind: [0, 0, 0, 0] for kind in kinds}
    for place, kind in enumerate(kinds):
        with tempfile.TemporaryDirectory() as name, world(kind, Path(name)) as made:
            for number in range(options.seed + place, options.seed + options.rounds, len(kinds)):
                verdict = made.round(number, Path(name))
                counts = (1, verdict.handled, verdict.twice, verdict.dead)
                total[kind] = [one + more for one, more in zip(total[kind], counts, strict=True)]
                for problem in verdict.problems:
                    failed += 1
                    print(f"{kind}, seed {number}: {problem}", flush=True)
    for kind, (rounds, handled, twice, dead) in total.items():
        print(f"{kind}: {rounds} rounds, {handled} handlings, {twice} messages more than once, {dead} dead letters")
    print(f"{failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
