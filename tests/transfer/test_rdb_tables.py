"""What RDB files hold, as batches: against the servers that wrote them, and against files built byte by byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from rillet.errors import LogCorrupt, StoreError  # noqa: E402
from rillet.structs.ziplist import write_ziplist  # noqa: E402
from rillet.transfer.rdb_tables import TABLES, rdb_batches, rdb_files, rdb_header  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.persistence import rdb_files as build  # noqa: E402


def rows(path: Path, table: str, **more: Any) -> list[dict[str, Any]]:
    return [row for batch in rdb_batches(path, table, **more) for row in batch.to_pylist()]


def fill(client: Any) -> None:
    """Write keys of every type, small and large, and two streams with groups."""
    client.flushall()
    pipe = client.pipeline(transaction=False)
    run = pipe.execute_command
    for size in (1, 44, 45, 3000):
        run("SET", f"text:{size}", "x" * size)
    for number in (0, 12345, -7, "007"):
        run("SET", f"number:{number}", number)
    for count in (5, 60, 2000):
        for i in range(count):
            run("HSET", f"hash:{count}", f"field{i}", f"value-{i}")
            run("RPUSH", f"list:{count}", f"value-{i}")
            run("SADD", f"set:{count}", f"member-{i}")
            run("SADD", f"numbers:{count}", i * 70_000)
            run("ZADD", f"zset:{count}", i / 3, f"member-{i}")
            run("XADD", f"stream:{count}", f"{1_700_000_000_000 + i * 7}-{i % 3}", "n", i, "name", f"value {i}")
        run("XGROUP", "CREATE", f"stream:{count}", "g", "0")
        run("XREADGROUP", "GROUP", "g", "c1", "COUNT", count // 3, "STREAMS", f"stream:{count}", ">")
        run("XREADGROUP", "GROUP", "g", "c2", "COUNT", count // 4, "STREAMS", f"stream:{count}", ">")
        run("XDEL", f"stream:{count}", "1700000000000-0")
    run("RPUSH", "plain", "y" * 20_000, "z")
    run("PEXPIREAT", "text:1", 4_000_000_000_123)
    run("XADD", b"bytes\xff", "1-1", b"f\xff", b"\xfe")
    pipe.execute()
    client.execute_command("SELECT", 3)
    client.execute_command("SET", "elsewhere", "1")
    client.execute_command("SELECT", 0)


@pytest.fixture(scope="module", params=["7.0", "8.6", "newest", "valkey"])
def written(request: pytest.FixtureRequest, peer_of: Callable[[str], Judge]) -> Iterator[tuple[str, Any, Path]]:
    """A server, by its name, that has loaded what it wrote, and that file."""
    server = peer_of(request.param)
    with server.client(single_connection_client=True) as client:
        fill(client)
        client.execute_command("SAVE")
        client.execute_command("DEBUG", "RELOAD", "NOSAVE")
        yield request.param, client, server.folder / "dump.rdb"


def test_keys_are_what_the_server_says_of_them(written: tuple[str, Any, Path]) -> None:
    _, client, path = written
    found = {row["key"]: row for row in rows(path, "keys")}
    assert len(found) == client.execute_command("DBSIZE") + 1
    lengths = {"hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD", "stream": "XLEN"}
    for name, row in found.items():
        if name in ("elsewhere", "bytes\\xff"):
            continue
        assert row["type"] == client.execute_command("TYPE", name).decode()
        encoding = client.execute_command("OBJECT", "ENCODING", name).decode()
        assert row["encoding"] == encoding or {row["encoding"], encoding} == {"embstr", "raw"}, name
        if row["type"] in lengths:
            assert row["elements"] == client.execute_command(lengths[row["type"]], name)
        # DUMP is the same value with its type, and ten bytes behind it.
        assert row["serialized"] == len(client.execute_command("DUMP", name)) - 10 + len(name) + 1
    assert [found[f"text:{size}"]["size"] for size in (1, 44, 45, 3000)] == [1, 44, 45, 3000]
    assert found["elsewhere"]["db"] == 3
    assert found["elsewhere"]["encoding"] == "int"
    assert found["text:1"]["expires"].timestamp() == 4_000_000_000.123
    assert found["text:1"]["ttl_seconds"] > 10**9
    assert found["text:44"]["ttl_seconds"] is None
    assert found["plain"]["largest_element"] in (20_000, 0)


def test_elements_are_what_the_server_replies(written: tuple[str, Any, Path]) -> None:
    _, client, path = written
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows(path, "elements", rows=500):
        found.setdefault(row["key"], []).append(row)
    assert found.pop("elsewhere")[0]["value"] == "1"
    assert not any(name.startswith("stream") for name in found)
    for name, mine in found.items():
        kind = client.execute_command("TYPE", name).decode()
        assert {row["type"] for row in mine} == {kind}
        if kind == "string":
            assert [row["value"] for row in mine] == [client.execute_command("GET", name).decode()]
        elif kind == "list":
            told = client.execute_command("LRANGE", name, 0, -1)
            assert [(row["index"], row["value"]) for row in mine] == list(enumerate(text.decode() for text in told))
        elif kind == "set":
            told = client.execute_command("SMEMBERS", name)
            assert sorted(row["value"] for row in mine) == sorted(text.decode() for text in told)
        elif kind == "hash":
            flat = [text.decode() for text in client.execute_command("HGETALL", name)]
            assert {row["field"]: row["value"] for row in mine} == dict(zip(flat[::2], flat[1::2], strict=True))
        else:
            flat = [text.decode() for text in client.execute_command("ZRANGE", name, 0, -1, "WITHSCORES")]
            scores = {member: float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}
            assert {row["value"]: row["score"] for row in mine} == scores
    assert len(found) == client.execute_command("DBSIZE") - 4


def test_streams_groups_and_what_is_pending(written: tuple[str, Any, Path]) -> None:
    _, client, path = written
    entries = rows(path, "entries", rows=300)
    for count in (5, 60, 2000):
        mine = [row for row in entries if row["stream"] == f"stream:{count}"]
        told = client.execute_command("XRANGE", f"stream:{count}", "-", "+")
        assert [row["id"] for row in mine] == [raw.decode() for raw, _ in told]
        assert mine[-1]["fields"] == [("n", str(count - 1)), ("name", f"value {count - 1}")]
        assert mine[-1]["timestamp"].timestamp() * 1000 == mine[-1]["id_ms"]
    assert [row["fields"] for row in entries if row["stream"] == "bytes\\xff"] == [[("f\ufffd", "\ufffd")]]
    for row in rows(path, "groups"):
        flat = client.execute_command("XINFO", "GROUPS", row["stream"])[0]
        told = dict(zip(flat[::2], flat[1::2], strict=True))
        assert row["group"] == "g"
        assert row["last_delivered_id"] == told[b"last-delivered-id"].decode()
        assert (row["pending"], row["consumers"], row["entries_read"]) == (
            told[b"pending"], told[b"consumers"], told[b"entries-read"],
        )  # fmt: skip
    pending = [row for row in rows(path, "pending") if row["stream"] == "stream:2000"]
    told = client.execute_command("XPENDING", "stream:2000", "g", "-", "+", 5000)
    assert {(row["id"], row["consumer"], row["deliveries"]) for row in pending} == {
        (raw.decode(), who.decode(), times) for raw, who, _, times in told
    }


@pytest.mark.parametrize("compat", ["8.6", "newest", "valkey"])
def test_fields_that_expire_are_counted(peer_of: Callable[[str], Judge], compat: str) -> None:
    server = peer_of(compat)
    with server.client() as client:
        client.flushall()
        for count in (3, 600):
            for i in range(count):
                client.execute_command("HSET", f"h{count}", f"f{i}", "v" * 100)
            client.execute_command("HPEXPIRE", f"h{count}", 10_000_000, "FIELDS", 1, "f1")
        client.execute_command("SET", "after", "1")
        client.execute_command("SAVE")
    found = {row["key"]: row["elements"] for row in rows(server.folder / "dump.rdb", "keys")}
    assert found == {"h3": 3, "h600": 600, "after": 1}
    fields = {(row["key"], row["field"]) for row in rows(server.folder / "dump.rdb", "elements")}
    assert fields == {*(("h3", f"f{i}") for i in range(3)), *(("h600", f"f{i}") for i in range(600)), ("after", None)}


def test_a_file_of_every_form_that_there_ever_was(tmp_path: Path) -> None:
    path = tmp_path / "old.rdb"
    for version, part in build.PARTS:
        path.write_bytes(build.file(version, part))
        for table in TABLES:
            found = rows(path, table)
            if table == "keys":
                assert all(row["elements"] > 0 and row["size"] > 0 for row in found)
                counts = {row["key"]: row["elements"] for row in found if row["type"] != "stream"}
            if table == "elements":
                assert Counter(row["key"] for row in found) == counts
    large = [b"%d" % i for i in range(66_000)]
    path.write_bytes(build.file(9, build.key(13, b"large", build.text(write_ziplist(large)))))
    (row,) = rows(path, "keys")
    assert (row["type"], row["encoding"], row["elements"]) == ("hash", "ziplist", 33_000)


def test_what_rillet_cannot_load_has_a_row_or_a_name(tmp_path: Path) -> None:
    path = tmp_path / "module.rdb"
    parts = build.size(2) + build.size(7) + build.size(5) + build.text(b"inside") + build.size(0)
    module = build.key(7, b"m", b"\x81" + (0x1234567890ABCC00).to_bytes(8, "big") + parts)
    path.write_bytes(build.file(10, module, build.key(0, b"k", build.text(b"v"))))
    first, second = rows(path, "keys")
    assert first["type"] == "module"
    assert len(first["encoding"]) == 9
    assert second["key"] == "k"
    path.write_bytes(build.file(14, build.key(29, b"limit", b"")))
    with pytest.raises(LogCorrupt, match=r"offset \d+: the key 'limit' \(database 0\) holds a rate limit, which"):
        rows(path, "keys")


def test_numbers_that_no_server_writes_are_null_or_damage(tmp_path: Path) -> None:
    path, most, one = tmp_path / "n.rdb", b"\x81" + b"\xff" * 8, build.key(0, b"k", build.text(b"v"))
    ctime = b"\xfa" + build.text(b"ctime") + build.text(b"9" * 5000)
    path.write_bytes(build.file(10, ctime, b"\xfc" + b"\0" * 7 + b"\x7f", b"\xf8" + most, one))
    (row,) = rows(path, "keys")
    assert row["key"] == "k"
    assert row["expires"] is row["ttl_seconds"] is row["idle_seconds"] is None
    stream = build.size(0) + most * 3 + build.size(0) * 4 + most + build.size(1)
    group = build.text(b"g") + most + build.size(0) + most + build.size(0) * 2
    path.write_bytes(build.file(10, build.key(19, b"s", stream + group)))
    assert rows(path, "keys")[0]["elements"] is None
    assert rows(path, "groups")[0]["length"] is rows(path, "groups")[0]["entries_added"] is None
    path.write_bytes(build.file(10, one, b"\xfe" + most, one))
    with pytest.raises(LogCorrupt, match="the number of a database must be below 2147483648, not 18446744073709551615"):
        rows(path, "keys")


def test_damage_is_named_after_all_that_stood_before_it(judge: Judge, tmp_path: Path) -> None:
    with judge.client() as client:
        client.flushall()
        for i in range(300):
            client.execute_command("SET", f"key:{i}", "x" * i)
        client.execute_command("SAVE")
    data = (judge.folder / "dump.rdb").read_bytes()
    path = tmp_path / "short.rdb"
    path.write_bytes(data[: len(data) // 2])
    seen: list[dict[str, Any]] = []
    with pytest.raises(LogCorrupt, match=rf"{path}: offset \d+: \d+ bytes expected, \d+ left"):
        seen.extend(row for batch in rdb_batches(path, "keys", rows=7) for row in batch.to_pylist())
    whole = rows(judge.folder / "dump.rdb", "keys")
    assert 0 < len(seen) < len(whole)
    assert [row["key"] for row in seen] == [row["key"] for row in whole[: len(seen)]]
    path.write_bytes(data[:-3] + b"\0\0\0")
    with pytest.raises(LogCorrupt, match="the file states the checksum [0-9a-f]{16}"):
        rows(path, "groups")
    path.write_bytes(b"something else")
    with pytest.raises(LogCorrupt, match=rf"{path}: offset \d: not an RDB file"):
        rdb_header(path)


def test_files_are_found_behind_folders_and_globs(tmp_path: Path) -> None:
    for name in ("b.rdb", "a.rdb", "temp-1.rdb", "note.txt"):
        (tmp_path / name).write_bytes(build.file(10))
    both = [str(tmp_path / "a.rdb"), str(tmp_path / "b.rdb")]
    assert rdb_files(tmp_path) == rdb_files(f"{tmp_path}/*.rdb") == rdb_files([tmp_path / "b.rdb", tmp_path]) == both
    assert rdb_files(tmp_path / "note.txt") == [str(tmp_path / "note.txt")]
    with pytest.raises(StoreError, match=r"no RDB file at .*/c.rdb, .*/\*.x"):
        rdb_files([tmp_path, tmp_path / "c.rdb", f"{tmp_path}/*.x"])
    assert rdb_header(both[0]).version == 10
