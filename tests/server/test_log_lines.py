"""The server's log: format, levels and destination."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rillet.server.log_lines import DEBUG, LEVELS, NOTICE, VERBOSE, WARNING, ServerLogger, in_words_of
from rillet.types.compat import COMPATS
from tests.judge import running_redis
from tests.server.harness import launch, running

LINE = re.compile(r"(\d+):([MCSX]) \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d\.\d{3} ([.*#-]) (.+)")


def test_a_line_has_the_format_of_redis(tmp_path: Path) -> None:
    journal = ServerLogger()
    journal.configure("debug", str(tmp_path / "log"))
    journal.say("ready")
    said = LINE.fullmatch((tmp_path / "log").read_text().rstrip("\n"))
    assert said is not None
    assert said.groups() == (str(os.getpid()), "M", "*", "ready")
    with running_redis("--logfile", str(tmp_path / "theirs")):
        pass
    theirs = (tmp_path / "theirs").read_text().splitlines()
    assert any(LINE.fullmatch(line) and line.endswith("* Ready to accept connections") for line in theirs)


@pytest.mark.parametrize("level", [*LEVELS, "nothing"])
def test_lines_below_the_level_are_dropped(tmp_path: Path, level: str) -> None:
    journal = ServerLogger()
    journal.configure(level, str(tmp_path / "log"))
    for one in (DEBUG, VERBOSE, NOTICE, WARNING):
        journal.say(f"line {one}", one)
    kept = [LINE.fullmatch(line) for line in (tmp_path / "log").read_text().splitlines()]
    first = [*LEVELS, "nothing"].index(level)
    assert [one[4] for one in kept if one] == [f"line {one}" for one in range(first, 4)]


def test_lines_go_to_the_standard_output_without_a_log_file(capfd: pytest.CaptureFixture[str]) -> None:
    ServerLogger().say("hello", WARNING)
    said = LINE.fullmatch(capfd.readouterr().out.rstrip("\n"))
    assert said is not None
    assert said[3] == "#"
    assert said[4] == "hello"


def test_an_unwritable_log_file_is_reported_immediately(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-folder"):
        ServerLogger().configure("notice", str(tmp_path / "no-folder" / "log"))


def test_a_line_that_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    journal = ServerLogger()
    folder = tmp_path / "folder"
    folder.mkdir()
    journal.configure("notice", str(folder / "log"))
    (folder / "log").unlink()
    folder.rmdir()
    journal.say("lost")
    assert not folder.exists()


def test_the_server_logs_to_the_configured_file_and_level(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with running(tmp_path, "--logfile", str(log), "--enable-debug-command", "yes") as server, server.client() as client:
        assert client.call("DEBUG LOG one") == b"+OK\r\n"
        assert client.call("CONFIG SET loglevel warning") == b"+OK\r\n"
        assert client.call("DEBUG LOG two") == b"+OK\r\n"
        assert client.call("CONFIG SET loglevel debug") == b"+OK\r\n"
        assert client.call("DEBUG LOG three") == b"+OK\r\n"
    lines = log.read_text().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert f"PID: {server.process.pid}" in lines[0]
    assert [line.split()[-1] for line in lines if "DEBUG LOG" in line] == ["one", "two", "three"]
    assert any(line.endswith("* Ready to accept connections") for line in lines)


def test_a_server_does_not_start_without_its_log_file(tmp_path: Path) -> None:
    with launch(["--port", "0", "--logfile", str(tmp_path / "missing" / "log")]) as process:
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert "Can't open the log file: No such file or directory" in errors, said


def test_the_server_logs_the_settings_that_have_no_effect(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with running(tmp_path, "--logfile", str(log), "--list-max-ziplist-value", "5"):
        pass
    assert "* Settings without an effect in rillet: list-max-ziplist-value\n" in log.read_text()


@pytest.mark.parametrize(("text", "valkey"), [
    ("Connecting to MASTER 127.0.0.1:6379", "Connecting to PRIMARY 127.0.0.1:6379"),
    ("Timeout connecting to the MASTER...", "Timeout connecting to the PRIMARY..."),
    ("Connecting to MASTER master.example:6379", "Connecting to PRIMARY master.example:6379"),
    ("Connecting to MASTER master:6379", "Connecting to PRIMARY master:6379"),
    ("Reconnecting to MASTER master-1.example:6379", "Reconnecting to PRIMARY master-1.example:6379"),
    ("MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization.",
     "PRIMARY <-> REPLICA sync: Primary accepted a Partial Resynchronization."),
    ("Connection with master lost.", "Connection with primary lost."),
    ("Full resync from master: 1a:5", "Full resync from primary: 1a:5"),
])  # fmt: skip
def test_valkey_calls_the_master_the_primary(text: str, valkey: str) -> None:
    assert in_words_of(COMPATS["newest"], text) == text
    assert in_words_of(COMPATS["valkey"], text) == valkey
