"""A forked child that runs one job on a snapshot of the data, and the parent's view of it (redisFork, childinfo.c).

    parent  ── fork ──┬────────── continues; the child does not see its changes ── poll ──► ChildOutcome
                      │                                                          ▲
    child             └── job(report) ── "keys", "done", "error" ── pipe ────────┘   os._exit, always

The kernel gives the child a copy of the memory and copies only the pages that either process changes later. So the job
sees the data of one moment, and the parent waits only for the fork itself, which copies the page tables: 10 to 20 ms
per GB.

    Child       one child: start, poll, kill, wait
    Children    at most one child at a time per process (hasActiveChildProcess), and the fields of INFO

Before its job the child does the following:
- It removes the parent's signal handlers. Signals are blocked around the fork, so no signal is handled twice.
- It closes every descriptor except the pipe, the standard ones and those that the caller names. Otherwise clients that
  the parent closes would stay connected, and a listening socket would stay open after the parent's end.
- It disables Python's cycle collector, which would write to the header of every object and so copy its page.

The child ends with os._exit: it never returns to the event loop, runs no exit handlers and flushes no files of the
parent. The job opens the files it needs by path, because the parent's descriptors are closed.

The pipe is readable when there is a report and when the child has ended for any reason, so an event loop only watches
`fileno`. `poll` may be called at any time and never waits. A child whose parent has ended stops at its next report.

A child has succeeded if it reported success and its exit status is 0; the existence of its file proves nothing.

Rejected: a pidfd beside the pipe (the end of the pipe gives the same information on every kernel), multiprocessing (its
children run exit handlers and import the main module), a thread (it would see the data change).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import signal
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from rillet.keyspace.lru import set_child_saves
from rillet.real_time import monotonic, monotonic_ns
from rillet.structs.dict_table import RESIZE_AVOID, RESIZE_ENABLE, RESIZE_FORBID, set_resize_mode

_LONGEST_ERROR = 2000
_READ = 65536
# A child reports its progress once a second.
_REPORT_SECONDS = 1.0
# Measuring the copied memory may cost the child a hundredth of its time (childinfo.c: CHILD_COW_DUTY_CYCLE).
_DUTY_CYCLE = 100

# The children of this process that have not ended.
_RUNNING: set[int] = set()


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """The result of a child: error is "" on success; wanted: the parent killed the child.

    result: the return value of the job, as JSON. seconds: the job's run time. copied: the peak number of bytes that the
    kernel copied for the child (childinfo.c: stat_current_cow_peak).
    """

    error: str = ""
    result: Any = None
    signal: int = 0
    wanted: bool = False
    seconds: float = 0.0
    copied: int = 0

    @property
    def ok(self) -> bool:
        """Whether the job succeeded."""
        return not self.error


class ChildReport:
    """The job's end of the pipe: call it with the number of keys (or bytes) done; it reports at most once a second."""

    __slots__ = ("_cost", "_measured", "_next", "_pipe", "copied")

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._next = self._measured = self._cost = 0.0
        self.copied = 0

    def __call__(self, done: int) -> None:
        """Report the progress; BrokenPipeError if the parent has ended."""
        now = monotonic()
        if now >= self._next:
            self._next = now + _REPORT_SECONDS
            if now - self._measured > self._cost * _DUTY_CYCLE:
                self.measure()
            self.send("at", done)

    def insist(self) -> None:
        """Check that the parent still runs, before a step that affects it; BrokenPipeError if it has ended."""
        self.send("here", None)

    def measure(self) -> None:
        """Measure the memory that this process does not share with its parent."""
        began = monotonic()
        self.copied = private_bytes()
        self._measured = monotonic()
        self._cost = self._measured - began

    def send(self, kind: str, what: Any) -> None:
        """Write one line (JSON) to the pipe to the parent."""
        line = json.dumps([kind, what, self.copied]).encode() + b"\n"
        while line:
            line = line[os.write(self._pipe, line) :]


Job = Callable[[ChildReport], Any]


class Child:
    """A running child; `started` by monotonic, `fork_usec`: the microseconds that the fork took."""

    def __init__(self, pid: int, pipe: int, purpose: str, fork_usec: int) -> None:
        self.pid = pid
        self.purpose = purpose
        self.fork_usec = fork_usec
        self.started = monotonic()
        # The last report: progress, copied bytes, and its time (monotonic).
        self.done = 0
        self.copied = self.most_copied = 0
        self.told_at = self.started
        # Called with the pipe's descriptor before the pipe is closed, so that an event loop stops watching it.
        self.on_close: Callable[[int], None] | None = None
        self._pipe = pipe
        self._unread = b""
        self._open = True
        self._error = ""
        self._result: Any = None
        self._finished = False
        self._killed = False
        self._outcome: ChildOutcome | None = None

    @classmethod
    def start(cls, job: Job, purpose: str, keep: Iterable[int] = ()) -> Child:
        """Fork, and run `job(report)` in the child; OSError (redisFork).

        keep: descriptors that the job needs. The outcome has the job's return value, or its exception as error.
        O(memory of this process / 4096), some microseconds per MB.
        """
        if not hasattr(os, "fork"):
            raise OSError(errno.ENOTSUP, "this operating system has no fork")
        reading, writing = os.pipe()
        usual = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            began = monotonic_ns()
            pid = _fork()
            if pid == 0:
                _run(job, writing, {*keep, writing})
            usec = (monotonic_ns() - began) // 1000
            _RUNNING.add(pid)
            _set_resize_mode()
        except OSError:
            os.close(reading)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)
            os.close(writing)
        os.set_blocking(reading, False)
        return cls(pid, reading, purpose, usec)

    def fileno(self) -> int:
        """Return the descriptor for the event loop: readable when `poll` has a report; -1 once the outcome is known."""
        return self._pipe

    def poll(self) -> ChildOutcome | None:
        """Read the reports, and return the outcome if the child has ended. Never waits."""
        if self._outcome is None:
            if self._open:
                self._listen()
            if not self._open:
                self._reap(os.WNOHANG)
        return self._outcome

    def kill(self) -> None:
        """Kill the child if it runs; `poll` returns the outcome later."""
        if self._outcome is None:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> ChildOutcome:
        """Wait for the end of the child and return its outcome."""
        while self._outcome is None:
            if self._open:
                select.select([self._pipe], [], [])
                self._listen()
            else:
                self._reap(0)
        return self._outcome

    def _listen(self) -> None:
        try:
            while data := os.read(self._pipe, _READ):
                self._unread += data
        except BlockingIOError:
            pass
        else:
            self._open = False
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            kind, what, copied = json.loads(line)
            self.copied = copied
            self.most_copied = max(self.most_copied, copied)
            self.told_at = monotonic()
            if kind == "at":
                self.done = what
            elif kind == "done":
                self._result, self._finished = what, True
            elif kind == "error":
                self._error = what

    def _reap(self, flags: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:
            # If SIGCHLD is ignored, the kernel discards the status; the pipe has the result.
            pid, status = self.pid, 0
        if pid == 0:
            return
        _RUNNING.discard(pid)
        _set_resize_mode()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        error = self._error
        if not error and (status or not self._finished):
            end = f"was killed by signal {number}" if number else f"ended with status {os.WEXITSTATUS(status)}"
            error = f"the child {end}"
        if self.on_close is not None:
            self.on_close(self._pipe)
        os.close(self._pipe)
        self._pipe = -1
        seconds = monotonic() - self.started
        self._outcome = ChildOutcome(error, self._result, number, self._killed, seconds, self.most_copied)


def _set_resize_mode() -> None:
    """Let tables rarely move and record no accesses while a child runs: each changed page is copied.

    Source: server.c, updateDictResizePolicy; db.c, lookupKey.
    """
    set_resize_mode(RESIZE_AVOID if _RUNNING else RESIZE_ENABLE)
    set_child_saves(bool(_RUNNING))


def _forget_children() -> None:
    """Make a process that the application forked independent of the children of its parent."""
    _RUNNING.clear()
    _set_resize_mode()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_children)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 and later warn if there are threads. The child calls nothing that takes their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run(job: Job, pipe: int, keep: set[int]) -> NoReturn:
    """Run the job in the child, then exit."""
    status = 1
    try:
        gc.disable()
        set_resize_mode(RESIZE_FORBID)
        _forget_signals()
        _close_all_but(keep | {0, 1, 2})
        report = ChildReport(pipe)
        try:
            result = job(report)
            report.measure()
            report.send("done", result)
            status = 0
        except BaseException as error:
            report.measure()
            report.send("error", _reason(error)[:_LONGEST_ERROR])
    finally:
        os._exit(status)


def _forget_signals() -> None:
    """Restore the default action of every handled signal; ignored signals stay ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _close_all_but(keep: set[int]) -> None:
    # Close only up to the highest open descriptor: the limit may be a million.
    try:
        end = max(map(int, os.listdir("/proc/self/fd"))) + 1
    except (OSError, ValueError):
        end = os.sysconf("SC_OPEN_MAX")
    start = 0
    for number in [*sorted(keep), end]:
        if start < number:  # os.closerange(0, 0) would close every descriptor
            os.closerange(start, number)
        start = number + 1


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def private_bytes() -> int:
    """Return the private dirty memory of this process in bytes, 0 if the kernel does not report it."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Private_Dirty:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Children:
    """Runs at most one child at a time; collects statistics about all children.

    watch: called with each new child, so that an event loop can watch the child's `fileno` and call `poll`; it sets
    the child's on_close.
    """

    def __init__(self) -> None:
        self.active: Child | None = None
        self.watch: Callable[[Child], None] | None = None
        # Called with the microseconds of each fork.
        self.on_fork: Callable[[int], None] | None = None
        self.latest_fork_usec = 0
        self.forks = 0
        self._keys = 0
        self._ended: Callable[[ChildOutcome], None] | None = None

    def start(self, purpose: str, job: Job, ended: Callable[[ChildOutcome], None], *, keys: int = 0,
              keep: Iterable[int] = ()) -> Child:  # fmt: skip
        """Start a child; `poll` or `stop` calls `ended` after its end, when another child may start.

        OSError if the fork fails. keys: the total for the progress in INFO. keep: descriptors that the job needs.
        """
        assert self.active is None
        child = self.active = Child.start(job, purpose, keep)
        self._ended = ended
        self._keys = keys
        self.latest_fork_usec = child.fork_usec
        self.forks += 1
        if self.on_fork is not None:
            self.on_fork(child.fork_usec)
        if self.watch is not None:
            self.watch(child)
        return child

    def is_at(self, purpose: str) -> bool:
        """Return whether a child with this purpose runs."""
        return self.active is not None and self.active.purpose == purpose

    def poll(self) -> None:
        """Check whether the child has ended, and call its `ended`; never waits."""
        if self.active is not None:
            outcome = self.active.poll()
            if outcome is not None:
                self._over(outcome)

    def stop(self) -> None:
        """Kill the child, wait for its end, and call its `ended`."""
        if self.active is not None:
            self.active.kill()
            self._over(self.active.wait())

    def _over(self, outcome: ChildOutcome) -> None:
        ended, self._ended, self.active = self._ended, None, None
        assert ended is not None
        ended(outcome)

    def stats(self) -> dict[str, object]:
        """Return the fields of INFO stats."""
        return {"latest_fork_usec": self.latest_fork_usec, "total_forks": self.forks}

    def reset(self) -> None:
        """Reset the statistics (CONFIG RESETSTAT)."""
        self.latest_fork_usec = self.forks = 0

    def info(self) -> dict[str, object]:
        """Return the fields of INFO persistence about the running child."""
        child = self.active
        if child is None:
            return {
                "current_cow_peak": 0, "current_cow_size": 0, "current_cow_size_age": 0, "current_fork_perc": "0.00",
                "current_save_keys_processed": 0, "current_save_keys_total": 0,
            }  # fmt: skip
        age = int(monotonic() - child.told_at) if child.copied else 0
        return {
            "current_cow_peak": child.most_copied, "current_cow_size": child.copied, "current_cow_size_age": age,
            "current_fork_perc": f"{100 * child.done / self._keys if self._keys else 0:.2f}",
            "current_save_keys_processed": child.done, "current_save_keys_total": self._keys,
        }  # fmt: skip
