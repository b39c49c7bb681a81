"""The kinds of stores: a test with the fixture `frontend` or `store` runs once for each kind, with the same results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.store.consuming import delivery_options
from tests.cluster import Cluster, running_cluster
from tests.judge import Judge, redis_binary
from tests.store.process import Other
from tests.variants import long

# "twin" is attached to an owner in its own process: the code is that of "attached" and "owner" together.
KINDS = ("memory", "owner", "attached", *long("twin"), "socket", "redis")


def only(*kinds: Any) -> pytest.MarkDecorator:
    """Return a mark that runs a test with `frontend` or `store` for these kinds only."""
    return pytest.mark.parametrize("frontend", kinds, indirect=True)


IN_PROCESS = only("memory", "owner")
FEW = only("memory", "attached", "redis", *long("owner", "socket"))  # of tests that take longer
RILLET = only(*KINDS[:-1])


class Frontend:
    """A store of some kind, and `another()`: a second store on the same data."""

    def __init__(self, kind: str, store: Store, another: Callable[[], Store]) -> None:
        self.kind = kind
        self.store = store
        self.another = another


def _url(judge: Judge) -> str:
    return f"redis://127.0.0.1:{judge.port}/0"


@pytest.fixture(params=KINDS)
def frontend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Frontend]:
    with ExitStack() as stack:
        yield _make(request, request.param, tmp_path / "store.rillet", stack)


class Host:
    """Another process that owns the stores of one test after the other: a new process costs more than most tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._other: Other | None = None

    @contextmanager
    def opened(self, path: Path) -> Iterator[None]:
        """Open a store in the process, which is started if there is none, and close it."""
        if self._other is None:
            self._other = Other(self._folder / f"{time.monotonic_ns()}")
        assert self._other.ask(f"globals().update(opened=rillet.open({str(path)!r}))") is None
        yield
        if self._other.process.poll() is None:
            assert self._other.ask("opened.close()") is None
        else:  # the test has killed it
            self.end()

    def end(self) -> None:
        """End the process."""
        if self._other is not None:
            self._other.end()
            self._other = None


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The process that owns the stores of the kind "attached"."""
    started = Host(tmp_path_factory.mktemp("host"))
    yield started
    started.end()


@pytest.fixture
def store(frontend: Frontend) -> Store:
    return frontend.store


@pytest.fixture(scope="session")
def cluster_of_session() -> Iterator[Cluster]:
    """The cluster that all tests share that leave its nodes and slots as they are: its start takes two seconds."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_cluster() as started:
        yield started


@pytest.fixture
def cluster(cluster_of_session: Cluster) -> Cluster:
    """An empty cluster of three masters."""
    cluster_of_session.flush()
    return cluster_of_session


@pytest.fixture
def cluster_url(cluster: Cluster) -> str:
    """The url of an empty cluster of three masters."""
    return cluster.url


@pytest.fixture
def quick_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a waiting loop look at `stop` ten times as often."""
    monkeypatch.setattr(delivery_options, "STOP_CHECK", delivery_options.STOP_CHECK / 10)


def _make(request: pytest.FixtureRequest, kind: str, path: Path, stack: ExitStack) -> Frontend:
    def opened(make: Callable[..., Store], *where: Any) -> Store:
        return stack.enter_context(make(*where))

    if kind == "memory":
        store = opened(rillet.open)
        return Frontend(kind, store, lambda: store)
    if kind == "redis":
        url = _url(request.getfixturevalue("judge"))
        store = opened(rillet.connect, url)
        store.execute("FLUSHALL")
        return Frontend(kind, store, lambda: opened(rillet.connect, url))
    if kind == "attached":
        stack.enter_context(request.getfixturevalue("host").opened(path))
        store = opened(rillet.open, path)
        assert not store.owner
    elif kind == "twin":
        opened(rillet.open, path)
        store = opened(rillet.open, path)
        assert not store.owner
    elif kind == "socket":
        owner = opened(rillet.open, path)
        url = f"unix://{owner.socket}"
        return Frontend(kind, opened(rillet.connect, url), lambda: opened(rillet.connect, url))
    else:
        store = opened(rillet.open, path)
        assert store.owner
    return Frontend(kind, store, lambda: opened(rillet.open, path))
