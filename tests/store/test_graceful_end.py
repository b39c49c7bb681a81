"""A worker process that gets SIGTERM finishes its message, leaves the others to other workers, and ends."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import rillet
from tests.forked import ROOT, Forked
from tests.package.test_docs import programs

WORKER = """
import signal, sys, threading
import rillet

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
with rillet.open(sys.argv[1]) as store:
    worker = store.stream("jobs").group("workers").consumer("one")
    for message in worker.messages(stop=stop, claim_idle=60):
        print("begin", message["n"], flush=True)
        sys.stdin.readline()
        message.ack()
        print("end", message["n"], flush=True)
    print("pending", [(found.id.ms, found.deliveries) for found in worker.pending()], flush=True)
"""


def _start(folder: Path, program: str, *arguments: str) -> Forked:
    return Forked([program, *arguments], function="tests.forked:run_text", cwd=folder, stdin=subprocess.PIPE,
                  stderr=None, environment={"PYTHONUNBUFFERED": "1"})  # fmt: skip


def test_a_worker_finishes_its_message_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rillet.open(path) as store:
        store.stream("jobs").add_many((n, {"n": n}) for n in (1, 2, 3))
    with _start(tmp_path, WORKER, str(path)) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begin 1\n"
        worker.send_signal(signal.SIGTERM)
        output, _ = worker.communicate("\n", timeout=60)
    assert output == "end 1\npending []\n"
    assert worker.returncode == 0


def test_the_program_of_the_workers_page_ends_on_sigterm(tmp_path: Path) -> None:
    (program,) = (found for found in programs(ROOT / "docs" / "workers.md") if "signal.SIGTERM" in found)
    with rillet.open(tmp_path / "events.rillet") as store:
        store.stream("jobs").add({"n": 1}, 1)
    with _start(tmp_path, program) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "handle 1-0 {'n': '1'}\n"
        worker.send_signal(signal.SIGTERM)  # while it waits for the next message
        worker.communicate(timeout=60)
    assert worker.returncode == 0
    with rillet.open(tmp_path / "events.rillet") as store:
        assert store.stream("jobs").group("workers").pending_count() == 0
