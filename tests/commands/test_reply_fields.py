"""Replies of operators' commands that list fields: their names and order are those of four servers.

INFO is compared in tests/server/test_info_fields.py, CONFIG GET in tests/server/test_setting_effects.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.commands.ends import Bench
from tests.differential.wire import Redis, read
from tests.judge import PEERS, Judge

COMMANDS = ("CLIENT INFO", "CLIENT TRACKINGINFO", "MEMORY STATS", "HELLO", "CLUSTER INFO", "XINFO STREAM s")


def names(reply: Any) -> list[Any]:
    """Return the names of a reply: of a map, or of a text with `name=value` or `name:value`.

    Valkey's MEMORY STATS keeps the name of each database that other tests have used.
    """
    if isinstance(reply, list):
        return [name for name in reply[::2] if not re.fullmatch(rb"db\.[1-9]\d*", name)]
    text = reply if isinstance(reply, str) else reply.decode()
    return [re.split("[=:]", word)[0] for word in text.split()]


@pytest.mark.parametrize("compat", PEERS)
def test_the_fields_are_those_of_the_server(peer_of: Callable[[str], Judge], compat: str) -> None:
    bench = Bench(compat=compat)
    with Redis(peer_of(compat).port) as server:
        for line in ("FLUSHALL", "SELECT 0", "XADD s 1-1 f v", "SET k v", *COMMANDS):
            argv = [word.encode() for word in line.split()]
            ours, theirs = read(bench.run(argv)), read(server.run(argv)[0])
            if line in COMMANDS:
                assert names(ours) == names(theirs), line
