"""INFO: every field of four servers exists in `rillet serve` with the same compat, in the same section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.differential.wire import Redis, read
from tests.judge import PEERS, Judge
from tests.server.harness import Running, running

# Fields that only rillet has.
OURS = ("rillet_version", "rillet_compiled", "python_version", "evicted_stream_entries")
# Rows that depend on what a client did before, or on the loaded modules.
VARYING = ("cmdstat_", "latency_percentiles_usec_", "errorstat_", "module", "db0", "engine_")


def fields(text: bytes) -> dict[str, list[str]]:
    """Return the names of the fields by section."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in text.decode().splitlines():
        if line.startswith("# "):
            section = line[2:]
            found[section] = []
        elif line:
            found[section].append(line.partition(":")[0])
    return found


def everything(client: Redis) -> dict[str, list[str]]:
    return fields(read(client.run([b"INFO", b"everything"])[0]))


@pytest.mark.parametrize("compat", PEERS)
def test_every_field_of_the_server_exists(tmp_path: Path, peer_of: Callable[[str], Judge], compat: str) -> None:
    with (running(tmp_path, "--compat", compat) as server, Redis(server.port) as ours,
          Redis(peer_of(compat).port) as peer):  # fmt: skip
        for client in (ours, peer):
            client.run([b"FLUSHALL"], [b"SET", b"k", b"v"], [b"GET", b"k"])
        our, their = everything(ours), everything(peer)
        our, their = ({section: [name for name in names if not name.startswith(VARYING)]
                       for section, names in of.items()} for of in (our, their))  # fmt: skip
        for section, names in their.items():
            assert [name for name in our[section] if name not in OURS] == names, section
        # Redis's order, in which rillet's own sections come last.
        known = [section for section in our if section in their]
        assert known == [section for section in their if section in our]


@pytest.fixture(scope="module")
def of_7_0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of compat 7.0, for all tests of the arguments."""
    with running(tmp_path_factory.mktemp("info"), "--compat", "7.0") as server:
        yield server


@pytest.mark.parametrize("wanted", [
    ["server"], ["cpu", "server"], ["keyspace", "nosuch", "clients"], ["all"], ["everything"], ["default"],
    ["commandstats"], ["default", "commandstats"], ["latencystats", "errorstats"], ["modules"], ["KEYSPACE"], [],
])  # fmt: skip
def test_the_arguments_select_the_same_sections(
    of_7_0: Running, peer_of: Callable[[str], Judge], wanted: list[str]
) -> None:
    argv = [b"INFO", *(name.encode() for name in wanted)]
    with Redis(of_7_0.port) as ours, Redis(peer_of("7.0").port) as peer:
        theirs = list(fields(read(peer.run(argv)[0])))
        assert [name for name in fields(read(ours.run(argv)[0])) if name in theirs or name != "Rillet"] == theirs


def test_the_figures_are_measured(tmp_path: Path) -> None:
    with running(tmp_path, "--compat", "newest") as server, Redis(server.port) as client:
        client.run([b"CONFIG", b"RESETSTAT"], [b"SET", b"k", b"v"], *[[b"GET", b"k"]] * 9)
        client.run([b"WATCH", b"k"])
        lines = read(client.run([b"INFO"])[0]).decode().splitlines()
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
        assert (facts["watching_clients"], facts["total_watched_keys"], facts["active_clients"]) == ("1", "1", "1")
        assert int(facts["total_reads_processed"]) >= 2 <= int(facts["total_writes_processed"])
        assert int(facts["avg_pipeline_length_sum"]) >= 11
        assert int(facts["eventloop_duration_sum"]) >= 1
        assert facts["listener0"] == f"name=tcp,bind=127.0.0.1,bind=-::1,port={server.port}"
        debug = fields(read(client.run([b"INFO", b"debug"])[0]))
        names = ("duration_aof_sum", "duration_cron_sum", "duration_max", "cmd_per_cycle_max")
        assert debug["Debug"][:4] == [f"eventloop_{name}" for name in names]
