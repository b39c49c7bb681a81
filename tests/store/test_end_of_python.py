"""Calls that the end of Python finalizes: no thread can start any more, and other threads no longer run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rillet

TRANSACTION = """
import gc
import rillet

store = rillet.open()

def suspended():
    with store.transaction(["k"]) as transaction:
        yield
        print("continued")

gc.set_threshold(0)  # the end of Python alone collects
cycle = [suspended()]
next(cycle[0])
cycle.append(cycle)
del cycle
print("end", flush=True)
"""

OWNED_LOCK = """
import gc, threading, time
import rillet
from rillet.host.engine_lock import engine_lock

lock = engine_lock()
held = threading.Event()

def hold():
    with lock:
        held.set()
        time.sleep(3600)

class Late:
    def __del__(self):
        try:
            with lock:
                print("entered")
        except RuntimeError as error:
            print(error, flush=True)

threading.Thread(target=hold, daemon=True).start()
held.wait()
gc.set_threshold(0)
cycle = [Late()]
cycle.append(cycle)
del cycle
print("end", flush=True)
"""

WAITED_LOCK = """
import gc, threading, time
import rillet
from rillet.host.engine_lock import engine_lock

lock = engine_lock()
lock.__enter__()
ready = threading.Event()

def wait():
    ready.set()
    with lock:
        print("a thread entered at the end")

class Late:
    def __del__(self):
        lock.__exit__(None, None, None)
        with lock:
            print("entered", flush=True)

threading.Thread(target=wait, daemon=True).start()
ready.wait()
time.sleep(0.1)  # the thread waits
gc.set_threshold(0)
cycle = [Late()]
cycle.append(cycle)
del cycle
print("end", flush=True)
"""


def _run(program: str) -> tuple[int, str, str]:
    build = str(Path(rillet.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": build},
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_transaction_that_the_end_of_python_closes() -> None:
    assert _run(TRANSACTION) == (0, "end\n", "")


@pytest.mark.skipif(not rillet.compiled(), reason="Python's own lock waits forever")
def test_the_lock_of_a_thread_that_no_longer_runs() -> None:
    assert _run(OWNED_LOCK) == (0, "end\nPython is ending, and a thread that no longer runs holds the store\n", "")


@pytest.mark.skipif(not rillet.compiled(), reason="Python's own lock does not know who waits")
def test_the_lock_that_a_thread_waits_for_which_no_longer_runs() -> None:
    assert _run(WAITED_LOCK) == (0, "end\nentered\n", "")
