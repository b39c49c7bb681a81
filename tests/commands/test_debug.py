"""DEBUG subcommands for tests, compared with a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from rillet.errors import Corrupt
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.logs import kept
from tests.differential.wire import Local, Redis
from tests.judge import Judge

LINES = """
    DEBUG POPULATE 3            DEBUG POPULATE 2 p           DEBUG POPULATE 3 q 20        DEBUG POPULATE 2 r 4
    DEBUG POPULATE -1           DEBUG POPULATE x             DEBUG POPULATE 3 p           GET key:2
    GET p:1                     GET q:0                      GET r:1
    DEBUG SET-SKIP-CHECKSUM-VALIDATION 1
    DEBUG SET-DISABLE-DENY-SCRIPTS 0
    DEBUG REPLICATE X Y         DEBUG AOF-FLUSH-SLEEP 0      DEBUG PAUSE-CRON 0           DEBUG STRANGE
    DEBUG DIGEST                DBSIZE                       DEBUG PAUSE-CRON             DEBUG CHANGE-REPL-ID
    DEBUG CONFIG-REWRITE-FORCE-ALL x
"""


def test_replies_and_data_equal_those_of_redis(judge: Judge) -> None:
    local = Local(Engine(Settings(compat="7.0", enable_debug_command="yes")))
    with Redis(judge.port) as redis:
        redis.run([b"FLUSHALL"])
        for row in LINES.strip().splitlines():
            for line in (line.strip() for line in row.split("  ") if line.strip()):
                argv = [word.encode() for word in line.split()]
                assert local.run(argv) == redis.run(argv)[0], line
        redis.run([b"DEBUG", b"SET-SKIP-CHECKSUM-VALIDATION", b"0"])


def test_a_payload_with_a_wrong_checksum_is_rejected_unless_checksums_are_ignored() -> None:
    """RESTORE rejects it, unless checksums are ignored."""
    local = Local(Engine(Settings(enable_debug_command="yes")))
    local("SET", "k", "v")
    payload = local("DUMP", "k")[:-1] + b"\0"
    assert local("RESTORE", "other", 0, payload) == "ERR DUMP payload version or checksum are wrong"
    local("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    assert local("RESTORE", "other", 0, payload) == b"OK"
    assert local("GET", "other") == b"v"
    local("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 0)
    assert local("RESTORE", "again", 0, payload) == "ERR DUMP payload version or checksum are wrong"


def test_debug_populate_is_not_logged() -> None:
    local = Local(Engine(Settings(enable_debug_command="yes")))
    log = kept(local.engine)
    local("WATCH", "key:0")
    assert local("DEBUG", "POPULATE", 100) == b"OK"
    local("MULTI")
    assert local("EXEC") is None
    assert log.feed.take_bytes() == b""
    assert local("DBSIZE") == 100
    local.engine.check()


def test_a_file_with_a_wrong_checksum_is_rejected_unless_checksums_are_ignored(tmp_path: Path) -> None:
    """The load fails, unless rdbchecksum is no or DEBUG turned the validation off."""
    local = Local(Engine(Settings(enable_debug_command="yes", dir=str(tmp_path))))
    local("SET", "k", "v")
    path = tmp_path / "dump.rdb"
    write_rdb(path, local.engine)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for settings, switch in (({}, "1"), ({"rdbchecksum": False}, "0"), ({}, "0")):
        engine = Engine(Settings(enable_debug_command="yes", **settings))
        Local(engine)("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", switch)
        if settings or switch == "1":
            load_rdb(path, engine)
            assert Local(engine)("GET", "k") == b"v"
        else:
            with pytest.raises(Corrupt):
                load_rdb(path, engine)
