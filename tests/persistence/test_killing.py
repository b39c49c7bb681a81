"""Killed processes lose no acknowledged writes: a few rounds of killing.py, and tests of the harness itself."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import rillet
from tests.persistence.killing import plans
from tests.persistence.ledger import Client, Failure, Model, same
from tests.persistence.victims import CLIENTS, ROOT
from tests.variants import by_speed, seeds

ROUNDS = by_speed(1, 1, 5)


def carried_out(client: Client, batches: int) -> list[Any]:
    """Let the client send batches without a server, and return its expected states after each item."""
    model = Model()
    states = [model.state()]
    for _ in range(batches):
        batch = client.batch()
        if batch[0].alone:  # the result of `~` is only known from the found data, so no command follows it
            continue
        for sent in batch:
            sent.effect(model, None)
            client.flying.append(sent)
            states.append(model.state())
        # The next commands depend on the known state.
        client.model.there, client.model.added = model.there, model.added
    client.model = Model()
    return states


def loaded_client(number: int, seed: int) -> tuple[Client, list[Any]]:
    """Return a client with unacknowledged commands, and the states after each of them."""
    client = Client(number, random.Random(seed))
    return client, carried_out(client, 12)


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_a_state_between_acknowledged_and_sent_is_accepted(seed: int) -> None:
    client, states = loaded_client(1, seed)
    for at in sorted(random.Random(seed).sample(range(len(states)), 5)):
        client, again = loaded_client(1, seed)
        assert same(again, states)
        taken = client.settle(states[at])
        assert same(states[taken], states[at])
        assert client.flying == []


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_a_state_without_an_acknowledged_write_is_a_failure(seed: int) -> None:
    client, states = loaded_client(1, seed)
    for sent in client.flying[:]:
        client.flying.pop(0)
        sent.effect(client.model, None)
    earlier = [one for one in states if one != states[-1]]
    assert earlier
    for state in earlier:
        with pytest.raises(Failure, match="none of the states"):
            client.settle(state)


def test_an_incomplete_transaction_is_a_failure() -> None:
    client = Client(1, random.Random(5))
    client.flying = [client._made(), client._transaction()]
    half = Model()
    client.flying[0].effect(half, None)
    client._incr().effect(half, None)  # the first of the transaction
    with pytest.raises(Failure, match="none of the states"):
        client.settle(half.state())


def test_a_rejected_write_is_a_failure() -> None:
    client = Client(0, random.Random(1))
    client.flying = [client._incr()]
    with pytest.raises(Failure, match="was refused: MISCONF"):
        client.acknowledge([Exception("MISCONF")])


def test_a_seed_repeats_its_chains() -> None:
    once, again = plans(100, 7), plans(100, 7)
    assert once == again
    assert len(once) == 10
    assert [one.settings() for one in once] == [one.settings() for one in again]
    assert {one.settings()["appendfsync"] for one in once} == {"always", "everysec", "no"}
    assert {one.library for one in once} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["server", "library"])
def test_acknowledged_changes_survive_kills(kind: str, tmp_path: Path) -> None:
    # `python -m tests.persistence.killing --rounds 1000` is the long form of this.
    with killing(tmp_path, "--rounds", str(ROUNDS), "--only", kind, "--seed", "3") as process:
        said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    found = re.search(rf"{ROUNDS} rounds .* (\d+) commands acknowledged, none lost", said)
    assert found is not None, said
    assert int(found[1]) > CLIENTS, said
    assert list(tmp_path.iterdir()) == []
    assert not processes_in(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("kind", ["server", "library"])
def test_an_interrupted_run_leaves_no_process(kind: str, tmp_path: Path) -> None:
    with killing(tmp_path, "--rounds", "50", "--only", kind) as process:
        while not processes_in(tmp_path):
            assert process.poll() is None
            threading.Event().wait(0.01)
        process.terminate()
        process.communicate(timeout=60)
    while processes_in(tmp_path):  # the workers end a moment later
        threading.Event().wait(0.01)


def killing(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command with its directories in the folder."""
    paths = str(Path(rillet.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.persistence.killing", *arguments], cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(folder)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of the processes that use a directory in the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in found if f"{folder}/killing-" in line]
