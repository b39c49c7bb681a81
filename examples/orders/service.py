"""An order service: four workers charge orders, and every order is charged once, whatever process is killed.

    python examples/orders/service.py                       a demonstration: 300 orders, ten kills
    python examples/orders/service.py worker PATH NAME      one worker, until SIGTERM
    python examples/orders/service.py submit PATH COUNT     add orders 1 to COUNT

    submit ──► stream `orders` ──► group `billing` ──► worker-1 … worker-4 ──► the bank, outside of the store
                                        │                     │
                                        │                     └──► one transaction: hash `paid`, acknowledgment
                                        └─ failed 8 times ──► stream `orders.dead`

All processes open one directory. The first of them owns it; if it is killed, another one becomes the owner. Nothing
else coordinates them. Four rules make every process expendable:

**Orders are added once.** If the owner is killed during `add`, its outcome is unknown. `idmp` gives the store the
number of the order, so `submit` can repeat the call, or run again from the beginning. The store remembers the last
REMEMBERED numbers for a day (by default 100 numbers for 100 seconds), so `submit` accepts no more orders at a time.

**Messages are acknowledged last.** A worker that is killed leaves its messages pending. Another worker claims them
after CLAIM_IDLE seconds, so every order is handled at least once. An order that fails stays pending too, and is tried
again after a wait that doubles each time (BACKOFF). After MAX_DELIVERIES it goes to the dead letters.

**Charges have a key.** A worker may be killed after the bank has charged the card, and before it acknowledges the
message. The next worker charges again with the same key, the number of the order, and the bank returns the charge that
it has. Without such a key at the other side, exactly-once is impossible.

**Results are written with the acknowledgment**, in one transaction: both happen, or the order is handled again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import rillet
from rillet import Message, Store

WORKERS, KILLS = 4, 10
CLAIM_IDLE = 0.5  # seconds after which the orders of a dead worker are delivered again; real handlers need more
BACKOFF = rillet.Exponential(first=0.05, factor=2, most=1)  # seconds between two attempts; real services wait longer
MAX_DELIVERIES = 8
REMEMBERED = 10_000  # orders that the store recognizes if they are added again within a day; Redis's maximum
FLAKY_FAILURES = 2
# What the cards of the demonstration do: the bank rejects every 10th order, and the first attempts of every 7th.
DECLINED_EVERY, FLAKY_EVERY = 10, 7


class PaymentFailed(Exception):
    """The bank did not charge the card."""


class Bank:
    """The payment provider: another system, with its own database. `charge` may be repeated for the same order."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS attempts (number TEXT, process INTEGER)")
        self._database.execute("CREATE TABLE IF NOT EXISTS charges (number TEXT PRIMARY KEY, cents INTEGER)")

    def charge(self, number: str, cents: int, card: str) -> str:
        """Charge a card once per number, and return the receipt; PaymentFailed if the card is rejected."""
        self._database.execute("INSERT INTO attempts VALUES (?, ?)", (number, os.getpid()))
        attempt = len(self.attempts(number))
        if card == "declined":
            raise PaymentFailed("the card is declined")
        if card == "flaky" and attempt <= FLAKY_FAILURES:
            raise PaymentFailed("the bank is busy")
        self._database.execute("INSERT OR IGNORE INTO charges VALUES (?, ?)", (number, cents))
        if card == "slow" and attempt == 1:
            time.sleep(60)  # the card is charged, but the reply is late: the worker may be killed meanwhile
        return f"receipt-{number}"

    def attempts(self, number: str) -> list[int]:
        """Return the process ID of each request to charge a number, in order."""
        found = self._database.execute("SELECT process FROM attempts WHERE number = ? ORDER BY rowid", (number,))
        return [process for (process,) in found]

    def charges(self) -> dict[str, int]:
        """Return the number and the cents of every charge."""
        return dict(self._database.execute("SELECT number, cents FROM charges"))

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def open_store(path: Path) -> Store:
    """Open the service's directory. Every process passes the same settings, because each may become the owner."""
    return rillet.open(path / "store", stream_idmp_duration=86_400, stream_idmp_maxsize=REMEMBERED)


def card_of(number: int) -> str:
    """Return the kind of card that pays an order of the demonstration."""
    if number % DECLINED_EVERY == 0:
        return "declined"
    return "flaky" if number % FLAKY_EVERY == 0 else "good"


def submit(path: Path, count: int) -> None:
    """Add the orders 1 to `count`, each once, even if this function was interrupted and runs again within a day."""
    if count > REMEMBERED:
        raise SystemExit(f"at most {REMEMBERED:,} orders at a time: the store recognizes the last {REMEMBERED:,}")
    with open_store(path) as store:
        orders = store.stream("orders")
        for number in range(1, count + 1):
            order = {"number": number, "cents": 100 * number, "card": card_of(number)}
            while True:
                try:
                    orders.add(order, idmp=("shop", number))
                except rillet.OutcomeUnknown:  # the owner was killed: repeat the call
                    continue
                break


def work(path: Path, name: str) -> None:
    """Handle orders until SIGTERM: finish the current order, give the others back, and end."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with open_store(path) as store, contextlib.closing(Bank(path / "bank.sqlite")) as bank:
        # The name survives a restart, so that the new process begins with the pending messages of the old one.
        consumer = store.stream("orders").group("billing").consumer(name)
        print(f"{name} is ready", flush=True)
        for message in consumer.messages(count=10, block=0.5, stop=stop, claim_idle=CLAIM_IDLE, backoff=BACKOFF,
                                         max_deliveries=MAX_DELIVERIES, dead_letters="orders.dead"):  # fmt: skip
            try:
                settle(store, bank, message)
            except PaymentFailed:
                pass  # it is not acknowledged, so it is tried again after the next wait of BACKOFF
            except rillet.OutcomeUnknown:
                pass  # the owner was killed: either the transaction was executed, or the order is delivered again


def settle(store: Store, bank: Bank, message: Message) -> None:
    """Charge one order; record the receipt and acknowledge the message together."""
    number = message["number"]
    receipt = bank.charge(number, int(message["cents"]), message["card"])
    with store.transaction() as transaction:
        transaction.execute("HSETNX", "paid", number, receipt)
        transaction.ack(message)


# -- the demonstration --------------------------------------------------------------------------------------------


def start(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a process of the service."""
    return subprocess.Popen([sys.executable, __file__, arguments[0], str(path), *arguments[1:]])


@contextlib.contextmanager
def running_workers(path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start the workers; at the end, let them finish their orders."""
    workers = {name: start(path, "worker", name) for name in (f"worker-{n}" for n in range(1, WORKERS + 1))}
    try:
        yield workers
    finally:
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            worker.wait()


def settled(path: Path) -> tuple[int, int]:
    """Return the numbers of paid orders and of dead letters; read the files, without becoming the owner."""
    try:
        with rillet.open(path / "store", readonly=True, progress=lambda *_: None) as store:
            return len(store.hash("paid")), len(store.stream("orders.dead"))
    except rillet.StoreError:  # no process has created the store yet
        return 0, 0


def demonstrate(path: Path, count: int, seed: int) -> None:
    """Submit orders and kill processes until all orders are settled; then show that each was paid once."""
    chance = random.Random(seed)
    submitter = start(path, "submit", str(count))
    with running_workers(path) as workers:
        kills = 0
        while sum(found := settled(path)) < count:
            time.sleep(1)
            if kills == KILLS:
                continue
            kills += 1
            name = chance.choice([*workers, "submit"])
            print(f"-- {found[0]} paid, {found[1]} dead of {count}; kill -9 {name}", flush=True)
            if name == "submit":
                submitter.kill()
                submitter.wait()
                submitter = start(path, "submit", str(count))
            else:
                workers[name].kill()
                workers[name].wait()
                workers[name] = start(path, "worker", name)
        submitter.wait()
    report(path)


def report(path: Path) -> None:
    """Print what the store and the bank contain."""
    with open_store(path) as store, contextlib.closing(Bank(path / "bank.sqlite")) as bank:
        paid, dead = store.hash("paid").get_all(), store.stream("orders.dead")
        attempts = sum(len(bank.attempts(number)) for number in paid)
        pending = store.stream("orders").group("billing").pending_count()
        print(f"{len(store.stream('orders'))} orders, {len(paid)} paid, {len(dead)} dead letters, {pending} pending")
        print(f"{len(bank.charges())} charges after {attempts} requests: each order was charged once")
        assert bank.charges().keys() == paid.keys()


def main() -> None:
    """Run the demonstration, or one of its processes."""
    parser = argparse.ArgumentParser(description="An order service that survives the kill of any process.")
    commands = parser.add_subparsers(dest="command")
    parser.add_argument("--orders", type=int, default=300, help="orders of the demonstration")
    parser.add_argument("--seed", type=int, default=1, help="selects the processes that are killed")
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
            demonstrate(Path(folder), options.orders, options.seed)


if __name__ == "__main__":
    main()
