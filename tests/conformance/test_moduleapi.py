"""The public Tcl suite's tests of modules (unit/moduleapi), with the twins in Python in place of the libraries in C.

    RILLET_SUITE_7_0   an unpacked source tree of Redis 7.0, as in test_tcl.py

The suite loads `tests/modules/NAME.so`. In its temporary folder, these are copies of tests/modules/twins/NAME.py:
rillet reads a module's file as Python, whatever its name. The suite starts its servers itself, as in
test_tcl_internal.py.

Of each unit the number of tests that pass is recorded beside the number on the genuine server with the modules in C.
Units without a twin, and tests that cannot pass, are named with their reasons in docs/conformance.md.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conformance.test_tcl import SUITES
from tests.conformance.test_tcl_internal import TIMEOUT, Unit, lay_out, run_unit
from tests.modules.redis_modules import TWINS
from tests.package.test_modes import ROOT

UNITS: dict[str, Unit] = {
    "hash": Unit(2, 2),
    "zset": Unit(2, 2),
    "scan": Unit(9, 9),
    "subcommands": Unit(6, 6),
    "reply": Unit(27, 27),
    "publish": Unit(1, 1),
    "cmdintrospection": Unit(3, 3),
    "infotest": Unit(13, 13),
    "datatype": Unit(6, 7),
    "datatype2": Unit(9, 9),
    "timer": Unit(6, 6),
    "moduleconfigs": Unit(16, 16),
    "keyspace_events": Unit(7, 8),
    # The genuine server leaves its tests out: they need the jemalloc that Redis bundles.
    "defrag": Unit(3, 0),
    "getkeys": Unit(11, 15),
    "blockonkeys": Unit(18, 19),
    "blockonbackground": Unit(1, 5),
    # The tests with replicas wait for a replica that does not start.
    "testrdb": Unit(5, 5, ("diskless loading short read with module", "/Diskless load.*")),
}

_SUITE = pytest.mark.environment(*(() if SUITES["7.0"].source else (SUITES["7.0"].variable,)))


def lay_out_twins(source: Path, folder: Path) -> None:
    """Make a folder in which the suite runs, with the twins where it looks for libraries."""
    lay_out(source, folder)
    for file in TWINS.glob("*.py"):
        shutil.copyfile(file, folder / "tests" / "modules" / f"{file.stem}.so")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed (Debian: tcl)")
@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize("unit", list(UNITS))
@_SUITE
def test_a_unit_passes_as_many_tests_as_before(tmp_path: Path, unit: str) -> None:
    source = SUITES["7.0"].source
    assert source is not None
    lay_out_twins(source, tmp_path)
    expected = UNITS[unit]
    outcome = run_unit(tmp_path, f"unit/moduleapi/{unit}", expected.skipped)
    reasons = [f"  {name}: {why[:200]}" for name, why in outcome.failed.items()]
    report = "\n".join([f"{unit}: {outcome.passed} pass, {expected.genuine} on the genuine server", *reasons])
    print(report)
    assert outcome.passed == expected.passed, report


def table() -> list[str]:
    """Return the rows of docs/conformance.md, as recorded here."""
    return [f"| moduleapi/{unit} | {one.passed} | {one.genuine} |" for unit, one in UNITS.items()]


def test_the_page_has_the_recorded_numbers() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| moduleapi/")] == table()
