"""Options, addresses and Java: everything wrong is said, and said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rillet.spark.connection import Address
from rillet.spark.java import JavaMissing, require_java
from rillet.spark.options import READ_ONLY, OptionError, parse
from rillet.types.stream_id import MAX, StreamID

GOOD = {"url": "redis://localhost", "stream": "events"}


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        parse({"startingOfsets": "0", "foo": "1", "minPartitions": "0", "timeout": "soon", "endingOffsets": "tomorrow"})
    text = str(caught.value)
    for part in (
        "unknown option startingofsets (did you mean startingOffsets?)",
        "unknown option foo",
        "stream is missing",
        "one of url",
        "minPartitions is '0'",
        "timeout is 'soon'",
        "endingOffsets is 'tomorrow'",
    ):
        assert part in text
    assert "\n" not in text


def test_url_and_path_contradict_each_other() -> None:
    with pytest.raises(OptionError, match="one of url .* and path"):
        parse({**GOOD, "path": "/data/events.rillet"})


def test_names_are_known_in_any_case_and_sparks_own_are_let_through() -> None:
    parsed = parse({"URL": "redis://localhost", "STREAM": "events", "MINPARTITIONS": "3", "checkpointLocation": "/x"})
    assert parsed.min_partitions == 3
    with pytest.raises(OptionError, match="not for writing: minPartitions"):
        parsed.refuse(READ_ONLY, "writing")


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("earliest", StreamID(0, 0)),
        ("latest", None),
        ("5-3", StreamID(5, 2)),
        ("5", StreamID(4, MAX)),
        ("(5-3", StreamID(5, 3)),
        ("(5", StreamID(5, 0)),
        ("0", StreamID(0, 0)),
        ("0-1", StreamID(0, 0)),
        (f"{MAX}-{MAX}", StreamID(MAX, MAX - 1)),
    ],
)
def test_starting_offsets_are_inclusive_but_for_a_parenthesis(text: str, after: StreamID | None) -> None:
    assert parse({**GOOD, "startingOffsets": text}).starting == after


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("latest", None),
        ("5-3", StreamID(5, 3)),
        ("5", StreamID(5, MAX)),
        ("(5-0", StreamID(4, MAX)),
        ("(5", StreamID(4, MAX)),
    ],
)
def test_ending_offsets_are_inclusive_but_for_a_parenthesis(text: str, last: StreamID | None) -> None:
    assert parse({**GOOD, "endingOffsets": text}).ending == last


@pytest.mark.parametrize("text", ["", "5-", "-5", "x", f"{MAX + 1}", "5-5-5", "((5", "٣"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        parse({**GOOD, "startingOffsets": text})


@pytest.mark.parametrize(
    ("url", "address", "shown"),
    [
        ("redis://localhost", Address("localhost"), "localhost:6379"),
        ("redis://h:1/2", Address("h", 1, db=2), "h:1 (database 2)"),
        ("redis://u:p%40s@h:1", Address("h", 1, user="u", password="p@s"), "h:1"),
        ("redis://:p@h", Address("h", password="p"), "h:6379"),
        ("redis://h?db=4", Address("h", db=4), "h:6379 (database 4)"),
        ("unix:///run/r.sock?db=3", Address(unix="/run/r.sock", db=3), "/run/r.sock (database 3)"),
    ],
)
def test_urls(url: str, address: Address, shown: str) -> None:
    assert Address.parse(url) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    "url", ["localhost", "http://h", "redis://", "redis://h:port", "redis://h/events", "unix://", "rediss://h"]
)
def test_urls_that_name_no_server(url: str) -> None:
    with pytest.raises(OptionError, match="url is neither"):
        Address.parse(url)


def fake_java(folder: Path, says: str, status: int = 0) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)


def test_java_missing_broken_or_old_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaMissing, match="^Spark needs Java; JAVA_HOME is .*nowhere.* does not run: install Java 17"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="^Spark needs Java, and none is on the PATH: [^\n]*$"):
        require_java()
    fake_java(tmp_path / "old", 'openjdk version "1.8.0_402"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(JavaMissing, match="17 or newer, and .* is version 8"):
        require_java()
    fake_java(tmp_path / "broken", "no", 1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(JavaMissing, match="does not run"):
        require_java()
    fake_java(tmp_path / "good", 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "good"))
    assert require_java() == str(tmp_path / "good" / "bin" / "java")
