"""The files in deploy/: the systemd units are valid, and their commands run.

No image is built here: that needs a daemon and a registry. The rest of the Containerfile is run without one: the
files that it copies suffice for the package, its command serves, and its health check is right.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rillet
from tests.judge import free_port
from tests.package.test_modes import ROOT
from tests.server.harness import TIMEOUT, connected, launch, running

DEPLOY = ROOT / "deploy"


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Return the sections of a unit file; a key may occur several times."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in (DEPLOY / name).read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return sections


def healthy(port: int) -> bool:
    check = [sys.executable, str(DEPLOY / "healthcheck.py"), str(port)]
    return subprocess.run(check, capture_output=True, check=False, timeout=TIMEOUT).returncode == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in DEPLOY.glob("rillet*.*"):
        if path.suffix in (".service", ".timer"):
            text = path.read_text().replace("/opt/rillet/bin/rillet", "/bin/true")
            (tmp_path / path.name).write_text(re.sub("^(User|Group)=rillet$", r"\1=root", text, flags=re.MULTILINE))
    names = sorted(tmp_path.iterdir())
    assert [one.name for one in names] == ["rillet-backup.service", "rillet-backup.timer", "rillet.service"]
    verified = subprocess.run(["systemd-analyze", "verify", *names], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def test_the_units_serve_and_back_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of rillet.service reports readiness, and the data survives a kill; rillet-backup copies it."""
    service, data = unit("rillet.service")["Service"], tmp_path / "data"
    assert (service["Type"], service["Restart"]) == (["notify"], ["on-failure"])
    program, *words = shlex.split(service["ExecStart"][0])
    assert program == "/opt/rillet/bin/rillet"
    port = free_port()
    places = {"/etc/rillet/rillet.conf": str(DEPLOY / "rillet.conf"), "/var/lib/rillet": str(data)}
    given = [places.get(word, word) for word in words]
    given += ["--port", str(port), "--unixsocket", str(tmp_path / "socket")]
    data.mkdir()
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT)
        for turn in range(2):
            with launch(given[1:]) as process:
                assert b"READY=1" in manager.recv(4096)
                with connected(port) as client:
                    assert client.call("INCR n") == b":%d\r\n" % (turn + 1)
                assert healthy(port)
                if turn:
                    _back_up(tmp_path, data)
                process.kill()
                process.communicate(timeout=TIMEOUT)
    assert not healthy(port)
    (backup,) = (tmp_path / "backups").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}", backup.name)
    with rillet.open(backup) as store:
        assert store.execute("GET", "n") == b"2"


def _back_up(tmp_path: Path, data: Path) -> None:
    """Run the commands of rillet-backup.service; an old backup is removed."""
    old = tmp_path / "backups/old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    for line in unit("rillet-backup.service")["Service"]["ExecStart"]:
        text = line.replace("$$", "$").replace("%%", "%")
        for old_text, new in (("/var/backups/rillet", tmp_path / "backups"), ("/var/lib/rillet", data),
                              ("/opt/rillet/bin/rillet", f"{sys.executable} -m rillet")):  # fmt: skip
            text = text.replace(old_text, str(new))
        subprocess.run(shlex.split(text), check=True, capture_output=True, timeout=TIMEOUT)
    assert not old.exists()


# -- the container -------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_container_runs_without_root_and_keeps_its_data() -> None:
    names = [name for name, _ in instructions()]
    last = dict(instructions()[len(names) - names[::-1].index("FROM") :])
    assert int(last["USER"].partition(":")[0]) > 0
    assert last["VOLUME"] == last["WORKDIR"] == "/data"
    assert "gcc" not in last["RUN"]
    entry = json.loads(last["ENTRYPOINT"])
    assert entry[:4] == ["rillet", "serve", "--dir", "/data"]
    assert json.loads(last["HEALTHCHECK"].partition("CMD ")[2]) == ["python", "/opt/rillet/healthcheck.py"]
    for line in (rest for name, rest in instructions() if name == "COPY" and "--from" not in rest):
        assert all((ROOT / source).exists() for source in line.split()[:-1])


def test_the_files_of_the_container_suffice_for_the_package(tmp_path: Path) -> None:
    copied = [rest.split() for name, rest in instructions() if name == "COPY" and "--from" not in rest][:2]
    assert [one[-1] for one in copied] == ["./", "./src"]
    for name in copied[0][:-1]:
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    environment = {**os.environ, "RILLET_DISABLE_EXTENSIONS": "1", "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}
    build = [sys.executable, "setup.py", "-q", "build", "--build-lib", str(tmp_path / "built")]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, env=environment, timeout=300)
    assert (tmp_path / "built/rillet/cli/serve.py").is_file()


def test_the_command_of_the_container(tmp_path: Path) -> None:
    """Its settings, a settings file, and a password that it requires from other machines; the states of its health."""
    entry: list[Any] = json.loads(dict(instructions())["ENTRYPOINT"])
    (tmp_path / "more.conf").write_text("maxmemory 100mb\nrequirepass secret\nappendfsync always\n")
    words = [str(tmp_path) if word == "/data" else word for word in entry[2:]]
    assert words[:2] == ["--dir", str(tmp_path)]
    with running(tmp_path, *words[2:], "--include", str(tmp_path / "more.conf")) as server, server.client() as client:
        assert healthy(server.port)
        assert client.call("AUTH secret") == b"+OK\r\n"
        settings = "appendonly appendfsync aof-timestamp-enabled maxmemory protected-mode save".split()
        values = [client.call(f"CONFIG GET {name}").split(b"\r\n")[4] for name in settings]
        assert values == [b"yes", b"always", b"yes", b"104857600", b"yes", b""]
        assert client.call("CONFIG SET requirepass x") == b"+OK\r\n"
        assert client.call("SET k v") == b"+OK\r\n"
    with loading(tmp_path, words[2:]) as process:
        assert not healthy(process.port)


class loading:
    """A server that loads its data for a long time."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.port = free_port()
        given = ["--port", str(self.port), "--dir", str(folder), *words, "--key-load-delay", "30000000"]
        self.process = launch(given)

    def __enter__(self) -> loading:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "Server initialized" in line:
                return self
        raise AssertionError("the server did not start")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
