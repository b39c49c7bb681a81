"""The loggers under `rillet`: their events, and that nothing is printed without a configuration."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rillet
from rillet import loggers
from rillet.errors import Misconf
from tests.cluster import running_cluster
from tests.judge import redis_binary
from tests.store.process import Other

Lines = list[tuple[str, int, str]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Return the records under `rillet`, as (logger, level, text)."""
    found: Lines = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append((record.name, record.levelno, record.getMessage()))

    root, handler = logging.getLogger("rillet"), Collector()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield found
    root.removeHandler(handler)
    root.setLevel(level)


def has(lines: Lines, name: str, level: int, pattern: str) -> bool:
    return any(one == name and rank == level and re.search(pattern, text) for one, rank, text in lines)


def test_an_owner(tmp_path: Path, lines: Lines) -> None:
    with rillet.open(tmp_path / "s.rillet"):
        assert has(lines, "rillet.owner", logging.INFO, r"s\.rillet: this process \(\d+\) owns the directory")
        assert has(lines, "rillet.server", logging.INFO, r"listening on .*socket")
    assert has(lines, "rillet.owner", logging.INFO, r"closed; this process \(\d+\) no longer owns")


def test_attached_and_again_after_the_owner_was_killed(tmp_path: Path, lines: Lines) -> None:
    path = tmp_path / "s.rillet"
    with Other(path) as owner:
        store = rillet.open(path)
        store.stream("s").add({"n": 1})
        assert has(lines, "rillet.attach", logging.INFO, rf"attached to the owner, process {owner.process.pid}")
        owner.kill()
    with store:
        assert store.stream("s").length() == 1
        assert has(lines, "rillet.attach", logging.WARNING, "the connection to the owner was lost")
        assert has(lines, "rillet.owner", logging.INFO, "this process")
        assert has(lines, "rillet.store", logging.WARNING, "ended without closing it; 2 commands replayed")


def test_a_rewrite(tmp_path: Path, lines: Lines) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        store.stream("s").add({"n": 1})
        store.execute("BGREWRITEAOF")
        while store.info()["aof_rewrite_in_progress"] == "1" or store.info()["aof_rewrites"] == "0":
            pass
        for text in ("started", "terminated with success", "finished successfully"):
            assert has(lines, "rillet.log", logging.INFO, f"appendonlydir: Background AOF rewrite {text}")


def add_until_refused(store: rillet.Store) -> None:
    for _ in range(2000):
        try:
            store.stream("s").add({"n": 2})
        except Misconf:
            return
        subprocess.run(["sleep", "0.01"], check=True)


def add_without_folder(store: rillet.Store, path: Path, moved: Path) -> None:
    """Move the folder of a store away and add entries; the owner's periodic work may be the first to notice."""
    path.rename(moved)
    add_until_refused(store)


def test_a_failed_write_and_its_recovery(tmp_path: Path, lines: Lines) -> None:
    path = tmp_path / "s.rillet"
    with rillet.open(path) as store:
        store.stream("s").add({"n": 1})
        with pytest.warns(RuntimeWarning, match="writes are refused"):
            add_without_folder(store, path, tmp_path / "moved")
        assert has(lines, "rillet.log", logging.ERROR, "writes are refused from now on")
        (tmp_path / "moved").rename(path)
        for _ in range(2000):
            try:
                store.stream("s").add({"n": 3})
                break
            except Misconf:
                subprocess.run(["sleep", "0.01"], check=True)
        assert has(lines, "rillet.log", logging.WARNING, "AOF write error looks solved")


def test_the_clients_of_a_server(lines: Lines) -> None:
    with rillet.open(maxclients=1) as store, store.serve() as served:
        assert has(lines, "rillet.server", logging.INFO, rf"listening on 127\.0\.0\.1:{served.port}")
        with rillet.connect(served.url) as client:
            client.execute("PING")
            with rillet.connect(served.url) as other, pytest.raises((rillet.StoreError, rillet.CommandError)):
                other.execute("PING")
        assert has(lines, "rillet.server", logging.DEBUG, "client accepted")
        assert has(lines, "rillet.server", logging.WARNING, "client rejected: 1 clients are connected, maxclients is 1")


def test_the_redirections_of_a_cluster(lines: Lines) -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_cluster() as cluster, rillet.connect(cluster.url) as store:
        name = cluster.key_of(0, "s")
        store.stream(name).add({"n": 1})
        with cluster.moving(name) as move:
            move.migrate()
            assert store.stream(name).length() == 1
            assert has(lines, "rillet.client", logging.DEBUG, rf"ASK: slot {move.slot} is at ")
            move.finish()
            asyncio.run(asyncio.sleep(1.1))  # until the ASK no longer applies
            assert store.stream(name).length() == 1
        assert has(lines, "rillet.client", logging.DEBUG, rf"MOVED: slot {move.slot} is at ")


def test_an_address_without_a_server(lines: Lines) -> None:
    with rillet.connect("redis://127.0.0.1:1") as store, pytest.raises(rillet.StoreError):
        store.execute("PING")
    assert has(lines, "rillet.client", logging.INFO, "no server answers at 127.0.0.1:1")


PROGRAM = """
import sys, warnings, rillet
warnings.simplefilter("ignore")
path = sys.argv[1]
with rillet.open(path) as store, rillet.open(path) as attached:
    attached.stream("s").add({"n": 1})
    store.execute("BGREWRITEAOF")
    while store.info()["aof_rewrite_in_progress"] == "1":
        pass
import os, pathlib
with rillet.open(path, maxclients=1) as store, store.serve() as served:
    with rillet.connect(served.url) as one, rillet.connect(served.url) as two:
        for client in (one, two):
            try:
                client.execute("PING")
            except rillet.RilletError:
                pass
    pathlib.Path(path).rename(path + ".moved")
    while True:
        try:
            store.stream("s").add({"n": 2})
        except rillet.errors.Misconf:
            break
    pathlib.Path(path + ".moved").rename(path)
"""


def test_nothing_is_printed_without_a_configuration(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "s.rillet")], capture_output=True, text=True,
                          env={"PYTHONPATH": str(Path(rillet.__file__).parent.parent)}, timeout=100)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_logger_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    assert all(f"| `rillet.{name}` |" in page for name in loggers.NAMES)
    source = Path(rillet.__file__).parent
    used = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'(?:getLogger\("rillet\.|\blogger\(")(\w+)"\)', path.read_text(encoding="utf-8"))
    }
    assert used == set(loggers.NAMES)
