"""A forked child that does one job on the data as it was at that moment, and its parent's view of it (Redis: server.c,
redisFork; childinfo.c).

    parent  ── fork ──┬────────── goes on; its changes are its own ────── poll ──► Outcome
                      │                                                     ▲
    child             └── job(report) ── "keys", "done", "error" ── pipe ───┘   os._exit, always

The kernel gives the child a copy of the memory that costs only the pages that either side changes afterwards. So the
job sees the data of one moment for as long as it takes, and the parent stands still for the fork alone: the copying of
the page tables, 10 to 20 ms for each GB.

    Child       one child: start, poll, kill, wait
    Children    the books of a process that has at most one at a time (hasActiveChildProcess), what INFO tells of them

The child, before its job begins: blocks no signal and has no handler of the parent's (they are blocked around the
fork, so none is taken twice); closes every descriptor but the pipe, the three standard ones and those that the caller
names, so that a client whom the parent closes sees the end, and a listening socket is free when the parent ends; lets
Python's cycle collector rest, which would write to the head of every object it visits. It never returns: not to the
event loop, not to exit handlers, not to the flushing of files that the parent has open. Objects of the parent whose
descriptors were closed under them must be left alone by the job: it opens what it needs, by path.

Whoever reads the pipe learns of the end at once: it is readable when there is news and when the child is gone, however
it ended, so `fileno` is all that a loop has to watch; `poll` may be called at any time and never waits. A child whose
parent is gone ends at its next report, because nobody reads the pipe.

A child succeeded when it said so and its exit status is 0. Nothing else counts: not the file it may have left.

Rejected: a pidfd beside the pipe (the pipe's end tells the same, on every kernel), multiprocessing (its children run
exit handlers and import the main module), one Python thread instead (it would see the data change).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

_LONGEST_ERROR = 2000
_READ = 65536
# A child tells how far it is once a second.
_REPORT_SECONDS = 1.0
# Measuring the copied memory may cost the child a hundredth of its time (childinfo.c: CHILD_COW_DUTY_CYCLE).
_DUTY_CYCLE = 100


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """How a child ended: error is "" where the job was done; wanted: it was killed by its own parent.

    result: what the job returned, where JSON can carry it. seconds: its life. copied: bytes of memory that the kernel
    had to copy for it, at the most (childinfo.c: stat_current_cow_peak).
    """

    error: str = ""
    result: Any = None
    signal: int = 0
    wanted: bool = False
    seconds: float = 0.0
    copied: int = 0

    @property
    def ok(self) -> bool:
        """Whether the job was done."""
        return not self.error


class ChildReport:
    """The job's end of the pipe: call it with how many keys (or bytes) are done; it tells so once a second at most."""

    __slots__ = ("_cost", "_measured", "_next", "_pipe", "copied")

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._next = self._measured = self._cost = 0.0
        self.copied = 0

    def __call__(self, done: int) -> None:
        """Tell how far the job is; BrokenPipeError where the parent is gone."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REPORT_SECONDS
            if now - self._measured > self._cost * _DUTY_CYCLE:
                self.measure()
            self.send("at", done)

    def insist(self) -> None:
        """See that the parent is there, before something is done that concerns it; BrokenPipeError where it is not."""
        self.send("here", None)

    def measure(self) -> None:
        """Find out how much memory is this process's own by now."""
        began = time.monotonic()
        self.copied = private_bytes()
        self._measured = time.monotonic()
        self._cost = self._measured - began

    def send(self, kind: str, what: Any) -> None:
        """Write one line; the parent reads it when it likes."""
        line = json.dumps([kind, what, self.copied]).encode() + b"\n"
        while line:
            line = line[os.write(self._pipe, line) :]


Job = Callable[[ChildReport], Any]


class Child:
    """A child at its job; `started` by time.monotonic, `fork_usec` the microseconds that the parent stood still for."""

    def __init__(self, pid: int, pipe: int, purpose: str, fork_usec: int) -> None:
        self.pid = pid
        self.purpose = purpose
        self.fork_usec = fork_usec
        self.started = time.monotonic()
        # What it last told: how far it is, the bytes copied, and when that was told (time.monotonic).
        self.done = 0
        self.copied = self.most_copied = 0
        self.told_at = self.started
        # Called with the pipe's number before that is closed: a loop that watches it has to let go first.
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
        """Fork, and run `job(report)` in the child; OSError where there can be no child (redisFork).

        keep: descriptors that the job needs. What the job returns is the outcome's result; an exception is its error.
        O(memory of this process / 4096), some microseconds a MB.
        """
        if not hasattr(os, "fork"):
            raise OSError(errno.ENOTSUP, "this operating system has no fork")
        reading, writing = os.pipe()
        usual = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            began = time.perf_counter_ns()
            pid = _fork()
            if pid == 0:
                _run(job, writing, {*keep, writing})
            usec = (time.perf_counter_ns() - began) // 1000
        except OSError:
            os.close(reading)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)
            os.close(writing)
        os.set_blocking(reading, False)
        return cls(pid, reading, purpose, usec)

    def fileno(self) -> int:
        """Return what a loop is to watch: readable when `poll` has news; -1 once the outcome is known."""
        return self._pipe

    def poll(self) -> ChildOutcome | None:
        """Take what the child told, and return its outcome once it is gone. Never waits; may be called again."""
        if self._outcome is None:
            if self._open:
                self._listen()
            if not self._open:
                self._reap(os.WNOHANG)
        return self._outcome

    def kill(self) -> None:
        """End the child, if it is still there; `poll` tells when it is gone."""
        if self._outcome is None:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> ChildOutcome:
        """Return the outcome, however long that takes."""
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
            self.told_at = time.monotonic()
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
            # Where SIGCHLD is ignored the kernel takes the status away; the pipe said how it ended.
            pid, status = self.pid, 0
        if pid == 0:
            return
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        error = self._error
        if not error and (status or not self._finished):
            error = f"terminated by signal {number}" if number else f"ended with status {os.WEXITSTATUS(status)}"
        if self.on_close is not None:
            self.on_close(self._pipe)
        os.close(self._pipe)
        self._pipe = -1
        seconds = time.monotonic() - self.started
        self._outcome = ChildOutcome(error, self._result, number, self._killed, seconds, self.most_copied)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 and later warn where threads are about. The child calls nothing that takes a lock of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run(job: Job, pipe: int, keep: set[int]) -> NoReturn:
    """Be the child, to its end."""
    status = 1
    try:
        gc.disable()
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
    """Let every signal do what it does to a process that knows none; those that were ignored stay ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _close_all_but(keep: set[int]) -> None:
    # The range above the highest one is not walked: a process may be allowed a million of them.
    try:
        end = max(map(int, os.listdir("/proc/self/fd"))) + 1
    except (OSError, ValueError):
        end = os.sysconf("SC_OPEN_MAX")
    start = 0
    for number in [*sorted(keep), end]:
        if start < number:  # an empty range that begins at 0 is taken for all there is
            os.closerange(start, number)
        start = number + 1


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def private_bytes() -> int:
    """Return the memory that this process shares with nobody and has written to, as the kernel tells; 0 where not."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Private_Dirty:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Children:
    """At most one child at a time, and what is known of it and of those before.

    watch: called with a child that was started, so that a loop can look after its `fileno` and call `poll`; it sets
    the child's on_close.
    """

    def __init__(self) -> None:
        self.active: Child | None = None
        self.watch: Callable[[Child], None] | None = None
        self.latest_fork_usec = 0
        self.forks = 0
        self._keys = 0
        self._ended: Callable[[ChildOutcome], None] | None = None

    def start(self, purpose: str, job: Job, ended: Callable[[ChildOutcome], None], *, keys: int = 0) -> Child:
        """Start a child; `ended` is called, by `poll` or `stop`, when it is gone and another one may be started.

        OSError where the fork fails. keys: how many the job is to report.
        """
        assert self.active is None
        child = self.active = Child.start(job, purpose)
        self._ended = ended
        self._keys = keys
        self.latest_fork_usec = child.fork_usec
        self.forks += 1
        if self.watch is not None:
            self.watch(child)
        return child

    def is_at(self, purpose: str) -> bool:
        """Whether there is a child for that."""
        return self.active is not None and self.active.purpose == purpose

    def poll(self) -> None:
        """See whether the child ended, and let whoever started it know; never waits."""
        if self.active is not None:
            outcome = self.active.poll()
            if outcome is not None:
                self._over(outcome)

    def stop(self) -> None:
        """Kill the child, and return once it is gone and whoever started it knows."""
        if self.active is not None:
            self.active.kill()
            self._over(self.active.wait())

    def _over(self, outcome: ChildOutcome) -> None:
        ended, self._ended, self.active = self._ended, None, None
        assert ended is not None
        ended(outcome)

    def stats(self) -> dict[str, object]:
        """Return what INFO stats tells of all children."""
        return {"latest_fork_usec": self.latest_fork_usec, "total_forks": self.forks}

    def reset(self) -> None:
        """Begin the statistics anew (CONFIG RESETSTAT)."""
        self.latest_fork_usec = self.forks = 0

    def facts(self) -> dict[str, object]:
        """Return what INFO persistence tells of the child that is at work."""
        child = self.active
        if child is None:
            return {
                "current_cow_peak": 0, "current_cow_size": 0, "current_cow_size_age": 0, "current_fork_perc": "0.00",
                "current_save_keys_processed": 0, "current_save_keys_total": 0,
            }  # fmt: skip
        age = int(time.monotonic() - child.told_at) if child.copied else 0
        return {
            "current_cow_peak": child.most_copied, "current_cow_size": child.copied, "current_cow_size_age": age,
            "current_fork_perc": f"{100 * child.done / self._keys if self._keys else 0:.2f}",
            "current_save_keys_processed": child.done, "current_save_keys_total": self._keys,
        }  # fmt: skip


__all__ = ["Child", "ChildOutcome", "ChildReport", "Children", "Job", "private_bytes"]
