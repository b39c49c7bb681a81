"""Counters belong to one engine: two engines in a process count apart."""

from __future__ import annotations

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local


def commandstats(client: Local) -> dict[str, str]:
    """Return the counters of INFO commandstats without their times."""
    lines = [line for line in client("INFO", "commandstats").decode().splitlines() if line.startswith("cmdstat_")]
    counters = {}
    for line in lines:
        name, fields = line.removeprefix("cmdstat_").split(":")
        # What depends on the speed of the machine is left out: a command may be slow.
        counters[name] = ",".join(field for field in fields.split(",") if not field.startswith(("usec", "slowlog")))
    return counters


def test_commands_of_one_engine_do_not_appear_in_another() -> None:
    first, second = Local(Engine()), Local(Engine())
    for _ in range(5):
        first("XADD", "events", "*", "field", "value")
    assert commandstats(first)["xadd"] == "calls=5,rejected_calls=0,failed_calls=0"
    assert "xadd" not in commandstats(second)


def test_resetting_the_statistics_of_one_engine_leaves_the_others() -> None:
    first, second = Local(Engine()), Local(Engine())
    first("SET", "key", "value")
    first("XADD", "key", "*", "field", "value")
    first("XADD", "key")
    first("CONFIG", "GET", "hz")
    second("GET", "key")
    assert second("CONFIG", "RESETSTAT") == b"OK"
    counters = commandstats(first)
    assert counters["set"] == "calls=1,rejected_calls=0,failed_calls=0"
    assert counters["xadd"] == "calls=1,rejected_calls=1,failed_calls=1"
    assert counters["config|get"] == "calls=1,rejected_calls=0,failed_calls=0"
    # As in Redis, a command is counted after it ran: RESETSTAT is the first one, INFO itself is missing.
    assert commandstats(second) == {"config|resetstat": "calls=1,rejected_calls=0,failed_calls=0"}


@pytest.mark.parametrize(("compat", "counts"), [("newest", "rejected_calls=0,failed_calls=1"),
                                                ("valkey", "rejected_calls=1,failed_calls=0")])  # fmt: skip
def test_a_call_that_is_unblocked_with_an_error(compat: str, counts: str) -> None:
    engine = Engine(Settings(compat=compat))
    waiting, client = Local(engine), Local(engine)
    engine.execute(waiting.session, [b"BLPOP", b"l", b"0"])
    assert client("CLIENT", "UNBLOCK", str(waiting.session.id), "ERROR") == 1
    assert counts in commandstats(client)["blpop"]


def test_a_command_that_fails_counts_as_one_call() -> None:
    client = Local(Engine())
    assert client("CLIENT", "UNBLOCK", "nonsense").startswith("ERR")
    assert commandstats(client)["client|unblock"] == "calls=1,rejected_calls=0,failed_calls=1"
