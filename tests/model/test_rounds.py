"""Some rounds of the model test for each kind of store. `make test-long` runs many more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rillet
from tests.model.rounds import ROUNDS_OF_A_WORLD
from tests.variants import by_speed

ROOT = Path(__file__).resolve().parents[2]
ALL = ("thread", "interrupted", "lines", "raising", "nesting", "forking", "tasks")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and sends signals")


def _run(
    kinds: tuple[str, ...], rounds: int, seed: int, roles: tuple[str, ...] = ALL, world: int = ROUNDS_OF_A_WORLD
) -> None:
    build = str(Path(rillet.__file__).parent.parent)
    words = ["--rounds", str(rounds), "--seed", str(seed), "--world", str(world), "--history"]
    words += [word for kind in kinds for word in ("--kind", kind)]
    words += [word for role in roles for word in ("--role", role)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.model", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((build, str(ROOT)))}, text=True, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[:5000]} ... {done.stdout[-15_000:]}"
    assert f"{rounds} rounds" in done.stdout
    assert "unexpected" not in done.stdout


@pytest.mark.parametrize(("kind", "rounds"), [("memory", by_speed(10, 4, 20)), ("owner", by_speed(3, 2, 6))])
def test_rounds_in_this_process(kind: str, rounds: int) -> None:
    _run((kind,), rounds, 100)


@pytest.mark.parametrize("kinds", [("attached", "redis"), ("process", "serve", "restart")])
def test_rounds_over_a_socket(kinds: tuple[str, ...]) -> None:
    """A round of each, in turn."""
    _run(kinds, by_speed(len(kinds), len(kinds), 2 * len(kinds)), 200, world=1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "owner", "attached", "process", "redis", "serve", "restart"])
def test_many_rounds(kind: str) -> None:
    _run((kind,), 100, int.from_bytes(os.urandom(3), "big"), ())
