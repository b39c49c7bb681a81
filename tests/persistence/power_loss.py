"""Every crash point of a workload: power loss before and after each disk operation, followed by opening the store.

    python -m tests.persistence.power_loss --seeds 50 --commands 5000

A plan is a seed, an `appendfsync` and the format of the base. It determines a workload that runs on an engine whose log
is on a simulated disk: commands of tests/persistence/workload.py in batches like those of a server's loop, a moving
clock, rewrites, snapshots and reopenings. The progress is recorded in the disk's journal:

    Reached(executed, acknowledged, now)     executed steps, steps whose replies were sent, and the time (ms)

Then the power fails after every number of operations. For each `survivor`, one image of the possible disk contents
(simulated_disk.PowerLoss) is opened by a new engine. It must open without help, pass `check()`, and have the state
after some step: not before the last step that must be durable, and not after the last executed one. A step is a command
or a whole transaction, so an incomplete transaction is not such a state. Durable steps:

    always       all acknowledged steps
    everysec     all steps acknowledged more than a second ago
    no           all steps before the log was last closed

Some opened stores are killed at once: a second opening must find the same and nothing to repair. After some openings
the power fails again during the repair, or after further writes. A snapshot beside the log must be complete and
consistent.

An image that occurred before is not opened again; its crash point is judged by the earlier result. A failure prints the
command line that repeats this crash.
"""

from __future__ import annotations

import argparse
import random as global_random
import sys
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from rillet.host.sealing import Sealing
from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.rewrite_format import BaseWriter, Ended, InlineBaseWriter
from rillet.persistence.disk import Disk
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.persistence.segments.folder import SegmentFolder
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.persistence.simulated_disk import Killed, PowerLoss, SimulatedDisk
from tests.persistence.workload import DATABASES, Commands, StateTracker, Step, state

STORE = Path("/store")
FOLDER = STORE / "appendonlydir"
SNAPSHOT = STORE / "dump.rdb"
FOLDERS = ("/", "/store")
START = 1_700_000_000_000
LIMIT = 150  # bytes of the nodes of streams in memory, with `seals`
TICK = 100
POLICIES = ("always", "everysec", "no")
_KEPT_IMAGES = 64


@dataclass(frozen=True)
class Plan:
    """All parameters that determine a run."""

    seed: int = 1
    fsync: str = "always"
    preamble: str = "yes"
    commands: int = 300
    orderly: bool = False
    checksums: bool = True
    seals: bool = False  # streams have nodes of few entries, and all but a few nodes go into segments

    def line(self, at: int, survivor: int) -> str:
        """Return the command line that repeats a crash."""
        return (f"python -m tests.persistence.power_loss --fsync {self.fsync} --preamble {self.preamble} "
                f"--seed {self.seed} --commands {self.commands} --at {at} --survivor {survivor}"
                + " --orderly" * self.orderly + " --seals" * self.seals)  # fmt: skip


class Reached(NamedTuple):
    """A note in the journal about the progress; `certain` steps are durable under every policy."""

    executed: int
    acknowledged: int
    now: int
    certain: int
    snapshot: int


class CrashFailure(AssertionError):
    """A crash point after which a guarantee does not hold."""


def settings_of(plan: Plan) -> Settings:
    """Return the settings for the engines of a plan."""
    return Settings(databases=str(DATABASES), aof_use_rdb_preamble=plan.preamble, save="",
                    auto_aof_rewrite_min_size="16kb", auto_aof_rewrite_percentage="300",
                    stream_node_max_entries=3 if plan.seals else 100)  # fmt: skip


class Opened:
    """An engine with its log on a disk."""

    def __init__(self, disk: SimulatedDisk, settings: Settings, plan: Plan, now: int) -> None:
        self.disk = disk
        self.clock = ManualClock(now)
        self.engine = Engine(settings, self.clock)
        self.log = AppendOnlyLog(FOLDER, fsync=plan.fsync, threads=False, disk=disk)
        self.log.checksums = plan.checksums
        self.replayed = self.log.open(self.engine)
        self.repairs = [self.replayed.torn] if self.replayed.torn else []


class FromFiles:
    """Writes a base from the closed files of the log, like the process that a library starts."""

    def __init__(self, settings: Settings, disk: Disk, clock: ManualClock) -> None:
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._work: tuple[Path, list[Path], Ended] | None = None

    def start(self, path: Path, sources: list[Path], ended: Ended) -> None:
        """Schedule the work for the next poll."""
        self._work = path, sources, ended

    def poll(self) -> None:
        """Do the scheduled work and return the outcome."""
        if self._work is not None:
            (path, sources, ended), self._work = self._work, None
            engine = Engine(self._settings, self._clock)
            replay(engine, sources, disk=self._disk)
            ended("", write_base(path, engine, self._disk))

    def stop(self) -> None:
        """Cancel the scheduled work."""
        self._work = None


# -- the workload --------------------------------------------------------------------------------------


class Workload:
    """One run on a simulated disk: the state after each step, and the journal with the progress."""

    def __init__(self, plan: Plan, disk: SimulatedDisk | None = None) -> None:
        self.plan = plan
        self.random = Random(plan.seed)
        # Members that SPOP picks come from there.
        global_random.seed(plan.seed)
        self.settings = settings_of(plan)
        self.disk = disk or SimulatedDisk(folders=FOLDERS)
        self.now = START
        self.states = [0]
        self.acknowledged = self.certain = self.snapshot = 0
        self.snapshots = self.openings = self.kills = 0
        self._open()

    def _open(self) -> None:
        opened = Opened(self.disk, self.settings, self.plan, self.now)
        self.engine, self.log, self.clock = opened.engine, opened.log, opened.clock
        self.tracker = StateTracker(self.engine)
        self.sessions = [self.engine.session() for _ in range(4)]
        for number, session in enumerate(self.sessions[1:], 1):
            self.engine.execute(session, [b"SELECT", b"%d" % (number % DATABASES)])
            session.out.take_bytes()
        self.commands = Commands(self.random, self.engine)
        inline: BaseWriter = InlineBaseWriter(self.engine, self.disk)
        from_files: BaseWriter = FromFiles(self.settings, self.disk, self.clock)
        writer = self.random.choice((inline, from_files))
        self.rewriting = Rewriting(self.log, self.engine, writer, from_memory=inline)
        self.openings += 1
        self.sealing: Sealing | None = None
        if self.plan.seals:
            folder = self.engine.segments = self.engine.segments or SegmentFolder(self.disk, FOLDER)
            folder.remove_parts()
            self.sealing = Sealing(self.engine, folder, LIMIT, self)

    @property
    def seals(self) -> int:
        """The number of segments that got their names."""
        return sum(one.kind == "rename" and one.target.endswith(".segment") for one in self.disk.journal)

    def note(self) -> None:
        """Record the progress in the journal."""
        self.disk.note(Reached(len(self.states) - 1, self.acknowledged, self.now, self.certain, self.snapshot))

    def run(self) -> None:
        """Run until the plan's commands are done, then close."""
        random = self.random
        while len(self.states) <= self.plan.commands:
            if random.random() < 0.02:
                self.disk.kill_in = random.randrange(8)
            try:
                self._turn()
            except Killed:
                self._after_kill()
        self.disk.kill_in = -1
        self._close()

    def _turn(self) -> None:
        """Do the work of one iteration of a server's loop, and sometimes that of an operator."""
        random = self.random
        self._batch(1 if random.random() < 0.7 else random.randint(2, 8))
        way = random.random()
        if way < 0.3:
            self._pass_time(random.choice((TICK, TICK, 3 * TICK, 12 * TICK)))
        elif way < 0.33:
            self._snapshot()
        elif way < 0.34:
            self._reopen()
        elif way < 0.37 and not self.rewriting.in_progress:
            self.rewriting.begin()

    def _batch(self, count: int) -> None:
        """Execute steps of several sessions, write them at once, and send the replies."""
        for _ in range(count):
            session = self.random.choice(self.sessions)
            self._carry_out(session, self.commands.step(session.db.index))
        self._acknowledge()

    def _carry_out(self, session: Any, step: Step) -> None:
        for argv in step.commands:
            self.engine.execute(session, argv)
        session.out.take_bytes()
        self.states.append(self.tracker.changed(step.keys))

    def _acknowledge(self) -> None:
        self.note()
        self.engine.log.flush()
        self.acknowledged = len(self.states) - 1
        self.note()

    def _pass_time(self, ms: int) -> None:
        """Advance the clock tick by tick; expired keys are deleted one by one, each as a step."""
        for _ in range(0, ms, TICK):
            self.now += TICK
            self.clock.advance(TICK)
            self.note()
            self.rewriting.tick(self.now / 1000)
            if self.sealing is not None:
                self.sealing.tick()
            for database, key in self._expired():
                session = next(one for one in self.sessions if one.db.index == database)
                self._carry_out(session, Step([[b"EXISTS", key]], {(database, key)}))
                self._acknowledge()

    def _expired(self) -> list[tuple[int, bytes]]:
        return sorted(
            (database.index, key)
            for database in self.engine.databases for key, when in database.expiries() if when <= self.now
        )  # fmt: skip

    def _snapshot(self) -> None:
        write_rdb(SNAPSHOT, self.engine, disk=self.disk)
        self.snapshot = len(self.states) - 1
        self.snapshots += 1
        self.note()

    def _close(self) -> None:
        self.rewriting.abort()
        if self.sealing is not None:
            self.sealing.close()
        self.engine.log = None
        self.log.close()
        self.certain = len(self.states) - 1
        self.note()

    def _reopen(self) -> None:
        self._close()
        self._open()
        assert self.tracker.state == self.states[-1], "closed and opened again, it is not the same"

    def _after_kill(self) -> None:
        """Reopen the store as another process; it has a prefix, possibly empty, of the unacknowledged steps."""
        self.disk.kill_in = self.random.choice((-1, -1, self.random.randrange(8)))
        self.kills += 1
        try:
            self._open()
        except Killed:
            self._after_kill()
            return
        self.disk.kill_in = -1
        assert self.tracker.state in self.states[self.acknowledged :], "killed, it is none of what it may be"
        # Lost steps do not return: the expected history changes here.
        self.states.append(self.tracker.state)
        self.note()

    @property
    def rewrites(self) -> int:
        """The number of installed bases."""
        return sum(one.kind == "rename" and ".base." in one.target for one in self.disk.journal)

    def check(self) -> None:
        """Verify that steps changed only the keys that they declare."""
        assert state(self.engine) == self.states[-1]
        self.engine.check()


# -- the crash points ----------------------------------------------------------------------------------


@dataclass
class Found:
    """The result of opening an image: its state, and whether the opening changed anything."""

    state: int
    repaired: bool


@dataclass
class Figures:
    """Coverage counts."""

    points: int = 0
    images: int = 0
    repaired: int = 0
    torn: int = 0
    twice: int = 0
    written_on: int = 0
    snapshots: int = 0
    steps: int = 0
    rewrites: int = 0
    kills: int = 0
    faults: int = 0
    seals: int = 0

    def add(self, other: Figures) -> None:
        """Add the counts of another run."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return (
            f"{self.points} crash points of {self.steps} steps with {self.rewrites} rewrites and {self.kills} kills: "
            f"{self.images} different images opened, {self.repaired} of them repaired ({self.torn} torn), {self.twice} "
            f"crashed again while they were, {self.written_on} written on, {self.snapshots} snapshots loaded, "
            f"{self.seals} segments"
        )


class Crashes:
    """All crash points of one workload."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.plan = workload.plan
        self.figures = Figures(steps=len(workload.states) - 1, rewrites=workload.rewrites, kills=workload.kills,
                               seals=workload.seals)  # fmt: skip
        self._positions: dict[int, list[int]] = {}
        for position, one in enumerate(workload.states):
            self._positions.setdefault(one, []).append(position)
        self._known: dict[tuple[tuple[str, bytes], ...], Found] = {}
        self._order: deque[tuple[tuple[str, bytes], ...]] = deque()
        self._snapshots: dict[bytes, int] = {}

    def images(self, survivors: int, only: tuple[int, int] | None = None) -> Iterator[tuple[int, int, Any]]:
        """Yield (operations done, survivor, image); `reached` and `floor` have the values of that moment."""
        power = PowerLoss(self.workload.disk.journal, folders=FOLDERS, orderly=self.plan.orderly)
        self.reached = Reached(0, 0, START, 0, 0)
        self.acknowledged: list[tuple[int, int]] = []
        changed = True
        while True:
            if changed:
                for survivor in range(survivors) if only is None else [only[1]]:
                    if only is None or only[0] == power.at:
                        seed = f"{self.plan.seed} {power.at} {survivor}"
                        yield power.at, survivor, power.image(Random(seed))
            if power.at == len(power.journal):
                return
            operation = power.step()
            changed = operation.kind != "note"
            if not changed:
                self._take_note(operation.note)

    def _take_note(self, reached: Reached) -> None:
        if reached.acknowledged > self.reached.acknowledged:
            self.acknowledged.append((reached.now, reached.acknowledged))
        self.reached = reached

    def floor(self) -> int:
        """Return the last step that must survive the power loss."""
        certain = self.reached.certain
        if self.plan.fsync == "always":
            return max(certain, self.reached.acknowledged)
        if self.plan.fsync == "everysec":
            at = bisect_left(self.acknowledged, (self.reached.now - 1000, 0))
            return max(certain, self.acknowledged[at - 1][1] if at else 0)
        return certain

    def run(self, survivors: int = 1, only: tuple[int, int] | None = None) -> Figures:
        """Test every crash point, or one; CrashFailure describes the first violation."""
        for at, survivor, image in self.images(survivors, only):
            self.figures.points += 1
            try:
                self._judge(image, Random(f"again {self.plan.seed} {at} {survivor}"), only is not None)
            except Exception as error:
                before = self.workload.disk.journal[max(0, at - 6) : at]
                listing = "".join(f"\n    {one}" for one in before if one.kind != "note")
                raise CrashFailure(
                    f"{type(error).__name__}: {error}\nafter {at} operations, the last ones:{listing}\n"
                    f"again: {self.plan.line(at, survivor)}"
                ) from error
        return self.figures

    def _judge(self, image: SimulatedDisk, random: Random, verbose: bool) -> None:
        files = image.files()
        snapshot = files.pop(str(SNAPSHOT), None)
        key = tuple(sorted(files.items()))
        found = self._known.get(key)
        if found is None:
            if verbose:
                print("\n".join(f"  {path}: {len(data)} bytes" for path, data in sorted(image.files().items())))
            found = self._open(image, random)
            self._remember(key, found)
        self._is_promised(found.state)
        if snapshot is not None or self.reached.snapshot:
            self._check_snapshot(snapshot)

    def _remember(self, key: tuple[tuple[str, bytes], ...], found: Found) -> None:
        self._known[key] = found
        self._order.append(key)
        if len(self._order) > _KEPT_IMAGES:
            del self._known[self._order.popleft()]

    def _is_promised(self, found: int, floor: int | None = None) -> int:
        """Return the step after which the state occurred; CrashFailure if it is not allowed."""
        floor = self.floor() if floor is None else floor
        positions = self._positions.get(found, [])
        at = bisect_right(positions, self.reached.executed)
        if not at:
            raise CrashFailure("the state is none that ever was")
        if positions[at - 1] < floor:
            raise CrashFailure(f"the state is the one after step {positions[at - 1]}, and {floor} were promised")
        return positions[at - 1]

    def _open(self, image: SimulatedDisk, random: Random) -> Found:
        """Open an image, and verify that a second opening finds nothing to do."""
        kept = image.files(), set(image.folders)
        opened = Opened(image, self.workload.settings, self.plan, self.reached.now)
        opened.engine.check()
        found = Found(state(opened.engine), bool(image.changes()))
        self.figures.images += 1
        self.figures.torn += bool(opened.repairs)
        self._is_promised(found.state)
        if found.repaired:
            self.figures.repaired += 1
            self._second_opening(image, found)
            if random.random() < 0.2:
                self._crash_again(image, kept, random)
        if random.random() < 0.05:
            self._write_on(opened, kept, random)
        return found

    def _second_opening(self, image: SimulatedDisk, found: Found) -> None:
        """Verify that after a kill the next process finds nothing to repair."""
        again = Opened(image.copy(), self.workload.settings, self.plan, self.reached.now)
        changes = again.repairs + [str(one) for one in again.disk.changes()]
        if changes or again.replayed.dropped:
            raise CrashFailure(f"opened a second time, it is repaired again: {changes}")
        if state(again.engine) != found.state:
            raise CrashFailure("opened a second time, it is not the same")

    def _crash_again(self, image: SimulatedDisk, kept: tuple[dict[str, bytes], set[str]], random: Random) -> None:
        """Cut the power again during the repair, or right after it."""
        power = PowerLoss(image.journal, *kept, self.plan.orderly)
        for _ in range(random.randint(1, len(image.journal))):
            power.step()
        again = Opened(power.image(random), self.workload.settings, self.plan, self.reached.now)
        self.figures.twice += 1
        self._is_promised(state(again.engine))

    def _write_on(self, opened: Opened, kept: tuple[dict[str, bytes], set[str]], random: Random) -> None:
        """Verify that writes after the opening are equally durable."""
        engine, log = opened.engine, opened.log
        log.set_fsync("always")
        session = engine.session()
        for number in range(random.randint(1, 4)):
            engine.execute(session, [b"SET", b"after", b"%d" % number])
            engine.log.flush()
        expected = state(engine)
        power = PowerLoss(opened.disk.journal, *kept, self.plan.orderly)
        while power.at < len(power.journal):
            power.step()
        again = Opened(power.image(random), self.workload.settings, self.plan, self.reached.now)
        self.figures.written_on += 1
        if again.repairs or state(again.engine) != expected:
            raise CrashFailure(f"what was written after the opening is not there: {again.repairs}")

    def _check_snapshot(self, data: bytes | None) -> None:
        if data is None:
            raise CrashFailure("the snapshot is gone")
        if data not in self._snapshots:
            engine = Engine(self.workload.settings, ManualClock(self.reached.now))
            load_rdb(SNAPSHOT, engine, disk=SimulatedDisk({str(SNAPSHOT): data}, FOLDERS))
            self._snapshots[data] = state(engine)
            self.figures.snapshots += 1
        self._is_promised(self._snapshots[data], self.reached.snapshot)


def explore(plan: Plan, survivors: int = 1, only: tuple[int, int] | None = None,
            disk: SimulatedDisk | None = None) -> Figures:  # fmt: skip
    """Run a plan's workload and test its crash points."""
    workload = Workload(plan, disk)
    workload.run()
    workload.check()
    return Crashes(workload).run(survivors, only)


def main(argv: list[str] | None = None) -> int:
    """Run many plans; the exit code is the number of plans with a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.persistence.power_loss", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", type=int, default=1000, help="steps of each workload")
    parser.add_argument("--survivors", type=int, default=1, help="images of each crash point")
    parser.add_argument("--fsync", choices=POLICIES, help="one policy only")
    parser.add_argument("--preamble", choices=("yes", "no"), help="one form of the base only")
    parser.add_argument("--orderly", action="store_true", help="what is written first is on the disk first")
    parser.add_argument("--seals", action="store_true", help="nodes of streams go into segments")
    parser.add_argument("--at", type=int, help="only after so many operations")
    parser.add_argument("--survivor", type=int, default=0, help="which image of --at")
    given = parser.parse_args(argv)
    only = None if given.at is None else (given.at, given.survivor)
    total, failed, began = Figures(), 0, time.perf_counter()
    for seed in range(given.seed, given.seed + given.seeds):
        for fsync in [given.fsync] if given.fsync else POLICIES:
            for preamble in [given.preamble] if given.preamble else ("yes", "no"):
                plan = Plan(seed, fsync, preamble, given.commands, given.orderly, seals=given.seals)
                try:
                    figures = explore(plan, given.survivors, only)
                except CrashFailure as failure:
                    failed += 1
                    print(f"{plan}: {failure}", file=sys.stderr, flush=True)
                else:
                    total.add(figures)
                    print(f"{plan.fsync:8} {plan.preamble:3} seed {seed}: {figures}", flush=True)
    print(f"in all, in {time.perf_counter() - began:.1f} s: {total}; {failed} failed")
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
