"""Parts of a server's keys: each key is in one part, while the table grows and shrinks, and while slots move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rillet.client import key_scan
from rillet.client.errors import ConnectorError
from rillet.client.key_scan import CURSORS, SHARES, SLOTS, KeyScan, ScanPart, plan_scan, reversed_bits
from rillet.client.servers import ClientOptions, Servers
from tests.cluster import Cluster, running_cluster
from tests.judge import Judge, redis_binary, running_redis
from tests.server.harness import running

pytestmark = pytest.mark.slow


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide small databases, too."""
    monkeypatch.setattr(key_scan, "KEYS_PER_POSITION", 64)
    monkeypatch.setattr(key_scan, "FEWEST", 4)


@pytest.fixture
def servers(judge: Judge) -> Iterator[Servers]:
    with judge.client() as client:
        client.flushall()
    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}", 10)) as opened:
        yield opened


def fill(servers: Servers, numbers: range, name: bytes = b"k:%d") -> set[bytes]:
    """Set keys and return their names."""
    keys = [name % n for n in numbers]
    servers.each([(key, (b"SET", key, b"v")) for key in keys])
    return set(keys)


def listed(servers: Servers, parts: list[ScanPart], between: Callable[[int], Any] = lambda n: None,
           glob: bytes = b"*", count: int = 20) -> list[list[bytes]]:  # fmt: skip
    """Return the keys of each part; call between(n) after each batch."""
    found = []
    with Servers(servers.options) as reading:
        for part in parts:
            keys: list[bytes] = []
            for batch in KeyScan(reading, part, glob, b"", count).batches(50):
                keys += batch
                between(len(keys))
            found.append(keys)
    return found


def test_bits_are_reversed() -> None:
    assert [reversed_bits(n, 3) for n in range(8)] == [0, 4, 2, 6, 1, 5, 3, 7]
    assert reversed_bits(1) == 1 << 63
    assert reversed_bits(5, 0) == 0


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 16])
def test_each_key_is_in_one_part(servers: Servers, small: None, parts: int) -> None:
    keys = fill(servers, range(2000)) | fill(servers, range(10), b"other:%d")
    planned = plan_scan(servers, parts)
    assert [part.kind for part in planned] == [CURSORS] * parts
    for count in (1, 7, 1000):
        found = listed(servers, planned, count=count)
        assert sorted(key for part in found for key in part) == sorted(keys)
        assert parts == 1 or min(map(len, found)) > 2000 // parts // 3
    assert sorted(key for part in listed(servers, planned, glob=b"o*") for key in part) == sorted(
        key for key in keys if key.startswith(b"other")
    )


def test_the_work_of_scan_is_divided(servers: Servers, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight parts receive the keys about once altogether, not once each."""
    fill(servers, range(4000))
    received = []
    call = KeyScan._call

    def counting(self: KeyScan, cursor: int, count: int) -> Any:
        reply = call(self, cursor, count)
        received.append(len(reply[1]))
        return reply

    monkeypatch.setattr(KeyScan, "_call", counting)
    listed(servers, plan_scan(servers, 8), count=100)
    assert 4000 <= sum(received) < 6000


def test_keys_that_stay_occur_once_while_the_table_grows_and_shrinks(servers: Servers, small: None) -> None:
    keys = fill(servers, range(1500))
    planned = plan_scan(servers, 4)
    added: list[range] = []

    def change(read: int) -> None:
        if not added or len(added) < 40:
            added.append(range(100_000 + 500 * len(added), 100_500 + 500 * len(added)))
            fill(servers, added[-1])
        elif added[0].start:
            for one in added:
                servers.each([(b"k:%d" % n, (b"UNLINK", b"k:%d" % n)) for n in one])
            added[0] = range(0)

    found = [key for part in listed(servers, planned, change) for key in part]
    assert len(found) == len(set(found))
    assert keys <= set(found)


def test_a_restart_or_mass_deletion_is_noticed(small: None) -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis() as first, running_redis() as second:
        with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{first.port}", 5)) as servers:
            fill(servers, range(1000))
            planned = plan_scan(servers, 4)
            servers.call(b"", b"FLUSHALL")
            with pytest.raises(ConnectorError, match="^rillet: nearly all keys at .* were deleted .* 0 are left: load"):
                listed(servers, planned)
        with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{second.port}", 5)) as servers:
            fill(servers, range(1000))
            with pytest.raises(ConnectorError, match="^rillet: .* was restarted or replaced after the read"):
                listed(servers, planned)


def test_other_cursors_lead_to_shares(servers: Servers, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = fill(servers, range(1000))
    monkeypatch.setattr(key_scan, "_as_expected", lambda servers, part: False)
    planned = plan_scan(servers, 3)
    assert [part.kind for part in planned] == [SHARES] * 3
    assert sorted(key for part in listed(servers, planned) for key in part) == sorted(keys)
    monkeypatch.setattr(key_scan, "_FAMILY", frozenset())
    assert key_scan._run_id(servers) is None


def test_rillet_has_the_same_cursors(small: None, tmp_path: Path) -> None:
    with (
        running(tmp_path) as server,
        Servers(ClientOptions.from_url(f"redis://127.0.0.1:{server.port}", 10)) as servers,
    ):
        keys = fill(servers, range(2000))
        planned = plan_scan(servers, 5)
        assert [part.kind for part in planned] == [CURSORS] * 5
        assert sorted(key for part in listed(servers, planned) for key in part) == sorted(keys)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_cluster() as started:
        yield started


def test_slots_of_a_cluster_also_while_one_moves(cluster: Cluster) -> None:
    with Servers(ClientOptions.from_url(cluster.url, 20)) as servers:
        keys = fill(servers, range(1000))
        planned = plan_scan(servers, 7)
        assert {part.kind for part in planned} == {SLOTS}
        assert 6 <= len(planned) <= 8
        assert sorted(key for part in listed(servers, planned) for key in part) == sorted(keys)
        assert sorted(key for part in listed(servers, planned, glob=b"k:1?") for key in part) == sorted(
            b"k:%d" % n for n in range(10, 20)
        )
        key = cluster.key_of(0, "moving:")
        servers.call(key.encode(), b"SET", key.encode(), b"v")
        with cluster.moving(key) as move:
            done: list[int] = []

            def migrate(read: int) -> None:
                if not done:
                    done.append(read)
                    move.migrate()

            found = [name for part in listed(servers, planned, migrate) for name in part]
            assert sorted(found) == sorted(keys | {key.encode()})
        found = [name for part in listed(servers, planned) for name in part]  # the plan is older than the move
        assert sorted(found) == sorted(keys | {key.encode()})
