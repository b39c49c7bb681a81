"""Fixtures shared by all tests: the judge, and the speed (interpreted or compiled) that was asked for.

`make test` runs the suite twice and says through the environment which build it means, so that a run which
silently loaded the other one fails instead of proving nothing:

    RILLET_EXPECT=compiled|interpreted   the build that must be the one imported
    RILLET_NO_CYTHON=1                   Cython is made unimportable, as it is where rillet runs and nobody builds
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None  # type: ignore[assignment]  # import now raises ModuleNotFoundError

import rillet
from rillet._compiled import by_speed
from tests.judge import PEERS, Judge, peer_binary, redis_binary, running_redis

# What tests change on the judge.
DEFAULTS = {
    "stream-node-max-bytes": "4096",
    "stream-node-max-entries": "100",
    "rdbcompression": "yes",
    "sanitize-dump-payload": "no",
    "proto-max-bulk-len": "512mb",
    "client-query-buffer-limit": "1gb",
    "requirepass": "",
}


# How long an example takes is a matter of the machine and of what else it does, not of what is tested.
settings.register_profile("rillet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rillet")


def pytest_configure() -> None:
    """Refuse to run against another build than the one asked for."""
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
    """Say which build is tested."""
    shim = " with Cython blocked" if os.environ.get("RILLET_NO_CYTHON") else ""
    return f"rillet {rillet.__version__} {'compiled' if rillet.compiled() else 'interpreted'}{shim}, {_package()}"


def _package() -> Path:
    return Path(rillet.__file__).parent


@pytest.fixture(scope="session")
def judge_of_session() -> Iterator[Judge]:
    """The redis-server that all tests share, through `judge`."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis() as server:
        yield server


@pytest.fixture
def judge(judge_of_session: Judge) -> Judge:
    """A redis-server as it was started: an earlier test's settings are undone; use its FLUSHALL freely."""
    with judge_of_session.client() as client:
        client.execute_command("CONFIG", "SET", *(word for setting in DEFAULTS.items() for word in setting))
    return judge_of_session


@pytest.fixture(scope="session")
def peer_of() -> Iterator[Callable[[str], Judge]]:
    """The servers that values of `compat` are judged by, each started when it is first asked for."""
    running: dict[str, Judge] = {}
    with ExitStack() as stack:

        def start(compat: str) -> Judge:
            binary = peer_binary(compat)
            if binary is None:
                pytest.skip(f"no server to judge compat {compat}: {PEERS[compat] or 'redis-server'} names none")
            if compat not in running:
                running[compat] = stack.enter_context(running_redis(binary=binary))
            server = running[compat]
            with server.client() as client:
                for name, value in DEFAULTS.items():  # one by one: Valkey has not all of them
                    client.pipeline(transaction=False).execute_command("CONFIG", "SET", name, value).execute(False)
            return server

        yield start
