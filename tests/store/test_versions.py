"""Processes with different versions of rillet on one directory: they work together, or one line says why not.

The other version is a copy of the package with another version number, and another range of protocols.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rillet
from rillet.errors import IncompatibleOwner
from rillet.persistence.announcement import OLDEST, PROTOCOL
from tests.store.owner_processes import announced_pid, await_end

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
OWN = """
import sys, rillet
options = {"owner": "process", "owner_grace": 0} if sys.argv[2] == "process" else {}
with rillet.open(sys.argv[1], **options) as store:
    store.stream("s").add({"from": rillet.__version__})
    print("ready", flush=True)
    sys.stdin.read()
"""
USE = """
import sys, rillet
try:
    with rillet.open(sys.argv[1]) as store:
        store.stream("s").add({"from": rillet.__version__})
        print([entry["from"] for entry in store.stream("s")], store.owner)
except rillet.StoreError as error:
    print(type(error).__name__, error)
"""


class Version:
    """A copy of the package that has another version."""

    def __init__(self, folder: Path, version: str, oldest: int, protocol: int) -> None:
        self.folder = folder
        shutil.copytree(Path(rillet.__file__).parent, folder / "rillet")  # with its .pyc files
        self._change("__init__.py", f'__version__ = "{rillet.__version__}"', f'__version__ = "{version}"')
        self._change("persistence/announcement.py", f"PROTOCOL = {PROTOCOL}\nOLDEST = {OLDEST}\n",
                     f"PROTOCOL = {protocol}\nOLDEST = {oldest}\n")  # fmt: skip

    def _change(self, name: str, old: str, new: str) -> None:
        path = self.folder / "rillet" / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        return subprocess.Popen([sys.executable, "-P", *arguments], env=environment, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)  # fmt: skip

    @contextmanager
    def owning(self, path: Path, owner: str) -> Iterator[None]:
        process = self.start("-c", OWN, str(path), owner)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.communicate(timeout=60)
        assert process.returncode == 0

    def use(self, path: Path) -> str:
        return self.start("-c", USE, str(path)).communicate(timeout=60)[0].strip()


@pytest.fixture(scope="module")
def compatible(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return Version(tmp_path_factory.mktemp("compatible"), "9.8.7", OLDEST, PROTOCOL + 1)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return Version(tmp_path_factory.mktemp("newer"), "9.9.9", PROTOCOL + 1, PROTOCOL + 2)


@pytest.mark.parametrize("owner", ["this", "process"])
def test_compatible_versions_work_together(tmp_path: Path, compatible: Version, owner: str) -> None:
    path = tmp_path / "store"
    with compatible.owning(path, owner), rillet.open(path) as store:
        assert json.loads((path / "owner.json").read_text())["version"] == "9.8.7"
        store.stream("s").add({"from": rillet.__version__})
        assert not store.owner
        assert [entry["from"] for entry in store.stream("s")] == ["9.8.7", rillet.__version__]
    await_end(tmp_path)
    with rillet.open(path) as store:
        assert compatible.use(path) == f"['9.8.7', '{rillet.__version__}', '9.8.7'] False"


@pytest.mark.parametrize("owner", ["this", "process"])
def test_incompatible_versions_fail_with_one_line(tmp_path: Path, newer: Version, owner: str) -> None:
    path = tmp_path / "store"
    with newer.owning(path, owner):
        reason = (
            f"{path} is open in process {announced_pid(path)}, which runs rillet 9.9.9 with the protocols "
            f"{PROTOCOL + 1} to {PROTOCOL + 2}; this is rillet {rillet.__version__} with {OLDEST} to {PROTOCOL}: "
            "install the same version for both programs, or end that process"
        )
        for mine in ("this", "process"):
            with pytest.raises(IncompatibleOwner) as caught:
                rillet.open(path, owner=mine)
            assert str(caught.value) == reason
    await_end(tmp_path)
    with rillet.open(path, owner=owner, owner_grace=0) as store:  # type: ignore[arg-type]
        assert len(store.stream("s")) == 1
        said = newer.use(path)
        assert said.startswith(f"IncompatibleOwner {path} is open in process {announced_pid(path)}, which runs rillet ")
        assert "this is rillet 9.9.9 with" in said
        assert "\n" not in said
        assert len(store.stream("s")) == 1
    await_end(tmp_path)


def test_an_attached_client_meets_a_newer_owner(tmp_path: Path, newer: Version) -> None:
    """The owner ends, and a newer version owns the directory: a call fails until that one has ended, too."""
    path = tmp_path / "store"
    owner = rillet.open(path)
    with rillet.open(path) as store:
        store.stream("s").add({"a": 1})
        owner.close()
        with newer.owning(path, "this"), pytest.raises(IncompatibleOwner):
            store.stream("s").add({"a": 2})
        store.stream("s").add({"a": 3})
        assert store.owner
        assert len(store.stream("s")) == 3


def test_a_server_of_another_version(tmp_path: Path, newer: Version, compatible: Version) -> None:
    rillet.open(tmp_path).close()
    for version, works in ((newer, False), (compatible, True)):
        socket = tmp_path / "socket"
        process = version.start("-m", "rillet", "serve", "--dir", str(tmp_path), "--port", "0", "--unixsocket",
                                str(socket), "--appendonly", "yes")  # fmt: skip
        while not (socket.exists() and (tmp_path / "owner.json").exists()):
            assert process.poll() is None
            time.sleep(0.01)
        try:
            if works:
                with rillet.open(tmp_path) as store:
                    assert store.execute("PING") == b"PONG"
            else:
                with pytest.raises(IncompatibleOwner, match=f"process {process.pid}, which runs rillet 9.9.9"):
                    rillet.open(tmp_path)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_an_owner_that_announces_no_version(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rillet.open(path) as owner:
        found = json.loads((path / "owner.json").read_text())
        (path / "owner.json").write_text(json.dumps({"pid": found["pid"], "socket": found["socket"]}))
        with rillet.open(path) as store:
            store.execute("SET", "k", "v")
        assert owner.execute("GET", "k") == b"v"
