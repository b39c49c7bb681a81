"""redis-py's own suite has the same results on rillet as on the genuine servers.

RILLET_SUITE_REDIS_PY names the unpacked sdist of the redis-py version that is installed. Left out are the files that
need Redis's modules, a cluster or TLS at fixed ports. Some tests fail on both servers, for example those that start a
sentinel. `COUNTS` has the numbers of passed tests, which docs/frameworks.md shows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.judge import required_binary, running_redis
from tests.package.test_modes import ROOT
from tests.server.harness import running

SUITE = Path(os.environ.get("RILLET_SUITE_REDIS_PY", ""))
OTHER_SERVERS = ("bloom", "json", "search", "timeseries", "cluster", "ssl", "sentinel_managed")
LIMITS = ("--timeout", "300", "--timeout-method", "signal")
PARTS = {"synchronous": "tests", "asynchronous": "tests/test_asyncio"}
# By version and part: how many tests pass here and on the genuine server.
COUNTS = {
    ("7.0", "synchronous"): (1429, 1429),
    ("7.0", "asynchronous"): (1290, 1290),
    ("newest", "synchronous"): (1706, 1743),
    ("newest", "asynchronous"): (1774, 1848),
    ("valkey", "synchronous"): (1432, 1432),
    ("valkey", "asynchronous"): (1300, 1300),
}
# Vector sets are left out here; the other commands are newer than the reference server.
DIFFERENT = {
    "newest": ("test_vsets", "::test_lmovem", "::test_xread_with_max_", "::test_xreadgroup_with_max_",
               "::test_xread_max_count_", "::test_xreadgroup_max_count_"),
}  # fmt: skip
# It measures the time of concurrent connections.
TIMED = "test_concurrent_connection_acquisition_performance"


def _files(suite: Path, part: str) -> list[str]:
    """Return the files of a part that need one server without modules."""
    names = sorted(path.relative_to(suite).as_posix() for path in suite.glob(f"{PARTS[part]}/test_*.py"))
    return [name for name in names if not any(f"test_{other}" in name for other in OTHER_SERVERS)]


def _results(suite: Path, part: str, port: int) -> dict[str, str]:
    """Run a part of the suite; return the result of each test."""
    report = suite.parent / f"{port}.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", *_files(suite, part), "-q", "--tb=line", "-p", "no:cacheprovider", *LIMITS,
         f"--junit-xml={report}", "--redis-url", f"redis://127.0.0.1:{port}/0", "-k", f"not {TIMED}",
         "-m", "not onlycluster and not redismod and not ssl"],
        cwd=suite, check=False, capture_output=True, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    results: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        tags = {child.tag for child in case} & {"failure", "error", "skipped"}
        results[f"{case.get('classname')}::{case.get('name')}"] = min(tags, default="passed")
    return results


@pytest.mark.environment("RILLET_FRAMEWORKS", "RILLET_SUITE_REDIS_PY")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("compat", "part"), COUNTS)
def test_the_results_are_the_servers(tmp_path: Path, compat: str, part: str) -> None:
    # A copy, so that Python imports the redis-py beside it and writes nothing into the original.
    suite = Path(shutil.copytree(SUITE, tmp_path / "suite"))
    binary = required_binary(compat)
    like = ("--compat", compat, "--save", "", "--enable-debug-command", "yes", "--enable-protected-configs", "yes",
            "--logfile", str(tmp_path / "log"))  # fmt: skip
    with running_redis(binary=binary) as judge:
        theirs = _results(suite, part, judge.port)
    with running(tmp_path, *like) as server:
        ours = _results(suite, part, server.port)
    different = {test: (theirs.get(test), ours.get(test)) for test in theirs.keys() | ours.keys()
                 if theirs.get(test) != ours.get(test) and not any(one in test for one in DIFFERENT.get(compat, ()))}
    assert different == {}
    passed = [list(results.values()).count("passed") for results in (ours, theirs)]
    assert tuple(passed) == COUNTS[compat, part]


def test_the_page_has_the_recorded_numbers() -> None:
    rows = [f"| {compat} | {part} | {ours} | {theirs} |" for (compat, part), (ours, theirs) in COUNTS.items()]
    page = (ROOT / "docs" / "frameworks.md").read_text()
    beginnings = tuple(f"| {compat} | " for compat, _ in COUNTS)
    assert [line for line in page.splitlines() if line.startswith(beginnings)] == rows
