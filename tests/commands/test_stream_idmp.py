"""IDMP in commands: replies, the log and its replay, expiry by the cron, and the ways in which a key can move."""

from __future__ import annotations

from typing import Any

import pytest

from rillet.types.stream.stream import Stream
from tests.commands.ends import NOW, Bench


def newest(**settings: Any) -> Bench:
    return Bench(compat="newest", **settings)


def info(bench: Any, key: str = "s") -> dict[str, int]:
    flat = bench("XINFO", "STREAM", key)
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    return {name.decode(): found[name] for name in found if name[:2] in (b"id", b"pi", b"ii")}


def replayed(log: list[list[bytes]]) -> Bench:
    """Return another engine that replayed the log, at a time when every iid of it has expired."""
    other = newest()
    other.clock.us += 10**15
    other.session.trusted = True
    for argv in log:
        assert other.run(argv)[:1] != b"-", argv
    other.session.trusted = False
    return other


def state(bench: Bench) -> tuple[Any, ...]:
    stream = bench.engine.databases[0].peek(b"s")
    assert isinstance(stream, Stream)
    assert stream.idmp is not None
    stream.check()
    stream.idmp.check()
    known = {pid: stream.idmp.unexpired(pid, 0) for pid in stream.idmp.producers}
    return bench("XRANGE", "s", "-", "+"), known, stream.idmp.added, stream.idmp.duplicates


# -- XADD ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("IDMP p i 5-5 a b", "syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("IDMPAUTO p 5-* a b", "syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("IDMP p i IDMPAUTO p * a b", "syntax error, IDMP/IDMPAUTO specified multiple times"),
        ("IDMP p i x a b", "Invalid stream ID specified as stream command argument"),
        ("IDMP p i *", "wrong number of arguments for 'xadd' command"),
        ("IDMP p i * a", "wrong number of arguments for 'xadd' command"),
    ],
)
def test_an_invalid_xadd_with_idmp_is_rejected(words: str, refusal: str) -> None:
    bench = newest()
    assert bench("XADD", "s", *words.split()) == f"ERR {refusal}"
    assert bench("EXISTS", "s") == 0


def test_empty_producer_ids_and_idempotent_ids_are_rejected() -> None:
    bench = newest()
    assert bench("XADD", "s", "IDMP", "", "i", "*", "a", "b").endswith("IDMP requires a non-empty producer ID")
    assert bench("XADD", "s", "IDMP", "p", "", "*", "a", "b").endswith("IDMP requires a non-empty idempotent ID")
    assert bench("XADD", "s", "IDMPAUTO", "", "*", "a", "b").endswith("IDMPAUTO requires a non-empty producer ID")


@pytest.mark.parametrize("compat", ["7.0", "7.2", "7.4", "8.0", "valkey"])
def test_versions_without_idmp_reject_it_as_an_invalid_id(compat: str) -> None:
    bench = Bench(compat=compat)
    assert bench("XADD", "s", "IDMP", "p", "i", "*", "a", "b").startswith("ERR Invalid stream ID")
    assert bench("XCFGSET", "s", "IDMP-MAXSIZE", 1).startswith("ERR unknown command 'XCFGSET'")
    assert bench("XIDMPRECORD", "s", "p", "i", "1-1").startswith("ERR unknown command")
    bench("XADD", "s", "*", "a", "b")
    assert info(bench) == {}


def test_the_same_message_is_added_once() -> None:
    bench = newest()
    first = bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    assert bench("XADD", "s", "IDMP", "p", "i", "*", "other", "2") == first
    assert bench("XADD", "s", "IDMP", "q", "i", "*", "a", "1") != first
    auto = bench("XADD", "s", "IDMPAUTO", "p", "*", "a", "1", "b", "2")
    assert bench("XADD", "s", "IDMPAUTO", "p", "*", "b", "2", "a", "1") == auto
    assert bench("XLEN", "s") == 3
    assert info(bench) == {
        "idmp-duration": 100, "idmp-maxsize": 100, "pids-tracked": 2, "iids-tracked": 3, "iids-added": 3,
        "iids-duplicates": 2,
    }  # fmt: skip


def test_a_message_whose_entry_is_deleted_is_still_known() -> None:
    bench = newest()
    first = bench("XADD", "s", "MAXLEN", 0, "IDMP", "p", "i", "*", "a", "1")
    assert bench("XLEN", "s") == 0
    assert bench("XADD", "s", "NOMKSTREAM", "IDMP", "p", "i", "*", "a", "1") == first


def test_nomkstream_creates_neither_stream_nor_producer() -> None:
    bench = newest()
    assert bench("XADD", "s", "NOMKSTREAM", "IDMP", "p", "i", "*", "a", "1") == b"-1"
    assert bench("EXISTS", "s") == 0


def test_a_failed_addition_stores_its_producer_but_not_its_message() -> None:
    bench = newest()
    bench("XADD", "s", f"{2**64 - 1}-{2**64 - 1}", "a", "1")
    assert bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1").startswith("ERR The stream has exhausted")
    assert (info(bench)["pids-tracked"], info(bench)["iids-tracked"]) == (1, 0)
    bench.engine.expire_cycle()
    assert info(bench)["pids-tracked"] == 0


def test_a_duplicate_touches_watched_keys() -> None:
    bench = newest()
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    other = bench.beside()
    bench("WATCH", "s")
    other("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    bench("MULTI")
    bench("PING")
    assert bench("EXEC") is None


def test_a_duplicate_in_a_transaction_is_detected() -> None:
    bench = newest()
    bench("MULTI")
    for _ in range(3):
        bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    assert len(set(bench("EXEC"))) == 1
    assert bench("XLEN", "s") == 1


# -- the log -------------------------------------------------------------------------------------------


def test_replaying_the_log_gives_the_same_state() -> None:
    bench = newest()
    bench.log.take()
    for number in range(400):
        bench.clock.us += 700_000
        bench("XADD", "s", "IDMP", f"p{number % 3}", f"i{number * 7 % 50}", "*", "n", number)
        bench("XADD", "s", "MAXLEN", "~", 100, "IDMPAUTO", "auto", "*", "n", number % 60)
        if number == 150:
            bench("XCFGSET", "s", "IDMP-DURATION", 30, "IDMP-MAXSIZE", 20)
    other = replayed(bench.log.take())
    entries, _, added, duplicates = state(bench)
    again, _, added_again, duplicates_again = state(other)
    assert (again, added_again, duplicates_again) == (entries, added, duplicates)
    # Expiry is not logged, so expired iids remain until the next cron.
    now = bench.clock.now_ms()
    for one in (bench, other):
        one.engine.databases[0].peek(b"s").idmp.expire(now)
    assert state(other)[1] == state(bench)[1] != {}


def test_the_log_contains_the_id_of_the_entry() -> None:
    bench = newest()
    entry = b"%d-0" % NOW
    for _ in range(2):
        logged = bench.logged("XADD", "s", "MAXLEN", "~", 100, "IDMP", "p", "i", "*", "a", "1")
        assert len(logged) == 1
        assert logged[0][-6:] == [b"IDMP", b"p", b"i", entry, b"a", b"1"]


def test_a_replay_detects_a_duplicate_whose_iid_has_expired() -> None:
    other = replayed([[b"XADD", b"s", b"5-0", b"a", b"1"], [b"XADD", b"s", b"IDMP", b"p", b"i", b"5-0", b"a", b"1"]])
    assert (other("XLEN", "s"), info(other)["iids-duplicates"], info(other)["iids-tracked"]) == (1, 1, 0)


def test_a_duplicate_with_a_star_in_a_log_of_redis_is_detected() -> None:
    add = [b"XADD", b"s", b"IDMP", b"p", b"i", b"5-0", b"a", b"1"]
    other = replayed([add, [*add[:5], b"*", *add[6:]]])
    assert (other("XLEN", "s"), info(other)["iids-duplicates"]) == (1, 1)


def test_a_logged_restore_contains_settings_that_differ_from_the_defaults() -> None:
    bench = newest(stream_idmp_duration=7, stream_idmp_maxsize=9)
    plain = newest()
    plain("XADD", "s", "1-1", "a", "1")
    logged = bench.logged("RESTORE", "s", 0, plain("DUMP", "s"))
    assert (info(bench)["idmp-duration"], info(bench)["idmp-maxsize"]) == (7, 9)
    assert info(replayed(logged)) == info(bench)
    # A payload that contains settings overrides them.
    plain("CONFIG", "SET", "dump-format", "native")
    bench("RESTORE", "s", 0, plain("DUMP", "s"), "REPLACE")
    assert info(bench)["idmp-duration"] == 100


# -- time ----------------------------------------------------------------------------------------------


def test_the_cron_removes_expired_iids_and_touches_watched_keys() -> None:
    bench = newest()
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    bench.beside()
    bench("WATCH", "s")
    bench.engine.expire_cycle()
    assert bench("MULTI") == b"OK"
    assert bench("EXEC") == []
    bench("WATCH", "s")
    bench.clock.us += 100_000_000
    bench.engine.expire_cycle()
    assert bench("MULTI") == b"OK"
    assert bench("EXEC") is None
    assert (info(bench)["pids-tracked"], info(bench)["iids-added"]) == (0, 1)
    assert bench.engine.databases[0].idmp_keys == {}


def test_an_expired_message_can_be_added_again_before_the_cron_runs() -> None:
    bench = newest()
    first = bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    bench.clock.us += 99_999_000
    assert bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1") == first
    bench.clock.us += 1_000
    assert info(bench)["iids-tracked"] == 0
    assert bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1") != first


@pytest.mark.parametrize("way", ["rename", "copy", "move", "restore", "swapdb"])
def test_the_cron_expires_iids_of_a_stream_that_was_moved(way: str) -> None:
    bench = newest()
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    database, key = 0, b"t"
    if way == "rename":
        bench("RENAME", "s", "t")
    elif way == "copy":
        bench("COPY", "s", "t")
        assert bench("XADD", "t", "IDMP", "p", "i", "*", "a", "1") == b"%d-0" % NOW
    elif way == "move":
        bench("MOVE", "s", 1)
        database, key = 1, b"s"
    elif way == "restore":
        bench("RESTORE", "t", 0, bench("DUMP", "s"))
    else:
        bench("SWAPDB", 0, 1)
        database, key = 1, b"s"
    assert list(bench.engine.databases[database].idmp_keys)[-1:] == [key]
    bench.clock.us += 200_000_000
    bench.engine.expire_cycle()
    assert bench.engine.databases[database].peek(key).idmp.producers == {}
    assert all(not one.idmp_keys for one in bench.engine.databases)


@pytest.mark.parametrize("words", ["DEL s", "UNLINK s", "FLUSHDB", "FLUSHALL", "SET s text", "RENAME other s"])
def test_the_cron_ignores_deleted_streams(words: str) -> None:
    bench = newest()
    bench("SET", "other", "text")
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    bench(*words.split())
    bench.engine.expire_cycle()
    assert bench.engine.databases[0].idmp_keys == {}


def test_expired_iids_are_neither_dumped_nor_restored() -> None:
    bench = newest()
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    early = bench("DUMP", "s")
    bench.clock.us += 100_000_000
    late = bench("DUMP", "s")
    assert len(late) < len(early)
    bench("RESTORE", "t", 0, early)
    assert (info(bench, "t")["pids-tracked"], info(bench, "t")["iids-added"]) == (0, 1)


# -- XCFGSET and XIDMPRECORD -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("s", "At least one parameter must be specified"),
        ("s IDMP-DURATION", "syntax error"),
        ("s IDMP-DURATION x", "value is not an integer or out of range"),
        ("s IDMP-DURATION 0", "IDMP-DURATION must be between 1 and 86400 seconds"),
        ("s IDMP-MAXSIZE 10001", "IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("s IDMP-MAXSIZE 1 idmp-maxsize 1", "IDMP-MAXSIZE specified multiple times"),
        ("s IDMP-DURATION 1 IDMP-DURATION 1", "IDMP-DURATION specified multiple times"),
        ("s WHAT 1", "syntax error"),
        ("none WHAT 1", "no such key"),
    ],
)
def test_an_invalid_xcfgset_is_rejected(words: str, refusal: str) -> None:
    bench = newest()
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    assert bench("XCFGSET", *words.split()) == f"ERR {refusal}"
    assert info(bench)["iids-tracked"] == 1


def test_xcfgset_logs_changes_only() -> None:
    bench = newest()
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    assert bench.logged("XCFGSET", "s", "IDMP-DURATION", 100, "IDMP-MAXSIZE", 100) == []
    assert info(bench)["iids-tracked"] == 1
    assert bench.logged("XCFGSET", "s", "IDMP-MAXSIZE", 5) == [[b"XCFGSET", b"s", b"IDMP-MAXSIZE", b"5"]]
    assert (info(bench)["iids-tracked"], info(bench)["idmp-maxsize"], info(bench)["iids-added"]) == (0, 5, 1)


def test_settings_apply_to_new_streams_only() -> None:
    bench = newest()
    bench("XADD", "old", "*", "a", "1")
    bench("CONFIG", "SET", "stream-idmp-duration", 5, "stream-idmp-maxsize", 6)
    bench("XADD", "new", "*", "a", "1")
    bench("XGROUP", "CREATE", "made", "g", "$", "MKSTREAM")
    assert [info(bench, key)["idmp-duration"] for key in ("old", "new", "made")] == [100, 5, 5]
    assert bench("CONFIG", "SET", "stream-idmp-duration", 0).startswith("ERR CONFIG SET failed")


def test_xidmprecord_stores_an_iid_of_an_existing_entry() -> None:
    bench = newest()
    bench("XADD", "s", "5-0", "a", "1")
    bench("XADD", "s", f"{NOW}-0", "a", "1")
    for words, refusal in (
        (("s", "p", "i", "x"), "Invalid stream ID specified as stream command argument"),
        (("s", "", "i", "5-0"), "producer ID must be non-empty"),
        (("s", "p", "", "5-0"), "idempotent ID must be non-empty"),
        (("none", "p", "i", "5-0"), "no such key"),
        (("s", "p", "i", "6-0"), "No such message in stream"),
    ):
        assert bench("XIDMPRECORD", *words) == f"ERR {refusal}"
    assert bench.logged("XIDMPRECORD", "s", "p", "i", f"{NOW}-0") == [
        [b"XIDMPRECORD", b"s", b"p", b"i", b"%d-0" % NOW]
    ]
    assert bench.logged("XIDMPRECORD", "s", "p", "i", f"{NOW}") == []
    assert bench("XIDMPRECORD", "s", "p", "i", "5").startswith("ERR IID already exists for this producer")
    assert bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1") == b"%d-0" % NOW


def test_memory_usage_includes_iids() -> None:
    bench = newest()
    bench("XADD", "s", "IDMP", "p", "i", "*", "a", "1")
    before = bench("MEMORY", "USAGE", "s")
    bench("XADD", "s", "MAXLEN", 1, "IDMP", "p", "j" * 5000, "*", "a", "1")
    assert bench("MEMORY", "USAGE", "s") >= before + 5000
