"""Errors of the stream commands: the texts, and which of two faults is reported, as on a real server."""

from __future__ import annotations

import pytest

from tests.differential.wire import Local, Redis
from tests.judge import Judge

MAX = "18446744073709551615"

SETUP = [
    "SET text x", "XADD s 1-1 f v", "XADD s 2-1 f v g 7", "XADD s 3-1 f v", "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g c COUNT 2 STREAMS s >", f"XADD full {MAX}-{MAX} f v", f"XADD seqs 5-{MAX} f v",
]  # fmt: skip

COMMANDS = [
    # the options of a trim, alone and against each other
    "XADD s MAXLEN x * f v", "XADD s MAXLEN -1 * f v", "XADD s MAXLEN ~ * f v", "XADD s MAXLEN 5 MINID 5 * f v",
    "XADD s MAXLEN 5 LIMIT 5 9-1 f v", "XADD s MAXLEN = 5 LIMIT 5 9-1 f v", "XADD s LIMIT 5 9-1 f v",
    "XADD s LIMIT 0 9-0 f", "XADD s MAXLEN ~ 5 LIMIT -1 9-1 f v", "XADD s MAXLEN ~ 5 LIMIT x 9-1 f v",
    "XADD s MINID - 9-1 f v", "XTRIM s MAXLEN", "XTRIM s MAXLEN 5 LIMIT 5", "XTRIM s LIMIT 5 x",
    "XTRIM s LIMIT 0 LIMIT", "XTRIM s LIMIT 3 LIMIT 3", "XTRIM s LIMIT 0 LIMIT 0", "XTRIM s MAXLEN 5 x",
    "XTRIM text MAXLEN x", "XTRIM text MAXLEN 1", "XTRIM no MAXLEN 1", "XTRIM s MAXLEN 99 NOMKSTREAM",
    "XTRIM s MINID x", "XTRIM s MINID ~ 0 LIMIT 5", "XTRIM s * MAXLEN 5",
    # the ID and the fields of an XADD
    "XADD s 1-1 f v", "XADD s 0-0 f v", "XADD s 0 f v", "XADD s x f v", "XADD s - f v", "XADD s + f v",
    "XADD s 3-* f", "XADD s 2-* f v", "XADD s *-1 f v", "XADD s 1-1-1 f v", f"XADD s {MAX}0-1 f v",
    "XADD s 9-1 f v g", "XADD text 9-1 f v g", "XADD text 0-0 f v", "XADD text 9-1 f v", "XADD no NOMKSTREAM 9-1 f v",
    "XADD no 0-0 f v", "XADD full * f v", "XADD full 9-1 f v", "XADD text NOMKSTREAM 9-1 f v",
    "XADD s NOMKSTREAM NOMKSTREAM MAXLEN", "XADD s maxlen = 3 nomkstream",
    # ranges
    "XRANGE s - + COUNT", "XRANGE s - + COUNT x", "XRANGE s - + COUNT 0", "XRANGE no - + COUNT 0",
    "XRANGE s - + COUNT -5", "XRANGE s - + COUNT 1 COUNT 2", "XRANGE s - + LIMIT 1", "XRANGE text x +",
    "XRANGE text - +", "XRANGE s (- +", "XRANGE s ( +", f"XRANGE s ({MAX}-{MAX} x", "XRANGE s - (0-0",
    "XREVRANGE s (0 x", f"XREVRANGE s x ({MAX}-{MAX}", "XREVRANGE s + -", "XRANGE s (1-1 (3-1", "XRANGE s (1 (3",
    "XRANGE s 3 1", "XLEN text", "XLEN no", "XLEN", "XLEN s s",
    # reading
    "XREAD STREAMS s", "XREAD COUNT 1 STREAMS", "XREAD STREAMS s t 0", "XREAD COUNT x STREAMS s 0",
    "XREAD COUNT 0 STREAMS s 0", "XREAD GROUP g c STREAMS s 0", "XREAD NOACK STREAMS s 0", "XREAD STREAMS s >",
    "XREAD STREAMS text x", "XREAD STREAMS s x", "XREAD BLOCK x STREAMS s 0", "XREAD BLOCK -1 STREAMS s 0",
    "XREAD STREAMS s no text 0 0 0", "XREAD STREAMS s s 0 2", "XREAD COUNT 1 s 0", "XREAD GROUP g STREAMS s 0",
    "XREAD STREAMS s -", f"XREAD STREAMS s {MAX}-{MAX}", "XREAD STREAMS no $", "XREADGROUP COUNT 1 STREAMS s s > >",
    "XREADGROUP GROUP g c STREAMS s $", "XREADGROUP GROUP g c STREAMS s x", "XREADGROUP GROUP no c STREAMS s x",
    "XREADGROUP GROUP g c STREAMS no >", "XREADGROUP GROUP g c STREAMS text >",
    "XREADGROUP GROUP g c COUNT 1 STREAMS s", "XREADGROUP GROUP g c STREAMS s s 0",
    "XREADGROUP GROUP g new STREAMS s 0", "XREADGROUP GROUP g c NOACK COUNT 0 STREAMS s 0",
    "XREADGROUP GROUP a b GROUP g c STREAMS s 0", f"XREADGROUP GROUP g c STREAMS s {MAX}-{MAX}",
    # groups
    "XGROUP", "XGROUP no", "XGROUP no s g", "XGROUP CREATE s g 0", "XGROUP CREATE s h x", "XGROUP CREATE s h - ",
    "XGROUP CREATE no g $", "XGROUP CREATE text g $", "XGROUP CREATE text g $ x", "XGROUP CREATE s h 0 ENTRIESREAD",
    "XGROUP CREATE s h 0 ENTRIESREAD x", "XGROUP CREATE s h 0 ENTRIESREAD -2",
    "XGROUP CREATE s h 0 MKSTREAM MKSTREAM MKSTREAM MKSTREAM", "XGROUP CREATE no g x MKSTREAM",
    "XGROUP CREATE s g 0 ENTRIESREAD 1 ENTRIESREAD 2", "XGROUP SETID s no 0", "XGROUP SETID no g 0",
    "XGROUP SETID s g x", "XGROUP SETID s g 0 MKSTREAM", "XGROUP SETID s g 0 ENTRIESREAD 1 ENTRIESREAD 2",
    "XGROUP SETID s g 0 ENTRIESREAD", "XGROUP SETID s no x ENTRIESREAD -5", "XGROUP DESTROY s no",
    "XGROUP DESTROY no g", "XGROUP DESTROY text g", "XGROUP CREATECONSUMER s no c", "XGROUP CREATECONSUMER no g c",
    "XGROUP CREATECONSUMER s g c", "XGROUP DELCONSUMER s g no", "XGROUP DELCONSUMER s no c",
    "XGROUP DELCONSUMER text g c", "XGROUP HELP", "xgroup help", "XGROUP HELP x", "XINFO HELP", "xinfo hElP",
    "XACK s g x", "XACK s no x", "XACK no g x", "XACK text g x", "XACK s g", "XACK s g 1-1 x", "XACK s g 2",
    "XACK s g 1-1 1-1",
    # pending
    "XPENDING s no", "XPENDING no g", "XPENDING text g", "XPENDING s g -", "XPENDING s g - +", "XPENDING s g - + x",
    "XPENDING s g x + x", "XPENDING s g x + 1", "XPENDING s g - x 1", "XPENDING no g - + -1", "XPENDING s g - + 0",
    "XPENDING s g - + 1 no", "XPENDING s g IDLE x - + 1", "XPENDING s g IDLE 1 - +", "XPENDING s g IDLE 1 - + 1 c x",
    "XPENDING s g (0-0 (0-0 5", f"XPENDING s g ({MAX}-{MAX} + 5", "XPENDING s g - + 0 c x", "XPENDING text g x + 1",
    # claiming
    "XCLAIM s g c x 1-1", "XCLAIM s no c x 1-1", "XCLAIM text g c x 1-1", "XCLAIM s g c 0 x", "XCLAIM s g c 0 1-1 x",
    "XCLAIM s g c 0 1-1 IDLE", "XCLAIM s g c 0 1-1 IDLE x", "XCLAIM s g c 0 1-1 TIME x",
    "XCLAIM s g c 0 1-1 RETRYCOUNT x", "XCLAIM s g c 0 1-1 LASTID x", "XCLAIM s g c 0 1-1 LASTID",
    "XCLAIM s g c 0 FORCE", "XCLAIM s g c 0 1-1 FORCE 2-1", "XCLAIM s g d 0 1-1 JUSTID RETRYCOUNT 5",
    "XCLAIM s g d 0 3-1 FORCE", "XCLAIM s g d 0 9-9 FORCE", "XCLAIM s g d -5 2-1", "XAUTOCLAIM s g c x x",
    "XAUTOCLAIM s g c 0 x", "XAUTOCLAIM s g c 0 - COUNT", "XAUTOCLAIM s g c 0 - COUNT 0",
    "XAUTOCLAIM s g c 0 - COUNT -1", "XAUTOCLAIM s g c 0 - COUNT x", "XAUTOCLAIM s g c 0 - COUNT 9223372036854775807",
    "XAUTOCLAIM s g c 0 - COUNT 576460752303423488", "XAUTOCLAIM s g c 0 - COUNT 576460752303423487",
    "XAUTOCLAIM no g c 0 - COUNT 576460752303423487", "XAUTOCLAIM s no c 0 -", "XAUTOCLAIM text g c 0 -",
    "XAUTOCLAIM s g c 0 - JUSTID x", f"XAUTOCLAIM s g c 0 ({MAX}-{MAX}", "XAUTOCLAIM s g c 0 - COUNT 1 JUSTID",
    "XAUTOCLAIM s g c 0 +",
    # the rest
    "XDEL s x", "XDEL s 1-1 x", "XDEL text x", "XDEL no x", "XDEL s", "XDEL s 9-9", "XSETID s x", "XSETID no 1",
    "XSETID text 1-1", "XSETID s 1-1", "XSETID s 9-9 ENTRIESADDED -1", "XSETID s 9-9 ENTRIESADDED 1",
    "XSETID s 9-9 ENTRIESADDED x", "XSETID s 9-9 MAXDELETEDID 10-1", "XSETID s 9-9 MAXDELETEDID x",
    "XSETID s 9-9 ENTRIESADDED", "XSETID s 9-9 x y", "XSETID no 9-9 MAXDELETEDID 10-1", "XINFO", "XINFO no",
    "XINFO no s", "XINFO STREAM", "XINFO STREAM no", "XINFO STREAM text", "XINFO STREAM s x", "XINFO STREAM s FULL x",
    "XINFO STREAM s FULL COUNT", "XINFO STREAM s FULL COUNT x", "XINFO STREAM s FULL x 1", "XINFO STREAM s x COUNT 1",
    "XINFO STREAM s FULL COUNT 1 2", "XINFO STREAM no FULL COUNT x", "XINFO GROUPS", "XINFO GROUPS no",
    "XINFO GROUPS text", "XINFO GROUPS s s", "XINFO CONSUMERS s", "XINFO CONSUMERS s no", "XINFO CONSUMERS no g",
    "XINFO CONSUMERS text g", "XINFO STREAM s", "XINFO GROUPS s", "xinfo stream s fulL counT 0 x",
]  # fmt: skip


@pytest.mark.parametrize("resp", [2, 3])
def test_the_errors_are_those_of_redis(judge: Judge, resp: int) -> None:
    """Every command of the list, in this order, gives the same reply on both sides."""
    local = Local(resp=resp)
    with Redis(judge.port) as redis:
        redis.run([b"FLUSHALL"], [b"HELLO", b"%d" % resp])
        for text in [*SETUP, *COMMANDS]:
            argv = [word.encode() for word in text.split(" ")]
            assert local.run(argv) == redis.run(argv)[0], text


def test_an_exhausted_millisecond_is_an_id_that_is_too_small() -> None:
    """`ms-*` is rejected if the last sequence number of that millisecond is used.

    Redis 7.0 chooses between this error and the one about too large elements by an old errno; 7.2 always replies this.

    """
    local = Local()
    local("XADD", "s", f"5-{MAX}", "f", "v")
    refusal = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
    assert local("XADD", "s", "5-*", "f", "v") == refusal
    assert local("XADD", "s", "6-*", "f", "v") == b"6-0"


def test_a_rejected_xadd_creates_no_key() -> None:
    """A rejected command does not leave an empty stream."""
    local = Local()
    for words in (["0-0", "f", "v"], ["x", "f", "v"], ["1-1", "f"], ["MAXLEN", "x", "1-1", "f", "v"]):
        local("XADD", "new", *words)
        assert local("EXISTS", "new") == 0


def test_ids_increase_even_if_the_clock_is_set_back() -> None:
    """If the last ID is in the future, `*` increments its sequence number, and after the last one its milliseconds."""
    local = Local()
    local("XADD", "s", f"99999999999999-{int(MAX) - 1}", "f", "v")
    assert local("XADD", "s", "*", "f", "v") == f"99999999999999-{MAX}".encode()
    assert local("XADD", "s", "*", "f", "v") == b"100000000000000-0"


@pytest.mark.parametrize(
    ("words", "touched"),
    [
        ("XADD s 9-1 f v", True), ("XTRIM s MAXLEN 1", True), ("XDEL s 1-1", True), ("XDEL s 8-8", False),
        ("XSETID s 9-1", False), ("XGROUP CREATE s h 0", False), ("XGROUP CREATE new h 0 MKSTREAM", True),
        ("XGROUP SETID s g 0", False), ("XGROUP DESTROY s g", False), ("XACK s g 1-1", False),
        ("XREADGROUP GROUP g c STREAMS s >", False), ("XCLAIM s g d 0 1-1", False), ("XAUTOCLAIM s g d 0 0", False),
        ("XGROUP CREATECONSUMER s g e", False), ("XGROUP DELCONSUMER s g c", False), ("XTRIM s MAXLEN 99", False),
    ],
)  # fmt: skip
def test_only_changes_of_entries_touch_watched_keys(judge: Judge, words: str, touched: bool) -> None:
    """A transaction that watches the key fails after the same commands as on Redis."""
    local = Local()
    with Redis(judge.port) as redis:
        redis.run([b"FLUSHALL"])
        for run in (local.run, lambda argv: redis.run(argv)[0]):
            for text in [*SETUP[:6], "WATCH s new", words, "MULTI", "PING"]:
                assert not run([word.encode() for word in text.split()]).startswith(b"-"), text
            assert (run([b"EXEC"]) == b"*-1\r\n") == touched
