"""The HTTP API on a directory, an attached store, rillet serve, redis-server and Valkey."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.inspector import actions
from rillet.inspector import export as exporting
from rillet.inspector.filters import parse_filters
from rillet.inspector.layout.payload import read_payload
from rillet.inspector.openapi import describe
from rillet.inspector.security import HEADER
from rillet.inspector.serving import running
from tests.inspector.conftest import Client, Open, fill, inspecting
from tests.judge import redis_binary, running_redis
from tests.package.test_modes import ROOT

VALKEY = os.environ.get("RILLET_VALKEY")
NEWER = os.environ.get("RILLET_NEWER_REDIS")
PLACES = [
    "directory", *(["redis"] if redis_binary() else []),
    *(pytest.param(name, marks=pytest.mark.long) for name, present in (
        ("attached", True), ("served", True), ("valkey", VALKEY), ("newer", NEWER)) if present),
]  # fmt: skip


@pytest.fixture(params=PLACES, scope="module")
def client(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of an inspector over the same data in each kind of place."""
    kind = request.param
    if kind in ("redis", "valkey", "newer"):
        with running_redis(binary={"redis": None, "valkey": VALKEY, "newer": NEWER}[kind]) as judge:
            url = f"redis://127.0.0.1:{judge.port}"
            with rillet.connect(url) as store:
                fill(store)
            with inspecting(url, write=True) as found:
                yield found
        return
    path = tmp_path_factory.mktemp("inspect") / "s.rillet"
    with rillet.open(path) as store:
        fill(store)
        if kind == "attached":
            with inspecting(path, write=True) as found:
                yield found
            return
        if kind == "served":
            with store.serve() as served, inspecting(served.url, write=True) as found:
                yield found
            return
    with inspecting(path) as found:
        yield found


def test_the_place(client: Client) -> None:
    facts = client.get("place")
    assert facts["server"].split()[0] in ("rillet", "redis", "valkey")
    assert facts["budget"]["limit"] == 0.01
    assert client.get("streams")["streams"] == ["orders", "small"]


def check_lag(group: Any) -> None:
    """Redis does not know the lag, because entries ahead of the group were deleted; rillet counts."""
    if group["lag"] is None:
        assert group["lag_note"]
    else:
        assert (group["lag"], group["lag_exact"]) == (223, True)


def test_the_overview(client: Client) -> None:
    version = 0
    found = client.get("overview")
    while not (found["keys"]["complete"] and len(found["streams"]) == 2 and found["clients"]):
        version = client.inspector.api.sampler.wait(version, 60)
        found = client.get("overview")
    types = found["keys"]["types"]
    assert {kind: one["keys"] for kind, one in types.items()} == {
        "stream": 2, "string": 1, "list": 1, "set": 2, "hash": 2, "zset": 2,
    }  # fmt: skip
    assert all(one["measured"] == one["keys"] and one["bytes"] > 0 for one in types.values())
    assert found["find"] == {"complete": True, "seen": 10, "total": 10, "streams": 2, "most": 500}
    assert found["streams"][0]["name"] == "orders"
    check_lag(found["streams"][0]["groups"][0])
    assert found["history"][-1]["memory"] > 0


def test_pages_of_entries(client: Client) -> None:
    ids: list[str] = []
    start = "-"
    while start:
        page = client.get("entries", key="orders", start=start, count=100)
        ids += [entry["id"] for entry in page["entries"]]
        start = page["next"]
    assert len(ids) == len(set(ids)) == 248
    assert ids == sorted(ids)
    last = client.get("entries", key="orders", count=3, reverse=1)["entries"]
    assert [entry["id"] for entry in last] == ids[:-4:-1]
    assert last[0]["fields"][1] == ["customer", "c4", 2, ""]
    assert last[0]["fields"][3][3] == "j"


def test_filters(client: Client) -> None:
    def found(*where: str) -> int:
        return len(client.get("entries", key="orders", where=list(where), count=1000)["entries"])

    assert found("customer=c1") == 36
    assert found("customer=c1", "n>=100") == 21
    assert found("customer!=c1") == 248 - 36
    assert found("lines~sku") == 248
    assert found("total<3") == 2
    assert found("c4") == 248 - sum(found(f"customer=c{n}") for n in range(7) if n != 4)
    assert "not a number" in client.get("entries", 400, key="orders", where="n>x")["error"]
    # A comma separates filters, in one parameter as in several.
    assert found("customer=c1, n>=100") == found("customer=c1,n>=100,") == 21
    assert found('customer=c1, lines~"1, \\x22tags"') == found("customer=c1, lines~1\\x2c \\x22tags") > 0


def test_the_words_of_filters() -> None:
    def parts(text: str) -> list[tuple[bytes, str, bytes]]:
        return [(one.field, one.operator, one.value) for one in parse_filters([text])]

    assert parts("carrier=UA, delay>30") == [(b"carrier", "=", b"UA"), (b"delay", ">", b"30")]
    assert parts('name="Doe, Jane" , n>=3') == [(b"name", "=", b"Doe, Jane"), (b"n", ">=", b"3")]
    assert parts("name=Doe\\x2c Jane") == [(b"name", "=", b"Doe, Jane")]
    assert parts('lines~"sku": 1, x="y"') == [(b"lines", "~", b'"sku": 1'), (b"x", "=", b"y")]
    assert parts(' UA, "late, twice",, ') == [(b"", "~", b"UA"), (b"", "~", b"late, twice")]
    assert parts('a=, b!=""') == [(b"a", "=", b""), (b"b", "!=", b"")]
    assert parts(" , ") == []


def test_an_entry_with_its_json(client: Client) -> None:
    entry = client.get("entry", key="orders", id="1795000002000-0")
    assert entry["details"][3]["json"] == [
        "object", [["sku", ["number", "2"]], ["tags", ["array", [["string", "a"], ["object", []]]]]],
    ]  # fmt: skip
    assert entry["details"][1]["hex"] == "63 32"
    assert "no entry" in client.get("entry", 404, key="orders", id="1-1")["error"]


def test_the_timeline(client: Client) -> None:
    found = client.get("timeline", key="orders", buckets=50)
    assert found["exact"] is True
    assert (sum(found["counts"]), found["length"]) == (248, 248)
    assert found["removed"] == 2
    assert found["max_deleted_id"] == "1795000004000-0"
    zoomed = client.get("timeline", key="orders", start=1795000000000, end=1795000005999, buckets=6)
    assert zoomed["counts"] == [1, 1, 1, 0, 0, 1]
    assert len(zoomed["holes"]) == 1


def test_groups_and_pending(client: Client) -> None:
    found = client.get("groups", key="orders")
    (group,) = found["groups"]
    assert (group["name"], group["pending"]) == ("billing", 25)
    check_lag(group)
    assert {one["name"]: one["pending"] for one in group["consumers"]} == {"stuck": 20, "busy": 5}
    page = client.get("pending", key="orders", group="billing", count=20)
    assert len(page["pending"]) == 20
    rest = client.get("pending", key="orders", group="billing", count=20, start=page["next"])
    assert len(rest["pending"]) == 5
    assert rest["next"] is None
    first = page["pending"][0]
    assert (first["consumer"], first["deliveries"], first["gone"]) == ("stuck", 1, False)
    assert first["fields"][0] == ["n", "0", 1, ""]
    only = client.get("pending", key="orders", group="billing", consumer="busy")["pending"]
    assert len(only) == 5
    client.get("pending", 404, key="orders", group="nobody")


def leaves(spans: list[Any]) -> Iterator[Any]:
    for span in spans:
        if "parts" in span:
            yield from leaves(span["parts"])
        else:
            yield span


def test_bytes_of_a_stream(client: Client) -> None:
    found = client.get("bytes", key="orders")
    assert found["total_blocks"] == len(found["blocks"]) == found["rax"]["keys"]
    assert found["rax"]["label"].startswith("rebuilt")
    block = found["selected"]
    assert block["facts"]["live"] + block["facts"]["tombstones"] <= 100
    assert block["facts"]["tombstones"] == 2
    kinds = {span["kind"] for span in block["spans"]}
    assert kinds == {"header", "master", "entry", "tombstone", "end"}
    whole = list(leaves(block["spans"]))
    assert sum(span["end"] - span["start"] for span in whole) == block["bytes"]
    # The bytes equal those in the payload of DUMP.
    payload = read_payload(client.inspector.place.store().execute("DUMP", "orders"))
    data = payload.blocks[0].data
    assert all(data[span["start"] : span["start"] + len(span["hex"]) // 2].hex() == span["hex"] for span in whole)


def test_the_steps_of_an_append(client: Client) -> None:
    block = client.get("bytes", key="orders")["selected"]
    for one in (block["facts"]["entries"][0], block["facts"]["entries"][-1]):
        found = client.get("append", key="orders", id=one["id"])
        assert (found["id"], found["node"]) == (one["id"], block["facts"]["id"])
        assert [step["name"] for step in found["steps"]] == ["1. The ID", "2. The node", "3. The count", "4. The entry"]
        assert found["steps"][-1]["spans"][-2]["value"] == one["id"]
        assert all(sum(span["end"] - span["start"] for span in leaves(step["spans"])) == step["bytes"]
                   for step in found["steps"])  # fmt: skip
    assert "no entry" in client.get("append", 404, key="orders", id="1-1")["error"]
    assert "only a stream" in client.get("append", 400, key="hash", id="1-1")["error"]
    assert client.get("append", 400, key="orders", id="x")["error"]


@pytest.mark.parametrize(
    ("key", "kind", "form", "roles"),
    [
        ("hash", "hash", "listpack", {"field", "value"}),
        ("scores", "zset", "listpack", {"member", "score"}),
        ("list", "list", "quicklist", {"element"}),
        ("numbers", "set", "intset", {"data"}),
        ("text", "string", "string", {"data"}),
    ],
)
def test_bytes_of_other_types(client: Client, key: str, kind: str, form: str, roles: set[str]) -> None:
    found = client.get("bytes", key=key)
    assert (found["type"], found["payload"]["form"], found["payload"]["checksum"]) == (kind, form, True)
    assert roles <= {span["kind"] for span in found["selected"]["spans"]}


def test_bytes_of_a_hashtable_and_a_skiplist(client: Client) -> None:
    found = client.get("bytes", key="big")
    assert (found["payload"]["elements"], found["blocks"]) == (600, [])
    assert client.get("bytes", key="ranks")["payload"]["form"] == "skiplist"
    assert "no such key" in client.get("bytes", 400, key="missing")["error"]


def test_the_console(client: Client) -> None:
    assert client.post("console", line="XLEN orders") == {"type": "integer", "value": "248"}
    reply = client.post("console", line="XRANGE orders - + COUNT 1")
    assert reply["type"] == "array"
    assert reply["items"][0]["items"][0]["value"] == "1795000000000-0"
    assert client.post("console", line="GET orders")["type"] == "error"
    for line in ("SUBSCRIBE x", "MULTI", "XREAD BLOCK 0 STREAMS orders $", "BLPOP list 0", "SHUTDOWN", "MONITOR"):
        client.post("console", 403, line=line)
    assert "closing" in client.post("console", 400, line='GET "x')["error"]
    commands = {one["name"]: one for one in client.get("commands")["commands"]}
    assert commands["xlen"]["reads"]
    assert not commands["xadd"]["reads"]


def test_searches(client: Client) -> None:
    lines = client.lines("search/keys", match="*s*")
    assert {one["found"]["key"] for one in lines if "found" in one} == {
        "orders", "small", "numbers", "words", "hash", "scores", "ranks", "list",
    }  # fmt: skip
    assert lines[-1]["done"]["more"] is False
    lines = client.lines("search/keys", match="*", type="zset")
    assert sorted(one["found"]["key"] for one in lines if "found" in one) == ["ranks", "scores"]
    lines = client.lines("search/entries", key="orders", where="n=249")
    assert [one["found"]["id"] for one in lines if "found" in one] == ["1795000249000-0"]
    assert lines[-1]["done"]["examined"] == 248


def test_exports(client: Client) -> None:
    def fetch(form: str, **more: Any) -> bytes:
        answer = client.http.get("/api/export", params={"key": "orders", "format": form, **more})
        assert answer.status_code == 200
        assert answer.headers["content-disposition"] == f'attachment; filename="orders.{form}"'
        return answer.content

    rows = list(csv.DictReader(io.StringIO(fetch("csv").decode())))
    assert len(rows) == 248
    assert rows[0]["time"] == "2026-11-18T11:06:40.000Z"
    assert json.loads(rows[0]["lines"]) == {"sku": 0, "tags": ["a", {}]}
    entries = [json.loads(line) for line in fetch("jsonl").splitlines()]
    assert entries[-1]["fields"]["n"] == "249"
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(fetch("parquet")))
    assert table.num_rows == 248
    assert table["n"].to_pylist()[:4] == [0, 1, 2, 5]
    client.get("export", 400, key="orders", format="xml")
    where = ["customer=c1, n>=100", "total<200"]
    exact = [one for one in entries if one["fields"]["customer"] == "c1" and 100 <= int(one["fields"]["n"]) < 200 / 1.5]
    assert [json.loads(line) for line in fetch("jsonl", where=where).splitlines()] == exact
    table = parquet.read_table(io.BytesIO(fetch("parquet", where=where)))
    assert table["id"].to_pylist() == [one["id"] for one in exact]
    assert table["n"].to_pylist() == [int(one["fields"]["n"]) for one in exact]
    later = parquet.read_table(io.BytesIO(fetch("parquet", where=where, start=exact[1]["id"])))
    assert later.num_rows == len(exact) - 1
    assert parquet.read_table(io.BytesIO(fetch("parquet", where=["customer=nobody"]))).num_rows == 0


def test_a_parquet_export_is_never_cut(store: rillet.Store, inspect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(exporting, "_PARQUET", 36)
    client = inspect(store.path)
    for where, status in ((["customer=c1"], 200), (["customer~c"], 400), ([], 400)):
        answer = client.http.get("/api/export", params={"key": "orders", "format": "parquet", "where": where})
        assert answer.status_code == status
    assert "at most 36 entries" in answer.json()["error"]


def test_empty_and_long_names(store: rillet.Store, inspect: Open) -> None:
    """Redis allows an empty name of a stream, a group and a consumer, and one of thousands of characters."""
    for name in ("", "n" * 3000):
        store.execute("XADD", name, "7-1", name, "v")
        store.execute("XGROUP", "CREATE", name, name, "0")
        store.execute("XREADGROUP", "GROUP", name, name, "STREAMS", name, ">")
    client = inspect(store.path, write=True)
    for name in ("", "n" * 3000):
        assert client.get("stream", key=name)["length"] == 1
        assert client.get("entries", key=name)["entries"][0]["fields"][0][1] == "v"
        assert client.get("groups", key=name)["groups"][0]["consumers"][0]["name"] == name
        pending = client.get("pending", key=name, group=name, consumer=name)["pending"]
        assert [one["id"] for one in pending] == ["7-1"]
        assert client.get("bytes", key=name)["type"] == "stream"
        answer = client.http.get("/api/export", params={"key": name, "format": "jsonl"})
        assert (answer.status_code, json.loads(answer.text)["id"]) == (200, "7-1")
        with client.http.stream("GET", "/api/feed", params={"stream": name, "tail": "1", "after": "0-0"}) as feed:
            lines = feed.iter_lines()
            while next(lines) != "event: entries":
                pass
            found = json.loads(next(lines).removeprefix("data: "))
            assert (found["stream"], found["entries"][0]["id"]) == (name, "7-1")
        act(client, action="delete-consumer", key=name, group=name, consumer=name)
        assert store.stream(name).group(name, create=False).consumers() == []
    assert client.get("streams")["streams"] == ["", "n" * 3000, "orders", "small"]
    assert "missing" in client.post("preview", 400, action="claim", key="", group="", consumer="", ids=["7-1"])["error"]


def test_commands_that_the_server_lists_as_dangerous(store: rillet.Store, inspect: Open) -> None:
    client = inspect(store.path, write=True)
    lines = {"flushall": True, "FLUSHDB ASYNC": True, "CONFIG SET maxmemory 0": True, "SET a b": False}
    for line, dangerous in lines.items():
        about = client.post("console", line=line, explain=True)
        assert (about["writes"], about["dangerous"]) == (True, dangerous), line


def test_errors_are_json(client: Client) -> None:
    assert client.get("entries", 404)["error"] == "the parameter 'key' is missing"
    assert "position" in client.get("entries", 400, key="orders", start="x y")["error"]
    assert "escape" in client.get("entries", 400, key="\\q")["error"]
    client.get("groups", 400, key="text")


def test_every_route_is_described() -> None:
    from rillet.inspector.app import routes as routes_of

    described = {(path, method.upper()) for path, one in describe()["paths"].items() for method in one}
    routes = {(route.path, method) for route in routes_of([]) for method in (route.methods or ()) if method != "HEAD"}
    assert routes == described


# -- writing ----------------------------------------------------------------------------------------------


def act(client: Client, **request: Any) -> Any:
    shown = client.post("preview", **request)
    return client.post("act", **request, confirm=shown["confirm"]), shown["commands"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rillet.Store]:
    with rillet.open(tmp_path / "s.rillet") as store:
        fill(store)
        yield store


def test_actions_run_what_was_confirmed(store: rillet.Store, inspect: Open) -> None:
    client = inspect(store.path, write=True)
    about: dict[str, Any] = {"key": "orders", "group": "billing"}
    first = [one["id"] for one in client.get("pending", **about)["pending"]]
    orders = store.stream("orders")
    group = orders.group("billing")
    _, commands = act(client, action="claim", **about, consumer="rescue", ids=first[:5])
    assert commands == [f"XCLAIM orders billing rescue 0 {' '.join(first[:5])}"]
    assert len(group.pending(consumer="rescue")) == 5
    act(client, action="ack", **about, ids=first[:2])
    assert group.pending_count() == 23
    act(client, action="nack", **about, ids=first[2:3])
    assert group.pending()[0].consumer == ""
    _, commands = act(client, action="dead-letter", **about, ids=first[3:4], target="dead")
    assert commands[0] == "MULTI"
    assert commands[-1] == "EXEC"
    (letter,) = store.stream("dead")
    origin = {"_stream": "orders", "_group": "billing", "_id": first[3], "_deliveries": "2"}
    assert letter.fields == {**orders[first[3]].fields, **origin}
    before = len(orders)
    act(client, action="requeue", **about, ids=first[4:5])
    assert len(orders) == before + 1
    act(client, action="move", **about, id="$")
    assert group.info().last_delivered_id == orders.last_id
    act(client, action="delete-consumer", **about, consumer="busy")
    assert {one.name for one in group.consumers()} == {"stuck", "rescue"}
    act(client, action="delete-group", **about)
    assert orders.groups() == []


def test_an_action_whose_data_changed_is_refused(store: rillet.Store, inspect: Open) -> None:
    client = inspect(store.path, write=True)
    request: dict[str, Any] = {"action": "dead-letter", "key": "orders", "group": "billing", "target": "dead",
               "ids": ["1795000000000-0"]}  # fmt: skip
    shown = client.post("preview", **request)
    client.post("act", 409, **request, confirm="something else")
    assert "missing" in client.post("preview", 400, **{**request, "target": ""})["error"]
    store.execute("SET", "text", "x")
    assert "is a string, not a stream" in client.post("preview", 400, **{**request, "target": "text"})["error"]
    handled = store.stream("orders").add({"n": 1})
    error = client.post("preview", 400, **{**request, "ids": [str(handled)]})["error"]
    assert error == f"{handled} are no longer pending in the group: a consumer has handled them"
    store.stream("orders").delete("1795000000000-0")
    assert "no longer exist" in client.post("act", 400, **request, confirm=shown["confirm"])["error"]
    assert len(store.stream("dead")) == 0


def test_nothing_is_written_without_write(store: rillet.Store, inspect: Open) -> None:
    client = inspect(store.path)
    request: dict[str, Any] = {"action": "ack", "key": "orders", "group": "billing", "ids": ["1795000000000-0"]}
    shown = client.post("preview", **request)
    assert shown["write"] is False
    assert "--write" in client.post("act", 403, **request, confirm=shown["confirm"])["error"]
    assert "--write" in client.post("console", 403, line="SET a b")["error"]
    client.post("console", 403, line="SET a b", confirm="SET a b")
    client.post("console", 403, line="EVAL_RO 'return 1' 0")
    assert store.stream("orders").group("billing").pending_count() == 25
    assert store.execute("EXISTS", "a") == 0


def test_the_console_writes_after_a_confirmation(store: rillet.Store, inspect: Open) -> None:
    client = inspect(store.path, write=True)
    about = client.post("console", line='SET  "a b" c', explain=True)
    assert about == {"writes": True, "command": 'SET "a b" c', "dangerous": False}
    client.post("console", 403, line='SET "a b" c')
    client.post("console", 403, line='SET "a b" c', confirm="SET a c")
    assert client.post("console", line='SET "a b" c', confirm='SET "a b" c')["value"] == "OK"
    assert store.execute("GET", "a b") == b"c"


def test_a_directory_is_not_changed(tmp_path: Path, inspect: Open) -> None:
    path = tmp_path / "s.rillet"
    with rillet.open(path) as store:
        fill(store)
    before = {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in path.rglob("*") if one.is_file()}
    client = inspect(path)
    for name in ("overview", "stream", "groups", "timeline", "bytes"):
        client.get(name, key="orders")
    assert before == {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in path.rglob("*") if one.is_file()}
    with rillet.open(path) as store:
        store.stream("orders").add({"n": 1000})
    client.inspector.place._loaded = 0.0  # as if the pause before the next look at the files had passed
    assert client.get("stream", key="orders")["length"] == 249


def test_a_value_over_the_limit_is_not_dumped(tmp_path: Path, inspect: Open) -> None:
    with rillet.open() as store, store.serve() as served:
        store.execute("SET", "large", b"x" * 200_000)
        client = inspect(served.url, dump_limit=100_000)
        assert "limit" in client.get("bytes", 413, key="large")["error"]
        store.stream("s").add_many([(f"{n}-0", {"f": "v" * 60}) for n in range(1, 9000)])
        found = client.get("bytes", key="s", at="5000-0")
        assert found["whole"] is False
        assert len(found["blocks"]) <= 41
        assert found["selected"]["facts"]["entries"][0]["id"].split("-")[0] <= "5000"


def test_structures_in_memory_are_those_of_rillet(client: Client) -> None:
    found = client.get("bytes", key="ranks")["shape"]
    if not client.inspector.place.is_rillet:
        assert found is None
        return
    assert sum(table["used"] for table in found["tables"]) == 300  # two tables while it rehashes
    assert found["levels"][-1]["firsts"][0] == 0
    assert client.get("bytes", key="big")["shape"]["rehashidx"] >= -1
    assert client.get("bytes", key="hash")["shape"] is None


def reads(client: Client) -> None:
    """Send each kind of read once."""
    assert client.get("streams")["streams"] == ["orders", "small"]
    assert len(client.get("entries", key="orders", count=5)["entries"]) == 5
    assert client.get("timeline", key="orders")["length"] == 248
    assert client.get("groups", key="orders")["groups"][0]["pending"] == 25
    assert len(client.get("pending", key="orders", group="billing")["pending"]) == 25
    assert client.get("bytes", key="orders")["selected"]["facts"]["tombstones"] == 2
    for key, kind in (("big", "hash"), ("words", "set"), ("ranks", "zset"), ("list", "list"), ("text", "string")):
        page = client.get("value", key=key)
        assert (page["type"], len(page["rows"]) > 0 or kind == "string") == (kind, True)
    assert client.get("element", key="hash", element="name")["text"] == "ada"
    assert client.get("letters/streams")["streams"] == []
    assert client.get("letters/counts", key="orders")["rows"][0]["entries"] == 248
    assert client.post("console", line="XLEN orders")["value"] == "248"
    assert client.lines("search/keys", match="o*")[0]["found"]["key"] == "orders"
    version, found = 0, client.get("overview")
    while not (found["keys"]["complete"] and "stream" in found["keys"]["types"] and len(found["streams"]) == 2):
        version = client.inspector.api.sampler.wait(version, 60)
        found = client.get("overview")
        assert found["problem"] == ""
    assert found["keys"]["types"]["stream"]["keys"] == 2


# -- dead letters, elements, places -----------------------------------------------------------------------


@pytest.mark.parametrize("server", ["rillet", pytest.param("redis", marks=pytest.mark.skipif(
    redis_binary() is None, reason="needs redis-server"))])  # fmt: skip
def test_dead_letters_are_counted_and_requeued(tmp_path: Path, inspect: Open, server: str) -> None:
    with ExitStack() as stack:
        if server == "redis":
            judge = stack.enter_context(running_redis())
            where = f"redis://127.0.0.1:{judge.port}"
            store = stack.enter_context(rillet.connect(where))
        else:
            store = stack.enter_context(rillet.open(tmp_path / "s.rillet"))
            where = str(tmp_path / "s.rillet")
        orders = store.stream("orders")
        orders.add_many([{"n": n} for n in range(6)])

        def fails(message: rillet.Message) -> None:
            raise ValueError("no total" if int(message["n"]) % 2 else "no customer")

        orders.group("billing").consumer("w").run(fails, max_deliveries=1, dead_letters="orders.dead",
                                                  stop_when_empty=True)  # fmt: skip
        dead = store.stream("orders.dead")
        dead.add({"n": "alone"})
        store.stream("plain").add({"_stream": "x", "n": 1})
        client = inspect(where, write=True)
        assert [one["name"] for one in client.get("letters/streams")["streams"]] == []  # the last entry is no letter
        dead.add({"n": "7", "_stream": "orders", "_group": "billing", "_id": "1-1", "_deliveries": "3"})
        found = client.get("letters/streams")["streams"]
        assert [(one["name"], one["length"]) for one in found] == [("orders.dead", 8)]
        assert found[0]["letter"]["stream"] == "orders"
        counts = client.get("letters/counts", key="orders.dead")
        assert (counts["examined"], counts["complete"]) == (8, True)
        rows = {(one["group"], one["reason"]): one["entries"] for one in counts["rows"]}
        assert rows == {("billing", "ValueError: no total"): 3, ("billing", "ValueError: no customer"): 3,
                        ("billing", "delivered too often"): 1, (None, None): 1}  # fmt: skip
        page = client.get("letters", key="orders.dead", group="billing", reason="ValueError: no total")["entries"]
        assert [one["fields"][0] for one in page] == [["n", str(n), 1, ""] for n in (5, 3, 1)]
        assert page[0]["letter"]["own"] == 1
        ids = [one["id"] for one in page]
        request: dict[str, Any] = {"action": "requeue-letters", "key": "orders.dead"}
        _, commands = act(client, **request, ids=ids)
        assert commands == ["MULTI", *(line for id, n in zip(ids, (5, 3, 1), strict=True) for line in (
            f"XADD orders * n {n}", f"XDEL orders.dead {id}")), "EXEC"]  # fmt: skip
        assert (len(orders), len(dead)) == (9, 5)
        assert [entry["n"] for entry in list(orders)[-3:]] == ["5", "3", "1"]
        assert "no longer exist" in client.post("preview", 400, **request, ids=ids)["error"]
        alone = client.get("letters", key="orders.dead")["entries"][1]["id"]
        assert "do not name the stream" in client.post("preview", 400, **request, ids=[alone])["error"]
        act(client, **request, ids=[alone], target="elsewhere")
        assert store.stream("elsewhere").last().fields == {"n": "alone"}  # type: ignore[union-attr]
        store.execute("SET", "text", "x")
        left = [one["id"] for one in client.get("letters", key="orders.dead")["entries"]]
        for wrong in ("text", "orders.dead"):
            client.post("preview", 400, **request, ids=left, target=wrong)
        act(client, action="delete", key="orders.dead", ids=left)
        assert (len(orders), len(dead)) == (9, 0)


def test_a_letter_that_was_requeued_meanwhile_is_not_added_twice(
    store: rillet.Store, inspect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = inspect(store.path, write=True)
    dead, orders = store.stream("orders.dead"), store.stream("orders")
    id = str(dead.add({"n": "7", "_stream": "orders", "_group": "g", "_id": "1-1", "_deliveries": "3"}))
    request: dict[str, Any] = {"action": "requeue-letters", "key": "orders.dead", "ids": [id]}
    shown = client.post("preview", **request)
    before, planned = len(orders), actions.plan
    plans = []

    def slow(*arguments: Any) -> Any:
        plans.append(planned(*arguments))
        if len(plans) == 2:  # the plan of the transaction: another operator is faster
            dead.delete(id)
        return plans[-1]

    monkeypatch.setattr(actions, "plan", slow)
    assert "no longer exist" in client.post("act", 400, **request, confirm=shown["confirm"])["error"]
    assert len(orders) == before
    assert len(plans) == 2


def test_streams_groups_and_keys_are_changed(store: rillet.Store, inspect: Open) -> None:
    client = inspect(store.path, write=True)
    _, commands = act(client, action="add", key="fresh", fields="name=ada\n\nnote=a=b c\\x00\n")
    assert commands == ['XADD fresh * name ada note "a=b c\\x00"']
    fresh = store.stream("fresh")
    assert fresh.last().fields == {"name": "ada", "note": "a=b c\0"}  # type: ignore[union-attr]
    for fields in ("", "name", "=x"):
        client.post("preview", 400, action="add", key="fresh", fields=fields)
    act(client, action="create-group", key="fresh", group="g", id="0")
    assert [one.name for one in fresh.groups()] == ["g"]
    client.post("preview", 400, action="create-group", key="fresh", group="", id="0")
    second = fresh.add({"n": 2})
    act(client, action="trim", key="fresh", id=str(second))
    assert [entry.id for entry in fresh] == [second]
    act(client, action="delete", key="fresh", ids=[str(second)])
    assert len(fresh) == 0
    act(client, action="delete-key", key="fresh")
    assert not fresh.exists()


def test_the_elements_of_each_type(client: Client) -> None:
    def rows(key: str, **query: Any) -> list[list[Any]]:
        found, start = [], ""
        while start is not None:
            page = client.get("value", key=key, start=start, **query)
            found += [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in page["rows"]]
            start = page["next"]
        return found

    assert sorted(rows("hash")) == [["7", "x"], ["name", "ada"]]
    assert sorted(rows("big", count=50)) == sorted([f"field{n}", str(n)] for n in range(600))
    assert sorted(rows("big", match="*99")) == sorted([f"field{n}", str(n)] for n in range(99, 600, 100))
    assert sorted(rows("numbers")) == [["-1"], ["5"], ["70000"]]
    assert rows("scores") == [["0", "a", "1.5"], ["1", "b", "2"]]
    assert rows("ranks", count=70) == [[str(n), f"member{n}", str(n)] for n in range(300)]
    assert rows("ranks", reverse=1)[0] == ["0", "member299", "299"]
    assert rows("ranks", match="*er7") == [["member7", "7"]]
    assert rows("list", count=30) == [[str(n), str(n)] for n in range(40)]
    text = client.get("value", key="text")
    assert (text["text"]["text"], text["length"], text["rows"]) == ("hello", 5, [])
    assert client.get("value", key="orders")["length"] == 248
    facts = client.get("value", key="scores")
    assert (facts["type"], facts["length"], facts["ttl"], facts["matches"]) == ("zset", 2, None, True)
    assert "no such key" in client.get("value", 400, key="nothing")["error"]
    assert client.get("element", key="hash", element="name")["text"] == "ada"
    assert client.get("element", key="list", element="3")["text"] == "3"
    assert client.get("element", key="words", element="a")["hex"] == "61"
    assert client.get("element", key="scores", element="b")["text"] == "b"
    for key, at in (("hash", "x"), ("list", "99"), ("words", "x"), ("scores", "x"), ("text", "x")):
        client.get("element", 404, key=key, element=at)


def test_times_and_large_elements(store: rillet.Store, inspect: Open) -> None:
    client = inspect(store.path)
    store.execute("PEXPIRE", "scores", 500_000)
    assert 0 < client.get("value", key="scores")["ttl"] <= 500_000
    store.execute("HSET", "unnamed", "", "no name")
    assert client.get("element", key="unnamed", element="")["text"] == "no name"
    store.execute("HPEXPIRE", "hash", 500_000, "FIELDS", 1, "name")
    page = client.get("value", key="hash")
    assert page["columns"] == ["Field", "Value", "Expires in (ms)"]
    left = {row[0][0]: row[2] for row in page["rows"]}
    assert left["7"] == ""
    assert 0 < int(left["name"]) <= 500_000
    for n in range(40):
        store.execute("RPUSH", "wide", json.dumps({"n": n, "text": "x" * 1_000_000}))
    page = client.get("value", key="wide")
    assert 1 <= len(page["rows"]) < 10  # a page has a few MiB at most
    assert page["rows"][0][1][1:] == [1_000_020, "cj"]
    found = client.get("element", key="wide", element="1")
    assert (found["bytes"], found["cut"], len(found["text"])) == (1_000_020, True, 65_536)


def test_several_places_in_one_page(tmp_path: Path) -> None:
    paths = [tmp_path / "a.rillet", tmp_path / "b.rillet"]
    for number, path in enumerate(paths):
        with rillet.open(path) as store:
            store.stream(f"s{number}").add({"n": number})
    with running(*map(str, paths), write=True) as inspector:
        client = Client(inspector)
        assert client.get("place")["places"] == [str(path) for path in paths]
        assert client.get("place", place=1)["name"] == str(paths[1])
        for number in range(2):
            assert client.get("streams", place=number)["streams"] == [f"s{number}"]
            assert [one["name"] for one in client.get("overview", place=number)["streams"]] == [f"s{number}"]
        assert "counted from 0" in client.get("streams", 400, place=2)["error"]
        client.get("streams", 400, place="x")
        request = {"action": "delete-key", "key": "s1"}
        answer = client.http.post("/api/preview?place=1", json=request, headers={HEADER: "1"}).json()
        body = {**request, "confirm": answer["confirm"]}
        assert client.http.post("/api/act?place=1", json=body, headers={HEADER: "1"}).status_code == 200
        assert client.get("streams", place=1)["streams"] == []
        assert client.get("streams", place=0)["streams"] == ["s0"]
        client.http.close()


@pytest.mark.skipif(redis_binary() is None, reason="needs redis-server")
def test_a_user_that_may_only_read(inspect: Open) -> None:
    """The rule is that of docs/inspector.md."""
    (rule,) = re.findall(r"`ACL SETUSER look ([^`]*)`", (ROOT / "docs/inspector.md").read_text())
    with running_redis() as judge:
        with rillet.connect(f"redis://127.0.0.1:{judge.port}") as store:
            fill(store)
            store.execute("ACL", "SETUSER", "look", *rule.split())
        client = inspect(f"redis://look:secret@127.0.0.1:{judge.port}", write=True)
        assert "secret" not in client.get("place")["name"]
        reads(client)
        assert client.post("console", line="SET a b", confirm="SET a b")["type"] == "error"


@pytest.mark.long
@pytest.mark.skipif(redis_binary() is None, reason="needs redis-server")
def test_a_cluster(inspect: Open) -> None:
    from tests.cluster import running_cluster

    with running_cluster() as cluster:
        with rillet.connect(cluster.url) as store:
            fill(store)
        client = inspect(cluster.url, write=True)
        assert client.get("place")["cluster"] is True
        reads(client)
        shown = client.post("preview", action="dead-letter", key="orders", group="billing", target="dead",
                            ids=["1795000000000-0"])  # fmt: skip
        assert [line.split()[0] for line in shown["commands"]] == ["XADD", "XACK"]
        client.post("act", action="dead-letter", key="orders", group="billing", target="dead",
                    ids=["1795000000000-0"], confirm=shown["confirm"])  # fmt: skip
        (letter,) = client.get("letters", key="dead")["entries"]
        assert letter["letter"]["group"] == "billing"
        _, commands = act(client, action="requeue-letters", key="dead", ids=[letter["id"]])
        assert [line.split()[:2] for line in commands] == [["XADD", "orders"], ["XDEL", "dead"]]
        assert client.get("stream", key="orders")["length"] == 249
        assert client.get("letters", key="dead")["entries"] == []
