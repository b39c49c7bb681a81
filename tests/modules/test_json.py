"""JSON documents: replies as the public documentation of RedisJSON has them, paths, numbers, formats."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import CommandError
from rillet.modules.bundled.json import Path, decoded, dumped
from tests.modules.ends import Bench

HAS_JSONPATH = pytest.mark.skipif(
    "jsonpath" not in sys.modules and __import__("importlib.util").util.find_spec("jsonpath") is None,
    reason="python-jsonpath is not installed",
)


@pytest.fixture
def bench() -> Bench:
    return Bench("json")


def get(bench: Bench, *words: str) -> Any:
    reply = bench("JSON.GET", *words)
    return None if reply is None else json.loads(reply)


def test_setting_and_getting(bench: Bench) -> None:
    assert bench("JSON.SET", "doc", "$", '{"a":2}') == b"OK"
    assert bench("JSON.SET", "doc", "$.a", "3") == b"OK"
    assert bench("JSON.GET", "doc", "$") == b'[{"a":3}]'
    assert bench("JSON.GET", "doc") == b'{"a":3}'
    assert bench("JSON.SET", "doc", "$.b", "8") == b"OK"
    assert bench("JSON.GET", "doc", "$.a", "$.b") == b'{"$.a":[3],"$.b":[8]}'
    assert bench("JSON.GET", "doc", ".a", "b") == b'{".a":3,"b":8}'
    assert bench("JSON.GET", "doc", ".a", "$.nope") == b'{".a":[3],"$.nope":[]}'
    assert bench("JSON.GET", "nosuch") is None
    assert bench("TYPE", "doc") == b"ReJSON-RL"


def test_conditions_of_set(bench: Bench) -> None:
    assert bench("JSON.SET", "d", "$", "{}", "XX") is None
    assert bench("JSON.SET", "d", "$", "{}", "NX") == b"OK"
    assert bench("JSON.SET", "d", "$", "{}", "NX") is None
    assert bench("JSON.SET", "d", "$.a", "[]", "XX") is None
    assert bench("JSON.SET", "d", "$.a", "[]", "NX") == b"OK"
    assert bench("JSON.SET", "d", "$.a", "[1]", "NX") is None
    assert bench("JSON.SET", "d", ".a", "[1]", "XX") == b"OK"
    assert bench("JSON.SET", "d", "$.no.such", "1") is None
    assert bench("JSON.GET", "d") == b'{"a":[1]}'


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["JSON.SET", "new", "$.a", "1"], "ERR new objects must be created at the root"),
        (["JSON.SET", "d", "$.arr[9]", "1"], "ERR array index out of range"),
        (["JSON.SET", "d", "$.a[0]", "1", "NX"], "ERR path not an object"),
        (["JSON.SET", "d", "$", "1", "NN"], "ERR syntax error"),
        (["JSON.GET", "d", ".nope"], "ERR Path '$.nope' does not exist"),
        (["JSON.NUMINCRBY", "new", "$", "1"], "ERR could not perform this operation on a key that doesn't exist"),
        (["JSON.NUMINCRBY", "d", ".s", "1"], "ERR Path '$.s' does not exist or does not contains a number"),
        (["JSON.NUMINCRBY", "d", "$.n", '"1"'], "ERR expected a number"),
        (["JSON.NUMINCRBY", "d", "$.big", "1e308"], "ERR result is not a number"),
        (["JSON.ARRAPPEND", "d", ".s", "1"], "ERR Path '$.s' does not exist or not an array"),
        (["JSON.ARRAPPEND", "new", "$", "1"], "ERR could not perform this operation on a key that doesn't exist"),
        (["JSON.ARRLEN", "new", "$"], "ERR could not perform this operation on a key that doesn't exist"),
        (["JSON.OBJKEYS", "d", ".s"], "WRONGTYPE wrong type of path value - expected object but found string"),
        (["JSON.GET", "string"], "WRONGTYPE Operation against a key holding the wrong kind of value"),
        (["JSON.DEL", "d", "$.a", "x"], "ERR wrong number of arguments for 'json.del' command"),
    ],
)
def test_errors(bench: Bench, words: list[str], text: str | None) -> None:
    bench("SET", "string", 1)
    bench("JSON.SET", "d", "$", '{"a":{"b":1},"arr":[1],"s":"x","n":1,"big":1e308}')
    before = bench("JSON.GET", "d")
    assert bench.outcome(*words) == text
    assert bench("JSON.GET", "d") == before


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "]",
        "{]",
        "'a'",
        "",
        " ",
        "\\",
        "01",
        "1.",
        "nan",
        "NaN",
        "Infinity",
        "-Infinity",
        "[1,]",
        '{"a":1,}',
        '"\\ud800"',
        '"\x01"',
        "[" * 200 + "]" * 200,
        b'"\xff"',
        "truer",
        "1 2",
    ],
)
def test_malformed_json_is_refused(bench: Bench, text: str | bytes) -> None:
    with pytest.raises(CommandError, match="^ERR invalid JSON: "):
        bench("JSON.SET", "d", "$", text)
    assert bench("EXISTS", "d") == 0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_a_document_survives_set_get_dump_and_restore(value: Any) -> None:
    bench = Bench("json")
    assert bench("JSON.SET", "d", "$", json.dumps(value).encode()) == b"OK"
    text = bench("JSON.GET", "d")
    assert json.loads(text) == value
    assert bench("JSON.GET", "d", "$") == b"[" + text + b"]"
    bench("RESTORE", "e", 0, bench("DUMP", "d"))
    bench("COPY", "d", "f")
    assert bench("JSON.MGET", "d", "e", "f", "nosuch", ".") == [text, text, text, None]
    layout = bench("JSON.GET", "d", "INDENT", "\t", "NEWLINE", "\n", "SPACE", " ")
    assert json.loads(layout) == value
    bench.engine.check()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1", "1"),
        ("1.0", "1.0"),
        ("-0.0", "-0.0"),
        ("1e2", "100.0"),
        ("1e15", "1000000000000000.0"),
        ("1e16", "1e16"),
        ("123456789012345680.0", "1.2345678901234568e17"),
        ("1e-4", "0.0001"),
        ("1e-5", "0.00001"),
        ("1.5e-5", "0.000015"),
        ("1e-7", "1e-7"),
        ("1.5e300", "1.5e300"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "1.8446744073709552e19"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("3.14", "3.14"),
        ("0.1", "0.1"),
    ],
)
def test_numbers_are_shown_as_rust_shows_them(text: str, shown: str) -> None:
    assert dumped(decoded(text.encode())) == shown


def test_layout() -> None:
    assert dumped({"a": [0, {}], "b": []}, "  ", "\n", " ") == '{\n  "a": [\n    0,\n    {}\n  ],\n  "b": []\n}'


@pytest.mark.parametrize(
    ("raw", "text", "steps"),
    [
        (".", "$", ()),
        ("$", "$", ()),
        ("a", "$.a", ("a",)),
        (".a.b", "$.a.b", ("a", "b")),
        ("$.a[0]", "$.a[0]", ("a", 0)),
        ("[0]", "$[0]", (0,)),
        ('.["x.y"][-1]', '$.["x.y"][-1]', ("x.y", -1)),
        ("$['it\\'s']", "$['it\\'s']", ("it's",)),
        ("$..a", "$..a", None),
        ("$.*", "$.*", None),
        ("$.a[1:2]", "$.a[1:2]", None),
        ("$.a-b", "$.a-b", ("a-b",)),
        ("$.a[?(@.x>1)]", "$.a[?(@.x>1)]", None),
        ("$.é", "$.é", ("é",)),
    ],
)
def test_paths(raw: str, text: str, steps: Any) -> None:
    path = Path(raw.encode())
    assert (path.text, path.steps) == (text, steps)
    assert path.legacy == (not raw.startswith("$"))


@HAS_JSONPATH
def test_dynamic_paths(bench: Bench) -> None:
    document = {"a": [{"b": 1, "c": "x"}, {"b": 5}], "d": {"b": [1, 2, 3]}}
    bench("JSON.SET", "d", "$", json.dumps(document))
    for path, expected in (
        ("$..b", [1, 5, [1, 2, 3]]),
        ("$.a[*].b", [1, 5]),
        ("$.a[?(@.b>1)].b", [5]),
        ("$.d.b[1:]", [2, 3]),
        ("$.a[0,1].c", ["x"]),
        ("$.nope[*]", []),
        ("$.a[?(@.b==1 && @.c=='x')]", [{"b": 1, "c": "x"}]),
    ):
        found = get(bench, "d", path)
        assert sorted(map(str, found)) == sorted(map(str, expected)), path
    assert (
        bench("JSON.TYPE", "d", "$..b") == [b"integer", b"integer", b"array"]
        or len(bench("JSON.TYPE", "d", "$..b")) == 3
    )
    assert json.loads(bench("JSON.NUMINCRBY", "d", "$.a[*].b", "2")) == [3, 7]
    assert bench("JSON.ARRLEN", "d", "$.*") == [2, None]
    assert bench("JSON.OBJKEYS", "d", "$.*") == [None, [b"b"]]
    assert bench("JSON.ARRAPPEND", "d", "$..b", "9") in ([None, None, 4], [4, None, None])
    assert bench("JSON.SET", "d", "$.a[*].b", "0") == b"OK"
    assert get(bench, "d", "$.a[*].b") == [0, 0]
    assert bench("JSON.DEL", "d", "$..b") == 3
    assert get(bench, "d") == {"a": [{"c": "x"}, {}], "d": {}}
    with pytest.raises(CommandError, match="wrong static path"):
        bench("JSON.SET", "d", "$..nope", "1")
    with pytest.raises(CommandError, match="invalid path"):
        bench("JSON.GET", "d", "$.a[?(")


def test_without_the_package_a_dynamic_path_names_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonpath", None)
    bench("JSON.SET", "d", "$", '{"a":[1,2]}')
    assert bench("JSON.GET", "d", "$.a[0]") == b"[1]"
    with pytest.raises(CommandError, match=r"needs the package python-jsonpath: pip install rillet\[json\]"):
        bench("JSON.GET", "d", "$.without..package")


def test_numincrby_arrappend_and_types(bench: Bench) -> None:
    bench("JSON.SET", "d", ".", '{"a":"b","n":1,"f":1.5,"l":[1],"o":{"x":null},"t":true}')
    assert bench("JSON.NUMINCRBY", "d", "$.a", "2") == b"[null]"
    assert bench("JSON.NUMINCRBY", "d", ".n", "2") == b"3"
    assert bench("JSON.NUMINCRBY", "d", "$.f", "1") == b"[2.5]"
    assert bench("JSON.NUMINCRBY", "d", ".n", "9223372036854775807") == b"9.223372036854776e18"
    assert bench("JSON.ARRAPPEND", "d", "$.l", '"x"', "[2]") == [3]
    assert bench("JSON.ARRAPPEND", "d", ".l", "0") == 4
    assert bench("JSON.ARRLEN", "d", ".l") == 4
    assert bench("JSON.ARRLEN", "d", "$.a") == [None]
    assert bench("JSON.ARRLEN", "nosuch") is None
    assert bench("JSON.OBJKEYS", "d", "$.o") == [[b"x"]]
    assert bench("JSON.OBJKEYS", "d")[0] == b"a"
    assert bench("JSON.OBJKEYS", "nosuch") is None
    assert bench("JSON.OBJKEYS", "d", ".nope") is None
    assert [bench("JSON.TYPE", "d", f".{name}") for name in ("a", "n", "f", "l", "o", "t", "o.x", "nope")] == [
        b"string",
        b"number",
        b"number",
        b"array",
        b"object",
        b"boolean",
        b"null",
        None,
    ]
    assert bench("JSON.TYPE", "d", "$.a") == [b"string"]
    assert bench("JSON.TYPE", "nosuch", "$") is None
    bench("HELLO", 3)
    assert bench("JSON.TYPE", "d", "$.a") == [[b"string"]]
    assert bench("JSON.NUMINCRBY", "d", ".f", "1") == [3.5]


def test_deleting(bench: Bench) -> None:
    bench("JSON.SET", "d", "$", '{"a":[1,2,3,4],"b":{"c":1}}')
    assert bench("JSON.DEL", "d", "$.a[-1]") == 1
    assert bench("JSON.GET", "d", "$.a") == b"[[1,2,3]]"
    assert bench("JSON.FORGET", "d", ".nope") == 0
    assert bench("JSON.DEL", "d", ".b.c") == 1
    assert bench("JSON.DEL", "d") == 1
    assert bench("EXISTS", "d") == 0
    assert bench("JSON.DEL", "d", "$.a") == 0


def test_events_and_the_log() -> None:
    bench = Bench("json", notify_keyspace_events="Kd")
    listener = bench.engine.session()
    bench.raw("PSUBSCRIBE", "*", session=listener)
    listener.out.take_bytes()
    bench("JSON.SET", "d", "$", '{"a":[],"n":1}')
    bench("JSON.ARRAPPEND", "d", "$.a", "1")
    bench("JSON.NUMINCRBY", "d", "$.n", "1")
    bench("JSON.GET", "d")
    bench("JSON.DEL", "d", "$.a")
    heard = listener.out.take_bytes()
    for event in (b"json.set", b"json.arrappend", b"json.numincrby", b"json.del"):
        assert heard.count(event) == 1
    assert bench.log() == [
        'JSON.SET d $ {"a":[],"n":1}',
        "JSON.ARRAPPEND d $.a 1",
        "JSON.NUMINCRBY d $.n 1",
        "JSON.DEL d $.a",
    ]


def test_the_payload_is_the_text_and_older_versions_load(bench: Bench) -> None:
    bench("CONFIG", "SET", "rdbcompression", "no")
    bench("JSON.SET", "d", "$", '{ "a" : [1, 2.0] }')
    payload = bench("DUMP", "d")
    assert payload[10:-10] == b"\x05\x0d" + b'{"a":[1,2.0]}' + b"\x00"
    assert int.from_bytes(payload[2:10], "big") & 1023 == 3
    handle = next(iter(bench.engine.settings.module_types.values()))
    from rillet.types.module import NOWHERE
    from rillet.types.module_io import ModuleReader
    from rillet.types.rdb.primitives import RdbReader

    for data in (b"\x05\x017\x02\x00", b"\x05\x017\x02\x01\x05\x01a\x05\x01b"):
        assert handle.type.rdb_load(ModuleReader(RdbReader(data), NOWHERE), 2).root == 7
    assert handle.type.rdb_load(ModuleReader(RdbReader(b""), NOWHERE), 0) is None
