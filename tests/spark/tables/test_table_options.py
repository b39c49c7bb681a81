"""The options of tables: all mistakes in one error, and a guide that lists every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rillet.spark.options import OptionError, parse
from rillet.spark.table_options import TABLE_NAMES, TYPES, escaped, parse_table, require_type, table_type

GOOD = {"url": "redis://localhost", "type": "hash", "keyPrefix": "user:"}


def test_all_mistakes_are_in_one_error() -> None:
    with pytest.raises(OptionError) as caught:
        parse_table({
            "type": "hash", "keyPattern": "other:*", "keys": "user:1,other:2", "keyPrefix": "user:", "scoreColumn": "s",
            "ttl": "soon", "keyPatern": "x", "sampleKeys": "5", "ttlColumn": "t",
        })  # fmt: skip
    text = str(caught.value)
    for part in (
        "unknown option keypatern (did you mean keyPattern?)", "ttl is 'soon'", "give one of url",
        "scoreColumn applies to the types zset, not to hash", "give only one of keyPattern and keys",
        "give only one of ttl and ttlColumn", "sampleKeys needs inferSchema",
        "keyPattern does not begin with keyPrefix 'user:'", "the key 'other:2' does not begin with keyPrefix 'user:'",
    ):  # fmt: skip
        assert part in text
    assert "\n" not in text


def test_lifetimes_and_globs() -> None:
    assert [parse_table({**GOOD, "ttl": text}).ttl for text in ("90", "500ms", "1.5s", "1d")] == [
        90_000, 500, 1500, 86_400_000,
    ]  # fmt: skip
    for text in ("0", "-1", "0.0001"):
        with pytest.raises(OptionError, match="ttl is"):
            parse_table({**GOOD, "ttl": text})
    assert escaped("a*[b]?\\") == b"a\\*\\[b\\]\\?\\\\"
    assert parse_table({**GOOD, "keyPrefix": "a*b:"}).glob() == b"a\\*b:*"
    assert parse_table({**GOOD, "keyPattern": "user:1*"}).glob() == b"user:1*"


def test_types() -> None:
    assert table_type({"url": "x"}) is None
    assert table_type({"TYPE": "Stream"}) is None
    assert [parse_table({**GOOD, "type": kind.upper()}).key_name for kind in TYPES] == [
        "name" if kind == "keys" else "key" for kind in TYPES
    ]
    with pytest.raises(OptionError, match="^rillet: type is 'hashes': expected one of stream, hash, string, list, set"):
        parse_table({**GOOD, "type": "hashes"})
    with pytest.raises(OptionError, match="^rillet: keyPattern, keyColumn: set the option type to one of hash, string"):
        require_type({"keyColumn": "id", "keyPattern": "*", "stream": "s"})
    assert parse({"url": "redis://h", "stream": "s", "type": "stream"}).stream == "s"
    assert "s3cret" not in repr(parse_table({**GOOD, "url": "redis://:s3cret@h"}))


def test_the_guide_has_every_option() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "spark-tables.md").read_text()
    table = guide.partition("## Options\n")[2]
    rows = [line[1:-1].split("|") for line in table.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    server = set(re.findall(r"`(\w+)`", table.partition("are those of")[0]))
    assert listed | server == set(TABLE_NAMES)
    assert {len(row) for row in rows} == {5}


def test_the_page_for_users_of_spark_redis_names_options_that_exist() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark-redis.md").read_text()
    from rillet.spark.options import NAMES

    known = {*TABLE_NAMES, *NAMES}
    for line in page.splitlines():
        cells = line.split("|")
        if len(cells) > 3 and not cells[1].strip().startswith(("spark-redis", "---")):
            for name in re.findall(r"`([a-z]+[A-Z]\w+)`", cells[2]):
                assert name in known, line
