"""The ledger: numbered events go in while driver, executors and server are killed; each comes out once.

    python -m tests.spark.ledger --kind redis --sink parquet --strikes 40 --seed 1
    python -m tests.spark.ledger --kind cluster --sink stream --master standalone --victims executor,driver

    producer ──events 0, 1, 2, ...──► server ──► streaming query ──► Parquet table, stream, or hashes
    (a thread here)                     ▲              ▲   (tests/spark/ledger_driver.py, a process)
                                        └── SIGKILL ───┘

The sinks:

    parquet   Spark's own
    stream    a stream on the same server
    ordered   the same with order=stream, and with transactions and patience so small that tasks put rows aside
    hashes    foreachBatch: a hash for each event, and counters of seven classes of events (rillet.spark.foreach_batch)
    counters  the streaming sink of hashes, where each event's hash counts how often it came (addColumns)

The producer gives event n an ID made of n, so what it did not see acknowledged it can send again: a server that has
it refuses the ID. Three events share a millisecond. A server writes its log with appendfsync always, so what it
acknowledged is there again after a kill.

A strike kills one of these, at a random moment after the query has made progress:

    driver    the Python process and the JVM of the query
    worker    a Python process in which a task reads or writes
    server    the server, the owner of the embedded store, or a node of the cluster
    executor  the JVM in which tasks run; with its Python processes, or without, which then end by themselves
    machine   a Spark worker with everything below it

and starts it again, or Spark does. The last two are there with `--master standalone` only: a master and two workers
as processes here (standalone.py), where driver and executors are JVMs of their own; in local mode they are one.

At the end the query is run until it has everything, and the ledger is settled (ledger_settling.py): every event that
the producer was told to be there is in the table exactly once, and nothing else.

The moments are those of a clock, so a seed repeats what is struck and not when.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import redis

import rillet
from tests import waiting
from tests.forked import Forked
from tests.judge import free_port, redis_binary
from tests.spark.ledger_settling import BATCH, Hashes, class_problems, hash_problems, order_problems, settle, times_in
from tests.spark.standalone import Process, Standalone, below, kill, processes, running_standalone
from tests.store.process import Other

ROOT = Path(__file__).resolve().parents[2]
FIRST_MS = 1_700_000_000_000
AHEAD = 6000  # events that are produced without a word of the query's; it takes 3,000 in a micro-batch
PATIENCE = 300.0
until = partial(waiting.until, seconds=PATIENCE)
KINDS = ("redis", "rillet", "store", "cluster")
SINKS = ("parquet", "stream", "ordered", "hashes", "counters")
VICTIMS = ("driver", "worker", "server")
OF_STANDALONE = ("executor", "machine")
PARTITIONS = 6
"""Keys of the source in a cluster, so that every node has some."""


def id_of(n: int) -> str:
    """Return the ID of event n: three to a millisecond."""
    return f"{FIRST_MS + n // 3}-{n % 3}"


# -- what holds the streams -------------------------------------------------------------------------------


class Holder(Protocol):
    """A server, a cluster or an embedded store that can be killed."""

    options: dict[str, str]
    """The connector's options that name it and the source's stream."""

    def send(self, numbers: list[int]) -> None:
        """Append events; OSError or a redis error while it is gone."""

    def strike(self, source: random.Random) -> None:
        """Kill it (or a part of it) and start it again."""

    def numbers(self, stream: str) -> list[int]:
        """Return the numbers of the events in a stream."""

    def hashes(self, prefix: str) -> Hashes:
        """Return the hashes whose keys begin with a prefix."""

    def end(self) -> None:
        """Stop it."""


class Server:
    """redis-server or rillet's, with a log."""

    def __init__(self, folder: Path, rillets: bool) -> None:
        self.folder = folder
        self.rillets = rillets
        self.port = free_port()
        self.options = {"url": f"redis://127.0.0.1:{self.port}", "stream": "events"}
        self.client = redis.Redis(port=self.port, socket_timeout=10)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[Any]:
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                 "--appendonly", "yes", "--appendfsync", "always"]  # fmt: skip
        process: subprocess.Popen[Any] = (
            Forked(["serve", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if self.rillets
            else subprocess.Popen([str(redis_binary()), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )  # fmt: skip
        until(lambda: answers(self.client), "the server to answer")
        return process

    def send(self, numbers: list[int]) -> None:
        append(self.client, "events", numbers)

    def strike(self, source: random.Random) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def numbers(self, stream: str) -> list[int]:
        return numbers_in(self.client, stream)

    def hashes(self, prefix: str) -> Hashes:
        return hashes_in(self.client, prefix)

    def end(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait()


class EmbeddedStore:
    """A store in a folder, owned by a process of its own or, after that was killed, by a worker of Spark."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        self.options = {"path": str(self.path), "stream": "events"}
        self.other = Other(self.path, appendfsync="always")

    def _ask(self, expression: str) -> Any:
        try:
            told = self.other.ask(expression)
        except (ValueError, SyntaxError, OSError) as error:  # it is gone
            raise OSError(str(error)) from error
        if isinstance(told, str):
            raise OSError(told)
        return told

    def send(self, numbers: list[int]) -> None:
        told = self._ask("[e.id.ms * 3 + e.id.seq for e in store.stream('events').reverse(count=1)]")
        there = told[0] - FIRST_MS * 3 + 1 if told else 0
        entries = [(id_of(n), {"n": str(n)}) for n in numbers if n >= there]
        self._ask(f"len(store.stream('events').add_many({entries!r}))")

    def strike(self, source: random.Random) -> None:
        self.other.kill()
        self.other = Other(self.path, appendfsync="always")

    def _read(self, expression: str) -> Any:
        # A worker of Spark may have been the owner, and has ended with its driver: who reads may ask again.
        with contextlib.suppress(OSError):
            self._ask("store.execute('PING')")
        return self._ask(expression)

    def numbers(self, stream: str) -> list[int]:
        found: list[int] = self._read(f"[int(e['n']) for e in store.stream({stream!r})]")
        return found

    def hashes(self, prefix: str) -> Hashes:
        keys = f"[key.decode() for key in store.execute('KEYS', {prefix + '*'!r})]"
        found: Hashes = self._read(f"{{key: dict(store.hash(key).items()) for key in {keys}}}")
        return {key.removeprefix(prefix): fields for key, fields in found.items()}

    def end(self) -> None:
        self.other.end()


class ClusterOfThree:
    """Three masters of a Redis cluster, each with a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = free_ports(6)
        self.ports, self.buses = ports[:3], ports[3:]
        self.nodes = [self._start(number) for number in range(3)]
        bounds = [0, 5461, 10923, 16384]
        for number, port in enumerate(self.ports):
            with redis.Redis(port=port) as node:
                node.execute_command("CLUSTER ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
                node.execute_command("CLUSTER MEET", "127.0.0.1", self.ports[0], self.buses[0])
        until(self._ready, "the cluster's nodes to know each other")
        seeds = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.options = {"url": f"redis+cluster://{seeds}", "stream": "events", "partitioned": str(PARTITIONS)}
        self.client = redis.RedisCluster(port=self.ports[0], host="127.0.0.1", socket_timeout=10)

    def _ready(self) -> bool:
        for port in self.ports:
            with redis.Redis(port=port) as node:
                told = node.cluster("INFO")
                if told["cluster_state"] != "ok" or told["cluster_known_nodes"] != "3":
                    return False
        return True

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        folder = self.folder / f"node{number}"
        folder.mkdir(exist_ok=True)
        words = ["--port", self.ports[number], "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly",
                 "yes", "--appendfsync", "always", "--cluster-enabled", "yes", "--cluster-port", self.buses[number],
                 "--cluster-node-timeout", "15000"]  # fmt: skip
        process = subprocess.Popen(
            [str(redis_binary()), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with redis.Redis(port=self.ports[number]) as node:
            until(lambda: answers(node), "a node to answer")
        return process

    def send(self, numbers: list[int]) -> None:
        for key in range(PARTITIONS):
            append(self.client, f"events:{key}", [n for n in numbers if n % PARTITIONS == key])

    def strike(self, source: random.Random) -> None:
        number = source.randrange(3)
        self.nodes[number].kill()
        self.nodes[number].wait()
        self.nodes[number] = self._start(number)
        until(self._ready, "the cluster to be whole again")

    def numbers(self, stream: str) -> list[int]:
        return numbers_in(self.client, stream)

    def hashes(self, prefix: str) -> Hashes:
        return hashes_in(self.client, prefix)

    def end(self) -> None:
        self.client.close()
        for node in self.nodes:
            node.terminate()
            node.wait()


def free_ports(count: int) -> list[int]:
    """Return different TCP ports on 127.0.0.1 that nobody listens on."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


def append(client: Any, key: str, numbers: list[int]) -> None:
    """Append events with their own IDs; one that is there already is fine."""
    pipe = client.pipeline(transaction=False)
    for n in numbers:
        pipe.xadd(key, {"n": str(n)}, id_of(n))
    for reply in pipe.execute(raise_on_error=False):
        if isinstance(reply, redis.ResponseError) and "equal or smaller" in str(reply):
            continue
        if isinstance(reply, Exception):
            raise reply


def numbers_in(client: Any, key: str) -> list[int]:
    """Return the numbers of the events in a stream."""
    return [int(fields[b"n"]) for _, fields in client.xrange(key)]


def hashes_in(client: Any, prefix: str) -> Hashes:
    """Return the hashes whose keys begin with a prefix, by the rest of the key."""
    keys = sorted(set(client.scan_iter(match=prefix + "*", count=1000)))
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.hgetall(key)
    texts = [{name.decode(): text.decode() for name, text in fields.items()} for fields in pipe.execute()]
    return {key.decode().removeprefix(prefix): fields for key, fields in zip(keys, texts, strict=True)}


def answers(client: Any) -> bool:
    """Tell whether a server answers and has loaded its data."""
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def environment() -> dict[str, str]:
    """Return the environment in which a child finds the same rillet, and the tests."""
    folder = str(Path(rillet.__file__).parent.parent)
    paths = {"PYTHONPATH": os.pathsep.join((folder, str(ROOT))), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **paths, "SPARK_LOCAL_IP": "127.0.0.1"}


# -- what feeds them --------------------------------------------------------------------------------------


class Producer(threading.Thread):
    """Appends events, a hundred at a time, until it is told to end; `told` is how many were acknowledged."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(daemon=True)
        self.holder = holder
        self.told = 0
        self.ahead = 0
        """Events since the query was last heard of: on a slow machine the producer would be far ahead of it."""
        self.guard = threading.Lock()
        """Held while the holder is in use: an embedded store answers one at a time."""
        self._ending = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.wait(0.03):
                if self.ahead >= AHEAD:
                    continue
                numbers = list(range(self.told, self.told + BATCH))
                with self.guard:
                    self._send(numbers)
        except BaseException as error:
            self.problem = error

    def _send(self, numbers: list[int]) -> None:
        try:
            self.holder.send(numbers)
        except (OSError, redis.RedisError):  # it is gone: what of these is there will be refused the next time
            return
        self.told = numbers[-1] + 1
        self.ahead += len(numbers)

    def end(self) -> int:
        """Stop, and return how many events there are."""
        self._ending.set()
        self.join()
        if self.problem is not None:
            raise self.problem
        return self.told


# -- what reads them --------------------------------------------------------------------------------------


class Driver:
    """The process of the streaming query; it says on its output how far it is."""

    def __init__(self, plan: dict[str, Any], producer: Producer) -> None:
        self.plan = plan
        self.producer = producer
        self.batches = 0
        self.said: list[str] = []
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.ledger_driver", json.dumps(self.plan)], cwd=ROOT, env=environment(),
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith("batch "):
                    self.batches += 1
                    self.producer.ahead = 0
                else:
                    self.said.append(line)

    def strike(self) -> None:
        """Kill the Python process, its JVM and their workers, and start anew from the checkpoint."""
        self.end()
        self.process = self._start()

    def processes(self) -> list[Process]:
        """Return all of it: PySpark's daemons have process groups of their own, and the same session."""
        return [process for process in processes() if process.session == self.process.pid]

    def finish(self) -> None:
        """Let it read to the end and wait for that; where it could not, again."""
        for _ in range(5):
            assert self.process.stdin is not None
            try:
                self.process.stdin.write("finish\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                pass
            if self.process.wait(timeout=PATIENCE * 2) == 0:
                return
            self.strike()
        raise AssertionError("the query did not come to its end:\n" + "".join(self.said[-60:]))

    def end(self) -> None:
        """Kill whatever there is of it."""
        kill(*(process.pid for process in self.processes()))
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


# -- the ledger -------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """What was done and found."""

    sink: str = "parquet"
    events: int = 0
    batches: int = 0
    struck: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kills = ", ".join(f"{self.struck[name]} {name}" for name in sorted(self.struck)) or "none"
        more = {"ordered": " and in order", "hashes": ", and so are their counters"}.get(self.sink, "")
        return f"{self.events} events, each exactly once{more}, in {self.batches} micro-batches; killed: {kills}"


@dataclass
class Stage:
    """Everything that can be struck, and the seed's choices."""

    source: random.Random
    holder: Holder
    producer: Producer
    driver: Driver
    standalone: Standalone | None

    def strike(self, victim: str) -> int:
        """Kill, and return how many were killed."""
        if victim == "driver":
            self.driver.strike()
        elif victim == "worker":
            return self._worker()
        elif victim == "server":
            with self.producer.guard:
                self.holder.strike(self.source)
        else:
            assert self.standalone is not None
            if victim == "machine":
                self.standalone.strike_worker(self.source.randrange(len(self.standalone.processes) - 1))
            else:
                self._executor(self.standalone)
        return 1

    def _worker(self) -> int:
        """Kill a Python worker, if there is one: a fork of one of PySpark's daemons."""
        executors = {process.pid for process in self.standalone.executors()} if self.standalone else set()
        found = [*self.driver.processes(), *below(executors, processes())]
        daemons = {process.pid for process in found if b"pyspark.daemon" in process.line}
        workers = [pid for pid in daemons if any(process.pid == pid and process.parent in daemons for process in found)]
        if not workers:
            return 0
        kill(self.source.choice(sorted(workers)))
        return 1

    def _executor(self, standalone: Standalone) -> None:
        until(standalone.executors, "an executor")
        executor = self.source.choice(standalone.executors())
        python = below({executor.pid}, processes()) if self.source.random() < 0.5 else []
        kill(executor.pid, *(process.pid for process in python))


def run(kind: str, sink: str, strikes: int, seed: int, folder: Path, master: str | Standalone = "local[2,4]",
        victims: tuple[str, ...] = VICTIMS, least: int = 2000) -> Figures:  # fmt: skip
    """Play one ledger and settle it; Lost tells which events are missing or doubled.

    master: of Spark; "standalone" starts one, with two workers.
    """
    with contextlib.ExitStack() as held:
        if master == "standalone":
            master = held.enter_context(running_standalone(folder / "standalone"))
        standalone = master if isinstance(master, Standalone) else None
        holder = made(kind, folder)
        held.callback(holder.end)
        producer = Producer(holder)
        producer.start()
        held.callback(producer.end)
        plan = {"master": getattr(master, "url", master), "sink": sink, "folder": str(folder),
                "options": holder.options}  # fmt: skip
        driver = Driver(plan, producer)
        held.callback(driver.end)
        stage = Stage(random.Random(seed), holder, producer, driver, standalone)
        try:
            return play(stage, sink, strikes, victims, least, folder)
        except BaseException as error:
            error.add_note("the driver said:\n" + "".join(driver.said[-60:]))
            raise


def play(stage: Stage, sink: str, strikes: int, victims: tuple[str, ...], least: int, folder: Path) -> Figures:
    """Strike as often as was asked, let the query come to its end, and settle."""
    figures = Figures(sink)
    source, driver, producer = stage.source, stage.driver, stage.producer
    # Each kind of strike comes up, in an order of the seed's.
    order = [victims[number % len(victims)] for number in range(strikes)]
    source.shuffle(order)
    for victim in order:
        until(partial(lambda seen: driver.batches > seen, driver.batches), "a micro-batch")
        time.sleep(source.uniform(0, 0.6))
        figures.struck[victim] += stage.strike(victim)
        producer.ahead = 0  # what the query would have said may be lost
    until(lambda: producer.told >= least, f"{least} events")
    figures.events = producer.end()
    driver.finish()
    figures.batches = driver.batches
    settle(figures.events, *found_in(sink, stage.holder, folder))
    return figures


def made(kind: str, folder: Path) -> Holder:
    """Start what holds the streams."""
    if kind == "store":
        return EmbeddedStore(folder)
    return ClusterOfThree(folder) if kind == "cluster" else Server(folder, kind == "rillet")


def found_in(sink: str, holder: Holder, folder: Path) -> tuple[Counter[int], list[str]]:
    """Return how often each event is in the table, and what else is wrong with it."""
    if sink == "parquet":
        return Counter(json.loads((folder / "numbers.json").read_text())), []
    if sink in ("stream", "ordered"):
        numbers = holder.numbers("copied")
        streams = int(holder.options.get("partitioned", "1"))
        return Counter(numbers), order_problems(numbers, streams) if sink == "ordered" else []
    hashes = holder.hashes("event:")
    times = times_in(hashes)
    if sink == "counters":
        return times, hash_problems(hashes, {"text", "times"})
    return times, hash_problems(hashes, {"text"}) + class_problems(holder.hashes("class:"), times)


def main() -> None:
    """Play the ledger that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="redis")
    parser.add_argument("--sink", choices=SINKS, default="parquet")
    parser.add_argument("--strikes", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2,4]", help="of Spark; standalone: one that is started here")
    parser.add_argument("--victims", help="by commas; all that there are by default")
    given = parser.parse_args()
    there = VICTIMS + OF_STANDALONE if given.master == "standalone" else VICTIMS
    victims = tuple(given.victims.split(",")) if given.victims else there
    if not set(victims) <= set(there):
        parser.error(f"with --master {given.master} victims are {', '.join(there)}")
    with tempfile.TemporaryDirectory(prefix="rillet-ledger-") as folder:
        print(run(given.kind, given.sink, given.strikes, given.seed, Path(folder), given.master, victims))


if __name__ == "__main__":
    main()
