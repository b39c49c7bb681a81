"""The manifest: Redis's lines, and nothing that leads out of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rillet.errors import LogCorrupt
from rillet.persistence.manifest import LogFile, read_manifest, write_manifest


def test_what_is_written_is_read(tmp_path: Path) -> None:
    files = [LogFile("appendonly.aof.2.base.rdb", 2, "b"), LogFile("appendonly.aof.7.incr.aof", 7, "i")]
    path = tmp_path / "appendonly.aof.manifest"
    write_manifest(path, files)
    assert (
        path.read_text() == "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.7.incr.aof seq 7 type i\n"
    )
    assert read_manifest(path) == files and [one.name for one in tmp_path.iterdir()] == [path.name]


def test_names_with_blanks_are_quoted(tmp_path: Path) -> None:
    path = tmp_path / "m"
    files = [LogFile('my "log" \\ 1.aof', 1, "i")]
    write_manifest(path, files)
    assert path.read_text() == 'file "my \\"log\\" \\\\ 1.aof" seq 1 type i\n'
    assert read_manifest(path) == files


def test_comments_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text("# a comment\n\nfile a seq 1 type i\n")
    assert read_manifest(path) == [LogFile("a", 1, "i")]


@pytest.mark.parametrize("line", [
    "file", "file a", "file a seq x type i", "file a seq 1 type z", "seq 1 type i", "file ../a seq 1 type i", "\x00",
    "file .. seq 1 type i", "file a seq 1 type i more", "file /etc/passwd seq 1 type i", "file a seq -1 type i",
])  # fmt: skip
def test_a_line_that_makes_no_sense(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m"
    path.write_text("file ok seq 1 type i\n" + line + "\n")
    with pytest.raises(LogCorrupt) as caught:
        read_manifest(path)
    assert caught.value.path == str(path) and caught.value.offset == 21


def test_two_bases(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("file a seq 1 type b\nfile b seq 2 type b\n")
    with pytest.raises(LogCorrupt, match="more than one base file"):
        read_manifest(tmp_path / "m")
