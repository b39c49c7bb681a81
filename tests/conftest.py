"""Fixtures shared by all tests: the reference servers, and the build (interpreted or compiled) under test.

`make test` runs all tests on the compiled build, and those with the mark `both` on the interpreted one too. It names
the build in the environment, so that a run that loads the other build fails:

    RILLET_EXPECT=compiled|interpreted   the build that must be imported
    RILLET_NO_CYTHON=1                   Cython cannot be imported, as on a user's machine
    RILLET_EXAMPLES=N                    examples of each property (20; interpreted 15), and the long sizes of
                                         tests.variants.by_speed: `make test-long` sets it

Tests that need an optional server or suite are collected only where that server or suite is present. One line at the
end of the run counts the tests that were left out and names the variables that enable them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

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

# All tests of these folders have the mark `both`; elsewhere a file has it, as a sample, in its `pytestmark`.
BOTH_SPEEDS = tuple(TESTS / name for name in ("columns", "protocol", "structs", "types"))

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


# No deadline for an example: its duration depends on the machine and its load. `make test-long` sets a higher number of
# examples.
settings.register_profile("rillet", deadline=None, suppress_health_check=[HealthCheck.too_slow],
                          max_examples=int(os.environ.get("RILLET_EXAMPLES", "20" if COMPILED else "15")))  # fmt: skip
settings.load_profile("rillet")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the files of which `-m "both ..."` leaves nothing: their import takes seconds."""
    if not config.option.markexpr.startswith("both") or collection_path.is_dir() or _in_both(collection_path):
        return None
    marked = collection_path.suffix == ".py" and "mark.both" in collection_path.read_text(encoding="utf-8")
    return None if marked else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from the collected tests: a search through all of them takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the folders that run at both speeds."""
    if _in_both(item.path):
        item.add_marker(pytest.mark.both)


@pytest.hookimpl(tryfirst=True)  # before -m selects by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need an optional server, and deselect those whose server or suite is absent."""
    kept: list[pytest.Item] = []
    absent: list[pytest.Item] = []
    for item in items:
        servers, variables = _needs(item)
        if servers:
            item.add_marker(pytest.mark.peer)
        (absent if variables else kept).append(item)
        config.stash[LEFT_OUT].update(variables)
    items[:] = kept
    if absent:
        config.hook.pytest_deselected(items=absent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Collect what a test leaves to finalizers that may warn, while its own filters hold and not in a later test."""
    yield
    if any("Unraisable" in text for mark in item.iter_markers("filterwarnings") for text in mark.args):
        gc.collect()


@cache
def _in_both(path: Path) -> bool:
    """Return whether a file is in a folder whose tests run at both speeds."""
    return any(path.is_relative_to(folder) for folder in BOTH_SPEEDS)


def _needs(item: pytest.Item) -> tuple[bool, set[str]]:
    """Return whether the test needs an optional server, and the environment variables that it needs and lacks."""
    wanted: set[str] = set()
    marks = list(item.iter_markers("peer"))
    if marks or not PEER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        callspec = getattr(item, "callspec", None)
        for value in callspec.params.values() if callspec is not None else ():
            wanted.update(word for word in (value if isinstance(value, tuple) else (value,)) if isinstance(word, str))
    for mark in marks:
        wanted.update(mark.args)
    servers = {compat for compat in wanted & PEERS.keys() if PEERS[compat]}
    absent = {PEERS[compat] for compat in servers if peer_binary(compat) is None}
    for mark in item.iter_markers("environment"):
        absent.update(name for name in mark.args if name not in os.environ)
    return bool(servers), absent


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the number of tests that were left out to the process that prints the summary, if this one is its worker."""
    counts = session.config.stash[LEFT_OUT]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker sent; each worker collects the same tests."""
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out", {}))


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
