"""Wrong and odd words in sorted set commands: the answers of four servers, in both protocols."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local, Redis
from tests.judge import PEERS, Judge

LINES = """
ZADD|ZADD k|ZADD k 1|ZADD k NX|ZADD k NX XX 1 a|ZADD k GT LT 1 a|ZADD k GT NX 1 a|ZADD k INCR 1 a 2 b
ZADD k INCR XX 1 zz|ZADD k CH INCR 1 a|ZADD k x a|ZINCRBY k x a|ZINCRBY k nx a|ZINCRBY k incr a|ZRANGE k 0
ZRANGE k a b|ZRANGE k 0 -1 LIMIT 0 1|ZRANGE k 0 -1 LIMIT 0 -1|ZRANGE k 0 -1 LIMIT 0|ZRANGE k [a [b BYLEX WITHSCORES
ZRANGE k 0 -1 BYSCORE BYLEX|ZRANGE k 0 -1 REV REV|ZREVRANGE k 0 -1 REV|ZRANGEBYSCORE k 0 1 BYSCORE
ZRANGEBYLEX k [a [z WITHSCORES|ZRANGESTORE d k 0 -1 WITHSCORES|ZRANGESTORE d k (1 5 BYSCORE LIMIT 1 1
ZRANGE text 0 -1|ZRANGE text a b|ZCOUNT k a b|ZLEXCOUNT k a b|ZLEXCOUNT k - +|ZUNION 0 k|ZUNION -1 k|ZUNION x k
ZUNION 2 k|ZUNION 1 k WEIGHTS|ZUNION 1 k WEIGHTS x|ZUNION 1 k WEIGHTS 1 2|ZUNION 1 k AGGREGATE
ZUNION 1 k AGGREGATE avg|ZUNION 1 text WEIGHTS|ZUNION 1 k WITHSCORES WITHSCORES|ZUNIONSTORE d 1 k WITHSCORES
ZUNIONSTORE d 0 k|ZINTERSTORE d x k|ZDIFF 1 k WEIGHTS 1|ZDIFF 1 k AGGREGATE SUM|ZDIFFSTORE d 1 k WITHSCORES
ZINTERCARD 1 k LIMIT -1|ZINTERCARD 1 k LIMIT x|ZINTERCARD 1 k LIMIT|ZINTERCARD 0 k|ZINTERCARD 1 k WITHSCORES
ZINTERCARD 1 k LIMIT 1 LIMIT 2|ZPOPMIN k 1 2|ZPOPMIN k -1|ZPOPMIN k x|ZPOPMIN text 0|ZPOPMIN no 0|ZMPOP 0 k MIN
ZMPOP x k MIN|ZMPOP 1 k|ZMPOP 1 k MID|ZMPOP 1 k MIN COUNT|ZMPOP 1 k MIN COUNT 0|ZMPOP 1 k MIN COUNT 1 COUNT 2
ZMPOP 9 k MIN|BZMPOP x 1 k MIN|BZMPOP -1 1 k MIN|BZMPOP 1 0 k MIN|BZPOPMIN k x|BZPOPMIN k -1|ZRANDMEMBER k x
ZRANDMEMBER k 1 x|ZRANDMEMBER k 1 WITHSCORES x|ZRANDMEMBER k -9223372036854775808
ZRANDMEMBER k 9223372036854775807 WITHSCORES|ZRANDMEMBER k x y|ZRANDMEMBER text 1|ZRANDMEMBER no|ZRANDMEMBER no 1
ZSCAN k x|ZSCAN k 0 COUNT 0|ZSCAN k 0 COUNT x|ZSCAN k 0 MATCH|ZSCAN no 0 BAD|ZSCAN k 0 BAD 1|ZSCAN k 0 NOVALUES
ZSCAN k 0 NOSCORES|SCAN 0 NOSCORES|SSCAN k 0 NOSCORES|ZSCAN k 0 COUNT 1 NOSCORES MATCH a|ZSCAN text 0|ZRANK k a b
ZRANK k a WITHSCORE|ZRANK no a WITHSCORE|ZRANK k zz WITHSCORE|ZRANK k a WITHSCORE x|ZREVRANK k|ZMSCORE no a b
ZMSCORE text a|ZREMRANGEBYRANK k a b|ZREMRANGEBYRANK no a b|ZREMRANGEBYSCORE k a b|ZREMRANGEBYLEX k a b|ZREM text a
ZCARD text|ZSCORE text a|ZADD text 1 a|ZADD text XX 1 a|OBJECT ENCODING k|COMMAND GETKEYS ZUNIONSTORE d 2 a b
COMMAND GETKEYS ZMPOP 2 a b MIN|COMMAND GETKEYS ZUNION 2 a b|COMMAND GETKEYS BZMPOP 0 1 a MIN
COMMAND GETKEYS ZRANGESTORE a b 0 1|COMMAND GETKEYS ZUNION 5 a b|COMMAND GETKEYSANDFLAGS ZUNIONSTORE d 2 a b
COMMAND GETKEYSANDFLAGS ZADD k 1 a
"""
# As scores and as ends of ranges: the servers have readers of their own.
NUMBERS = (
    b"1", b"+1", b"-1", b"inf", b"+inf", b"-inf", b"Infinity", b"INF", b"nan", b"-nan", b".5", b"+.5", b"5.", b"0x1p3",
    b"-0x1", b"1e400", b"-1e400", b"2e308", b"1e-400", b"1e-330", b"1e-342", b"1e-343", b"5e-324", b"1e-324",
    b"3e-324", b" 1", b"1 ", b"", b"abc", b"1e", b"1e+", b"0x", b"infin", b"1\0", b"1\0abc", b"\0", b"--1", b"1,5",
    b"1_0", b"0x1p5000", b"-0", b"123456789012345678901234567890", b"0e999999999", b"1e99999999999", b"\t1", b".",
    b"+", b"-", b"e5", b"1E5", b"nan(1)", b"0" * 30 + b"1", b"1" * 400, b"0." + b"0" * 400 + b"1",
    b"17976931348623157e292", b"17976931348623159e292",
)  # fmt: skip


def ask(local: Local, redis: Redis, line: bytes | list[bytes]) -> None:
    argv = line.split() if isinstance(line, bytes) else line
    assert local.run(argv) == redis.run(argv)[0], argv


@pytest.mark.parametrize("compat", PEERS)
@pytest.mark.parametrize("resp", [2, 3])
def test_replies_equal_those_of_the_server(peer_of: Callable[[str], Judge], compat: str, resp: int) -> None:
    local = Local(Engine(Settings(compat=compat)), resp)
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"HELLO", b"%d" % resp], [b"FLUSHALL"])
        for line in ("SET text x|ZADD k 1 a 2 b 3.5 c" + LINES.replace("\n", "|")).split("|"):
            if line:
                ask(local, redis, line.encode())


@pytest.mark.parametrize("compat", PEERS)
def test_numbers_are_parsed_as_the_server_parses_them(peer_of: Callable[[str], Judge], compat: str) -> None:
    local = Local(Engine(Settings(compat=compat)))
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"FLUSHALL"])
        ask(local, redis, b"ZADD ends -inf a -1 b 0 c 1 d 8 e inf f")
        for number in NUMBERS:
            ask(local, redis, [b"DEL", b"k"])
            ask(local, redis, [b"ZADD", b"k", number, b"m"])
            ask(local, redis, b"ZSCORE k m")
            ask(local, redis, [b"ZUNION", b"1", b"ends", b"WEIGHTS", number, b"WITHSCORES"])
            for end in (number, b"(" + number):
                ask(local, redis, [b"ZRANGEBYSCORE", b"ends", end, b"inf"])
                ask(local, redis, [b"ZCOUNT", b"ends", b"-1", end])
