"""The kinds of stores of the tests beside this file: those of tests/store, a server over RESP3, and a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from tests.judge import Judge
from tests.store.conftest import KINDS, Frontend, _make


def only(*kinds: Any) -> pytest.MarkDecorator:
    """Return a mark that runs a test with `frontend` or `store` for these kinds only."""
    return pytest.mark.parametrize("frontend", kinds, indirect=True)


def _connected(request: pytest.FixtureRequest, kind: str) -> Store:
    if kind == "cluster":
        return rillet.connect(request.getfixturevalue("cluster_url"))
    judge: Judge = request.getfixturevalue("judge")
    store = rillet.connect(f"redis://127.0.0.1:{judge.port}/0?protocol=3")
    store.execute("FLUSHALL")
    return store


@pytest.fixture(params=(*KINDS, "resp3", "cluster"))
def frontend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Frontend]:
    with ExitStack() as stack:
        if request.param in ("resp3", "cluster"):
            store = stack.enter_context(_connected(request, request.param))
            yield Frontend(request.param, store, lambda: store)
        else:
            yield _make(request, request.param, tmp_path / "store.rillet", stack)


@pytest.fixture
def store(frontend: Frontend) -> Store:
    return frontend.store
