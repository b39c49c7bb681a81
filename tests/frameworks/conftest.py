"""Fixtures: one server for all frameworks, emptied for each test, and a store in this process.

RILLET_FRAMEWORKS=judge runs the scenarios on the installed redis-server, to see what a framework does there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

import rillet
from tests.frameworks.workers import script, worker
from tests.judge import running_redis
from tests.server.harness import running


@dataclass
class Served:
    """The server under a framework: its port, and a folder for the output of the workers."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        """The URL that a framework accepts."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        """Return a client that decodes the replies."""
        return redis.Redis.from_url(self.url, decode_responses=True)

    def worker(self, *arguments: str):
        """Run `python -m ...` as a worker of this server; see tests.frameworks.workers.worker."""
        return worker(self.folder, self.url, *arguments)

    def node(self, name: str) -> str:
        """Run a script of tests/frameworks/node."""
        program = shutil.which("node")
        if program is None:
            pytest.skip("node is not installed")
        return script(self.url, program, name)


@pytest.fixture(scope="session")
def served_for_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server in memory, with the defaults of `rillet serve`."""
    if os.environ["RILLET_FRAMEWORKS"] == "judge":
        with running_redis() as judge:
            yield judge.port
        return
    with running(tmp_path_factory.mktemp("serve"), "--save", "") as server:
        yield server.port


@pytest.fixture
def served(served_for_session: int, tmp_path: Path) -> Served:
    """The server, without data, scripts and functions."""
    served = Served(served_for_session, tmp_path)
    with served.client() as client:
        client.flushall()
        client.script_flush()
        client.function_flush()
    return served


@pytest.fixture
def store() -> Iterator[rillet.Store]:
    """A store in this process."""
    with rillet.open() as store:
        yield store


@pytest.fixture(params=["server", "in process"])
def client(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A redis-py client of the server, and one of a store in this process."""
    if request.param == "server":
        served = request.getfixturevalue("served")
        with redis.Redis.from_url(served.url) as client:
            yield client
    else:
        with request.getfixturevalue("store").redis() as client:
            yield client
