"""The end of Spark's workers: no worker owns a store, so none can leave it without closing it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import rillet
from rillet.spark.server_address import owner_address
from tests.variants import long
from tests.waiting import until

pytestmark = pytest.mark.slow


def end_worker(path: str, how: str) -> None:
    """Do what a task of Spark does with a store that no process owns, and end as a worker of Spark ends."""
    with rillet.connect(f"unix://{owner_address(path).unix}") as store:
        store.stream("events").add({"n": 1})
    if how == "exit":
        os._exit(0)  # pyspark/daemon.py, manager
    os.kill(os.getpid(), getattr(signal, how))


@pytest.mark.parametrize("how", ["exit", "SIGKILL", *long("SIGHUP")])
def test_the_end_of_a_worker_does_not_look_like_a_crash(tmp_path: Path, how: str) -> None:
    path = tmp_path / "events.rillet"
    with rillet.open(path):
        pass
    worker = multiprocessing.get_context("spawn").Process(target=end_worker, args=(str(path), how))
    worker.start()
    worker.join()
    until(lambda: not (path / "owner.json").exists())
    with rillet.open(path) as store:
        assert store.recovery is not None
        assert store.recovery.killed is None
        assert len(store.stream("events")) == 1
