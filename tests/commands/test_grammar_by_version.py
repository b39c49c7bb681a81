"""Option grammars that differ between versions: what each server accepts, and its texts, measured with the servers.

The random comparison with the servers themselves: tests/differential/test_grammar_differential.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rillet.types.compat import COMPATS
from tests.commands.ends import Bench
from tests.differential.wire import Redis
from tests.judge import PEERS, Judge

MISPLACED = "ERR Mandatory argument FIELDS is missing or not at the right position"
MISMATCH = "ERR The `numfields` parameter must match the number of arguments"
FEW = "ERR wrong number of arguments"
FEW_HGETEX = "ERR wrong number of arguments for 'hgetex' command"
FEW_HSETEX = "ERR wrong number of arguments for 'hsetex' command"
GREATER = "ERR Parameter `numFields` should be greater than 0"
INVALID = "ERR invalid number of fields"
ONE_TIME = "ERR Only one of EX, PX, EXAT, PXAT or {} arguments can be specified"

# A call on the hash {a: 1, b: 2} -> the reply of 7.4 to 8.2, and of 8.6 and newer.
HEXPIRE: dict[str, tuple[object, object]] = {
    "HEXPIRE h 100 FIELDS 1 a NX": (MISMATCH, [1]),
    "HEXPIRE h 100 NX FIELDS 1 a": ([1], [1]),
    "HEXPIRE h 100 NX XX FIELDS 1 a": (MISPLACED, "ERR Multiple condition flags specified"),
    "HEXPIRE h 100 FIELDS 2 a": (MISMATCH, FEW),
    "HEXPIRE h 100 FIELDS 0 a": (GREATER, GREATER),
    "HEXPIRE h 100 FIELD 1 a": (MISPLACED, "ERR unknown argument: FIELD"),
    "HEXPIRE h 100 FIELDS 1 a b": (MISMATCH, "ERR unknown argument: b"),
    "HEXPIRE h 100 FIELDS 1 a FIELDS 1 b": (MISMATCH, "ERR FIELDS keyword specified multiple times"),
    "HEXPIREAT h 4000000000 bogus FIELDS 1 a": (MISPLACED, "ERR unknown argument: bogus"),
    "HPEXPIRE h 100000 XX GT FIELDS 1 a": (MISPLACED, "ERR Multiple condition flags specified"),
    "HPEXPIREAT h 4000000000000 FIELDS 1 a LT": (MISMATCH, [1]),
}
# The same for the commands of 8.0.
HGETEX_AND_HSETEX: dict[str, tuple[object, object]] = {
    "HGETEX h FIELDS 1 a EX 50": (MISMATCH, [b"1"]),
    "HGETEX h EX 50 FIELDS 1 a": ([b"1"], [b"1"]),
    "HGETEX h EX 50 PERSIST FIELDS 1 a": (MISPLACED, ONE_TIME.format("PERSIST")),
    "HGETEX h KEEPTTL FIELDS 1 a": (MISPLACED, "ERR unknown argument"),
    "HGETEX h EX 50 FIELDS 1": (MISMATCH, FEW),
    "HGETEX h EX 50 FIELDS": (FEW_HGETEX, FEW_HGETEX),
    "HGETEX h EX 50 FIELDS 0 a": ("ERR Number of fields must be a positive integer", INVALID),
    "HSETEX h FIELDS 1 b 9 EX 100": (FEW_HSETEX, 1),
    "HSETEX h EX 100 FIELDS 1 b 9": (1, 1),
    "HSETEX h EX 100 EX 100 FIELDS 1 b 9": (ONE_TIME.format("KEEPTTL"), ONE_TIME.format("KEEPTTL")),
    "HSETEX h PERSIST FIELDS 1 b 9": ("ERR unknown argument: PERSIST", "ERR unknown argument"),
    "HSETEX h FIELDS 2 b 9": (FEW_HSETEX, FEW),
    "HSETEX h FIELDS 1 b 9 c": (FEW_HSETEX, "ERR unknown argument: c"),
    "HSETEX h FIELDS 0 b 9": (INVALID, INVALID),
    "HSETEX h EX 1 FNX FIELDS": (FEW_HSETEX, FEW_HSETEX),
}


@pytest.mark.parametrize("compat", ["7.4", "8.0", "8.2", "8.6"])
def test_options_of_fields_that_expire(compat: str) -> None:
    newer = COMPATS[compat].knows(86)
    for line, replies in {**HEXPIRE, **(HGETEX_AND_HSETEX if compat != "7.4" else {})}.items():
        bench = Bench(compat=compat)
        bench("HSET", "h", "a", 1, "b", 2)
        assert bench(*line.split()) == replies[newer], line
        bench.engine.check()


# Cursor -> whether 7.2 and older, and 7.4, newer and Valkey, accept it.
CURSORS = {
    b"": (True, False), b"-5": (True, False), b"-05": (True, True), b" 1": (False, True), b"+1": (True, True),
    b" ": (False, False), b"1\0x": (True, True), b"18446744073709551615": (True, True),
    b"18446744073709551616": (False, False), b"-9223372036854775808": (True, False),
    b"-9223372036854775809": (True, True), b"007": (True, True), b"-": (False, False), b" -7": (False, True),
    b"-0": (True, True),
}  # fmt: skip


@pytest.mark.parametrize("compat", COMPATS)
def test_cursors(compat: str) -> None:
    bench, newer = Bench(compat=compat), COMPATS[compat].knows(74) or COMPATS[compat].valkey
    for cursor, accepted in CURSORS.items():
        for line in ([b"SCAN", cursor], [b"HSCAN", b"missing", cursor]):
            assert (bench.run(line)[:1] == b"*") is accepted[newer], line


@pytest.mark.parametrize("compat", COMPATS)
def test_the_unit_of_bitcount(compat: str) -> None:
    """Valkey parses the unit before the end."""
    bench = Bench(compat=compat)
    bench("SET", "k", "hello")
    number, syntax = "ERR value is not an integer or out of range", "ERR syntax error"
    assert bench("BITCOUNT", "k", 1, "x", 2) == (syntax if compat == "valkey" else number)
    assert bench("BITCOUNT", "k", 1, "x", "BYTE") == bench("BITCOUNT", "k", "x", 2, "z") == number
    assert bench("BITCOUNT", "k", 1, 2, "x") == syntax


@pytest.mark.parametrize("compat", COMPATS)
def test_a_missing_key_hides_errors_of_a_range(compat: str) -> None:
    """Until 7.2, BITCOUNT and BITPOS look for the key first."""
    bench = Bench(compat=compat)
    hides = compat in ("7.0", "7.2")
    number = "ERR value is not an integer or out of range"
    assert bench("BITCOUNT", "missing", "x", 1) == (0 if hides else number)
    assert bench("BITPOS", "missing", 1, "x") == (-1 if hides else number)


@pytest.mark.parametrize("compat", COMPATS)
def test_a_negative_offset_of_a_limit(compat: str) -> None:
    """The skiplists of 7.4, 8.0 and Valkey count it from the end of the range."""
    bench = Bench(compat=compat, zset_max_listpack_entries=0)
    bench("ZADD", "z", 1, "a", 2, "b", 3, "c")
    expected = [b"c"] if compat in ("7.4", "8.0", "valkey") else []
    assert bench("ZRANGE", "z", 1, 3, "BYSCORE", "LIMIT", -1, 5) == expected
    assert bench("ZRANGEBYLEX", "z", "-", "+", "LIMIT", -1, 5) == expected


@pytest.mark.parametrize("compat", COMPATS)
def test_nodes_of_lists(compat: str) -> None:
    """Until 7.2, an element of up to 1 GiB is in a listpack, and SORT ... STORE makes nodes of the default size."""
    bench = Bench(compat=compat, list_max_listpack_size=4)
    bench("RPUSH", "large", "x" * 9000)
    bench("RPUSH", "source", *range(9))
    bench("SORT", "source", "STORE", "sorted")
    old = compat in ("7.0", "7.2")
    large, stored = (bench.session.db.peek(key) for key in (b"large", b"sorted"))
    assert large.elements.head.is_plain() is not old
    assert stored.elements.nodes == (1 if old else 3)
    bench.engine.check()


@pytest.mark.parametrize("compat", COMPATS)
def test_arities_that_grew(compat: str) -> None:
    """COMMAND GETKEYS of a single word, and ZRANK with an option, have wrong numbers of arguments in 7.0."""
    bench = Bench(compat=compat)
    bench("ACL", "SETUSER", "u", "on", "+@all", "~*")
    few = "ERR wrong number of arguments for '{}' command"
    old = compat == "7.0"
    for name in ("GETKEYS", "GETKEYSANDFLAGS"):
        expected = few.format(f"command|{name.lower()}") if old else b"OK"
        assert bench("ACL", "DRYRUN", "u", "COMMAND", name, "PING") == expected
    assert bench("ACL", "DRYRUN", "u", "ZRANK", "a", "b", "c") == (few.format("zrank") if old else b"OK")
    by_script = str(bench("EVAL", "return redis.call('ZRANK', 'z', 'a', 'b')", 0))
    expected = "ERR Wrong number of args calling Redis command from script" if old else "ERR syntax error"
    assert by_script.startswith(expected)
    keys = bench("COMMAND", "GETKEYS", "ZRANK", "a", "b", "c")
    assert keys == ("ERR Invalid number of arguments specified for command" if old else [b"a"])
    assert bench("COMMAND", "GETKEYS", "config|get", "x") == "ERR Invalid command specified"


@pytest.mark.parametrize("compat", COMPATS)
def test_words_that_valkey_ignores(compat: str) -> None:
    bench = Bench(compat=compat)
    reply = bench("CLIENT", "UNBLOCK", 9, "ERROR", "x")
    assert (reply == 0) is (compat == "valkey")
    assert reply == 0 or str(reply).startswith("ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'")


@pytest.mark.parametrize("compat", PEERS)
def test_the_servers_agree(peer_of: Callable[[str], Judge], compat: str) -> None:
    """The servers give the replies of the tables above."""
    with Redis(peer_of(compat).port) as redis:
        bench = Bench(compat=compat)
        for line in (*HEXPIRE, *HGETEX_AND_HSETEX):
            for argv in ([b"DEL", b"h"], [b"HSET", b"h", b"a", b"1", b"b", b"2"], line.encode().split()):
                assert bench.run(argv) == redis.run(argv)[0], line
        for cursor in CURSORS:
            argv = [b"HSCAN", b"missing", cursor]
            assert bench.run(argv) == redis.run(argv)[0], cursor
