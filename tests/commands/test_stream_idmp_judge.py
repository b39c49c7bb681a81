"""IDMP compared with real servers: random commands, every reply, what XINFO shows, and the final payload.

Both streams begin at an ID in the far future, so that `*` makes the same IDs on both sides and nothing expires. No
addition fails after its options are read: the cron would remove the producer that it created, at an unknown time.

"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.commands.ends import Bench
from tests.differential.wire import Redis
from tests.judge import Judge

AHEAD = 2**50


def _command(source: random.Random) -> list[bytes]:
    key = source.choice((b"s", b"s", b"t"))
    producer = source.choice((b"p", b"p", b"q", b"7", b"", b"long" * 20))
    message = source.choice((b"%d" % source.randrange(20), b"", b"\0binary\xff", b"i" * 70))
    pairs = [word for _ in range(source.choice((1, 1, 2))) for word in (source.choice((b"a", b"b", b"")), message)]
    at = source.choice((b"*", b"*", b"*", b"*", b"%d-*" % AHEAD, b"%d" % (AHEAD + 5), b"x", b"*x"))
    trim = source.choice(((), (), (b"MAXLEN", b"5"), (b"NOMKSTREAM",), (b"KEEPREF",), (b"MAXLEN", b"=", b"20")))
    idmp = source.choice(((b"IDMP", producer, message), (b"idmpauto", producer), (b"IDMP", producer), ()))
    entry = b"%d-%d" % (AHEAD, source.randrange(40))
    value = source.choice((b"0", b"1", b"3", b"100", b"86400", b"86401", b"10001", b"x"))
    return source.choices(
        (
            [b"XADD", key, *trim, *idmp, at, *pairs],
            [b"XADD", key, *idmp, *trim, at, *pairs],
            [b"XADD", key, *idmp, *idmp, at, *pairs[: source.randrange(4)]],
            [b"XIDMPRECORD", key, producer, message, source.choice((entry, b"%d" % AHEAD, b"5-*", b"-"))],
            [b"XCFGSET", key, *source.choice(((), (b"IDMP-MAXSIZE", value), (b"idmp-duration", value), (b"X", b"1"),
                                              (b"IDMP-MAXSIZE", b"2", b"IDMP-MAXSIZE", b"2"), (b"IDMP-MAXSIZE",)))],
            [b"XDEL", key, entry],
            [b"COPY", b"s", b"t", b"REPLACE"],
            [b"XINFO", b"STREAM", key, *source.choice(((), (b"FULL",)))],
        ),
        (40, 20, 5, 20, 4, 8, 3, 15),
    )[0]


@pytest.mark.parametrize("compat", ["8.6", "newest"])
@pytest.mark.parametrize("seed", range(8))
def test_random_idmp_commands_match_a_server(compat: str, seed: int, peer_of: Callable[[str], Judge]) -> None:
    source = random.Random(seed)
    ours = Bench(compat=compat, dump_format="native")
    with Redis(peer_of(compat).port) as theirs:
        theirs.run([b"FLUSHALL"])
        for number in range(600):
            argv = _command(source)
            if number < 2:
                argv = [b"XADD", (b"s", b"t")[number], b"%d-0" % AHEAD, b"a", b"b"]
            assert ours.run(argv) == theirs.run(argv)[0], (number, argv)
        for key in (b"s", b"t"):
            argv = [b"DUMP", key]
            assert ours.run(argv) == theirs.run(argv)[0]
