"""The units of Redis 7.0's suite once more, with every connection over TLS: RILLET_SUITE_7_0, as in test_tcl.py.

The suite's own script makes the certificates. Its clients present one and verify the server's, so each unit also tests
the handshake with a certificate on both sides. The suite needs Tcl's package tls (Debian: tcl-tls); redis-cli and
redis-benchmark must be built with TLS, as Debian's are.

A unit passes as many tests as without TLS, apart from the units in `OTHER_NUMBERS`, which have tests of their own about
TLS, or leave tests out; docs/conformance.md names them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conformance.test_tcl import SUITES, TIMEOUT, lay_out, run_unit, serving
from tests.judge import free_port
from tests.package.test_modes import ROOT

SUITE = SUITES["7.0"]
# What passes here and on the genuine server over TLS, where the number is not that of the unit without TLS.
OTHER_NUMBERS: dict[str, tuple[int, int]] = {
    # One of its tests starts a replica with another certificate, which the external mode cannot.
    "unit/tls": (7, 7),
    # One test has a fake node without TLS.
    "integration/redis-cli": (30, 30),
}
UNITS = {**SUITE.units, **OTHER_NUMBERS}
_MISSING = "Tcl's package tls is not installed (Debian: tcl-tls)"


def _tcl_has_tls() -> bool:
    """Return whether tclsh loads the package tls."""
    if shutil.which("tclsh") is None:
        return False
    return subprocess.run(["tclsh"], input="package require tls 1.6", text=True, capture_output=True).returncode == 0


def make_certificates(folder: Path) -> None:
    """Run the suite's script, which writes into tests/tls; the file of a server's parameters is not needed."""
    certificates = folder / "tests" / "tls"
    certificates.mkdir(exist_ok=True)
    (certificates / "redis.dh").touch()
    subprocess.run(["bash", "utils/gen-test-certs.sh"], check=True, cwd=folder, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the suite runs, with certificates."""
    if not _tcl_has_tls():
        pytest.skip(_MISSING)
    assert SUITE.source is not None
    folder = tmp_path_factory.mktemp("suite-tls")
    lay_out(SUITE, SUITE.source, folder)
    make_certificates(folder)
    return folder


def certificates(folder: Path) -> list[str]:
    """Return the options of a server with the suite's certificates."""
    made = folder / "tests" / "tls"
    return ["--tls-cert-file", str(made / "server.crt"), "--tls-key-file", str(made / "server.key"),
            "--tls-ca-cert-file", str(made / "ca.crt")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.environment(*(() if SUITE.source else (SUITE.variable,)))
@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_passes_as_many_tests_as_before(folder: Path, tmp_path: Path, unit: str) -> None:
    expected, genuine = UNITS[unit]
    port = free_port()
    with serving(tmp_path, SUITE.compat, "--tls-port", str(port), *certificates(folder)):
        outcome = run_unit(folder, port, SUITE, unit, "--tls")
    reasons = [f"  {name}: {why[:200]}" for name, why in outcome.failed.items()]
    report = "\n".join([f"{unit} over TLS: {outcome.passed} pass, {genuine} on the genuine server", *reasons])
    print(report)
    assert outcome.passed == expected, report


def table() -> list[str]:
    """Return the rows of docs/conformance.md, as recorded here."""
    return [f"| TLS | {unit.removeprefix('unit/')} | {passed} | {genuine} |"
            for unit, (passed, genuine) in OTHER_NUMBERS.items()]  # fmt: skip


def test_the_page_has_the_recorded_numbers() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| TLS | ")] == table()
