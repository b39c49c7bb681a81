"""Power loss at every operation of a workload (power_loss.py), and stores that omit a call are detected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.rewrite import Rewriting
from rillet.runtime.engine import Engine
from tests.persistence.power_loss import (
    FOLDERS,
    POLICIES,
    START,
    CrashFailure,
    Figures,
    FromFiles,
    Opened,
    Plan,
    explore,
    main,
    settings_of,
)
from tests.persistence.simulated_disk import PowerLoss, SimulatedDisk
from tests.persistence.workload import state
from tests.variants import by_speed, long

# (steps, images of each crash point): some thousands of crash points.
SIZE = by_speed(250, 250, 700), by_speed(1, 1, 2)


@pytest.fixture(scope="module")
def total(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """The coverage of all runs, printed at the end."""
    figures = Figures()
    yield figures
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print(f"\npower loss: {figures}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fsync", "preamble"),
    [("always", "yes"), ("everysec", "no"), *long(("always", "no"), ("everysec", "yes"), ("no", "yes"), ("no", "no"))],
)
def test_every_crash_point_keeps_the_guarantees(fsync: str, preamble: str, total: Figures) -> None:
    steps, survivors = SIZE
    figures = explore(Plan(1, fsync, preamble, steps), survivors)
    total.add(figures)
    assert figures.steps >= steps
    assert figures.points > steps * survivors / 2
    # The run has covered every kind of event.
    met = (figures.rewrites, figures.kills, figures.torn, figures.repaired, figures.twice, figures.snapshots)
    assert all(met), str(figures)


@pytest.mark.slow
@pytest.mark.parametrize(("fsync", "preamble"), [("always", "no"), *long(("everysec", "yes"), ("no", "yes"))])
def test_every_crash_point_of_sealing_keeps_the_guarantees(fsync: str, preamble: str, total: Figures) -> None:
    steps, survivors = by_speed(200, 250, 700), SIZE[1]
    figures = explore(Plan(1, fsync, preamble, steps, seals=True), survivors)
    total.add(figures)
    assert figures.seals > 5, str(figures)
    assert figures.rewrites, str(figures)


# -- whoever cuts a corner is found --------------------------------------------------------------------


class Lying(SimulatedDisk):
    """A disk on which some calls do nothing, as if the store had omitted them."""

    __slots__ = ("forgets",)

    def __init__(self, forgets: str) -> None:
        super().__init__(folders=FOLDERS)
        self.forgets = forgets

    def _sync(self, path: str, number: int) -> None:
        kind = "manifest" if path.endswith("manifest") else "base" if ".base" in path else "incr"
        kind = "segment" if ".segment" in path else kind
        if self.forgets != f"sync of {kind}":
            super()._sync(path, number)

    def sync_folder(self, folder: Path) -> None:
        """Sync the folder, unless this call is omitted."""
        if self.forgets != "sync_folder":
            super().sync_folder(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "forgets", ["sync of incr", "sync_folder", "sync of segment", *long("sync of base", "sync of manifest")]
)
def test_an_omitted_call_is_detected_and_the_failure_repeats(forgets: str) -> None:
    plan = Plan(1, "always", "yes", 150, seals="segment" in forgets)
    with pytest.raises(CrashFailure, match="again: python -m tests.persistence.power_loss --fsync always") as found:
        explore(plan, 2, disk=Lying(forgets))
    words = str(found.value).split()
    only = int(words[words.index("--at") + 1]), int(words[words.index("--survivor") + 1])
    with pytest.raises(CrashFailure) as again:
        explore(plan, 2, only, Lying(forgets))
    # The name of a draft is random.
    first, second = (re.sub("temp-[^ ]+", "temp", str(one.value)) for one in (found, again))
    assert second == first


@pytest.mark.slow
def test_without_checksums_a_lost_sector_is_detected() -> None:
    """RESP alone detects only the losses of a disk that keeps the order of writes."""
    with pytest.raises(CrashFailure, match="again: "):
        explore(Plan(1, "no", "yes", 300, checksums=False), 4)
    explore(Plan(1, "no", "yes", by_speed(80, 50, 150), checksums=False, orderly=True), 2)


def test_the_command_line_runs_plans_and_single_crash_points(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--commands", "30", "--fsync", "always", "--preamble", "yes", "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("always   yes seed 1: ")
    assert lines[2].endswith("; 0 failed")
    assert main(["--commands", "30", "--fsync", "no", "--preamble", "no", "--at", "3", "--survivor", "3"]) == 0
    assert "1 crash points of" in capsys.readouterr().out


# -- what was found, once each -------------------------------------------------------------------------


def _opened(disk: SimulatedDisk, fsync: str, preamble: str = "yes", now: int = START) -> Opened:
    plan = Plan(1, fsync, preamble)
    return Opened(disk, settings_of(plan), plan, now)


def _run(opened: Opened, *lines: str) -> None:
    session = opened.engine.session()
    for line in lines:
        opened.engine.execute(session, line.encode().split())
        opened.engine.log.flush()


def _after_power_loss(disk: SimulatedDisk, seed: int) -> SimulatedDisk:
    power = PowerLoss(disk.journal, folders=FOLDERS)
    while power.at < len(power.journal):
        power.step()
    return power.image(Random(seed))


@pytest.mark.parametrize("fsync", POLICIES)
def test_the_next_process_syncs_the_writes_of_a_killed_one(fsync: str) -> None:
    """Readers see these writes, and an idle store would never sync the file again."""
    disk = SimulatedDisk(folders=FOLDERS)
    _run(_opened(disk, "no"), "SET a 1", "SET b 2")
    before = state(_opened(disk, fsync).engine)
    for seed in range(20):
        assert state(_opened(_after_power_loss(disk, seed), fsync).engine) == before


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_key_persisted_after_the_rotation_is_in_the_base(preamble: str) -> None:
    """The writer reads the log later than the key's original expiry."""
    disk = SimulatedDisk(folders=FOLDERS)
    opened = _opened(disk, "always", preamble)
    engine: Engine = opened.engine
    clock: ManualClock = opened.clock
    rewriting = Rewriting(opened.log, engine, FromFiles(engine.settings, disk, clock))
    _run(opened, "SET kept 1 PX 100", "SET gone 1 PX 100")
    rewriting.begin()
    _run(opened, "PERSIST kept")
    clock.advance(150)
    rewriting.tick(1.0)
    rewriting.tick(2.0)
    assert not rewriting.in_progress
    assert rewriting.succeeded
    _run(opened, "GET gone")
    assert list(engine.databases[0].keys) == [b"kept"]
    assert state(_opened(disk.copy(), "always", preamble, START + 200).engine) == state(engine)
