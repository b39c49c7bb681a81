"""`rillet completion`: the script, run by a real bash, in its functions and with the TAB key on a terminal."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from rillet.cli import SUBCOMMANDS, main
from rillet.cli.completion import SHELLS, whole_parser
from rillet.cli.pipeline import PIPELINES
from tests.forked import ended

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p rillet | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" rillet "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def printed(shell: str) -> str:
    status, output, errors = ended("completion", shell)
    assert (status, errors) == (0, "")
    return output


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "rillet.bash"
    path.write_text(printed("bash"), encoding="utf-8")
    return path


def completed(script: Path, *words: str, folder: Path | None = None) -> list[str]:
    """Return what bash proposes for the last word."""
    done = subprocess.run(["bash", "--norc", "-c", BASH, "bash", str(script), *words], capture_output=True, text=True,
                          cwd=folder, timeout=60)  # fmt: skip
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.split("\n")))


def test_commands(script: Path) -> None:
    assert completed(script, "rillet", "") == sorted(SUBCOMMANDS)
    assert completed(script, "rillet", "st") == ["stats"]
    assert completed(script, "rillet", "x") == []
    assert completed(script, "rillet", "completion", "") == sorted(SHELLS)
    assert completed(script, "rillet", "pipeline", "") == sorted(PIPELINES)


def test_options(script: Path) -> None:
    assert completed(script, "rillet", "stats", "--w") == ["--watch"]
    assert completed(script, "rillet", "tail", "s.rillet", "orders", "--no") == ["--no-follow"]
    assert "--metrics-port" in completed(script, "rillet", "serve", "--m")
    assert completed(script, "rillet", "serve", "--port", "1", "--appendfs") == ["--appendfsync"]
    assert completed(script, "rillet", "serve", "--appendonly", "") == ["no", "yes"]
    assert "valkey" in completed(script, "rillet", "serve", "--compat", "")
    assert completed(script, "rillet", "import", "--merge", "") == ["refuse", "replace", "skip"]


def test_names_of_redis_commands(script: Path) -> None:
    assert completed(script, "rillet", "exec", "events.rillet", "XINF") == ["XINFO"]
    assert {"XADD", "XACK", "XTRIM"} < set(completed(script, "rillet", "exec", "redis://localhost", "X"))
    assert completed(script, "rillet", "exec", "events.rillet", "--js") == ["--json"]


@pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark is not installed")
def test_options_of_pipelines(script: Path) -> None:
    assert completed(script, "rillet", "pipeline", "archive", "--stream-") == ["--stream-pattern"]
    assert completed(script, "rillet", "pipeline", "lag", "--js") == ["--json"]
    assert completed(script, "rillet", "pipeline", "archive", "--spark", "") == ["always", "auto", "never"]


def test_paths(script: Path, tmp_path: Path) -> None:
    (tmp_path / "events.rillet").mkdir()
    (tmp_path / "elsewhere.rdb").write_bytes(b"")
    assert completed(script, "rillet", "stats", "e", folder=tmp_path) == ["events.rillet"]
    assert completed(script, "rillet", "inspect", "redis://a", "e", folder=tmp_path) == ["events.rillet"]
    assert completed(script, "rillet", "check", "e", folder=tmp_path) == ["elsewhere.rdb", "events.rillet"]


def test_the_tab_key(script: Path, tmp_path: Path) -> None:
    """Type on a terminal, as a user does, and read what bash writes."""
    (tmp_path / "events.rillet").mkdir()
    terminal, end = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "ready> ", "HOME": str(tmp_path)}
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=end, stdout=end, stderr=end, cwd=tmp_path, env=environment,
        start_new_session=True,
    )  # fmt: skip
    os.close(end)
    try:
        _expect(terminal, b"ready> ")
        os.write(terminal, f"source {script}\n".encode())
        _expect(terminal, b"ready> ")
        os.write(terminal, b"rillet sta\tev\t --wat\t\x01echo : \n")  # ^A: `echo : ` at the start of the line
        assert b": rillet stats events.rillet/ --watch" in _expect(terminal, b"--watch\r\n")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)


def _expect(terminal: int, wanted: bytes) -> bytes:
    """Read until the terminal shows a text; return all that it showed."""
    shown, deadline = b"", time.monotonic() + 60
    while wanted not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)
    return shown


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str) -> None:
    text = printed(shell)
    assert all(name in text for name in SUBCOMMANDS)
    assert "metrics-port" in text
    program = shutil.which(shell)
    if program is not None and shell != "tcsh":
        assert subprocess.run([program, "-n"], input=text, text=True, timeout=60).returncode == 0


def test_one_clear_line_without_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == "rillet: completion needs shtab: pip install 'rillet[completion]'\n"


def test_the_parser_has_every_subcommand() -> None:
    commands = next(action for action in whole_parser()._actions if action.dest == "command")
    assert set(commands.choices or ()) == set(SUBCOMMANDS)
