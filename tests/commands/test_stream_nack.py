"""XNACK: which entries it releases, how it counts, which consumer gets them next, and which clients it unblocks.

Tests with `peer_of` compare with the newest Redis, if RILLET_NEWER_REDIS names one; the others need no server.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.commands.ends import Bench
from tests.commands.test_stream_claiming import CLAIMING, LOOK, OLD, Waiting, claim, idle_bench, play, rows
from tests.differential.wire import Local, read
from tests.judge import Judge

MOST = (1 << 63) - 1
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
NO_NUMBER = "ERR value is not an integer or out of range"
BAD_COUNT = "ERR numids must be a positive integer"


@pytest.fixture
def bench() -> Bench:
    """A stream with 1-1 to 5-1: a owns 1-1 and 2-1, b owns 3-1, each delivered twice, 100 ms ago."""
    bench = Bench(compat="newest")
    for number in range(1, 6):
        bench("XADD", "s", f"{number}-1", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", "0")
    for consumer, count in (("a", 2), ("b", 1)):
        bench("XREADGROUP", "GROUP", "g", consumer, "COUNT", count, "STREAMS", "s", ">")
        bench("XREADGROUP", "GROUP", "g", consumer, "STREAMS", "s", "0")
    bench.clock.advance(100)
    return bench


def pending(local: Local) -> list[Any]:
    """Return the reply of XPENDING for all pending entries."""
    return [[row[0], *row[1:]] for row in local("XPENDING", "s", "g", "-", "+", 99)]


@pytest.mark.parametrize(("options", "count"), [
    ("SILENT IDS 1 2-1", 1), ("FAIL IDS 1 2-1", 2), ("FATAL IDS 1 2-1", MOST), ("fatal ids 1 2-1 retrycount 7", 7),
    ("SILENT RETRYCOUNT 0 IDS 1 2-1", 0), ("FAIL IDS 1 2-1 FORCE", 2), (f"SILENT IDS 1 2-1 RETRYCOUNT {MOST}", MOST),
])  # fmt: skip
def test_a_release_sets_the_delivery_count_by_its_mode(bench: Bench, options: str, count: int) -> None:
    """A released entry has no owner and an idle time of -1; the mode or RETRYCOUNT determines its delivery count."""
    assert bench("XNACK", "s", "g", *options.split()) == 1
    assert pending(bench) == [[b"1-1", b"a", 100, 2], [b"2-1", b"", -1, count], [b"3-1", b"b", 100, 2]]
    assert bench("XPENDING", "s", "g") == [3, b"1-1", b"3-1", [[b"a", b"1"], [b"b", b"1"]]]
    bench.engine.check()


def test_silent_never_makes_the_count_negative(bench: Bench) -> None:
    """SILENT subtracts one delivery, down to 0."""
    for expected in (1, 0, 0):
        bench("XNACK", "s", "g", "SILENT", "IDS", 1, "1-1")
        assert pending(bench)[0][3] == expected


def test_entries_that_are_not_pending_are_skipped_without_force(bench: Bench) -> None:
    """FORCE also releases an entry of the stream that is not pending, with a delivery count of 0."""
    assert bench("XNACK", "s", "g", "FAIL", "IDS", 3, "4-1", "9-1", "3-1") == 1
    assert bench("XNACK", "s", "g", "FAIL", "IDS", 2, "4-1", "9-1", "FORCE") == 1
    assert bench("XNACK", "s", "g", "FATAL", "IDS", 1, "5-1", "FORCE") == 1
    assert pending(bench)[2:] == [[b"3-1", b"", -1, 2], [b"4-1", b"", -1, 0], [b"5-1", b"", -1, MOST]]
    bench("XDEL", "s", "1-1")
    assert bench("XNACK", "s", "g", "SILENT", "IDS", 1, "1-1") == 1
    bench.engine.check()


def test_released_entries_are_claimed_first(bench: Bench) -> None:
    """CLAIM takes released entries first, in the order of their release, whatever the minimum idle time is."""
    bench("XNACK", "s", "g", "FAIL", "IDS", 2, "3-1", "1-1")
    now = bench.clock.now_ms()
    assert rows(claim(bench, "COUNT", 2, idle=50)) == [(3, now, 2), (1, now, 2)]
    assert rows(claim(bench, "COUNT", 1, idle=50)) == [(2, 100, 2)]
    assert pending(bench)[0] == [b"1-1", b"c", 0, 3]


def test_an_entry_that_is_released_again_is_claimed_last(bench: Bench) -> None:
    """Each release moves the entry to the end of the released ones."""
    for ident in ("1-1", "2-1", "1-1"):
        bench("XNACK", "s", "g", "FAIL", "IDS", 1, ident)
    assert [row[0] for row in rows(claim(bench, "COUNT", 3))] == [2, 1, 3]


@pytest.mark.parametrize("words", ["XCLAIM s g c 3600000 2-1", "XAUTOCLAIM s g c 3600000 0"])
def test_xclaim_and_xautoclaim_take_a_released_entry_whatever_the_idle_time(bench: Bench, words: str) -> None:
    """A released entry has no owner, so the minimum idle time does not protect it."""
    bench("XNACK", "s", "g", "FAIL", "IDS", 1, "2-1")
    bench(*words.split())
    assert pending(bench) == [[b"1-1", b"a", 100, 2], [b"2-1", b"c", 0, 3], [b"3-1", b"b", 100, 2]]
    assert bench("XPENDING", "s", "g")[3] == [[b"a", b"1"], [b"b", b"1"], [b"c", b"1"]]
    bench.engine.check()


def test_the_highest_count_stays(bench: Bench) -> None:
    """FATAL sets the greatest count; later deliveries do not increase it."""
    bench("XNACK", "s", "g", "FATAL", "IDS", 3, "1-1", "2-1", "3-1")
    claim(bench, "COUNT", 1)
    bench("XCLAIM", "s", "g", "c", 0, "2-1")
    bench("XAUTOCLAIM", "s", "g", "c", 0, 0)
    bench("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "0")
    assert [row[1:] for row in pending(bench)] == [[b"c", 0, MOST]] * 3


def test_before_8_8_the_count_overflows() -> None:
    """The count wraps around to the smallest signed number."""
    bench = Bench(compat="8.6")
    for text in ("XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g a STREAMS s >",
                 f"XCLAIM s g a 0 1-1 RETRYCOUNT {MOST}", "XREADGROUP GROUP g a STREAMS s 0"):  # fmt: skip
        bench(*text.split())
    assert pending(bench)[0][3] == -MOST - 1


def test_released_entries_are_acknowledged_and_outlive_their_consumer(bench: Bench) -> None:
    """XACK removes released entries, XGROUP DELCONSUMER does not, and XPENDING of the consumer does not list them."""
    bench("XNACK", "s", "g", "FAIL", "IDS", 2, "1-1", "2-1")
    assert bench("XPENDING", "s", "g", "-", "+", 9, "a") == []
    assert bench("XGROUP", "DELCONSUMER", "s", "g", "a") == 0
    assert [row[0] for row in pending(bench)] == [b"1-1", b"2-1", b"3-1"]
    assert bench("XPENDING", "s", "g", "IDLE", 3600000, "-", "+", 9) == [[b"1-1", b"", -1, 2], [b"2-1", b"", -1, 2]]
    assert bench("XACK", "s", "g", "1-1", "2-1", "3-1") == 3
    assert bench("XPENDING", "s", "g")[0] == 0
    bench.engine.check()


def test_a_group_that_is_set_back_delivers_a_released_entry_again(bench: Bench) -> None:
    """The consumer that reads the entry becomes its owner."""
    bench("XNACK", "s", "g", "FATAL", "IDS", 1, "2-1")
    bench("XGROUP", "SETID", "s", "g", "1-1")
    bench("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">")
    assert pending(bench)[1] == [b"2-1", b"c", 0, 1]
    assert [row[0] for row in rows(claim(bench, "COUNT", 3))] == [1, 3, 2]


def test_the_log_contains_xnack_and_the_removal_of_deleted_entries(bench: Bench) -> None:
    """XNACK is logged unchanged; a claim of a released and deleted entry is logged as XACK, because it has no owner."""
    argv = [b"XNACK", b"s", b"g", b"FAIL", b"IDS", b"2", b"1-1", b"9-9"]
    assert bench.logged(*argv) == [argv]
    assert bench.logged(*argv[:5], 1, "9-9") == []
    bench("XDEL", "s", "1-1", "2-1")
    logged = bench.logged("XCLAIM", "s", "g", "b", 0, "1-1", "LASTID", "4-1")
    assert logged[1:-1] == [
        [b"XACK", b"s", b"g", b"1-1"], [b"XGROUP", b"SETID", b"s", b"g", b"4-1", b"ENTRIESREAD", b"3"],
    ]  # fmt: skip
    bench("XNACK", "s", "g", "FAIL", "IDS", 1, "2-1")
    logged = bench.logged("XAUTOCLAIM", "s", "g", "b", 0, 0)
    assert [argv[0] for argv in logged] == [b"MULTI", b"XACK", b"XCLAIM", b"EXEC"]


def test_every_released_entry_counts_as_a_change(bench: Bench) -> None:
    """The number of changes grows by the number of released entries."""
    before = bench.engine.dirty
    bench("XNACK", "s", "g", "FAIL", "IDS", 3, "1-1", "2-1", "9-9")
    assert bench.engine.dirty == before + 2


# -- blocked clients ----------------------------------------------------------------------------------------


def test_a_client_that_is_blocked_with_claim_is_unblocked() -> None:
    """The first client with CLAIM gets the entry; a client that waits for new entries stays blocked."""
    bench = idle_bench()
    plain = Waiting(bench, "XREADGROUP GROUP g p BLOCK 0 STREAMS s >")
    first = Waiting(bench, CLAIMING.format("first", 3_600_000, 0))
    second = Waiting(bench, CLAIMING.format("second", 3_600_000, 0))
    bench("XNACK", "s", "g", "FAIL", "IDS", 1, "2-1")
    assert rows(read(first.session.out.take_bytes())) == [(2, bench.clock.now_ms(), 1)]
    assert plain.at == 0
    assert second.look() == "waits"
    assert [row[:2] for row in bench("XPENDING", "s", "g", "-", "+", 9)] == [[b"1-1", b"a"], [b"2-1", b"first"]]


def test_an_xnack_without_effect_unblocks_no_client() -> None:
    """An ID that is not pending does not unblock the client."""
    bench = idle_bench()
    waiting = Waiting(bench, CLAIMING.format("c", 3_600_000, 0))
    seen = bench.session.db.lookup(b"s").groups[b"g"].consumers[b"c"]  # type: ignore[attr-defined]
    bench.clock.advance(5)
    before = seen.seen_time
    bench("XNACK", "s", "g", "FAIL", "IDS", 1, "7-7")
    assert seen.seen_time == before
    assert waiting.wakes == 0


# -- refusals ----------------------------------------------------------------------------------------------

REFUSALS = [
    ("XNACK s g FAIL IDS 1", "ERR wrong number of arguments for 'xnack' command"),
    ("XNACK no g x IDS 1 1-1", "NOGROUP No such key 'no' or consumer group 'g'"),
    ("XNACK s no x IDS 1 1-1", "NOGROUP No such key 's' or consumer group 'no'"),
    ("XNACK text g x IDS 1 1-1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("XNACK s g LOUD IDS 1 1-1", "ERR mode must be SILENT, FAIL, or FATAL"),
    ("XNACK s g IDS 1 1-1 FAIL", "ERR mode must be SILENT, FAIL, or FATAL"),
    ("XNACK s g FAIL IDS 0 1-1", BAD_COUNT), ("XNACK s g FAIL IDS -1 1-1", BAD_COUNT),
    ("XNACK s g FAIL IDS x 1-1", BAD_COUNT), ("XNACK s g FAIL IDS 2147483648 1-1", BAD_COUNT),
    ("XNACK s g FAIL IDS 2147483647 1-1", "ERR number of IDs doesn't match numids"),
    ("XNACK s g FAIL IDS 2 1-1", "ERR number of IDs doesn't match numids"),
    ("XNACK s g FAIL IDS 1 1-1 2-1", "ERR Unrecognized XNACK option '2-1'"),
    ("XNACK s g FAIL IDS 2 1-1 x", INVALID_ID), ("XNACK s g FAIL IDS 1 -", INVALID_ID),
    ("XNACK s g FAIL IDS 2 1-1 FORCE", INVALID_ID),
    ("XNACK s g FAIL FORCE FORCE FORCE", "ERR syntax error, expected IDS keyword"),
    ("XNACK s g FAIL FORCE FORCE IDS", "ERR Unrecognized XNACK option 'IDS'"),
    ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT", "ERR Unrecognized XNACK option 'RETRYCOUNT'"),
    ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT x", NO_NUMBER),
    ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT -1", "ERR Invalid RETRYCOUNT value, must be >= 0"),
    ("XNACK s g FAIL RETRYCOUNT 5 FORCE FORCE", "ERR syntax error, expected IDS keyword"),
    ("XNACK s g FAIL IDS 1 x RETRYCOUNT x", NO_NUMBER),
]  # fmt: skip


@pytest.mark.parametrize(("text", "refusal"), REFUSALS)
def test_an_invalid_xnack_releases_nothing(bench: Bench, text: str, refusal: str) -> None:
    """The reply is Redis's error, and no entry is released."""
    bench("SET", "text", "x")
    before = pending(bench)
    assert bench(*text.split()) == refusal
    assert pending(bench) == before


def test_the_last_list_of_ids_counts(bench: Bench) -> None:
    """Earlier IDS options are ignored, even if their IDs are invalid."""
    assert bench("XNACK", "s", "g", "FAIL", "IDS", 1, "x", "IDS", 2, "1-1", "3-1") == 2


@pytest.mark.parametrize("compat", ["7.0", "8.0", "8.6", "valkey"])
def test_xnack_is_unknown_before_8_8(compat: str) -> None:
    """Older servers reply that the command is unknown."""
    reply = Bench(compat=compat)("XNACK", "s", "g", "FAIL", "IDS", 1, "1-1")
    assert reply.startswith("ERR unknown command 'XNACK'")


# -- scenarios with the judge ------------------------------------------------------------------------------

SCENARIOS = {
    "each mode": OLD + "XNACK s g SILENT IDS 1 1-1|XNACK s g FAIL IDS 1 2-1|XNACK s g FATAL IDS 1 3-1",
    "twice": OLD
    + "XNACK s g SILENT IDS 3 1-1 1-1 1-1|XNACK s g SILENT IDS 1 1-1|XNACK s g FAIL RETRYCOUNT 9 IDS 1 1-1",
    "forced": OLD
    + "XNACK s g FAIL IDS 3 4-1 5-1 9-1 FORCE|XNACK s g FATAL FORCE IDS 1 5-1|XDEL s 4-1|"
    "XNACK s g FAIL IDS 1 4-1 FORCE",
    "forced with a count": OLD + "XNACK s g SILENT RETRYCOUNT 3 FORCE IDS 2 4-1 3-1|XNACK s g SILENT FORCE IDS 1 5-1",
    "claimed": OLD
    + "XNACK s g FAIL IDS 2 3-1 1-1|XREADGROUP GROUP g c CLAIM 99 COUNT 1 STREAMS s >|XCLAIM s g d 99999999 1-1",
    "claimed by XAUTOCLAIM": OLD
    + "XNACK s g FATAL IDS 2 3-1 1-1|XAUTOCLAIM s g c 99999999 0|XAUTOCLAIM s g c 0 0 JUSTID",
    "acknowledged": OLD + "XNACK s g FAIL IDS 3 3-1 1-1 2-1|XACK s g 1-1 3-1|XREADGROUP GROUP g c CLAIM 99 STREAMS s >",
    "deleted": OLD + "XNACK s g FAIL IDS 3 3-1 1-1 2-1|XDEL s 3-1 1-1|XCLAIM s g c 0 1-1|XAUTOCLAIM s g c 0 0",
    "deleted, with CLAIM": OLD
    + "XNACK s g FAIL IDS 2 3-1 1-1|XDEL s 3-1|XREADGROUP GROUP g c CLAIM 99 COUNT 2 STREAMS s >",
    "set back": OLD + "XNACK s g FATAL IDS 1 2-1|XGROUP SETID s g 0|XREADGROUP GROUP g c COUNT 2 STREAMS s >",
    "its consumer goes": OLD
    + "XNACK s g FAIL IDS 2 3-1 1-1|XGROUP DELCONSUMER s g a|XPENDING s g IDLE 5 - + 9|XPENDING s g - + 9 a",
    "dumped": OLD + "XNACK s g FAIL IDS 2 3-1 1-1|DUMP no|XREADGROUP GROUP g c CLAIM 0 STREAMS s >",
    "JUSTID": OLD
    + "XNACK s g SILENT IDS 2 3-1 1-1|XCLAIM s g c 0 3-1 JUSTID|XCLAIM s g c 0 1-1 RETRYCOUNT 4 IDLE 7000000",
}  # fmt: skip


@pytest.mark.peer("newest")
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_matches_a_server(peer_of: Callable[[str], Judge], name: str, resp: int) -> None:
    """Every reply is the server's, and so is the state afterwards."""
    play(peer_of("newest"), "newest", resp, SCENARIOS[name] + LOOK)


@pytest.mark.peer("newest")
def test_the_errors_are_those_of_a_server(peer_of: Callable[[str], Judge]) -> None:
    """Each invalid command gives the same error on both sides."""
    play(peer_of("newest"), "newest", 2, OLD + "SET text x|" + "|".join(text for text, _ in REFUSALS) + LOOK)
