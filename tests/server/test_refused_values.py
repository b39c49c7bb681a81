"""Log lines about rejected values, with the name of Redis's check and the cause, and about omitted keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import ResponseError

from rillet.errors import Corrupt, LogCorrupt
from rillet.persistence.rdb.reader import load_rdb
from rillet.runtime.engine import Engine
from rillet.types.rdb import value as rdb
from tests.judge import Judge, free_port, running_redis
from tests.server.harness import launch, running
from tests.structs.dump_payload import sealed
from tests.types import test_hash, test_rdb_list_set, test_rdb_zset

HEAD = b"\x0f\x00\x00\x00\x00\x01"  # a stream without a node, and with one group
NODE = b"\x10" + bytes(16)
GROUP = b"\x01g\x00\x00\x00"
CONSUMER = b"\x01c" + bytes(8) + b"\x00"
STREAMS = {
    "a node that is none": b"\x0f\x01" + NODE + b"\x04none",
    "a node of a short ID": b"\x0f\x01\x02ab\x04none",
    "a group twice": b"\x0f\x00\x00\x00\x00\x02" + (GROUP + b"\x00") * 2,
    "a consumer twice": HEAD + GROUP + b"\x02" + CONSUMER * 2,
    "a consumer's entry that is not pending": HEAD + GROUP + b"\x01" + CONSUMER[:-1] + b"\x01" + bytes(16),
    "a pending entry of nobody": HEAD + GROUP[:-1] + b"\x01" + bytes(24) + b"\x01\x00",
    "a string in a form that is not known": b"\x00\xc4",
    "a string in a block that is none": b"\x00\xc3\x01\x05\xff",
    "a type that is not known": b"\x63",
}  # fmt: skip
REFUSED = {
    **{f"hash: {name}": one for name, one in test_hash.REFUSED.items()},
    **{f"zset: {name}": one for name, one in test_rdb_zset.REFUSED.items()},
    **{f"list, set: {name}": one for name, one in test_rdb_list_set.REFUSED.items()},
    **STREAMS,
}

# Payloads that Redis's log does not mention: truncated, of an unknown type, or empty.
SILENT = ("", "Unexpected EOF reading RDB file", "Unknown RDB encoding type", "Quicklist integrity check failed")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Judge, Path]]:
    log = tmp_path_factory.mktemp("judge") / "log"
    with running_redis("--logfile", str(log), "--loglevel", "verbose", "--sanitize-dump-payload", "yes") as one:
        yield one, log


def check_of_redis(judge: tuple[Judge, Path], payload: bytes) -> str:
    """Return the check that redis-server's log names for a rejected payload, or ""."""
    server, log = judge
    before = len(log.read_text(errors="replace"))
    with server.client() as client, pytest.raises(ResponseError, match="Bad data format"):
        client.execute_command("RESTORE", "k", 0, payload, "REPLACE")
    told = [line for line in log.read_text(errors="replace")[before:].splitlines() if " -> " in line]
    return told[0].partition(" -> ")[2].rstrip(".") if told else ""


@pytest.mark.parametrize("name", REFUSED)
def test_the_log_names_the_same_check_as_redis(judge: tuple[Judge, Path], name: str) -> None:
    payload = sealed(REFUSED[name])
    with pytest.raises(Corrupt) as refused:
        rdb.restore(payload)
    ours, theirs = rdb.check_of(refused.value, payload[0]), check_of_redis(judge, payload)
    assert theirs.startswith(ours) if theirs else ours in SILENT, (ours, theirs)
    assert rdb.refusal(payload, refused.value) == (f"{ours}: {refused.value}" if ours else str(refused.value))


def test_a_payload_rejected_by_restore_is_logged(tmp_path: Path) -> None:
    payload = sealed(STREAMS["a consumer twice"])
    line = b"*4\r\n$7\r\nRESTORE\r\n$3\r\nk\xff1\r\n$1\r\n0\r\n$%d\r\n%b\r\n" % (len(payload), payload)
    for level in ("verbose", "notice"):
        log = tmp_path / level
        with running(tmp_path, "--loglevel", level, "--logfile", str(log)) as server, server.client() as client:
            client.socket.sendall(line)
            assert client.reply() == b"-ERR Bad data format\r\n"
        expected = b"RESTORE of b'k\\xff1' was refused: Duplicate stream consumer detected: "
        expected += b"two consumers with the same name"
        assert (expected in log.read_bytes()) == (level == "verbose")


def file_of(*keys: bytes) -> bytes:
    """Return an RDB file of these types, keys and values, without a checksum."""
    return b"REDIS0010" + b"".join(keys) + b"\xff" + bytes(8)


def test_a_damaged_file_ends_the_server_with_the_text_of_redis(tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").write_bytes(file_of(b"\x0d\x01h\x03bad"))
    with launch(["--port", str(free_port()), "--dir", str(tmp_path)]) as process:
        said, errors = process.communicate(timeout=60)
    told = "offset 12: ziplist: not a valid ziplist (Hash ziplist integrity check failed)"
    assert process.returncode == 1
    assert f"Internal error in RDB reading {told}" in said
    assert told in errors
    path = tmp_path / "dump.rdb"
    assert f"`rillet check {path} --salvage OUT.rdb` writes everything sound to the new file OUT.rdb" in errors
    assert said.count("Terminating server after rdb file reading failure.") == 1
    with pytest.raises(LogCorrupt) as refused:
        load_rdb(tmp_path / "dump.rdb", Engine())
    assert refused.value.offset == 12
    assert refused.value.check == "Hash ziplist integrity check failed"


def test_the_log_names_omitted_keys(tmp_path: Path) -> None:
    empty = [b"\x02\x03e%02d\x00" % number for number in range(12)]
    (tmp_path / "dump.rdb").write_bytes(file_of(b"\x00\x01k\x01v", *empty))
    with running(tmp_path, "--save", "") as server, server.client() as client:
        assert client.call("DBSIZE") == b":1\r\n"
        told = "".join(server.told)
    named = [f"rdbLoadObject skipping empty key: e{number:02d}" in told for number in range(12)]
    assert named == [True] * 10 + [False] * 2
    assert "Done loading RDB, keys loaded: 1, keys expired: 0, empty keys skipped: 12." in told
