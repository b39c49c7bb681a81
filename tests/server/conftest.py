"""Fixtures: one server per event loop, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.server.harness import LOOPS, Client, Running, running


def skip_without(loop: str) -> None:
    """Skip a test of uvloop if uvloop is not installed."""
    if loop == "uvloop" and find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")


@pytest.fixture(scope="module", params=LOOPS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server in memory on each event loop."""
    skip_without(request.param)
    folder: Path = tmp_path_factory.mktemp("serve")
    with running(folder, "--enable-debug-command", "yes", loop=request.param) as server:
        assert f", {request.param})" in server.banner
        yield server


@pytest.fixture
def server(shared: Running) -> Running:
    """The shared server, with its data deleted."""
    with shared.client() as client:
        assert client.call("FLUSHALL") == b"+OK\r\n"
    return shared


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    """A connection to the server."""
    with server.client() as one:
        yield one
