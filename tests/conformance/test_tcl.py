"""The public Tcl suites, each pointed at our server with the compat of its own: how many tests pass, unit by unit.

    RILLET_SUITE_7_0      an unpacked source tree of Redis 7.0 (RILLET_REDIS_SOURCE is its older name)
    RILLET_SUITE_8_6      ... of Redis 8.6
    RILLET_SUITE_NEWEST   ... of Redis after 8.8
    RILLET_SUITE_VALKEY   ... of Valkey 9

Nothing of them is kept here: a suite runs in a temporary folder, its tests copied and the rest linked, so that the tree
stays as it is. It needs tclsh, and a redis-cli (valkey-cli), built in the tree or installed.

`test_one_run_of_all_units` runs a whole suite against one server, as upstream does (`pytest -m long`, 6 to 30 minutes).

Of each unit two numbers are recorded: what passes here, and what passes on the genuine server (external mode, --tags
-slow). A test more that passes asks for the number to be raised, a test less is a failure; `pytest -rP` shows what
did not pass and the suite's own words on it; docs/conformance.md has the table.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.judge import free_port
from tests.package.test_modes import ROOT
from tests.server.harness import Running, running

TIMEOUT = 400
WHOLE = 3600


@dataclass(frozen=True)
class Suite:
    """A public suite: the compat that it holds us to, where it is, and by unit what passes here and on its server."""

    compat: str
    variable: str
    units: dict[str, tuple[int, int]]
    # A test that leaves its connection inside MULTI where something is missing would take those behind it along.
    skipped: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def source(self) -> Path | None:
        """The source tree, None where nobody named one."""
        named = os.environ.get(self.variable, "")
        if not named and self.compat == "7.0":
            named = os.environ.get("RILLET_REDIS_SOURCE", "")
        return Path(named).resolve() if named else None


# The tests that do not pass, with their reasons: docs/conformance.md.
SUITES = {suite.compat: suite for suite in (
    Suite("7.0", "RILLET_SUITE_7_0", {
        "unit/tracking": (54, 54),
        "unit/replybufsize": (1, 1),
        "unit/type/stream": (72, 72),
        "unit/type/stream-cgroups": (51, 51),
        "unit/expire": (64, 64),
        "unit/dump": (12, 12),
        "unit/keyspace": (53, 53),
        "unit/other": (19, 19),
        "unit/protocol": (25, 25),
        "unit/introspection": (28, 28),
        "unit/type/string": (73, 74),
        "unit/bitops": (45, 45),
        "unit/bitfield": (16, 16),
        "unit/hyperloglog": (20, 20),
        "unit/geo": (59, 59),
        "unit/type/incr": (25, 25),
        "unit/multi": (60, 60),
        "unit/scan": (17, 17),
        "unit/type/list": (240, 240),
        "unit/type/list-3": (9, 9),
        "unit/type/set": (97, 97),
        "unit/type/zset": (272, 272),
        "unit/type/hash": (73, 73),
        "unit/pubsub": (30, 30),
        "unit/lazyfree": (4, 4),
        "unit/functions": (94, 94),
        "unit/sort": (48, 48),
        "unit/introspection-2": (43, 43),
        "unit/slowlog": (16, 16),
        "unit/latency-monitor": (13, 14),
        "unit/info-command": (3, 3),
        "unit/violations": (1, 1),
        "unit/quit": (3, 3),
        "unit/scripting": (270, 270),
        "unit/pause": (14, 14),
        "integration/redis-cli": (31, 31),
        "integration/replication-buffer": (2, 2),
    }),
    Suite("8.6", "RILLET_SUITE_8_6", {
        "unit/tracking": (58, 58),
        "unit/type/stream": (196, 196),
        "unit/type/stream-cgroups": (127, 127),
        "unit/type/zset": (282, 282),
        "unit/type/hash": (82, 82),
        "unit/type/hash-field-expire": (32, 32),
        "unit/type/set": (117, 117),
        "unit/expire": (74, 74),
        "unit/scan": (25, 25),
        "unit/keyspace": (59, 59),
        "unit/other": (22, 22),
        "unit/dump": (15, 15),
        "unit/lazyfree": (9, 9),
        "unit/info-keysizes": (18, 18),
        "unit/hyperloglog": (28, 28),
        "unit/geo": (64, 64),
        "unit/type/string": (172, 172),
        "unit/type/list": (287, 287),
        "unit/functions": (97, 97),
        "unit/sort": (50, 50),
    }),
    Suite("newest", "RILLET_SUITE_NEWEST", {
        "unit/tracking": (59, 59),
        "unit/type/stream": (196, 196),
        "unit/type/stream-cgroups": (157, 157),
        "unit/type/zset": (300, 300),
        "unit/type/hash": (82, 82),
        "unit/type/hash-field-expire": (32, 32),
        "unit/type/set": (152, 152),
        "unit/type/list": (287, 287),
        "unit/expire": (74, 74),
        "unit/scan": (26, 26),
        "unit/keyspace": (59, 59),
        "unit/other": (23, 23),
        "unit/dump": (15, 15),
        "unit/lazyfree": (9, 9),
        "unit/info-keysizes": (19, 19),
        "unit/bitops": (62, 62),
        "unit/bitfield": (18, 18),
        "unit/type/array": (136, 136),
        "unit/hyperloglog": (28, 28),
        "unit/geo": (65, 65),
        "unit/type/string": (178, 178),
        "unit/type/increx": (71, 71),
        "unit/functions": (96, 96),
        "unit/sort": (51, 51),
        "unit/pubsub": (129, 129),
        "unit/introspection": (44, 44),
        "unit/introspection-2": (51, 51),
        "unit/slowlog": (31, 31),
        "unit/latency-monitor": (14, 16),
        "unit/info-command": (3, 3),
        "unit/quit": (3, 3),
        "unit/multi": (60, 60),
        "unit/protocol": (27, 27),
        "unit/pause": (18, 18),
        "unit/scripting": (314, 314),
        "unit/networking": (1, 1),
        "unit/querybuf": (1, 1),
        "unit/replybufsize": (1, 1),
        "unit/violations": (1, 1),
        "unit/type/incr": (33, 33),
        "unit/type/list-3": (9, 9),
        "integration/redis-cli": (51, 51),
        "integration/replication-buffer": (4, 4),
    }),
    Suite("valkey", "RILLET_SUITE_VALKEY", {
        "unit/tracking": (62, 62),
        "unit/type/stream": (82, 82),
        "unit/type/stream-cgroups": (62, 62),
        "unit/type/zset": (282, 282),
        "unit/type/hash": (85, 85),
        "unit/hashexpire": (244, 244),
        "unit/type/set": (117, 117),
        "unit/expire": (76, 76),
        "unit/scan": (24, 24),
        "unit/keyspace": (60, 60),
        "unit/other": (24, 24),
        "unit/dump": (17, 17),
        "unit/lazyfree": (4, 4),
        "unit/bitops": (50, 50),
        "unit/bitfield": (18, 18),
        "unit/hyperloglog": (26, 26),
        "unit/geo": (73, 73),
        "unit/type/string": (111, 111),
        "unit/type/list": (287, 287),
        "unit/functions": (97, 97),
        "unit/sort": (51, 51),
        "unit/commandlog": (23, 23),
        "unit/slowlog": (20, 20),
        "unit/latency-monitor": (14, 16),
        "unit/info-command": (5, 5),
        "unit/introspection": (95, 95),
        "unit/introspection-2": (51, 51),
        "unit/quit": (3, 3),
        "unit/multi": (66, 66),
        "unit/protocol": (35, 35),
        "unit/pause": (20, 20),
        "unit/pubsub": (36, 36),
        "unit/scripting": (578, 578),
        "unit/replybufsize": (0, 1),
        "unit/violations": (1, 1),
        "unit/type/list-3": (9, 9),
    }),
)}  # fmt: skip
# All units against one server that is not restarted (test_one_run_of_all_units).
ONE_RUN = {"7.0": (1957, 1959), "newest": (2995, 2998), "valkey": (2898, 2901)}
# It leaves its settings behind where it fails: later tests would log DEL instead of UNLINK, and record latencies.
_LEFT_OUT = ("LATENCY of expire events are correctly collected",)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# A test that waits for something writes what it waits for first, and its outcome behind that.
_OUTCOME = re.compile(r"(?<!\n)(?<!\*\*\* )(?=\[(?:ok|err|exception)\]: )")



def lay_out(suite: Suite, source: Path, folder: Path) -> None:
    """Make a folder in which the suite runs: its tests, which write below themselves, and programs where it looks."""
    for name in ("runtest", "utils"):
        (folder / name).symlink_to(source / name)
    shutil.copytree(source / "tests", folder / "tests")
    (folder / "src").mkdir()
    brand = "valkey" if suite.compat == "valkey" else "redis"
    for program in ("cli", "benchmark", "server"):
        built = source / "src" / f"{brand}-{program}"
        # Valkey's suite wants a server that can be run, though it does not run it in this mode.
        found = str(built) if built.exists() else shutil.which(f"{brand}-{program}") or shutil.which(f"redis-{program}")
        assert found is not None or program == "benchmark", f"no {brand}-{program}: build it in the tree or install it"
        if found is not None:
            (folder / "src" / f"{brand}-{program}").symlink_to(found)


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of each suite that is at hand, by compat."""
    folders: dict[str, Path] = {}
    for suite in SUITES.values():
        if suite.source is not None:
            folders[suite.compat] = tmp_path_factory.mktemp(f"suite-{suite.compat}")
            lay_out(suite, suite.source, folders[suite.compat])
    return folders


@contextmanager
def serving(folder: Path, compat: str, *options: str) -> Iterator[Running]:
    """A server that allows what the suite's own start line allows."""
    loop = "uvloop" if find_spec("uvloop") else "asyncio"
    # Nothing reads the pipe of the log, which a long run would fill.
    with running(folder, "--enable-debug-command", "yes", "--compat", compat,
                 "--logfile", str(folder / "log"), *options, loop=loop) as one:  # fmt: skip
        yield one


@dataclass
class Outcome:
    """What a unit said: how many tests passed, and by name the words on those that did not."""

    passed: int
    failed: dict[str, str]


def read_outcome(output: str) -> Outcome:
    """Read what runtest --verbose prints: a line for each test, behind a failed one the reason."""
    passed, failed, name = 0, {}, ""
    for line in _OUTCOME.sub("\n", _COLOUR.sub("", output)).splitlines():
        if line.startswith(("[err]: ", "[exception]: ")):
            name = line.partition(": ")[2].rpartition(" in tests/")[0] or line
            failed[name] = ""
        elif line.startswith("["):
            passed += line.startswith("[ok]")
            name = ""
        elif name and not failed[name]:
            failed[name] = line
    return Outcome(passed, failed)


def run_unit(folder: Path, port: int, suite: Suite, unit: str, *options: str) -> Outcome:
    """Run a unit against the server at the port, in external mode."""
    return _run(folder, port, ["--single", unit, *options], suite.skipped.get(unit, ()), TIMEOUT)


def _run(folder: Path, port: int, what: list[str], skipped: tuple[str, ...], timeout: int) -> Outcome:
    # The suite also looks at ports 10,000 above its own, which a high free port does not have.
    base = 21_000 + free_port() % 9_000
    command = ["./runtest", "--host", "127.0.0.1", "--port", str(port), "--baseport", str(base), *what,
               "--tags", "-slow", "--durable", "--verbose"]  # fmt: skip
    for name in skipped:
        command += ["--skiptest", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=timeout)
    return read_outcome(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed (Debian: tcl)")
@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize(("compat", "unit"), [
    pytest.param(one.compat, unit, marks=() if one.source else pytest.mark.environment(one.variable))
    for one in SUITES.values() for unit in one.units
])  # fmt: skip
def test_a_unit_passes_as_many_tests_as_before(suites: dict[str, Path], tmp_path: Path, compat: str, unit: str) -> None:
    _check_unit(suites, tmp_path, compat, unit)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed (Debian: tcl)")
@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize(("compat", "unit"), [
    pytest.param(one.compat, unit, marks=() if one.source else pytest.mark.environment(one.variable))
    for one in SUITES.values() for unit in ("unit/type/stream", "unit/type/stream-cgroups")
])  # fmt: skip
def test_a_unit_of_streams_with_segments(suites: dict[str, Path], tmp_path: Path, compat: str, unit: str) -> None:
    _check_unit(suites, tmp_path, compat, unit, "--appendonly", "yes", "--stream-memory", "64kb")


def _check_unit(suites: dict[str, Path], folder: Path, compat: str, unit: str, *options: str) -> None:
    suite = SUITES[compat]
    expected, genuine = suite.units[unit]
    with serving(folder, compat, *options) as server:
        outcome = run_unit(suites[compat], server.port, suite, unit)
    reasons = [f"  {name}: {why[:200]}" for name, why in outcome.failed.items()]
    report = "\n".join([f"{compat} {unit}: {outcome.passed} pass, {genuine} on the genuine server", *reasons])
    print(report)
    assert outcome.passed == expected, report


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed (Debian: tcl)")
@pytest.mark.timeout(WHOLE + 60)
@pytest.mark.parametrize("compat", ONE_RUN)
def test_one_run_of_all_units(suites: dict[str, Path], tmp_path: Path, compat: str) -> None:
    suite = SUITES[compat]
    if suite.source is None:
        pytest.skip(f"{suite.variable} names no suite")
    expected, genuine = ONE_RUN[compat]
    with serving(tmp_path, compat) as server:
        outcome = _run(suites[compat], server.port, [], _LEFT_OUT, WHOLE)
    reasons = [f"  {name}: {why[:200]}" for name, why in outcome.failed.items()]
    report = "\n".join([f"{compat}, all units: {outcome.passed} pass, {genuine} on the genuine server", *reasons])
    print(report)
    assert outcome.passed == expected, report


def table() -> list[str]:
    """Return the rows of docs/conformance.md, as recorded here."""
    rows = [f"| {suite.compat} | {unit.removeprefix('unit/')} | {passed} | {genuine} |"
            for suite in SUITES.values() for unit, (passed, genuine) in suite.units.items()]  # fmt: skip
    return rows + [f"| {compat} | all, in one run | {passed} | {genuine} |"
                   for compat, (passed, genuine) in ONE_RUN.items()]  # fmt: skip


def test_the_page_has_the_recorded_numbers() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(tuple(f"| {compat} | " for compat in SUITES))]
    assert rows == table()


def test_the_output_of_the_suite_is_parsed() -> None:
    said = "\n".join((
        "[ready]: 12", "[testing]: unit/x", "Waiting for background save to finish... [ok]: zero (1 ms)",
        "\x1b[32m[ok]\x1b[0m: one (3 ms)",
        "\x1b[31m[err]\x1b[0m: two in tests/unit/x.tcl", "Expected 1 to be equal to 2", "    while executing",
        "[ok]: three (1 ms)", "more words", "[exception]: Executing test client: ERR no", "ERR no", "[ignore]: four",
    ))  # fmt: skip
    assert read_outcome(said) == Outcome(3, {
        "two": "Expected 1 to be equal to 2", "[exception]: Executing test client: ERR no": "ERR no",
    })  # fmt: skip
