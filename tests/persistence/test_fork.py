"""A forked child: its job, its reports through the pipe, and its end; the parent never waits."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rillet.persistence import fork as module
from rillet.persistence.fork import Child, ChildOutcome, Children, ChildReport, private_bytes


@pytest.fixture
def started() -> Iterator[Callable[..., Child]]:
    """Start children, and end all of them after the test."""
    all_of_them: list[Child] = []

    def start(job: Callable[[ChildReport], Any], **more: Any) -> Child:
        all_of_them.append(Child.start(job, "test", **more))
        return all_of_them[-1]

    yield start
    for one in all_of_them:
        one.kill()
        one.wait()


def forever(_report: ChildReport) -> None:
    signal.pause()


def test_a_job_returns_its_result(started: Callable[..., Child]) -> None:
    data = [1, 2, 3]

    def job(_report: ChildReport) -> list[int]:
        data.append(4)
        return data

    child = started(job)
    outcome = child.wait()
    assert outcome.ok
    assert outcome.result == [1, 2, 3, 4]
    assert data == [1, 2, 3]
    assert not outcome.signal
    assert not outcome.wanted
    assert outcome.seconds >= 0
    assert child.fork_usec > 0
    assert child.poll() == outcome
    assert child.fileno() == -1
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)


def test_a_long_result_arrives_completely(started: Callable[..., Child]) -> None:
    assert started(lambda _report: "x" * 1_000_000).wait().result == "x" * 1_000_000


def fails_with(error: BaseException) -> Callable[[ChildReport], None]:
    def job(_report: ChildReport) -> None:
        raise error

    return job


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (ValueError("no such thing"), "no such thing"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "3"),
        (RuntimeError("x" * 10_000), "x" * 2000),
    ],
)
def test_a_failed_job_returns_its_error(started: Callable[..., Child], error: BaseException, text: str) -> None:
    outcome = started(fails_with(error)).wait()
    assert not outcome.ok
    assert outcome.error == text
    assert outcome.result is None
    assert not outcome.wanted


def test_a_result_that_json_cannot_encode_is_an_error(started: Callable[..., Child]) -> None:
    assert "not JSON serializable" in started(lambda _report: object()).wait().error


def test_a_child_that_exits_without_a_report_has_failed(started: Callable[..., Child]) -> None:
    assert started(lambda _report: os._exit(0)).wait().error == "the child ended with status 0"
    assert started(lambda _report: os._exit(7)).wait().error == "the child ended with status 7"


def test_a_child_can_be_killed(started: Callable[..., Child]) -> None:
    child = started(forever)
    assert child.poll() is None
    child.kill()
    outcome = child.wait()
    assert outcome.signal == signal.SIGKILL
    assert outcome.wanted
    assert outcome.error == "the child was killed by signal 9"
    child.kill()


def test_a_kill_by_another_process_is_a_failure(started: Callable[..., Child]) -> None:
    child = started(forever)
    os.kill(child.pid, signal.SIGTERM)
    outcome = child.wait()
    assert outcome.signal == signal.SIGTERM
    assert not outcome.wanted
    assert not outcome.ok


def test_the_pipe_is_readable_at_each_report(started: Callable[..., Child], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REPORT_SECONDS", 0.0)
    reading, writing = os.pipe()
    closed: list[int] = []

    def job(report: ChildReport) -> str:
        report(17)
        os.read(reading, 1)
        return "over"

    child = started(job, keep=(reading,))
    child.on_close = closed.append
    number = child.fileno()
    assert select.select([number], [], [], 20)[0]
    assert child.poll() is None
    assert child.done == 17
    assert child.copied > 0
    assert child.told_at >= child.started
    os.write(writing, b"x")
    while child.poll() is None:
        assert select.select([number], [], [], 20)[0]
    assert child.poll() == child.wait()
    assert child.wait().result == "over"
    assert child.wait().copied > 0
    assert closed == [number]
    os.close(reading)
    os.close(writing)


def test_progress_is_reported_then_rarely(started: Callable[..., Child], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REPORT_SECONDS", 1e6)

    def job(report: ChildReport) -> None:
        for done in range(1, 1000):
            report(done)

    child = started(job)
    assert child.wait().ok
    assert child.done == 1


def test_copied_memory_is_reported(started: Callable[..., Child]) -> None:
    ballast = bytearray(32 << 20)
    ballast[::1024] = b"x" * len(ballast[::1024])
    reading, writing = os.pipe()

    def job(_report: ChildReport) -> None:
        os.read(reading, 1)

    child = started(job, keep=(reading,))
    ballast[::1024] = b"y" * len(ballast[::1024])
    os.write(writing, b"x")
    os.close(reading)
    os.close(writing)
    assert child.wait().copied > 32 << 20
    assert private_bytes() > 32 << 20


def test_the_child_closes_the_descriptors_of_the_parent(started: Callable[..., Child]) -> None:
    """A client that the parent disconnects sees the end, although the child still runs."""
    here, there = socket.socketpair()
    kept, other = os.pipe()

    def job(_report: ChildReport) -> None:
        os.write(other, b"x")
        forever(_report)

    child = started(job, keep=(other,))
    assert os.read(kept, 1) == b"x"
    here.close()
    there.settimeout(20)
    assert there.recv(1) == b""
    assert child.poll() is None
    there.close()
    os.close(other)
    child.kill()
    child.wait()
    assert os.read(kept, 1) == b""
    os.close(kept)


def test_a_child_has_only_the_named_descriptors(started: Callable[..., Child]) -> None:
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    found = started(lambda _report: sorted(map(int, os.listdir("/proc/self/fd")))).wait().result
    assert found[:3] == [0, 1, 2]
    assert len(found) == 5  # the pipe, and the folder that is listed
    for number in numbers:
        os.close(number)


def test_a_child_has_default_signal_handlers(started: Callable[..., Child]) -> None:
    taken: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: taken.append(number))
    ignored = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    here, there = socket.socketpair()
    there.setblocking(False)
    wakeup = signal.set_wakeup_fd(there.fileno())

    def job(_report: ChildReport) -> list[Any]:
        return [signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN,
                signal.getsignal(signal.SIGINT) == signal.SIG_DFL, signal.set_wakeup_fd(-1),
                len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))]

    try:
        assert started(job).wait().result == [True, True, True, -1, 0]
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert taken == [signal.SIGUSR1]
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGUSR2, ignored)
        signal.signal(signal.SIGINT, interrupt)
        here.close()
        there.close()


def test_a_child_whose_parent_has_ended_stops_at_its_next_report(tmp_path: Path) -> None:
    """The grandchild keeps a file of the test open as long as it runs."""
    reading, writing = os.pipe()

    def grandchild(report: ChildReport) -> None:
        while True:
            report.send("at", 1)
            time.sleep(0.001)

    def parent(_report: ChildReport) -> None:
        Child.start(grandchild, "test", keep=(writing,))
        os._exit(0)

    child = Child.start(parent, "test", keep=(writing,))
    os.close(writing)
    child.wait()
    assert select.select([reading], [], [], 20)[0]
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_the_pipe_has_the_result_if_the_exit_status_is_lost(started: Callable[..., Child]) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert started(lambda _report: 5).wait().result == 5
        assert started(lambda _report: os._exit(0)).wait().error == "the child ended with status 0"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_failed_fork_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory() -> int:
        raise OSError(12, "Cannot allocate memory")

    open_before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "fork", no_memory)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        Child.start(forever, "test")
    assert os.listdir("/proc/self/fd") == open_before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    children = Children()
    with pytest.raises(OSError, match="Cannot allocate memory"):
        children.start("test", forever, lambda _outcome: None)
    assert children.active is None
    assert children.forks == 0


def test_only_one_child_runs_at_a_time() -> None:
    children, seen, watched = Children(), list[ChildOutcome](), list[Child]()
    children.watch = watched.append
    nothing = children.info()
    assert set(nothing.values()) == {0, "0.00"}
    children.poll()
    children.stop()

    def ended(outcome: ChildOutcome) -> None:
        assert children.active is None
        seen.append(outcome)

    child = children.start("save", forever, ended, keys=10)
    assert watched == [child]
    assert children.is_at("save")
    assert not children.is_at("rewrite")
    assert children.latest_fork_usec == child.fork_usec
    assert children.forks == 1
    with pytest.raises(AssertionError):
        children.start("rewrite", forever, ended)
    child.done = 5
    assert children.info()["current_fork_perc"] == "50.00"
    assert children.info()["current_save_keys_total"] == 10
    children.poll()
    assert not seen
    children.stop()
    assert [one.wanted for one in seen] == [True]
    assert children.info() == nothing

    def again(_outcome: ChildOutcome) -> None:
        children.start("rewrite", lambda _report: 1, ended)

    children.start("save", lambda _report: 0, again)
    while len(seen) < 2:
        assert children.active is not None
        select.select([children.active.fileno()], [], [], 20)
        children.poll()
    assert seen[1].result == 1
    assert children.forks == 3
