"""The server's own log: form, importance, where it goes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rillet.server.messages import DEBUG, LEVELS, NOTICE, VERBOSE, WARNING, Journal
from tests.judge import running_redis

LINE = re.compile(r"(\d+):([MCSX]) \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d\.\d{3} ([.*#-]) (.+)")


def test_a_line_is_in_redis_s_form(tmp_path: Path) -> None:
    journal = Journal()
    journal.configure("debug", str(tmp_path / "log"))
    journal.say("ready")
    said = LINE.fullmatch((tmp_path / "log").read_text().rstrip("\n"))
    assert said is not None and said.groups() == (str(os.getpid()), "M", "*", "ready")
    with running_redis("--logfile", str(tmp_path / "theirs")):
        pass
    theirs = (tmp_path / "theirs").read_text().splitlines()
    assert any(LINE.fullmatch(line) and line.endswith("* Ready to accept connections") for line in theirs)


@pytest.mark.parametrize("level", [*LEVELS, "nothing"])
def test_what_is_less_important_is_left_out(tmp_path: Path, level: str) -> None:
    journal = Journal()
    journal.configure(level, str(tmp_path / "log"))
    for one in (DEBUG, VERBOSE, NOTICE, WARNING):
        journal.say(f"line {one}", one)
    kept = [LINE.fullmatch(line) for line in (tmp_path / "log").read_text().splitlines()]
    first = [*LEVELS, "nothing"].index(level)
    assert [one[4] for one in kept if one] == [f"line {one}" for one in range(first, 4)]


def test_the_standard_output_is_where_lines_go_without_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    Journal().say("hello", WARNING)
    said = LINE.fullmatch(capfd.readouterr().out.rstrip("\n"))
    assert said is not None and said[3] == "#" and said[4] == "hello"


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-folder"):
        Journal().configure("notice", str(tmp_path / "no-folder" / "log"))


def test_a_file_that_can_no_longer_be_written_costs_the_line_only(tmp_path: Path) -> None:
    journal = Journal()
    folder = tmp_path / "folder"
    folder.mkdir()
    journal.configure("notice", str(folder / "log"))
    (folder / "log").unlink()
    folder.rmdir()
    journal.say("lost")
    assert not folder.exists()
