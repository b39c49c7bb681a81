"""Every disk call fails once, or permanently: the guarantees of docs/durability.md hold.

A small workload with rewrites runs on a simulated disk, and its calls are counted. Then it runs once for every call, in
`make test` for every second, with that call failing. After any failure no reply acknowledges a change that is less
durable than promised, writes are rejected with MISCONF, and reads work. About a second after the disk works again,
writes are accepted, and the disk has the same data as the memory. The power may also fail after any of these
operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from errno import EIO, ENOSPC, EROFS
from typing import Any

import pytest

from rillet.errors import Misconf, StoreError
from rillet.persistence.aof.states import WAIT_REWRITE
from rillet.protocol.reply_parser import parse_all
from tests.persistence.power_loss import Crashes, CrashFailure, Figures, Opened, Plan, Workload
from tests.persistence.simulated_disk import FOREVER, SimulatedDisk
from tests.persistence.workload import state
from tests.variants import by_speed

NAMES = {ENOSPC: "a full disk", EIO: "an I/O error", EROFS: "a read-only file system"}
# What a full disk and one that was remounted read-only refuse; an error of input and output may hit any call.
KINDS: dict[int, tuple[str, ...]] = {
    ENOSPC: ("write", "create", "rename", "make_folder"),
    EROFS: ("write", "create", "rename", "remove", "truncate", "make_folder"),
    EIO: (),
}
STEPS = 40
# Of the runs with each fault, every so many-th is also cut off by the power at every operation.
CRASHED = by_speed(20, 20, 10)
EVERY = by_speed(2, 2, 1)


class FaultyRun(Workload):
    """A workload with a failing disk; rejected steps are counted, and `states` includes them as possible."""

    def __init__(self, plan: Plan, disk: SimulatedDisk) -> None:
        self.refused = 0
        self.stopped = FOREVER
        self.trouble: list[str] = []
        super().__init__(plan, disk)

    def _open(self) -> None:
        for _ in range(2):
            try:
                super()._open()
                break
            except (OSError, StoreError) as error:
                # A store that cannot be opened raises an error, and opens once the disk works.
                self.trouble.append(f"opening: {error}")
                self.disk.works()
        engine, log = self.engine, self.log

        def failed(reason: str) -> None:
            engine.refusal = reason
            self.trouble.append(reason)

        def recovered() -> None:
            engine.refusal = None

        log.failures.on_failure = failed
        log.failures.on_recovery = recovered

    def note(self) -> None:
        """Record the progress; after a failed sync, no step becomes older than a second until there is a new base.

        Steps acknowledged in the second before the failure stay in doubt.
        """
        broken = self.log.state == WAIT_REWRITE or self.log.syncer.error is not None
        self.stopped = min(self.stopped, self.now) if broken else FOREVER
        now, self.now = self.now, min(self.now, self.stopped)
        super().note()
        self.now = now

    def _acknowledge(self) -> None:
        self.note()
        try:
            self.engine.log.flush()
        except Misconf:
            self.refused += 1
        if self.engine.refusal is None:
            self.acknowledged = len(self.states) - 1
        else:
            self._look_at_refusal()
        self.note()

    def _look_at_refusal(self) -> None:
        """Verify that writes are rejected with Redis's text and reads work."""
        session = self.engine.session()
        self.engine.execute(session, [b"SET", b"refused", b"1"])
        self.engine.execute(session, [b"EXISTS", b"refused"])
        said = parse_all(session.out.take_bytes())
        self.engine.close_session(session)
        assert str(said[0]).startswith("MISCONF Errors writing to the AOF file: "), said
        assert said[1] == 0

    def run(self) -> None:
        """Run with a rewrite every few iterations; the disk works again after two thirds."""
        turn = 0
        while len(self.states) <= STEPS:
            turn += 1
            self._batch(self.random.randint(1, 3))
            if turn % 6 == 2 and not self.rewriting.in_progress:
                try:
                    self.rewriting.begin()
                except OSError as error:
                    self.trouble.append(f"rewrite: {error}")
            if turn % 3 == 0:
                self._pass_time(600)
            if turn == 14:
                self.recover()
        self.recover()
        self._reopen()

    def recover(self) -> None:
        """Repair the disk; some seconds later writes are accepted, and the disk has the data of the memory."""
        self.disk.works()
        for _ in range(3):
            self._pass_time(1200)
        assert self.engine.refusal is None, self.trouble
        self._batch(1)
        assert self.acknowledged == len(self.states) - 1
        opened = Opened(self.disk.copy(), self.settings, self.plan, self.now)
        assert not opened.repairs, self.trouble
        assert state(opened.engine) == self.states[-1], self.trouble


def _plan(fsync: str, preamble: str) -> Plan:
    return Plan(3, fsync, preamble, STEPS)


def _calls(plan: Plan) -> int:
    run = FaultyRun(plan, SimulatedDisk(folders=("/", "/store")))
    run.run()
    assert not run.trouble
    assert not run.refused
    return run.disk.calls


def _each_call(plan: Plan, error: int, times: int) -> Iterator[tuple[int, SimulatedDisk]]:
    for number, call in enumerate(range(0, _calls(plan), EVERY)):
        disk = SimulatedDisk(folders=("/", "/store"))
        disk.evicts = bool(number % 2)
        disk.fail(error, *KINDS[error], at=call, times=times, short=number % 3 * 7)
        yield call, disk


def _variants() -> list[Any]:
    """Return all combinations; `make test` runs one of each fault, of each policy, of each duration."""
    short = {("always", EIO, FOREVER), ("everysec", ENOSPC, 1), ("no", EROFS, FOREVER)}
    return [
        pytest.param(
            fsync, preamble, error, times, id=f"{fsync}-{preamble}-{NAMES[error]}-{name}",
            marks=() if (fsync, error, times) in short else pytest.mark.long,
        )
        for fsync, preamble in (("always", "yes"), ("everysec", "no"), ("no", "yes"))
        for error in NAMES
        for times, name in ((1, "once"), (FOREVER, "from then on"))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def total(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """The coverage of all runs, printed at the end; `faults` counts the failed calls."""
    figures = Figures()
    yield figures
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print(f"\nfaults: {figures.faults} calls failed; after some of them {figures}")


@pytest.mark.slow
@pytest.mark.parametrize(("fsync", "preamble", "error", "times"), _variants())
def test_any_failure_is_safe(fsync: str, preamble: str, error: int, times: int, total: Figures) -> None:
    plan = _plan(fsync, preamble)
    struck = crashed = 0
    for call, disk in _each_call(plan, error, times):
        run = FaultyRun(plan, disk)
        fault = disk.faults[0] if disk.faults else None
        try:
            run.run()
        except Exception as problem:
            raise AssertionError(f"call {call} ({NAMES[error]}): {type(problem).__name__}: {problem}; {run.trouble}"
                                 ) from problem  # fmt: skip
        if fault is not None and not fault.told:
            break  # later calls cannot have this kind of fault
        struck += 1
        total.faults += 1
        if struck % CRASHED == CRASHED // 2:
            try:
                total.add(Crashes(run).run())
            except CrashFailure as problem:
                raise AssertionError(f"call {call} ({NAMES[error]}), then the power: {problem}") from problem
            crashed += 1
    assert struck > 20
    assert crashed
