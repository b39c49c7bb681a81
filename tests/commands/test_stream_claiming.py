"""XREADGROUP with CLAIM, the effect of claims on consumers, XREAD of the last entry, and limits over all streams.

The scenarios compare with the servers that the environment names. The other tests need no server and use a manual
clock, so that idle times are exact.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rillet.runtime.engine import Engine
from tests.commands.ends import NOW, Bench
from tests.differential.test_stream_differential import same
from tests.differential.wire import Local, Redis, read
from tests.judge import Judge

pytestmark = pytest.mark.both

SYNTAX = "ERR syntax error"
HOUR = 3_600_000


def words(text: str) -> list[bytes]:
    """Split a command line into its arguments."""
    return [word.encode() for word in text.split(" ")]


def rows(reply: Any) -> list[tuple[int, int, int]]:
    """Return the first stream's entries of a reply with CLAIM as (ms of the ID, idle time, deliveries)."""
    return [(int(one[0].split(b"-")[0]), one[2], one[3]) for one in reply[0][1]]


@pytest.fixture
def bench() -> Bench:
    """A newest engine with entries 1-1 to 5-1; a owns 1-1 and 2-1 for 200 ms, b owns 3-1 for 100 ms."""
    bench = Bench(compat="newest")
    for number in range(1, 6):
        bench("XADD", "s", f"{number}-1", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", "0")
    bench("XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", ">")
    bench.clock.advance(100)
    bench("XREADGROUP", "GROUP", "g", "b", "COUNT", 1, "STREAMS", "s", ">")
    bench.clock.advance(100)
    return bench


def claim(bench: Local, *options: object, idle: int = 0, consumer: str = "c", after: str = ">") -> Any:
    """Run an XREADGROUP with CLAIM on s."""
    return bench("XREADGROUP", "GROUP", "g", consumer, "CLAIM", idle, *map(str, options), "STREAMS", "s", after)


# -- CLAIM --------------------------------------------------------------------------------------------------


def test_claimed_entries_precede_new_ones(bench: Bench) -> None:
    """Idle entries come first, by delivery time; new entries follow with idle time 0 and 0 deliveries."""
    assert rows(claim(bench, idle=150)) == [(1, 200, 1), (2, 200, 1), (4, 0, 0), (5, 0, 0)]
    assert [row[1:] for row in bench("XPENDING", "s", "g", "-", "+", 9)] == [
        [b"c", 0, 2], [b"c", 0, 2], [b"b", 100, 1], [b"c", 0, 1], [b"c", 0, 1],
    ]  # fmt: skip
    bench.engine.check()


@pytest.mark.parametrize(("count", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 3, 4]), (9, [1, 2, 3, 4, 5]), (0, [1, 2, 3, 4, 5])])  # fmt: skip  # noqa: E501
def test_count_limits_claimed_and_new_entries_together(bench: Bench, count: int, expected: list[int]) -> None:
    """COUNT is the limit for claimed and new entries together."""
    assert [row[0] for row in rows(claim(bench, "COUNT", count))] == expected


def test_entries_are_claimed_by_delivery_time(bench: Bench) -> None:
    """An entry that was delivered again comes after entries that were not."""
    bench("XCLAIM", "s", "g", "a", 0, "1-1", "JUSTID")
    assert rows(claim(bench, "COUNT", 3)) == [(2, 200, 1), (3, 100, 1), (1, 0, 1)]


def test_a_call_claims_every_pending_entry_at_most_once(bench: Bench) -> None:
    """With min-idle-time 0 the next call may claim the same entries again."""
    assert [row[0] for row in rows(claim(bench))] == [1, 2, 3, 4, 5]
    assert rows(claim(bench)) == [(1, 0, 2), (2, 0, 2), (3, 0, 2), (4, 0, 1), (5, 0, 1)]
    bench.engine.check()


def test_a_clock_that_is_set_back_does_not_prevent_claims(bench: Bench) -> None:
    """A delivery in the future counts as one long ago, and a call claims no entry twice.

    Entries after those claimed now may remain for the next call; Redis loops forever in this situation.

    """
    bench.clock.advance(-150)
    assert [row[0] for row in rows(claim(bench))] == [1, 2, 4, 5]
    bench.engine.check()
    bench.clock.advance(-HOUR)
    assert sorted(row[0] for row in rows(claim(bench))) == [1, 2, 3, 4, 5]
    bench.engine.check()


def test_deleted_entries_are_skipped(bench: Bench) -> None:
    """They stay pending and do not count toward COUNT."""
    bench("XDEL", "s", "1-1")
    assert [row[0] for row in rows(claim(bench, "COUNT", 2))] == [2, 3]
    assert bench("XPENDING", "s", "g", "1-1", "1-1", 1)[0][1] == b"a"
    bench("XDEL", "s", "2-1", "3-1", "4-1", "5-1")
    assert claim(bench) is None


def test_a_reply_may_contain_claimed_entries_only(bench: Bench) -> None:
    """The reply is null if there are neither claimed nor new entries."""
    claim(bench, idle=HOUR)
    assert [row[0] for row in rows(claim(bench, idle=150))] == [1, 2]
    assert claim(bench, idle=150) is None
    assert bench("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">") is None


def test_reading_pending_entries_does_not_claim(bench: Bench) -> None:
    """With an ID instead of `>`, CLAIM is ignored, and each entry of the reply has two parts."""
    assert claim(bench, consumer="b", after="0") == [[b"s", [[b"3-1", [b"f", b"v"]]]]]
    # The same applies if other streams of the command have `>`.
    assert bench("XREADGROUP", "GROUP", "g", "c", "CLAIM", 0, "STREAMS", "s", "s", "0", ">") == [
        [b"s", []], [b"s", [[b"4-1", [b"f", b"v"]], [b"5-1", [b"f", b"v"]]]],
    ]  # fmt: skip


def test_noack_does_not_prevent_claims(bench: Bench) -> None:
    """Claimed entries stay pending; new entries do not become pending."""
    assert [row[0] for row in rows(claim(bench, "NOACK", idle=150))] == [1, 2, 4, 5]
    owners = [row[:2] for row in bench("XPENDING", "s", "g", "-", "+", 9)]
    assert owners == [[b"1-1", b"c"], [b"2-1", b"c"], [b"3-1", b"b"]]


def test_count_limits_each_of_several_streams(bench: Bench) -> None:
    """COUNT applies to each stream separately."""
    bench("XADD", "t", "7-1", "f", "v")
    bench("XGROUP", "CREATE", "t", "g", 0)
    reply = bench("XREADGROUP", "GROUP", "g", "c", "CLAIM", 0, "COUNT", 2, "STREAMS", "t", "s", ">", ">")
    given = {key: [one[0] for one in entries] for key, entries in reply}
    assert given == {b"t": [b"7-1"], b"s": [b"1-1", b"2-1"]}


def test_the_reply_is_a_map_in_resp3() -> None:
    """The reply is a map of arrays, and the numbers are integers."""
    bench = Bench(compat="newest")
    for text in ("XADD s 1-1 f v", "XGROUP CREATE s g 0", "HELLO 3"):
        bench(*text.split())
    assert bench.run(words("XREADGROUP GROUP g c CLAIM 5 STREAMS s >")) == (
        b"%1\r\n$1\r\ns\r\n*1\r\n*4\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n:0\r\n:0\r\n"
    )


def test_the_log_contains_claims_and_the_new_position_of_the_group(bench: Bench) -> None:
    """Each entry is logged as XCLAIM with the group's previous ID; XGROUP SETID has the new one."""
    bench.log.take()
    claim(bench, "COUNT", 4)
    logged = bench.log.take()
    assert [argv[:6] for argv in logged[1:-2]] == [
        [b"XCLAIM", b"s", b"g", b"c", b"0", b"%d-1" % number] for number in range(1, 5)
    ]
    assert {argv[13] for argv in logged[1:-2]} == {b"3-1"}
    assert [argv[9] for argv in logged[1:-2]] == [b"2", b"2", b"2", b"1"]
    assert logged[-2] == [b"XGROUP", b"SETID", b"s", b"g", b"4-1", b"ENTRIESREAD", b"4"]
    assert (logged[0], logged[-1]) == ([b"MULTI"], [b"EXEC"])


def test_replaying_the_log_gives_the_same_state(bench: Bench) -> None:
    """After a replay the pending entries, the consumers and the group are the same."""
    copy = Bench(compat="newest")
    copy.clock.us = bench.clock.us
    copy("RESTORE", "s", 0, bench("DUMP", "s"))
    replayer = copy.engine.session(trusted=True)
    bench.log.take()
    for step in ("CLAIM 150 COUNT 3", "CLAIM 0 COUNT 4", "NOACK", "CLAIM 0 NOACK"):
        bench("XADD", "s", "*", "f", "v")
        bench("XREADGROUP", "GROUP", "g", "new" + step.split()[0], *step.split(), "STREAMS", "s", ">")
        bench("XNACK", "s", "g", "SILENT", "IDS", 1, "2-1")
        bench.clock.advance(7)
    copy.clock.us = bench.clock.us
    for argv in bench.log.take():
        if argv[0] not in (b"MULTI", b"EXEC"):
            copy.engine.execute(replayer, argv)
            assert not replayer.out.take_bytes().startswith(b"-"), argv
    looks = (("XPENDING", "s", "g", "-", "+", 99), ("XINFO", "GROUPS", "s"), ("XPENDING", "s", "g"))
    for look in looks:
        assert copy(*look) == bench(*look)
    names = [[row[1] for row in end("XINFO", "CONSUMERS", "s", "g")] for end in (copy, bench)]
    assert names[0] == names[1]


REFUSALS = [
    ("XREADGROUP GROUP g c CLAIM x STREAMS s >", "ERR min-idle-time is not an integer or out of range"),
    ("XREADGROUP GROUP g c CLAIM -1 STREAMS s >", "ERR min-idle-time must be a positive integer"),
    ("XREADGROUP GROUP g c CLAIM 9223372036854775808 STREAMS s >",
     "ERR min-idle-time is not an integer or out of range"),
    ("XREADGROUP GROUP g c CLAIM STREAMS s >", "ERR min-idle-time is not an integer or out of range"),
    ("XREADGROUP GROUP g c STREAMS s CLAIM", "ERR Invalid stream ID specified as stream command argument"),
    ("XREADGROUP GROUP g c STREAMS s > CLAIM", "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."),  # noqa: E501
    ("XREADGROUP CLAIM 5 COUNT 1 STREAMS s >", "ERR Missing GROUP option for XREADGROUP"),
    ("XREAD CLAIM 5 STREAMS s 0", "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead."),
    ("XREADGROUP GROUP g c CLAIM 5 STREAMS s +", "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set."),  # noqa: E501
    ("XREADGROUP GROUP no c CLAIM 5 STREAMS s >", "NOGROUP No such key 's' or consumer group 'no' in XREADGROUP with GROUP option"),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(("text", "refusal"), REFUSALS)
def test_an_invalid_command_claims_nothing(bench: Bench, text: str, refusal: str) -> None:
    """The reply is Redis's error."""
    assert bench(*text.split()) == refusal


@pytest.mark.parametrize("compat", ["7.0", "7.4", "8.0", "valkey"])
def test_claim_is_a_syntax_error_before_8_4(compat: str) -> None:
    """Older servers do not have the option."""
    bench = Bench(compat=compat)
    assert bench("XREADGROUP", "GROUP", "g", "c", "CLAIM", 5, "STREAMS", "s", ">") == SYNTAX


# -- scenarios with a server -------------------------------------------------------------------------------

GIVEN = "XADD s 1-1 f v|XADD s 2-1 f v|XADD s 3-1 f v|XADD s 4-1 f v|XADD s 5-1 f v|XGROUP CREATE s g 0|"
OLD = GIVEN + "XREADGROUP GROUP g a COUNT 3 STREAMS s >|XCLAIM s g a 0 1-1 2-1 3-1 IDLE 9000000 JUSTID|"
LOOK = "|XPENDING s g - + 99|XPENDING s g|XINFO GROUPS s|XINFO CONSUMERS s g|XINFO STREAM s FULL"
SCENARIOS = {
    "claimed, then new": OLD + "XREADGROUP GROUP g c CLAIM 5000 STREAMS s >",
    "as many as COUNT": OLD
    + "XREADGROUP GROUP g c CLAIM 5000 COUNT 2 STREAMS s >|XREADGROUP GROUP g c CLAIM 5000 COUNT 2 STREAMS s >",
    "its own": OLD + "XREADGROUP GROUP g a CLAIM 5000 STREAMS s >",
    "deleted at the head": OLD + "XDEL s 1-1 2-1|XREADGROUP GROUP g c CLAIM 5000 COUNT 1 STREAMS s >",
    "all deleted": OLD + "XTRIM s MAXLEN 0|XREADGROUP GROUP g c CLAIM 5000 STREAMS s >",
    "too young": OLD
    + "XREADGROUP GROUP g c CLAIM 90000000 STREAMS s >|XREADGROUP GROUP g c CLAIM 90000000 STREAMS s >",
    "by time": OLD + "XCLAIM s g a 0 1-1 IDLE 8000000|XREADGROUP GROUP g c CLAIM 5000 COUNT 3 STREAMS s >",
    "history": OLD + "XREADGROUP GROUP g a CLAIM 5000 STREAMS s 0|XREADGROUP GROUP g a CLAIM 5000 STREAMS s s 1-1 >",
    "NOACK": OLD + "XREADGROUP GROUP g c CLAIM 5000 NOACK STREAMS s >",
    "set back": OLD + "XGROUP SETID s g 0|XREADGROUP GROUP g c CLAIM 5000 COUNT 4 STREAMS s >",
    "XCLAIM makes the consumer": GIVEN + "XCLAIM s g new 0 1-1|XCLAIM s g other 0 1-1 FORCE JUSTID",
    "XAUTOCLAIM makes the consumer": GIVEN + "XAUTOCLAIM s g new 0 0|XAUTOCLAIM s none new 0 0",
    "an empty read makes the consumer": GIVEN + "XGROUP SETID s g $|XREADGROUP GROUP g new STREAMS s >",
    "history makes the consumer": GIVEN + "XREADGROUP GROUP g new STREAMS s 0",
    "NOACK makes no activity": GIVEN + "XREADGROUP GROUP g new NOACK STREAMS s >",
    "XCLAIM with LASTID": OLD + "XCLAIM s g c 0 9-9 LASTID 4-1|XREADGROUP GROUP g c STREAMS s >",
    "XCLAIM of one ID twice": OLD + "XCLAIM s g c 0 2-1 2-1 1-1 2-1",
    "XCLAIM of what is gone": OLD + "XDEL s 2-1|XCLAIM s g c 0 2-1 1-1|XAUTOCLAIM s g d 0 0",
    "XAUTOCLAIM of what is gone": OLD
    + "XDEL s 2-1 3-1|XAUTOCLAIM s g d 0 0 COUNT 2|XAUTOCLAIM s g d 0 0 COUNT 2 JUSTID",
    "RETRYCOUNT and JUSTID": OLD
    + "XCLAIM s g c 0 1-1 RETRYCOUNT 7|XCLAIM s g c 0 1-1 JUSTID|XCLAIM s g c 0 1-1|"
    "XCLAIM s g c 0 1-1 RETRYCOUNT -3",
    "the highest count": OLD
    + "XCLAIM s g c 0 1-1 RETRYCOUNT 9223372036854775807|XCLAIM s g c 0 1-1|XREADGROUP GROUP g c STREAMS s 0",
    "the last entry": GIVEN
    + "XREAD STREAMS s +|XREAD COUNT 7 STREAMS s no + +|XDEL s 5-1|XREAD STREAMS s +|XTRIM s MAXLEN 0|"
    "XREAD STREAMS s +|XREAD STREAMS no +",
    "the last entry, twice": GIVEN
    + "XREAD STREAMS s s + 3|XREADGROUP GROUP g c STREAMS s +|XREADGROUP GROUP g c STREAMS s $",
}  # fmt: skip


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("compat", ["7.0", "8.6", "newest", "valkey"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_matches_a_server(peer_of: Callable[[str], Judge], name: str, compat: str, resp: int) -> None:
    """Every reply is the server's, and so is the state afterwards."""
    play(peer_of(compat), compat, resp, SCENARIOS[name] + LOOK)


def play(server: Judge, compat: str, resp: int, text: str) -> None:
    """Run commands, separated by bars, in an engine and on a server; times may differ a little."""
    ours = Bench(compat=compat)
    ours.engine.clock = ours.clock
    with Redis(server.port) as redis:
        redis.run([b"FLUSHALL"], [b"HELLO", b"%d" % resp])
        ours.clock.us = int(read(redis.run([b"TIME"])[0])[0]) * 1_000_000
        ours("HELLO", resp)
        for argv in map(words, text.split("|")):
            our, their = ours.run(argv), redis.run(argv)[0]
            assert same(argv, our, their), (argv, our, their)
    ours.engine.check()


# -- consumers' times --------------------------------------------------------------------------------------


def times(bench: Local) -> dict[bytes, tuple[int, int]]:
    """Return each consumer's seen time and active time in ms since the start; -1 = never."""
    found = {}
    for name, consumer in bench.session.db.lookup(b"s").groups[b"g"].consumers.items():  # type: ignore[attr-defined]
        found[name] = consumer.seen_time - NOW, consumer.active_time - NOW if consumer.active_time >= 0 else -1
    return found


ASKING = [
    ("XREADGROUP GROUP g n STREAMS s >", True), ("XREADGROUP GROUP g n NOACK STREAMS s >", False),
    ("XREADGROUP GROUP g n STREAMS s 0", False), ("XREADGROUP GROUP g n CLAIM 0 STREAMS s >", True),
    ("XREADGROUP GROUP g n CLAIM 0 NOACK STREAMS s >", True),
    ("XREADGROUP GROUP g n CLAIM 900 NOACK STREAMS s >", False),
    ("XCLAIM s g n 0 1-1", True), ("XCLAIM s g n 0 9-1", False), ("XCLAIM s g n 900 1-1", False),
    ("XAUTOCLAIM s g n 0 0", True), ("XAUTOCLAIM s g n 0 4-1", False), ("XGROUP CREATECONSUMER s g n", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "active"), ASKING)
def test_a_consumer_is_active_only_if_an_entry_becomes_pending_for_it(bench: Bench, text: str, active: bool) -> None:
    """Every command creates the consumer and sets its seen time."""
    bench(*text.split())
    assert times(bench)[b"n"] == (200, 200 if active else -1)


def test_a_command_without_entries_updates_the_seen_time_only(bench: Bench) -> None:
    """The active time stays unchanged if the consumer gets nothing."""
    assert times(bench) == {b"a": (0, 0), b"b": (100, 100)}
    bench("XGROUP", "SETID", "s", "g", "$")
    bench("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    bench("XCLAIM", "s", "g", "b", 900, "1-1")
    assert times(bench) == {b"a": (200, 0), b"b": (200, 100)}


def test_a_consumer_that_is_created_without_entries_is_logged(bench: Bench) -> None:
    """The log contains XGROUP CREATECONSUMER, because no delivery creates the consumer at replay."""
    bench("XGROUP", "SETID", "s", "g", "$")
    made = [[b"XGROUP", b"CREATECONSUMER", b"s", b"g", b"n"]]
    for text in ("XREADGROUP GROUP g n STREAMS s >", "XREADGROUP GROUP g n STREAMS s 0", "XCLAIM s g n 0 9-1",
                 "XAUTOCLAIM s g n 0 9-1"):  # fmt: skip
        assert bench.logged(*text.split()) == made
        assert bench.logged(*text.split()) == []
        bench("XGROUP", "DELCONSUMER", "s", "g", "n")


def test_before_7_2_a_consumer_is_created_by_its_first_entry() -> None:
    """A consumer that got no entry does not exist."""
    bench = Bench(compat="7.0")
    asked = "XGROUP SETID s g $|XREADGROUP GROUP g n STREAMS s >|XCLAIM s g n 0 1-1|XAUTOCLAIM s g n 0 0"
    for text in (GIVEN + asked).split("|"):
        bench(*text.split())
    assert times(bench) == {}


def test_a_blocking_read_creates_the_consumer() -> None:
    """Since 7.2 the consumer exists while it is blocked, and its seen time changes when it is served."""
    bench = Bench(compat="newest")
    bench("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    waiting = bench.beside()
    waiting.engine.execute(waiting.session, words("XREADGROUP GROUP g n BLOCK 0 STREAMS s >"))
    assert times(bench) == {b"n": (0, -1)}
    bench.clock.advance(30)
    bench("XADD", "s", "1-1", "f", "v")
    assert times(bench) == {b"n": (30, 30)}


# -- blocking with CLAIM -----------------------------------------------------------------------------------


class Waiting:
    """A session of an engine that is blocked, with the part of a host that watches its deadline."""

    def __init__(self, bench: Bench, text: str) -> None:
        self.engine: Engine = bench.engine
        self.session = bench.engine.session()
        self.wakes = 0
        self.session.on_wake = self._woken
        self.engine.execute(self.session, words(text))

    def _woken(self) -> None:
        self.wakes += 1

    @property
    def at(self) -> int | None:
        """The time of the next check, in ms since the start; None if the session is not blocked."""
        blocked = self.session.blocked
        return None if blocked is None else blocked.wakes_at - NOW if blocked.wakes_at else 0

    def look(self) -> Any:
        """Do what a host does at that time; return the reply, or "waits"."""
        self.engine.blocking.time_has_come(self.session)
        self.engine.check()
        raw = self.session.out.take_bytes()
        return read(raw) if raw else "waits"


def idle_bench() -> Bench:
    """A group without new entries: 1-1 was delivered at 0 ms and 2-1 at 100 ms; the time is 200 ms."""
    bench = Bench(compat="newest")
    bench("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number in (1, 2):
        bench("XADD", "s", f"{number}-1", "f", "v")
        bench("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
        bench.clock.advance(100)
    return bench


CLAIMING = "XREADGROUP GROUP g {} CLAIM {} BLOCK {} STREAMS s >"


def test_a_blocked_client_gets_an_entry_when_it_has_been_idle_long_enough() -> None:
    """The client is checked when the first entry is due, and gets the entries that are due."""
    bench = idle_bench()
    waiting = Waiting(bench, CLAIMING.format("c", 300, 0))
    assert waiting.at == 300
    assert waiting.look() == "waits"
    bench.clock.advance(100)
    assert rows(waiting.look()) == [(1, 300, 1)]
    assert waiting.at is None
    assert waiting.wakes == 1
    assert [argv[0] for argv in bench.log.take()[-1:]] == [b"XCLAIM"]


def test_an_acknowledged_entry_postpones_the_check_to_the_next_entry() -> None:
    """The first check finds nothing; the second is at the time of the next entry."""
    bench = idle_bench()
    waiting = Waiting(bench, CLAIMING.format("c", 300, 0))
    bench("XACK", "s", "g", "1-1")
    bench.clock.advance(100)
    assert waiting.look() == "waits"
    assert waiting.at == 400
    bench.clock.advance(100)
    assert rows(waiting.look()) == [(2, 300, 1)]


def test_min_idle_time_0_does_not_check_the_client_constantly() -> None:
    """Without pending entries the client is checked at the interval of the cron, and at once after a change."""
    bench = idle_bench()
    bench("XACK", "s", "g", "1-1", "2-1")
    waiting = Waiting(bench, CLAIMING.format("c", 0, 0))
    assert waiting.at == 300
    bench.clock.advance(100)
    assert waiting.look() == "waits"
    assert waiting.at == 400
    bench("XGROUP", "SETID", "s", "g", "1-1")
    bench("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    bench.clock.advance(100)
    assert rows(waiting.look()) == [(2, 100, 1)]
    waiting = Waiting(bench, CLAIMING.format("c", 300, 0))
    bench("XNACK", "s", "g", "FAIL", "IDS", 1, "2-1")
    assert waiting.at is None


def test_without_pending_entries_the_client_is_checked_after_min_idle_time() -> None:
    """An entry that is delivered later cannot be due earlier."""
    bench = idle_bench()
    bench("XACK", "s", "g", "1-1", "2-1")
    waiting = Waiting(bench, CLAIMING.format("c", 300, 0))
    assert waiting.at == 500
    bench.clock.advance(300)
    assert waiting.look() == "waits"
    assert waiting.at == 800


def test_the_timeout_may_precede_the_next_due_entry() -> None:
    """The earlier of the timeout and the next due entry determines the time of the check."""
    bench = idle_bench()
    waiting = Waiting(bench, CLAIMING.format("c", 1000, 50))
    assert waiting.at == 250
    bench.clock.advance(50)
    assert waiting.look() is None
    assert waiting.at is None


def test_clients_that_wait_for_the_same_entry_are_served_in_order() -> None:
    """The client that blocked first gets the entry, even if the second one is checked first."""
    bench = idle_bench()
    bench("XACK", "s", "g", "2-1")
    first = Waiting(bench, CLAIMING.format("first", 300, 0))
    second = Waiting(bench, CLAIMING.format("second", 300, 0))
    bench.clock.advance(100)
    assert second.look() == "waits"
    assert second.at == 600
    assert rows(first.look()) == [(1, 300, 1)]


def test_a_client_with_a_shorter_min_idle_time_is_served_first() -> None:
    """The client that blocked first is skipped if no entry is due for it."""
    bench = idle_bench()
    patient = Waiting(bench, CLAIMING.format("patient", 1000, 0))
    hasty = Waiting(bench, CLAIMING.format("hasty", 300, 0))
    bench.clock.advance(100)
    assert rows(hasty.look()) == [(1, 300, 1)]
    assert patient.look() == "waits"
    assert patient.at == 1000


def test_a_new_entry_unblocks_at_once() -> None:
    """The reply contains the new entry, with four parts, and the entries that are due by then."""
    bench = idle_bench()
    waiting = Waiting(bench, CLAIMING.format("c", 300, 0))
    bench.clock.advance(150)
    bench("XADD", "s", "9-1", "f", "v")
    assert rows(read(waiting.session.out.take_bytes())) == [(1, 350, 1), (9, 0, 0)]


def test_other_commands_do_not_move_the_check_but_a_rename_unblocks() -> None:
    """XCLAIM and XNACK leave the time of the check; RENAME of the stream replies NOGROUP."""
    bench = idle_bench()
    waiting = Waiting(bench, CLAIMING.format("c", 1000, 0))
    assert waiting.at == 1000
    assert waiting.wakes == 0
    bench("XCLAIM", "s", "g", "a", 0, "2-1", "IDLE", 600)
    bench("XNACK", "s", "g", "FAIL", "IDS", 1, "7-7")
    bench("SET", "s2", "x")
    assert waiting.at == 1000
    bench("XGROUP", "CREATE", "s", "h", "0")
    bench("RENAME", "s", "away")
    assert read(waiting.session.out.take_bytes()).startswith("NOGROUP")


def test_the_greatest_min_idle_time_does_not_overflow() -> None:
    """The time of the check stays within 64 bits."""
    bench = idle_bench()
    waiting = Waiting(bench, CLAIMING.format("c", (1 << 63) - 1, 0))
    assert waiting.at == (1 << 63) - 1
    assert waiting.look() == "waits"
    waiting.engine.close_session(waiting.session)
    bench.engine.check()


# -- the last entry ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("compat", ["7.4", "newest", "valkey"])
def test_a_client_that_waits_for_the_last_entry_gets_only_the_last_one(compat: str) -> None:
    """If the stream is empty, the client blocks, and then gets only the last of the added entries."""
    bench = Bench(compat=compat)
    waiting = Waiting(bench, "XREAD BLOCK 0 STREAMS s +")
    for text in ("MULTI", "XADD s 1-1 f v", "XADD s 2-0 f v", "EXEC"):
        bench(*text.split())
    assert read(waiting.session.out.take_bytes()) == [[b"s", [[b"2-0", [b"f", b"v"]]]]]


def test_a_deleted_last_entry_is_skipped_since_8_0() -> None:
    """Redis 8.0 and later return the last entry that exists; 7.4 and Valkey return nothing."""
    for compat, expected in (("7.4", None), ("valkey", None), ("8.0", b"1-1"), ("newest", b"1-1")):
        bench = Bench(compat=compat)
        for text in ("XADD s 1-1 f v", "XADD s 2-1 f v", "XDEL s 2-1"):
            bench(*text.split())
        reply = bench("XREAD", "STREAMS", "s", "+")
        assert (reply and reply[0][1][0][0]) == expected


@pytest.mark.parametrize("compat", ["7.0", "7.2"])
def test_plus_is_an_invalid_id_before_7_4(compat: str) -> None:
    """Older servers reject `+` in XREAD."""
    assert "Invalid stream ID" in Bench(compat=compat)("XREAD", "STREAMS", "s", "+")


# -- limits over all streams -------------------------------------------------------------------------------


@pytest.fixture
def three() -> Bench:
    """Three streams of four entries each, with a group in each."""
    bench = Bench(compat="newest")
    for key in ("a", "b", "c"):
        for number in range(1, 5):
            bench("XADD", key, f"{number}-1", "f", "v")
        bench("XGROUP", "CREATE", key, "g", 0)
    return bench


def counts(reply: Any) -> dict[bytes, int]:
    """Return the number of entries in a reply, by stream."""
    return {key: len(entries) for key, entries in reply}


@pytest.mark.parametrize("name", ["XREAD", "XREADGROUP GROUP g c"])
@pytest.mark.parametrize(("options", "expected"), [
    ("MAXCOUNT 1", {b"a": 1}), ("MAXCOUNT 4", {b"a": 4}), ("MAXCOUNT 5", {b"a": 4, b"b": 1}),
    ("COUNT 2 MAXCOUNT 3", {b"a": 2, b"b": 1}), ("MAXCOUNT 5 COUNT 2", {b"a": 2, b"b": 2, b"c": 1}),
    ("COUNT 2 MAXCOUNT 99", {b"a": 2, b"b": 2, b"c": 2}), ("COUNT 0 MAXCOUNT 2", {b"a": 2}),
    ("MAXSIZE 1", {b"a": 1}), ("MAXSIZE 100000", {b"a": 4, b"b": 4, b"c": 4}), ("MAXSIZE 1 MAXCOUNT 9", {b"a": 1}),
])  # fmt: skip
def test_limits_bound_the_number_of_entries(three: Bench, name: str, options: str, expected: dict[bytes, int]) -> None:
    """COUNT applies to each stream, MAXCOUNT and MAXSIZE to all together; a reply has at least one entry."""
    ids = "0 0 0" if name == "XREAD" else "> > >"
    assert counts(three(*f"{name} {options} STREAMS a b c {ids}".split())) == expected
    three.engine.check()


def test_maxsize_ends_the_reply_with_the_entry_that_reaches_the_size(three: Bench) -> None:
    """The reply contains the first entries, in order."""
    order = [(key, number) for key in (b"a", b"b", b"c") for number in range(1, 5)]
    whole = len(three.run(words("XREAD STREAMS a b c 0 0 0")))
    for size in range(1, whole + 20):
        raw = three.run(words(f"XREAD MAXSIZE {size} STREAMS a b c 0 0 0"))
        given = [(key, int(one[0][:1])) for key, entries in read(raw) for one in entries]
        assert min(size, whole) <= len(raw) < size + 50
        assert given == order[: len(given)]


def test_entries_beyond_a_limit_are_still_new(three: Bench) -> None:
    """A stream beyond the limit stays unchanged; a group moves past the delivered entries only."""
    three("XREADGROUP", "GROUP", "g", "c", "MAXCOUNT", 5, "STREAMS", "a", "b", "c", ">", ">", ">")
    assert [three("XPENDING", key, "g")[0] for key in "abc"] == [4, 1, 0]
    assert three("XINFO", "CONSUMERS", "c", "g") == []
    reply = three("XREADGROUP", "GROUP", "g", "c", "MAXCOUNT", 5, "STREAMS", "a", "b", "c", ">", ">", ">")
    assert counts(reply) == {b"b": 3, b"c": 2}


def test_limits_include_claimed_and_pending_entries(three: Bench) -> None:
    """Claimed entries count toward the limits, and so do the consumer's pending entries."""
    three("XREADGROUP", "GROUP", "g", "c", "STREAMS", "a", "b", ">", ">")
    reply = three("XREADGROUP", "GROUP", "g", "d", "CLAIM", 0, "MAXCOUNT", 6, "STREAMS", "a", "b", "c", ">", ">", ">")
    assert counts(reply) == {b"a": 4, b"b": 2}
    reply = three("XREADGROUP", "GROUP", "g", "d", "MAXCOUNT", 5, "STREAMS", "a", "b", 0, 0)
    assert counts(reply) == {b"a": 4, b"b": 1}
    reply = three("XREADGROUP", "GROUP", "g", "d", "CLAIM", 0, "MAXSIZE", 60, "STREAMS", "a", "b", ">", ">")
    assert counts(reply) == {b"a": 2}


def test_limits_do_not_change_an_empty_reply(three: Bench) -> None:
    """A reply without entries is null."""
    assert three("XREAD", "MAXCOUNT", 1, "MAXSIZE", 1, "STREAMS", "a", "$") is None


@pytest.mark.parametrize(("options", "refusal"), [
    ("MAXCOUNT 0", "ERR MAXCOUNT must be a positive integer"),
    ("MAXCOUNT -1", "ERR MAXCOUNT must be a positive integer"),
    ("MAXCOUNT x", "ERR MAXCOUNT must be a positive integer"), ("MAXSIZE 0", "ERR MAXSIZE must be a positive integer"),
    ("MAXSIZE x", "ERR MAXSIZE must be a positive integer"),
    ("COUNT 3 MAXCOUNT 2", "ERR MAXCOUNT must be greater than or equal to COUNT"),
])  # fmt: skip
def test_invalid_limits_are_rejected(three: Bench, options: str, refusal: str) -> None:
    """A limit is greater than 0, and MAXCOUNT is at least COUNT."""
    assert three(*f"XREAD {options} STREAMS a 0".split()) == refusal
    assert three(*f"XREADGROUP GROUP g c {options} STREAMS a >".split()) == refusal


@pytest.mark.parametrize("compat", ["7.0", "8.6", "valkey"])
@pytest.mark.parametrize("option", ["MAXCOUNT", "MAXSIZE"])
def test_limits_are_a_syntax_error_before_8_10(compat: str, option: str) -> None:
    """Older servers do not have the options."""
    assert Bench(compat=compat)("XREAD", option, 5, "STREAMS", "s", 0) == SYNTAX
