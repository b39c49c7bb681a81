"""The order service: its workers, their owner and the submitting process are killed; each order is charged once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import rillet
from examples.orders import service
from examples.orders.service import Bank, settled
from rillet import Store
from tests.examples.processes import LIMIT, kill, line_of, start
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets and SIGKILL"),
]
PROGRAM = "orders/service.py"
ORDERS = 60
DECLINED = [str(number) for number in range(10, ORDERS + 1, 10)]


class Service:
    """The processes of the service in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workers: dict[str, subprocess.Popen[str]] = {}

    def start_worker(self, name: str) -> None:
        self.workers[name] = start(PROGRAM, "worker", self.path, name)
        while (line := line_of(self.workers[name])) != f"{name} is ready":
            assert line.startswith(f"{self.path}/store: process "), line  # the report of the next owner

    def restart(self, name: str) -> None:
        kill(self.workers[name])
        self.start_worker(name)

    def restart_owner(self) -> None:
        """Kill the worker that owns the store."""
        self.restart(self.name_of(json.loads((self.path / "store" / "owner.json").read_text())["pid"]))

    def name_of(self, pid: int) -> str:
        return next(name for name, worker in self.workers.items() if worker.pid == pid)

    @contextmanager
    def view(self) -> Iterator[Store]:
        """Yield the data at this moment, without becoming the owner."""
        with rillet.open(self.path / "store", readonly=True) as store:
            yield store


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    try:
        for number in range(1, service.WORKERS + 1):
            running.start_worker(f"worker-{number}")
        yield running
    finally:
        for worker in running.workers.values():
            if worker.returncode is None:
                kill(worker)


def test_every_process_may_be_killed(running: Service, tmp_path: Path) -> None:
    with closing(Bank(tmp_path / "bank.sqlite")) as bank:
        submitter = start(PROGRAM, "submit", tmp_path, ORDERS)
        until(lambda: sum(settled(tmp_path)) >= 5)
        kill(submitter)
        assert start(PROGRAM, "submit", tmp_path, ORDERS).communicate(timeout=LIMIT)[0] == ""

        # A worker is killed after the bank has charged the card, and before it acknowledges the order.
        with service.open_store(tmp_path) as store:
            assert not store.owner
            store.stream("orders").add({"number": "slow", "cents": 5, "card": "slow"}, idmp=("shop", "slow"))
        until(lambda: "slow" in bank.charges())
        running.restart(running.name_of(bank.attempts("slow")[0]))
        until(lambda: len(bank.attempts("slow")) > 1)
        running.restart_owner()
        running.restart_owner()
        until(lambda: sum(settled(tmp_path)) == ORDERS + 1, lambda: settled(tmp_path))

        for worker in running.workers.values():
            worker.terminate()
        for worker in running.workers.values():
            said, _ = worker.communicate(timeout=LIMIT)
            assert worker.returncode == 0, said
        numbers = {*map(str, range(1, ORDERS + 1)), "slow"} - {*DECLINED}
        assert bank.charges().keys() == numbers
    with running.view() as store:
        orders, dead = store.stream("orders"), store.stream("orders.dead")
        assert sorted(int(entry["number"]) for entry in orders if entry["number"] != "slow") == [*range(1, ORDERS + 1)]
        assert store.hash("paid").get_all() == {number: f"receipt-{number}" for number in numbers}
        assert sorted(entry["number"] for entry in dead) == sorted(DECLINED)
        # If a kill of the owner takes the reply of a claim, the claim is repeated, and both count.
        counts = {int(entry["_deliveries"]) for entry in dead}
        assert counts <= {service.MAX_DELIVERIES + lost for lost in range(3)}
        assert orders.group("billing", create=False).pending_count() == 0


def test_the_demonstration() -> None:
    said, _ = start(PROGRAM, "--orders", 40).communicate(timeout=LIMIT)
    *_, stored, charged = said.splitlines()
    assert stored == "40 orders, 36 paid, 4 dead letters, 0 pending"
    assert charged.startswith("36 charges after ")
    assert charged.endswith(": each order was charged once")
