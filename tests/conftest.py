"""Fixtures shared by all tests: the reference servers, and the build (interpreted or compiled) under test.

`make test` runs the suite twice and names the build in the environment, so that a run that loads the other build fails:

    RILLET_EXPECT=compiled|interpreted   the build that must be imported
    RILLET_NO_CYTHON=1                   Cython cannot be imported, as on a user's machine
    RILLET_EXAMPLES=N                    examples of each property (30; interpreted 15), and the long sizes of
                                         tests.variants.by_speed: `make test-long` sets it
    RILLET_ALL_SPEEDS=1                  also run interpreted what ONCE_FOLDERS and the pages run once

Tests that need an optional server or suite are collected only where that server or suite is present. One line at the
end of the run counts the tests that were left out and names the variables that enable them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None  # type: ignore[assignment]  # import now raises ModuleNotFoundError

import rillet
from rillet._compiled import by_speed
from tests.judge import PEERS, Judge, peer_binary, redis_binary, required_binary, running_redis
from tests.variants import COMPILED

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background jobs; child processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
LEFT_OUT = pytest.StashKey[Counter[str]]()

# Fixtures that start the reference server of the compat among a test's parameters.
PEER_FIXTURES = frozenset(("peer_of", "timed", "writer"))

# Most modules that these folders test are interpreted in both builds, so the tests run once, on the compiled build.
# BOTH_SPEEDS are the exceptions: they reach far into compiled modules, or depend on where Python runs signal handlers.
ONCE_FOLDERS = ("store", "server", "cli")
BOTH_SPEEDS = frozenset((
    "test_streams.py", "test_groups.py", "test_consumers.py", "test_transactions.py", "test_waiting.py",
    "test_turns.py", "test_stream_options.py", "test_expiry.py", "test_torn_commands.py", "test_reentrancy.py",
    "test_interrupts.py", "test_cancellation.py", "test_hash.py", "test_list.py", "test_set.py",
    "test_sorted_set.py", "test_string.py", "test_keys.py",
))  # fmt: skip

# The settings that tests change on a reference server.
DEFAULTS = {
    "stream-node-max-bytes": "4096",
    "stream-node-max-entries": "100",
    "rdbcompression": "yes",
    "sanitize-dump-payload": "no",
    "proto-max-bulk-len": "512mb",
    "client-query-buffer-limit": "1gb",
    "requirepass": "",
}


# No deadline for an example: its duration depends on the machine and its load. `make test` runs each property at both
# speeds; `make test-long` sets a higher number of examples.
settings.register_profile("rillet", deadline=None, suppress_health_check=[HealthCheck.too_slow],
                          max_examples=int(os.environ.get("RILLET_EXAMPLES", "30" if COMPILED else "15")))  # fmt: skip
settings.load_profile("rillet")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the files of which `-m "not once"` leaves nothing: their import takes seconds."""
    leaves = "not once" not in config.option.markexpr or "RILLET_ALL_SPEEDS" in os.environ
    return True if not leaves and collection_path.is_file() and _runs_once(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before -m selects by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs once; deselect the tests whose optional server or suite is absent."""
    if "RILLET_ALL_SPEEDS" not in os.environ:
        for item in items:
            if _runs_once(item.path):
                item.add_marker(pytest.mark.once)
    kept: list[pytest.Item] = []
    absent: list[pytest.Item] = []
    for item in items:
        variables = _absent_variables(item)
        (absent if variables else kept).append(item)
        config.stash[LEFT_OUT].update(variables)
    items[:] = kept
    if absent:
        config.hook.pytest_deselected(items=absent)


def _runs_once(path: Path) -> bool:
    """Return whether the tests of a file run at one speed: pages, examples, and most files of some folders."""
    if not path.is_relative_to(TESTS):
        return True
    place = path.relative_to(TESTS).parts
    return place[0] in ONCE_FOLDERS and path.name not in BOTH_SPEEDS


def _absent_variables(item: pytest.Item) -> set[str]:
    """Return the environment variables that the test needs and that are not set."""
    wanted: set[str] = set()
    marks = list(item.iter_markers("peer"))
    if marks or not PEER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        callspec = getattr(item, "callspec", None)
        for value in callspec.params.values() if callspec is not None else ():
            wanted.update(word for word in (value if isinstance(value, tuple) else (value,)) if isinstance(word, str))
    for mark in marks:
        wanted.update(mark.args)
    absent = {PEERS[compat] for compat in wanted & PEERS.keys() if PEERS[compat] and peer_binary(compat) is None}
    for mark in item.iter_markers("environment"):
        absent.update(name for name in mark.args if name not in os.environ)
    return absent


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print one line about the tests that were left out."""
    left_out = config.stash[LEFT_OUT]
    if left_out:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(left_out.items()))
        terminalreporter.write_line(
            f"left out, because optional servers and suites are absent: {counts} tests. "
            "Set these variables to include them: docs/conformance.md"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Stop the run if the imported build is not the requested one."""
    config.stash[LEFT_OUT] = Counter()
    expected = os.environ.get("RILLET_EXPECT")
    if expected is None:
        return
    compiled, interpreted = by_speed()
    wrong = {"compiled": interpreted, "interpreted": compiled}.get(expected)
    if wrong is None:
        raise pytest.UsageError(f"RILLET_EXPECT is {expected!r}, neither compiled nor interpreted")
    if wrong:
        raise pytest.UsageError(f"RILLET_EXPECT is {expected}, but these are not, in {_package()}: {', '.join(wrong)}")


def pytest_report_header() -> str:
    """Return the line that names the build under test."""
    shim = " with Cython blocked" if os.environ.get("RILLET_NO_CYTHON") else ""
    return f"rillet {rillet.__version__} {'compiled' if rillet.compiled() else 'interpreted'}{shim}, {_package()}"


def _package() -> Path:
    return Path(rillet.__file__).parent


@pytest.fixture(scope="session")
def judge_of_session() -> Iterator[Judge]:
    """Start the redis-server that all tests share through `judge`."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis() as server:
        yield server


@pytest.fixture
def judge(judge_of_session: Judge) -> Judge:
    """Return the shared redis-server with its settings reset. A test may call FLUSHALL."""
    with judge_of_session.client() as client:
        client.execute_command("CONFIG", "SET", *(word for setting in DEFAULTS.items() for word in setting))
    return judge_of_session


@pytest.fixture(scope="session")
def peer_of() -> Iterator[Callable[[str], Judge]]:
    """Return a function that starts the reference server of a `compat` at its first use."""
    running: dict[str, Judge] = {}
    with ExitStack() as stack:

        def start(compat: str) -> Judge:
            binary = required_binary(compat)
            if compat not in running:
                running[compat] = stack.enter_context(running_redis(binary=binary))
            server = running[compat]
            with server.client() as client:
                for name, value in DEFAULTS.items():  # one by one: Valkey has not all of them
                    client.pipeline(transaction=False).execute_command("CONFIG", "SET", name, value).execute(False)
            return server

        yield start
