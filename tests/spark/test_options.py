"""Options, addresses and Java: all mistakes are reported in one error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rillet.client.address import Address, NodeAddress, Tls
from rillet.client.errors import AddressError
from rillet.spark.archive.targets import delta_storage
from rillet.spark.java import JavaMissing, require_java
from rillet.spark.options import NAMES, READ_ONLY, OptionError, parse
from rillet.types.stream.id import MAX, StreamID

GOOD = {"url": "redis://localhost", "stream": "events"}


def test_all_mistakes_are_reported_in_one_error() -> None:
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


def test_contradictions_are_reported_with_other_mistakes() -> None:
    with pytest.raises(OptionError) as caught:
        parse(
            {
                **GOOD,
                "foo": "1",
                "minEntriesPerTrigger": "9",
                "maxEntriesPerTrigger": "3",
                "startingOffsets": '{"b": "0"}',
            }
        )
    text = str(caught.value)
    for part in ("unknown option foo", "larger than maxEntriesPerTrigger", "names streams that are not read: b"):
        assert part in text
    with pytest.raises(OptionError) as caught:  # which keys are read is not known: one complaint, not two
        parse({**GOOD, "partitioned": "none", "startingOffsets": '{"events:0": "0"}'})
    assert str(caught.value) == "rillet: partitioned is 'none': expected a whole number of at least 1"


def test_the_guide_has_every_option() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    table = guide.partition("## Options\n")[2].partition("\n## ")[0]
    rows = [line[1:-1].split("|") for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[0])} == set(NAMES)
    assert {len(row) for row in rows} == {5}  # option, for, default, meaning, Kafka source's name


def test_url_and_path_contradict_each_other() -> None:
    with pytest.raises(OptionError, match="one of url .* and path"):
        parse({**GOOD, "path": "/data/events.rillet"})


def test_names_ignore_case_and_sparks_own_options_are_accepted() -> None:
    parsed = parse({"URL": "redis://localhost", "STREAM": "events", "MINPARTITIONS": "3", "checkpointLocation": "/x"})
    assert parsed.min_partitions == 3
    with pytest.raises(OptionError, match="not allowed for writing: minPartitions"):
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
def test_starting_offsets_are_inclusive_without_a_parenthesis(text: str, after: StreamID | None) -> None:
    assert parse({**GOOD, "startingOffsets": text}).starting_offsets == after


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
def test_ending_offsets_are_inclusive_without_a_parenthesis(text: str, last: StreamID | None) -> None:
    assert parse({**GOOD, "endingOffsets": text}).ending_offsets == last


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"minEntriesPerTrigger": "50", "maxEntriesPerTrigger": "5"}, "minEntriesPerTrigger is larger than maxEntries"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "startingTimestamp is after endingTimestamp"),
        ({"startingOffsets": "5-0", "endingOffsets": "4-0"}, "startingOffsets is after endingOffsets"),
        ({"startingTimestamp": f"{MAX + 1}"}, "expected at most 18446744073709551615 milliseconds"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest': expected latest or a stream ID"),
        ({"minid": "latest"}, "minid is 'latest': expected a stream ID"),
    ],
)
def test_impossible_bounds_are_rejected(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse({"url": "redis://h", "stream": "s", **given})


def test_an_empty_range_is_allowed_and_no_password_is_shown() -> None:
    given = {"url": "redis://:s3cret@h", "stream": "s", "columnNameOfCorruptRecord": "bad"}
    found = parse({**given, "startingOffsets": "(5-0", "endingOffsets": "5-0"})
    assert found.starting_offsets == found.ending_offsets == StreamID(5, 0)
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize("text", ["", "5-", "-5", "x", f"{MAX + 1}", "5-5-5", "((5", "٣"])
def test_an_invalid_id_is_rejected(text: str) -> None:
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
        ("rediss://u:p@h:1/2", Address("h", 1, db=2, user="u", password="p", tls=Tls()), "h:1 (database 2)"),
        ("redis://[::1]:7", Address("::1", 7), "::1:7"),
        ("redis+cluster://u:p%2C@a:1", Address("a", 1, user="u", password="p,", seeds=(NodeAddress("a", 1),)), "a:1"),
        ("redis+cluster://a:1,b/0", Address("a", 1, seeds=(NodeAddress("a", 1), NodeAddress("b", 6379))), "a:1"),
        (
            "rediss+cluster://a:1,b:2",
            Address("a", 1, tls=Tls(), seeds=(NodeAddress("a", 1), NodeAddress("b", 2))),
            "a:1",
        ),
    ],
)
def test_valid_urls_are_parsed(url: str, address: Address, shown: str) -> None:
    assert Address.parse(url) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    ("url", "says"),
    [
        *((url, "url is neither") for url in ("localhost", "http://h", "unix://")),
        ("redis://", "url names no host: redis://host"),
        ("redis+sentinel:///a", "url names no host: redis"),
        ("redis://h:port", "url has the port 'port': it must be a number from 0 to 65535"),
        ("redis://h/events", "url has the database 'events': it must be a number"),
        ("redis+cluster://a:1,,b:2", "url names no host before a port: redis"),
        ("redis+sentinel://h", "url names no service after the sentinels"),
        ("redis://a:1,b:2", "url names several hosts, which is for redis"),
        ("redis+cluster://a:1/3", "url selects database 3: a cluster has only database 0"),
        ("redis+cluster://a:1?db=3", "url selects database 3"),
        ("redis://h?db=1&timeout=3", "url has an unknown parameter: timeout"),
    ],
)  # fmt: skip
def test_invalid_urls_are_rejected(url: str, says: str) -> None:
    with pytest.raises(AddressError, match=f"^rillet: {says}"):
        Address.parse(url)
    with pytest.raises(OptionError, match=f"^rillet: unknown option foo.*; {says}"):
        parse({"url": url, "stream": "s", "foo": "1"})


def test_options_extend_the_url_and_must_not_contradict_it() -> None:
    tls = {"caFile": "ca.crt", "certFile": "c.crt", "keyFile": "c.key"}
    found = parse({"url": "rediss://ann@h", "stream": "s", "password": "p", **tls}).address()
    assert found == Address("h", user="ann", password="p", tls=Tls("ca.crt", "c.crt", "c.key"))
    assert "p@" not in repr(found)
    assert "'p'" not in repr(found)
    assert parse({"url": "redis://ann:p@h", "stream": "s", "user": "ann", "password": "p"}).address().user == "ann"
    with pytest.raises(OptionError) as caught:
        parse({"url": "redis://ann:secret@h", "stream": "s", "user": "bob", "password": "hidden", **tls})
    told = str(caught.value)
    assert "url and the option user differ" in told
    assert "url and the option password differ" in told
    assert "caFile, certFile, keyFile: only for TLS" in told
    assert "secret" not in told
    assert "hidden" not in told
    with pytest.raises(OptionError, match="caFile has no effect with tlsVerify false"):
        parse({"url": "rediss://h", "stream": "s", "tlsVerify": "false", "caFile": "ca.crt"})


def fake_java(folder: Path, says: str, status: int = 0) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)


def test_java_missing_broken_or_old_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    not_running = "^Spark needs Java, but JAVA_HOME is .*nowhere.* does not run: install Java 17"
    with pytest.raises(JavaMissing, match=not_running):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="^Spark needs Java, but there is no java on the PATH: [^\n]*$"):
        require_java()
    fake_java(tmp_path / "old", 'openjdk version "1.8.0_402"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(JavaMissing, match="17 or newer, but .* is version 8"):
        require_java()
    fake_java(tmp_path / "broken", "no", 1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(JavaMissing, match="does not run"):
        require_java()
    fake_java(tmp_path / "good", 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "good"))
    assert require_java() == str(tmp_path / "good" / "bin" / "java")


def test_tables_of_the_catalog_are_reported_with_the_workaround() -> None:
    """Spark passes no options for them, or the table's properties while it creates one without columns."""
    pytest.importorskip("pyspark")
    from rillet.spark.source import RilletDataSource

    properties = {"provider": "rillet", "option.url": "redis://localhost", "option.stream": "events", "owner": "root"}
    for given in ({}, properties):
        with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW name USING rillet OPTIONS .* WITH .url = '...'"):
            RilletDataSource(given)
    with pytest.raises(OptionError, match="give one of url"):
        RilletDataSource({"stream": "events"})


def test_the_storage_of_a_delta_table_does_not_show_its_credentials() -> None:
    storage = delta_storage("s3://bucket/table", {"AWS_SECRET_ACCESS_KEY": "s3cret"})
    assert "s3cret" not in repr(storage)
    assert storage.storage_options == {"AWS_SECRET_ACCESS_KEY": "s3cret"}
