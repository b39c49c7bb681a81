"""INFO persistence: the field names of a real server, in its order, with and without a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judge import PEERS, required_binary, running_redis
from tests.server.harness import running


def names(text: bytes) -> list[str]:
    """Return the names of the fields."""
    return [line.partition(":")[0] for line in text.decode().splitlines() if ":" in line]


@pytest.mark.peer
@pytest.mark.parametrize("log", ["no", "yes"])
@pytest.mark.parametrize("compat", PEERS)
def test_the_fields_are_those_of_redis(compat: str, log: str, tmp_path: Path) -> None:
    binary = required_binary(compat)
    with running_redis("--appendonly", log, binary=binary) as server:
        theirs = names(server.client().execute_command("INFO", "persistence"))
    with running(tmp_path, "--compat", compat, "--appendonly", log) as ours, ours.client() as client:
        assert names(client.call("INFO persistence").partition(b"\r\n")[2]) == theirs
