"""Random scripts against the real servers (tests.scripting.random_scripts, tests.scripting.random_bodies)."""

from __future__ import annotations

import pytest

from tests.judge import PEERS
from tests.scripting import random_bodies
from tests.scripting.random_scripts import run


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("compat", PEERS)
def test_random_scripts_get_the_servers_replies(compat: str, resp: int) -> None:
    assert not run(compat, 300, resp, resp)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("compat", PEERS)
def test_many_random_scripts_get_the_servers_replies(compat: str) -> None:
    assert not run(compat, 20_000, 100)


def test_random_lua_gets_the_servers_results_and_errors() -> None:
    assert not random_bodies.run("7.0", 300, 1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_much_random_lua_gets_the_servers_results_and_errors() -> None:
    assert not random_bodies.run("7.0", 20_000, 4)
