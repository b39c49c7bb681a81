"""migrate_keys and arrays: between stores and the newest Redis, and a server that has no arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rillet
from rillet.client.errors import ConnectorError
from tests.judge import Judge
from tests.spark.pipelines.test_migrate_keys import call, migrated, total

pytestmark = pytest.mark.peer


@pytest.fixture
def newest(peer_of: Callable[[str], Judge]) -> dict[str, str]:
    """The newest Redis, empty."""
    options = {"url": f"redis://127.0.0.1:{peer_of('newest').port}"}
    call(options, "FLUSHALL")
    return options


def fill(place: dict[str, str]) -> None:
    call(place, "ARSET", "a", "5", "2.5", "text of more than 7 bytes", "42")
    call(place, "ARSEEK", "a", "700000")
    call(place, "ARINSERT", "a", "x")
    call(place, "ARSET", "big", "0", *map(str, range(3000)))
    call(place, "SET", "s", "v")


@pytest.mark.parametrize("direction", ["to the store", "to Redis"])
def test_arrays_arrive_and_are_verified(newest: dict[str, str], tmp_path: Path, direction: str) -> None:
    with rillet.open(tmp_path / "copy.rillet"):
        store = {"path": str(tmp_path / "copy.rillet")}
        source, target = (newest, store) if direction == "to the store" else (store, newest)
        fill(source)
        done = total(migrated(source, target))
        assert (done.keys, done.copied, done.rebuilt, done.equal) == (3, 3, 0, True)
        assert call(target, "ARNEXT", "a") == 700001
        assert call(target, "DUMP", "a") == call(source, "DUMP", "a")
        assert call(target, "ARCOUNT", "big") == 3000
        call(target, "ARSET", "a", "6", "other")
        call(target, "ARDEL", "big", "7")
        done = total(migrated(source, target, policy="resume"))
        assert (done.copied, done.equal) == (2, True)
        assert call(target, "ARGET", "big", "7") == b"7"


def test_a_server_without_arrays_is_named(newest: dict[str, str], judge: Judge) -> None:
    fill(newest)
    target = {"url": f"redis://127.0.0.1:{judge.port}"}
    call(target, "FLUSHALL")
    with pytest.raises(ConnectorError, match="^rillet: .* rejected RESTORE of '(a|big)': ERR DUMP payload version"):
        migrated(newest, target)
    assert call(target, "EXISTS", "a", "big") == 0
