"""Accounts: the movements of each account are applied in their order, whatever is killed, while partitions are added.

    python examples/accounts/accounts.py                    a demonstration: 50 accounts, kills, 4 and then 8 partitions
    python examples/accounts/accounts.py --spark            the same, and Spark adds the movements up, too
    python examples/accounts/accounts.py worker PATH NAME   one worker, until SIGTERM

    submit ──► partitioned stream `movements` ──► group `ledger` ──► worker-1, worker-2, worker-3
                 by account: 4, then 8 keys              │
                          │                              └──► one transaction: hash `account:NAME`, cents and number
                          └──► Spark: one task for each partition ──► the same sums

Each account has its movements in one partition, and one worker at a time reads a partition. So no lock is needed
between accounts, and none between workers:

**The order is that of the stream.** A movement has the number that follows the one before it. The worker checks this,
and would stop if a movement overtook another.

**A movement is applied once.** The hash of the account has the number of the last movement. A worker that is killed
after the transaction, and before the acknowledgment, leaves its movement pending; the next worker sees its number and
acknowledges it. The same holds if a call is repeated because its outcome is unknown: the owner of the directory was
killed.

**Partitions can be added at any time.** `repartition` seals the old keys and creates new ones. The group handles what
is in the old keys first.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rillet
from rillet import Message, PartitionedStream, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS, KILLS = 3, 6
CLAIM_IDLE = 1.0  # seconds after which the partitions of a dead worker move; real handlers need more
ACCOUNTS = 50
FIRST, LATER = 4, 8  # partitions


def movements_of(store: Store) -> PartitionedStream[dict[str, str]]:
    """Return the stream of all movements."""
    return store.partitioned("movements", by="account")


def repeated(call: Callable[..., object], *arguments: object) -> None:
    """Make a call that may be repeated, until its outcome is known."""
    while True:
        # The owner was killed, and the outcome is unknown; or another client, or a new owner, came between.
        with contextlib.suppress(rillet.OutcomeUnknown, rillet.TransactionConflict):
            call(*arguments)
            return


def work(path: Path, name: str) -> None:
    """Apply movements until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with rillet.open(path) as store:
        consumer = movements_of(store).group("ledger").consumer(name)
        print(f"{name} is ready", flush=True)
        for message in consumer.messages(block=0.5, stop=stop, claim_idle=CLAIM_IDLE, heartbeat=True):
            repeated(apply, store, message)
            with contextlib.suppress(rillet.LeaseLost):  # another worker has the partition: it acknowledges
                repeated(message.ack)


def apply(store: Store, message: Message[dict[str, str]]) -> None:
    """Add a movement to its account, unless that has happened before."""
    key, number = f"account:{message['account']}", int(message["number"])
    with store.transaction(watch=[key]) as transaction:
        done = int(store.hash(key).get("number") or 0)
        if number <= done:
            return
        assert number == done + 1, f"movement {number} of {key} came after {done}"
        transaction.execute("HINCRBY", key, "cents", message["cents"])
        transaction.execute("HSET", key, "number", number)


# -- the demonstration --------------------------------------------------------------------------------------------


def cents_of(account: int, number: int) -> int:
    """Return the amount of a movement of the demonstration."""
    return (account * 31 + number * 17) % 2_001 - 1_000


def submit(path: Path, count: int) -> None:
    """Add `count` movements of each account, and more partitions half way."""
    with rillet.open(path) as store:
        movements = movements_of(store)
        for number in range(1, count + 1):
            if number == count // 2:
                repeated(movements.repartition, LATER)
            for account in range(ACCOUNTS):
                cents = cents_of(account, number)
                repeated(movements.add, {"account": f"a{account}", "number": number, "cents": cents})


def start(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a process of the program."""
    return subprocess.Popen([sys.executable, __file__, arguments[0], str(path), *arguments[1:]])


@contextlib.contextmanager
def running_workers(path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start the workers; at the end, let them finish their movements."""
    workers = {name: start(path, "worker", name) for name in (f"worker-{n}" for n in range(1, WORKERS + 1))}
    try:
        yield workers
    finally:
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            worker.wait()


def applied(path: Path) -> int:
    """Return how many movements are applied; read the files, without becoming the owner."""
    try:
        with rillet.open(path, readonly=True, progress=lambda *_: None) as store:
            return sum(int(store.hash(f"account:a{account}").get("number") or 0) for account in range(ACCOUNTS))
    except rillet.StoreError:  # no process has created the store yet
        return 0


def demonstrate(path: Path, count: int, seed: int, spark: bool) -> None:
    """Submit movements and kill workers until all movements are applied; then compare the sums."""
    chance = random.Random(seed)
    with rillet.open(path) as store:
        store.partitioned("movements", partitions=FIRST, by="account").layout()  # creates the stream
    submitter = start(path, "submit", str(count))
    with running_workers(path) as workers:
        kills, total = 0, ACCOUNTS * count
        while (done := applied(path)) < total:
            time.sleep(0.1)
            if kills < KILLS and done > kills * total // (KILLS + 1):
                kills += 1
                name = chance.choice([*workers])
                print(f"-- {done} of {total} applied; kill -9 {name}", flush=True)
                workers[name].kill()
                workers[name].wait()
                workers[name] = start(path, "worker", name)
        submitter.wait()
    report(path, count)
    if spark:
        report_of_spark(path, count)


def expected(count: int) -> dict[str, int]:
    """Return the cents of each account."""
    return {f"a{account}": sum(cents_of(account, number) for number in range(1, count + 1))
            for account in range(ACCOUNTS)}  # fmt: skip


def report(path: Path, count: int) -> None:
    """Print what the accounts contain."""
    with rillet.open(path) as store:
        movements = movements_of(store)
        cents = {f"a{account}": int(store.hash(f"account:a{account}")["cents"]) for account in range(ACCOUNTS)}
        info = movements.group("ledger").info()
        print(f"{len(cents)} accounts, {count} movements each, {info.partitions} partitions, {info.pending} pending")
        assert cents == expected(count)
        print("every movement was applied once, in its order")


def sums_of_spark(spark: SparkSession, path: Path) -> dict[str, int]:
    """Let Spark add the movements up: a task for each partition, by the name of the stream."""
    source = spark.read.format("rillet").option("path", str(path)).option("partitionedStream", "movements")
    table = source.schema("account string, number int, cents int").load()
    # A repeated call may have added a movement twice; the accounts have it once.
    sums = table.dropDuplicates(["account", "number"]).groupBy("account").sum("cents").collect()
    return {row[0]: row[1] for row in sums}


def report_of_spark(path: Path, count: int) -> None:
    """Compare the sums of Spark."""
    from rillet.spark import session

    spark = session("local[2]", "accounts")
    sums = sums_of_spark(spark, path)
    assert sums == expected(count)
    print(f"Spark: the same sums of {len(sums)} accounts")
    spark.stop()


def main() -> None:
    """Run the demonstration, or one of its processes."""
    parser = argparse.ArgumentParser(description="Accounts whose movements are applied in order.")
    commands = parser.add_subparsers(dest="command")
    parser.add_argument("--movements", type=int, default=60, help="movements of each account")
    parser.add_argument("--seed", type=int, default=1, help="selects the workers that are killed")
    parser.add_argument("--spark", action="store_true", help="also read the stream with Spark")
    for command, argument in (("worker", "name"), ("submit", "count")):
        sub = commands.add_parser(command)
        sub.add_argument("path", type=Path)
        sub.add_argument(argument, type=int if argument == "count" else str)
    options = parser.parse_args()
    if options.command == "worker":
        work(options.path, options.name)
    elif options.command == "submit":
        submit(options.path, options.count)
    else:
        with tempfile.TemporaryDirectory() as folder:
            demonstrate(Path(folder) / "store", options.movements, options.seed, options.spark)


if __name__ == "__main__":
    main()
