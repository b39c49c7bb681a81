"""The manifest: Redis's format, no path outside of the folder, and in force only if its files exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from rillet.errors import LogCorrupt
from rillet.persistence.aof.manifest import AofManifest, LogFile, commit, draft_of, read_manifest, recover

NAME = "appendonly.aof.manifest"


def _listed(path: Path) -> list[LogFile]:
    return read_manifest(path).files


def test_a_written_manifest_is_read_back(tmp_path: Path) -> None:
    files = AofManifest(
        LogFile("appendonly.aof.2.base.rdb", 2, "b"), (), (LogFile("appendonly.aof.7.incr.aof", 7, "i"),)
    )
    path = tmp_path / NAME
    commit(path, files, [])
    assert (
        path.read_text() == "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.7.incr.aof seq 7 type i\n"
    )
    found = read_manifest(path)
    assert found.files == files.files
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert (found.base_seq, found.incr_seq) == (2, 7)


@pytest.mark.parametrize(("name", "shown"), [
    ('my "log" \\ 1.aof', r'"my \"log\" \\ 1.aof"'), (" file seq \n\n.aof ", r'" file seq \n\n.aof "'),
    ("it's", '"it\'s"'), ("f\xfcr", r'"f\xc3\xbcr"'), ("plain-1.2_a[b]+~", "plain-1.2_a[b]+~"),
])  # fmt: skip
def test_unusual_names_are_quoted(tmp_path: Path, name: str, shown: str) -> None:
    path = tmp_path / "m"
    commit(path, AofManifest(incrs=(LogFile(name, 1, "i"),)), [])
    assert path.read_text() == f"file {shown} seq 1 type i\n"
    assert _listed(path) == [LogFile(name, 1, "i")]


def test_comments_and_fields_of_newer_servers_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text("# a comment\nfile a seq 1 type i\nTYPE i File b later 3 Seq 12 startoffset 0\n# the end")
    assert _listed(path) == [LogFile("a", 1, "i"), LogFile("b", 12, "i")]


@pytest.mark.parametrize(("line", "reason"), [
    *((line, "Invalid AOF manifest file format") for line in (
        "file", "file a", "file a seq x type i", "seq 1 type i", "", "file a seq -1 type i", "file a seq 0 type i",
        "filx a seq 1 type i", "file a seq 1 type i more", 'file "a seq 1 type i', "\x00", 'file "" seq 1 type i')),
    *((line, "File can't be a path, just a filename") for line in (
        "file ../a seq 1 type i", "file .. seq 1 type i", "file /etc/passwd seq 1 type i")),
    ("file a seq 1 type z", "Unknown AOF file type"), ("file b seq 3 type i", "Found a non-monotonic sequence number"),
    ("file b seq 3 type b", "Found duplicate base file information"),
    ("file b seq 4 type i" + " k v" * 300, "The AOF manifest file contains too long line"),
])  # fmt: skip
def test_an_invalid_line_is_rejected(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "m"
    path.write_text("file base seq 1 type b\nfile ok seq 3 type i\n" + line + "\n")
    with pytest.raises(LogCorrupt, match=reason) as caught:
        read_manifest(path)
    assert caught.value.path == str(path)
    assert caught.value.offset == 44


def test_an_empty_or_truncated_manifest_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(LogCorrupt, match="Found an empty AOF manifest"):
        read_manifest(tmp_path / "m")
    (tmp_path / "m").write_text("file a seq 1 type i\nfile b seq 2 type i")
    with pytest.raises(LogCorrupt, match="offset 20: The AOF manifest file contains too long line"):
        read_manifest(tmp_path / "m")


def test_a_rewrite_after_a_failed_one_numbers_files_as_redis_does() -> None:
    """The order of the lines and the numbers are those of redis-server 7.0.15."""
    first = AofManifest().with_base("a", True, 0).with_incr("a")
    lines = [file.line() for file in first.files]
    assert lines == ["file a.1.base.rdb seq 1 type b\n", "file a.1.incr.aof seq 1 type i\n"]
    again = first.with_incr("a").with_incr("a").with_base("a", False, 1)
    assert [(file.name, file.type) for file in again.files] == [
        ("a.2.base.aof", "b"), ("a.1.incr.aof", "h"), ("a.2.incr.aof", "h"), ("a.1.base.rdb", "h"),
        ("a.3.incr.aof", "i"),
    ]  # fmt: skip
    third = again.with_incr("a").with_base("a", True, 1)
    assert [file.name for file in third.history[:2]] == ["a.3.incr.aof", "a.2.base.aof"]
    assert len(third.history) == 5
    assert [file.name for file in third.without_history().files] == ["a.3.base.rdb", "a.4.incr.aof"]
    off = third.with_base("a", True, 0)
    assert off.loaded == [LogFile("a.4.base.rdb", 4, "b")]
    assert off.incr_seq == 4


def test_a_crash_in_the_first_commit_is_recovered(tmp_path: Path) -> None:
    path = tmp_path / NAME
    files = AofManifest().with_base("appendonly.aof", True, 0).with_incr("appendonly.aof")
    commit(path, files, [])
    base, incr = (tmp_path / file.name for file in files.files)
    path.rename(draft_of(path))
    base.write_bytes(b"base")
    incr.write_bytes(b"")
    recover(path)  # everything was complete except for the last rename
    assert read_manifest(path) == files
    assert base.exists()
    assert not draft_of(path).exists()

    path.rename(draft_of(path))
    incr.unlink()
    recover(path)
    assert list(tmp_path.iterdir()) == []

    draft_of(path).write_bytes(b"file appendonly.aof.1.base.rdb seq 1 type b\nfile append")
    recover(path)
    assert list(tmp_path.iterdir()) == []

    commit(path, files, [])
    draft_of(path).write_bytes(b"anything")
    recover(path)  # a draft beside a manifest has no effect
    assert read_manifest(path) == files
