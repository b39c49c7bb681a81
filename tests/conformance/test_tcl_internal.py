"""The public Tcl suites' tests that start and kill servers, of durability, users and replication: here they start ours.

    RILLET_SUITE_7_0, _8_6, _NEWEST, _VALKEY   unpacked source trees, as in test_tcl.py

In its internal mode the suite runs `src/redis-server <conf> [options]` in its own folder, looks for the number of the
process and for certain lines in what it prints, and sends signals. So at that path stand a few lines of shell that take
the directives out of the file which are of no use here (WITHOUT) and become `rillet serve`. redis-check-aof and
redis-check-rdb are the genuine ones: they judge the files.

Of each unit the number of tests that pass is recorded, as in test_tcl.py; those that cannot pass are named with their
cause in docs/conformance.md.
"""

from __future__ import annotations

import os
import re
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
WITHOUT = ("always-show-logo", "crash-memcheck-enabled", "enable-debug-assert", "use-exit-on-panic")
# Valkey's units repeat their tests with and without a second connection for the snapshot, which rillet lacks.
TWO_CHANNELS = re.compile(r"(foreach|\}) dualchannel \{[^}]*\}")
LAUNCHER = """\
#!/bin/sh
serve="{python} -m rillet serve"
case "$1" in
-*) exec $serve --compat {compat} "$@" ;;
esac
conf="$1"
shift
sed -i {edits} "$conf"
exec $serve "$conf" --compat {compat} "$@"
"""


@dataclass(frozen=True)
class Unit:
    """A unit of the suite: how many of its tests pass here and on the genuine server, and which it is spared."""

    passed: int
    genuine: int
    # A test that ends the suite's own process where something is missing takes the rest of the unit along.
    skipped: tuple[str, ...] = ()
    # The suite repeats its tests at random, or for a time: no failure counts, and not the number of passes.
    varies: bool = False

    def accepts(self, outcome: Outcome) -> bool:
        """Return whether the outcome is the recorded one."""
        if self.varies:
            return outcome.passed > 0 and not outcome.failed
        return outcome.passed == self.passed


UNITS: dict[str, Unit] = {
    "integration/rdb": Unit(14, 14),
    "integration/aof": Unit(40, 40),
    # Two servers with logs of different names in one folder: the second is refused, and the test waits for it. Two
    # more stand inside it.
    "integration/aof-multi-part": Unit(
        32, 35, ("Multi Part AOF can upgrade when when two redis share the same server dir",)
    ),
    "integration/corrupt-dump": Unit(61, 74),
    "integration/corrupt-dump-fuzzer": Unit(2, 2),
    "unit/aofrw": Unit(20, 20),
    "unit/dump": Unit(26, 26),
    # Its tests of active defragmentation need the jemalloc that Redis bundles.
    "unit/memefficiency": Unit(5, 5),
    "unit/maxmemory": Unit(30, 31),
}


# The units about users, which exist in every suite.
USERS = {
    "7.0": {"unit/acl": Unit(90, 90), "unit/acl-v2": Unit(30, 30), "unit/auth": Unit(10, 10)},
    "8.6": {"unit/acl": Unit(110, 110), "unit/acl-v2": Unit(34, 34), "unit/auth": Unit(12, 12)},
    "newest": {"unit/acl": Unit(111, 112), "unit/acl-v2": Unit(34, 34), "unit/auth": Unit(12, 12)},
    "valkey": {"unit/acl": Unit(115, 116), "unit/acl-v2": Unit(78, 78), "unit/auth": Unit(13, 16)},
}

RANDOM = Unit(0, 0, varies=True)
# A replica's log is synced when its first base is complete; on a slow machine that is within the test.
SYNCED_WITH_BASE = "WAITAOF replica copy before fsync"
REPLICATION = {
    "7.0": {
        "integration/replication": Unit(58, 59),
        "integration/replication-2": Unit(7, 7),
        "integration/replication-3": Unit(7, 7),
        "integration/replication-4": Unit(16, 16),
        "integration/replication-buffer": Unit(8, 8),
        "integration/replication-psync": Unit(60, 60),
        "integration/psync2": Unit(52, 52),
        "integration/psync2-pingoff": Unit(6, 6),
        "integration/psync2-reg": RANDOM,
        "integration/psync2-master-restart": Unit(4, 4),
        "integration/block-repl": Unit(2, 2),
        "integration/failover": Unit(13, 13),
        "integration/shutdown": Unit(5, 5),
        "integration/redis-cli": Unit(31, 31),
        "integration/convert-zipmap-hash-on-load": Unit(3, 3),
        "integration/convert-ziplist-hash-on-load": Unit(2, 2),
        "integration/convert-ziplist-zset-on-load": Unit(2, 2),
        "unit/wait": Unit(5, 5),
        "unit/shutdown": Unit(8, 8),
        "integration/dismiss-mem": Unit(4, 4),
        "integration/redis-benchmark": Unit(9, 9),
        "unit/obuf-limits": Unit(9, 9),
    },
    "newest": {
        "integration/replication": Unit(73, 80),
        "integration/replication-rdbchannel": Unit(21, 21),
        "integration/replication-buffer": Unit(16, 16),
        "integration/replication-psync": Unit(135, 135),
        "integration/redis-cli": Unit(60, 61),
        "integration/replication-2": Unit(7, 7),
        "integration/replication-3": Unit(7, 7),
        "integration/replication-4": Unit(17, 17),
        "integration/psync2": RANDOM,
        "integration/psync2-master-restart": Unit(4, 4),
        "integration/block-repl": Unit(2, 2),
        "integration/failover": Unit(13, 13),
        "integration/shutdown": Unit(5, 5),
        "unit/wait": Unit(36, 37, (SYNCED_WITH_BASE,)),
        "unit/shutdown": Unit(9, 9),
    },
    "valkey": {
        "integration/replica-redirect": Unit(11, 11),
        "integration/replication": Unit(64, 65),
        "integration/replication-2": Unit(7, 7),
        "integration/replication-3": Unit(7, 7),
        "integration/replication-4": Unit(17, 17),
        "integration/replication-aof-sync": Unit(6, 6),
        "integration/replication-buffer": Unit(8, 8),
        "integration/replication-psync": Unit(60, 60),
        "integration/psync2": Unit(52, 52),
        "integration/psync2-pingoff": Unit(6, 6),
        "integration/psync2-reg": RANDOM,
        "integration/psync2-master-restart": Unit(4, 4),
        "integration/block-repl": Unit(2, 2),
        "integration/failover": Unit(13, 13),
        "integration/shutdown": Unit(6, 6),
        "integration/skip-rdb-checksum": Unit(1, 1),
        "integration/convert-zipmap-hash-on-load": Unit(3, 3),
        "integration/convert-ziplist-hash-on-load": Unit(2, 2),
        "integration/convert-ziplist-zset-on-load": Unit(2, 2),
        "integration/dismiss-mem": Unit(4, 4),
        "integration/valkey-cli": Unit(49, 49),
        "integration/valkey-benchmark": Unit(24, 24),
        "integration/valkey-check-rdb": Unit(8, 8),
        "unit/wait": Unit(37, 39, (SYNCED_WITH_BASE,)),
        "unit/shutdown": Unit(9, 9),
    },
}
OF_EACH_SUITE = [*USERS.items(), *REPLICATION.items()]


def lay_out(source: Path, folder: Path, compat: str = "7.0") -> None:
    """Make a folder in which the suite runs: its tests, which write below themselves, and programs where it looks."""
    for name in ("runtest", "utils"):
        (folder / name).symlink_to(source / name)
    shutil.copytree(source / "tests", folder / "tests", ignore=shutil.ignore_patterns("tmp"))
    for file in (folder / "tests" / "integration").glob("replication*.tcl") if compat == "valkey" else ():
        file.write_text(TWO_CHANNELS.sub(_one_channel, file.read_text()))
    programs = folder / "src"
    programs.mkdir()
    server = "valkey" if compat == "valkey" else "redis"
    for name in ("cli", "benchmark", "check-aof", "check-rdb"):
        program = f"{server}-{name}"
        built = source / "src" / program
        found = str(built) if built.exists() else shutil.which(program)
        assert found is not None, f"no {program}: build it in the tree or install it"
        (programs / program).symlink_to(found)
    edits = " ".join(f"-e '/^{name} /d'" for name in WITHOUT)
    launcher = programs / f"{server}-server"
    launcher.write_text(LAUNCHER.format(edits=edits, python=sys.executable, compat=compat))
    launcher.chmod(0o755)


def _one_channel(loop: re.Match[str]) -> str:
    """Return a loop without the second connection; one over two lists at once needs as many elements in both."""
    return f"{loop[1]} dualchannel {'{no}' if loop[1] == 'foreach' else '{no no}'}"


def run_unit(folder: Path, unit: str, skipped: tuple[str, ...], *options: str) -> Outcome:
    """Run a unit in the suite's internal mode."""
    base = 21_000 + free_port() % 9_000
    command = ["./runtest", "--baseport", str(base), "--portcount", "200", "--single", unit, "--clients", "1",
               "--tags", "-slow", "--durable", "--verbose", *options]  # fmt: skip
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
    assert expected.accepts(outcome), report


@pytest.mark.long
@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed (Debian: tcl)")
@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize(("compat", "unit"), [(compat, unit) for compat, units in OF_EACH_SUITE for unit in units])
def test_a_unit_of_each_suite_passes_as_many_tests_as_before(tmp_path: Path, compat: str, unit: str) -> None:
    source = SUITES[compat].source
    if source is None:
        pytest.skip(f"{SUITES[compat].variable} names no suite")
    lay_out(source, tmp_path, compat)
    expected = next(units[unit] for one, units in OF_EACH_SUITE if one == compat and unit in units)
    outcome = run_unit(tmp_path, unit, expected.skipped)
    reasons = [f"  {name}: {why[:200]}" for name, why in outcome.failed.items()]
    report = "\n".join([f"{compat} {unit}: {outcome.passed} pass, {expected.genuine} on the genuine server", *reasons])
    print(report)
    assert expected.accepts(outcome), report


def table() -> list[str]:
    """Return the rows of docs/conformance.md, as recorded here."""
    rows = [f"| internal | {unit} | {one.passed} | {one.genuine} |" for unit, one in UNITS.items()]
    for compat, units in OF_EACH_SUITE:
        for unit, one in units.items():
            counts = "no failure | no failure" if one.varies else f"{one.passed} | {one.genuine}"
            rows.append(f"| internal | {unit}, {compat} | {counts} |")
    return rows


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
