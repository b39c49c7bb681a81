"""A module that raises, loops or returns nonsense harms only its own call."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

import rillet
from rillet.errors import CommandError
from rillet.modules import Context
from rillet.modules.guard import Guard, ModuleTimeout
from tests.modules.ends import Bench, declared

# A timeout may come inside a destructor or a callback, where Python prints it; it is raised again.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
FAULTY = str(Path(__file__).parent / "faulty" / "faulty.py")


@pytest.fixture
def bench() -> Bench:
    return Bench(FAULTY, module_time_limit=0)


@contextmanager
def limit(bench: Bench, milliseconds: int = 100) -> Iterator[None]:
    """Limit the time of the calls within; the others must not depend on the load of the machine."""
    bench("CONFIG", "SET", "module-time-limit", milliseconds)
    try:
        yield
    finally:
        bench("CONFIG", "SET", "module-time-limit", 0)


def test_an_exception_is_an_error_reply_and_a_line_in_the_log(bench: Bench) -> None:
    with pytest.raises(CommandError, match="^ERR the module 'faulty' failed: ZeroDivisionError: in run$"):
        bench("faulty.run", "raise")
    assert "Module faulty: run ZeroDivisionError: in run (" in bench.lines[-1]
    assert "faulty.py, line" in bench.lines[-1]
    assert bench("PING") == b"PONG"


@pytest.mark.parametrize("how", ["odd", "exit", "recursion", "nonsense", "loop"])
def test_each_failure_harms_only_its_call(bench: Bench, how: str) -> None:
    with limit(bench, 100 if how == "loop" else 0), pytest.raises(CommandError, match="the module 'faulty' failed"):
        bench("faulty.run", how)
    assert bench("PING") == b"PONG"
    bench.engine.check()


@pytest.mark.parametrize("command", ["partial", "nothing", "half", "deep"])
def test_nothing_of_an_incomplete_reply_is_sent(bench: Bench, command: str) -> None:
    raw = bench.raw(f"faulty.{command}")
    assert raw.startswith(b"-ERR the module 'faulty' failed: ")
    assert raw.count(b"\r\n") == 1


def test_a_loop_ends_after_the_limit_and_the_limit_can_be_changed(bench: Bench) -> None:
    for milliseconds in (60, 20):
        with limit(bench, milliseconds), pytest.raises(CommandError, match=f"was interrupted after {milliseconds} ms"):
            bench("faulty.run", "loop")


def test_code_that_catches_everything_is_interrupted_again(bench: Bench) -> None:
    with limit(bench, 20):
        assert bench("faulty.run", "stubborn") is None  # it returned after the third exception
    assert bench("PING") == b"PONG"


def test_the_error_of_an_inner_call_belongs_to_the_inner_module(bench: Bench) -> None:
    assert b"ZeroDivisionError" in bench("faulty.nested", "raise")
    with limit(bench):
        assert b"was interrupted" in bench("faulty.nested", "loop")
    assert bench("PING") == b"PONG"


def test_no_exception_comes_inside_a_command_of_the_engine(bench: Bench) -> None:
    with limit(bench), pytest.raises(CommandError, match="was interrupted"):
        bench("faulty.outer")
    count = int(bench("GET", "outer"))
    assert len(bench.log()) == count + 2  # MULTI and EXEC: each INCR that took effect is logged
    bench.engine.check()


def test_no_exception_comes_after_the_end_of_a_call() -> None:
    guard = Guard(lambda: 1, lambda text: None)
    outcomes = []
    for _ in range(300):
        try:
            outcomes.append(guard.call("m", spin, 0.0011))
        except CommandError as error:
            outcomes.append(str(error))
        time.monotonic()
    assert set(outcomes) <= {None, "ERR the module 'm' failed: was interrupted after 1 ms"}


def spin(seconds: float) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return None


def test_a_blocked_client_of_a_failed_command_gets_the_error(bench: Bench) -> None:
    assert bench.raw("faulty.blocked").startswith(b"-ERR the module 'faulty' failed: ValueError: after block")
    assert bench.session.blocked is None
    assert not bench.engine.modules.loaded["faulty"].waiting


@pytest.mark.parametrize("how", ["raise", "loop", "nonsense", "none"])
def test_rdb_load_that_fails_refuses_the_payload(bench: Bench, how: str) -> None:
    bench("faulty.set", "k", 5)
    payload = bench("DUMP", "k")
    bench("faulty.fail", "rdb_load", how)
    with limit(bench, 100 if how == "loop" else 0), pytest.raises(CommandError, match="^ERR Bad data format$"):
        bench("RESTORE", "other", 0, payload)
    bench("faulty.fail", "rdb_load", "")
    bench("RESTORE", "other", 0, payload)
    assert bench("faulty.get", "other") == 5


@pytest.mark.parametrize("how", ["raise", "loop", "nonsense"])
def test_rdb_save_that_fails_fails_the_dump_only(bench: Bench, how: str) -> None:
    bench("faulty.set", "k", 5)
    bench("faulty.fail", "rdb_save", how)
    with limit(bench, 100 if how == "loop" else 0), pytest.raises(CommandError, match="the module 'faulty' failed"):
        bench("DUMP", "k")
    bench("faulty.fail", "rdb_save", "")
    assert bench("DUMP", "k")


@pytest.mark.parametrize(
    "method", ["mem_usage", "free", "free_effort", "unlink", "digest", "copy", "event", "info", "defrag"]
)
@pytest.mark.parametrize("how", ["raise", "nonsense"])
def test_other_methods_that_fail_leave_the_data_sound(bench: Bench, method: str, how: str) -> None:
    for number in range(3):
        bench("faulty.set", f"k{number}", number)
    bench("faulty.fail", method, how)
    failures = 0
    for words in (
        ["MEMORY", "USAGE", "k0"],
        ["COPY", "k0", "copy"],
        ["DEBUG", "DIGEST-VALUE", "k0"],
        ["DEBUG", "DIGEST"],
        ["INFO"],
        ["INFO", "everything"],
        ["faulty.set", "k0", 9],
        ["UNLINK", "k0"],
        ["DEL", "k1"],
        ["SET", "k2", "x"],
        ["FLUSHALL"],
    ):
        outcome = bench.outcome(*words)
        if isinstance(outcome, str):
            assert "failed" in outcome
            failures += 1
    assert failures <= 2
    assert bench("DBSIZE") == 0
    bench.engine.check()


def test_a_thread_that_raises_or_returns_nonsense_is_an_error_reply(bench: Bench) -> None:
    for how, text in (
        ("raise", b"ValueError: in the thread"),
        ("nonsense", b"which is not a reply"),
        ("x", b"not a reply"),
    ):
        assert bench.raw("faulty.thread", how) == b""
        reply = wait_for_reply(bench)
        assert reply.startswith(b"-ERR the module 'faulty' failed")
        assert text in reply


def wait_for_reply(bench: Bench) -> bytes:
    deadline = time.monotonic() + 20
    while bench.session.blocked is not None and time.monotonic() < deadline:
        bench.engine.services.run_jobs()
        threading.Event().wait(0.001)
    return bytes(bench.session.out.take_bytes())


def test_a_timer_that_raises_keeps_what_it_did_before(bench: Bench) -> None:
    bench("faulty.timer")
    bench.engine.services.run_jobs()
    assert bench("GET", "fired") == b"1"
    assert any("ValueError: in the timer" in line for line in bench.lines)


def test_a_call_without_a_limit_is_not_watched() -> None:
    bench = Bench(declared(lambda context, argv: spin(0.05)), module_time_limit=0)
    assert bench("t.run") is None


def test_module_timeout_passes_except_exception() -> None:
    assert not issubclass(ModuleTimeout, Exception)


def test_saving_fails_with_the_modules_error_and_keeps_the_old_file(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store", modules=[FAULTY]) as store:
        store.execute("faulty.set", "k", 1)
        store.execute("SAVE")
        before = (tmp_path / "store" / "dump.rdb").read_bytes()
        store.execute("faulty.fail", "rdb_save", "raise")
        with pytest.raises(CommandError):
            store.execute("SAVE")
        assert (tmp_path / "store" / "dump.rdb").read_bytes() == before
        assert store.execute("faulty.get", "k") == 1
        store.execute("faulty.fail", "x")
        store.execute("SAVE")


def test_an_event_that_raises_does_not_stop_the_command(bench: Bench) -> None:
    bench("faulty.fail", "event", "raise")
    bench("SET", "k", 1)
    assert bench("DEL", "k") == 1
    assert any("in event" in line for line in bench.lines)


def test_wrong_use_of_the_context_is_an_error_of_the_call() -> None:
    def wrong(context: Context, argv: list[bytes]) -> Any:
        return {
            b"arg": lambda: context.call("SET", "k", object()),
            b"none": lambda: context.call("SET", "k", None),
            b"kind": lambda: context.notify("?", "x", b"k"),
            b"type": lambda: context.key(b"k").set(cast(Any, str), 1),
            b"db": lambda: context.in_database(99),
            b"multi": lambda: context.call("MULTI"),
            b"unknown": lambda: context.call("NOSUCH", "x"),
            b"arity": lambda: context.call("GET"),
            b"sub": lambda: context.call("CONFIG", "NOSUCH"),
            b"timer": lambda: context.timer(-1, print),
            b"setting": lambda: context.setting("nosuch"),
        }[argv[1]]()

    bench = Bench(declared(wrong))
    for name in ("arg", "none", "kind", "type", "db", "multi", "unknown", "arity", "sub", "timer", "setting"):
        with pytest.raises(CommandError):
            bench("t.run", name)
    assert bench("DBSIZE") == 0


def test_after_an_interrupted_call_python_runs_as_before() -> None:
    """No exception is left over, and no flag of Python that would make a function under sys.setprofile endless."""
    program = """
import sys
from rillet.errors import ModuleFailure
from rillet.modules.guard import Guard
guard = Guard(lambda: 20, lambda line: None)
def endless():
    while True:
        pass
try:
    guard.call("m", endless)
except ModuleFailure as error:
    print(error)
sys.setprofile(lambda *event: None)
print((lambda: sum(range(10_000)))())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "ERR the module 'm' failed: was interrupted after 20 ms\n49995000\n", done.stderr
