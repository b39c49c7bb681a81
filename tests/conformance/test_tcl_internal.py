"""The public Tcl suite's tests of durability, which start and kill servers themselves: here it starts ours.

    RILLET_SUITE_7_0   an unpacked source tree of Redis 7.0, as in test_tcl.py

In its internal mode the suite runs `src/redis-server <conf> [options]` in its own folder, looks for the number of the
process and for certain lines in what it prints, and sends signals. So at that path stand a few lines of shell that take
the directives out of the file which are of no use here (WITHOUT) and become `rillet serve`. redis-check-aof and
redis-check-rdb are the genuine ones: they judge the files.

Of each unit the number of tests that pass is recorded, as in test_tcl.py; those that cannot pass are named with their
cause in docs/conformance.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.test_tcl import SUITES, Outcome, read_outcome
from tests.judge import free_port
from tests.package.test_modes import ROOT

TIMEOUT = 900
# Directives of the suite's default file that rillet refuses because it has nothing that they could change.
WITHOUT = (
    "crash-memcheck-enabled", "latency-monitor-threshold", "propagation-error-behavior", "repl-diskless-sync-delay",
    "slave-serve-stale-data", "use-exit-on-panic",
)  # fmt: skip
LAUNCHER = """\
#!/bin/sh
conf="$1"
shift
sed -i {edits} "$conf"
exec {python} -m rillet serve "$conf" --compat 7.0 "$@"
"""


@dataclass(frozen=True)
class Unit:
    """A unit of the suite: how many of its tests pass here and on the genuine server, and which it is spared."""

    passed: int
    genuine: int
    # A test that ends the suite's own process where something is missing takes the rest of the unit along.
    skipped: tuple[str, ...] = ()


UNITS: dict[str, Unit] = {
    "integration/rdb": Unit(13, 14),
    # It waits two minutes for a replica that does not start, and passes then without having looked at anything.
    "integration/aof": Unit(38, 40, ("EVAL can process writes from AOF in read-only replicas",)),
    # Two servers with logs of different names in one folder: the second is refused, and the test waits for it. Two
    # more stand inside it.
    "integration/aof-multi-part": Unit(
        32, 35, ("Multi Part AOF can upgrade when when two redis share the same server dir",)
    ),
    "integration/corrupt-dump": Unit(61, 74),
    # A restored string gets commands on bits, too; without them the test believes that the server is gone. What it
    # asks for on top, a full check of what arrives, is always done here.
    "integration/corrupt-dump-fuzzer": Unit(1, 2, ("Fuzzer corrupt restore payloads - sanitize_dump: yes",)),
    "unit/aofrw": Unit(19, 20),
    # The first of them leaves a server behind that the others take for theirs.
    "unit/dump": Unit(11, 26, ("/^MIGRATE ",)),
    # Its tests of active defragmentation need the jemalloc that Redis bundles.
    "unit/memefficiency": Unit(5, 5),
    "unit/maxmemory": Unit(26, 31),
}


def lay_out(source: Path, folder: Path) -> None:
    """Make a folder in which the suite runs: its tests, which write below themselves, and programs where it looks."""
    for name in ("runtest", "utils"):
        (folder / name).symlink_to(source / name)
    shutil.copytree(source / "tests", folder / "tests", ignore=shutil.ignore_patterns("tmp"))
    programs = folder / "src"
    programs.mkdir()
    for program in ("redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"):
        built = source / "src" / program
        found = str(built) if built.exists() else shutil.which(program)
        assert found is not None, f"no {program}: build it in the tree or install it"
        (programs / program).symlink_to(found)
    edits = " ".join(f"-e '/^{name} /d'" for name in WITHOUT)
    launcher = programs / "redis-server"
    launcher.write_text(LAUNCHER.format(edits=edits, python=sys.executable))
    launcher.chmod(0o755)


def run_unit(folder: Path, unit: str, skipped: tuple[str, ...]) -> Outcome:
    """Run a unit in the suite's internal mode."""
    base = 21_000 + free_port() % 9_000
    command = ["./runtest", "--baseport", str(base), "--portcount", "200", "--single", unit, "--clients", "1",
               "--tags", "-slow", "--durable", "--verbose"]  # fmt: skip
    for name in skipped:
        command += ["--skiptest", name]
    # The children are told apart from those of other tests by their own session, so that nothing outlives a time-out.
    with subprocess.Popen(command, cwd=folder, text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=TIMEOUT)
        finally:
            _end_session(process.pid)
    return read_outcome(output)


def _end_session(session: int) -> None:
    """End what the suite left running: all processes of its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                pid = int(entry.name)
                if os.getsid(pid) == session:
                    os.kill(pid, 9)
            except ProcessLookupError:
                pass


_SUITE = pytest.mark.environment(*(() if SUITES["7.0"].source else (SUITES["7.0"].variable,)))


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed (Debian: tcl)")
@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize("unit", list(UNITS))
@_SUITE
def test_a_unit_passes_as_many_tests_as_before(tmp_path: Path, unit: str) -> None:
    source = SUITES["7.0"].source
    assert source is not None
    lay_out(source, tmp_path)
    expected = UNITS[unit]
    outcome = run_unit(tmp_path, unit, expected.skipped)
    reasons = [f"  {name}: {why[:200]}" for name, why in outcome.failed.items()]
    report = "\n".join([f"{unit}: {outcome.passed} pass, {expected.genuine} on the genuine server", *reasons])
    print(report)
    assert outcome.passed == expected.passed, report


def table() -> list[str]:
    """Return the rows of docs/conformance.md, as recorded here."""
    return [f"| internal | {unit} | {one.passed} | {one.genuine} |" for unit, one in UNITS.items()]


def test_an_outcome_after_other_text_is_counted() -> None:
    said = "\n".join((
        "[ok]: one (3 ms)", "Waiting for background save... \x1b[32m[ok]\x1b[0m: two (1 ms)",
        "Waiting for background save... [err]: three in tests/integration/x.tcl", "Expected 1", "[ok]: four (1 ms)",
        "*** [err]: three in tests/integration/x.tcl", "Expected 1",
    ))  # fmt: skip
    assert read_outcome(said) == Outcome(3, {"three": "Expected 1"})


def test_the_page_has_the_recorded_numbers() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| internal | ")] == table()
