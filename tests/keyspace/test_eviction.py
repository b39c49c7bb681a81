"""Eviction: the pool, the policies, OOM, the log, and streams that are trimmed (keyspace/eviction.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rillet import compiled
from rillet.keyspace.clock import ManualClock
from rillet.keyspace.eviction import FAIL, OK, RUNNING, Eviction, time_limit
from rillet.protocol.command_parser import CommandParser, pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.pause import PAUSE_WRITES
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS
from tests.variants import by_speed

POLICIES = (
    "allkeys-lru", "allkeys-lfu", "allkeys-random", "allkeys-lrm", "volatile-lru", "volatile-lfu", "volatile-random",
    "volatile-ttl", "volatile-lrm",
)  # fmt: skip


class Log:
    """A log that keeps the commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, list[bytes]]] = []

    def append(self, db: int, argv: list[bytes]) -> None:
        self.commands.append((db, argv))

    def flush(self) -> None:
        return


class Client:
    """A session of an engine in memory."""

    def __init__(self, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock(1_700_000_000_000)
        self.engine = Engine(Settings(**settings), self.clock)
        self.session = self.engine.session()

    def __call__(self, *words: object) -> bytes:
        self.engine.execute(self.session, [w if isinstance(w, bytes) else str(w).encode() for w in words])
        return bytes(self.session.out.hand_over())

    def names(self) -> set[bytes]:
        return set(self.session.db.keys)

    def limit_above_used(self, extra: int, policy: str) -> int:
        limit = self.engine.used_memory() + extra
        assert self("CONFIG", "SET", "maxmemory", limit, "maxmemory-policy", policy) == b"+OK\r\n"
        return limit


ENTRIES = by_speed(20_000, 4000)
MANY = by_speed(3000, 600)
OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


@pytest.mark.parametrize("policy", POLICIES)
def test_only_allowed_keys_are_evicted_and_the_data_ends_below_the_limit(policy: str) -> None:
    client = Client()
    for number in range(400):
        client("SET", f"keep:{number}", "x" * 50)
    client("SELECT", 1)
    for number in range(100):
        client("SET", f"other:{number}", "x" * 50, "EX", 100_000)
    client("SELECT", 0)
    limit = client.limit_above_used(by_speed(200_000, 40_000), policy)
    for number in range(MANY):
        client.clock.advance(100)
        assert client("SET", f"key:{number}", "y" * 200, "EX", 100_000 + number) == b"+OK\r\n"
    client("PING")
    assert client.engine.used_memory() <= limit
    assert client.engine.eviction.evicted_keys > MANY // 2
    if policy.startswith("volatile"):
        assert sum(key.startswith(b"keep:") for key in client.names()) == 400
    client.engine.check()


@pytest.mark.parametrize("seed", range(6))
def test_random_commands_keep_the_account_and_the_limit(seed: int) -> None:
    dice = random.Random(seed)
    policy = dice.choice(POLICIES)
    client = Client(maxmemory_streams=dice.choice(("evict", "trim")), lazyfree_lazy_eviction=dice.random() < 0.5)
    limit = client.limit_above_used(150_000, policy)
    makers: tuple[Callable[[str], tuple[object, ...]], ...] = (
        lambda key: ("SET", key, "v" * dice.randrange(400)),
        lambda key: ("APPEND", key, "a" * dice.randrange(100)),
        lambda key: ("RPUSH", key, *("e" * dice.randrange(1, 300) for _ in range(dice.randrange(1, 8)))),
        lambda key: ("LPOP", key, dice.randrange(1, 4)),
        lambda key: ("HSET", key, dice.randrange(300), "h" * dice.randrange(100)),
        lambda key: ("HDEL", key, dice.randrange(300)),
        lambda key: ("SADD", key, *(dice.randrange(1000) for _ in range(6))),
        lambda key: ("ZADD", key, dice.random(), f"m{dice.randrange(400)}"),
        lambda key: ("XADD", key, "*", "f", "x" * dice.randrange(80)),
        lambda key: ("XTRIM", key, "MAXLEN", dice.randrange(50)),
        lambda key: ("EXPIRE", key, dice.randrange(1000, 9000)),
        lambda key: ("RENAME", key, f"k{dice.randrange(60)}"),
        lambda key: ("COPY", key, f"k{dice.randrange(60)}", "REPLACE"),
        lambda key: ("MOVE", key, 1),
        lambda key: ("SWAPDB", 0, 1),
        lambda key: ("DEL", key),
        lambda key: ("UNLINK", key),
    )
    weights = [8] * 13 + [2, 0.2, 2, 2]
    for step in range(by_speed(1500, 300, 3000)):
        key = f"k{dice.randrange(60)}"
        client.clock.advance(dice.randrange(1000))
        client(*dice.choices(makers, weights)[0](key))
        if step % 300 == 0:
            client.engine.check()
    client("PING")
    client.engine.check()
    assert client.engine.eviction.counted() <= limit or policy.startswith("volatile")
    client("FLUSHALL")
    assert client.engine.databases[0].ledger.total == 0


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
def test_commands_that_need_memory_fail_if_no_key_may_be_evicted(policy: str) -> None:
    client = Client()
    client("SET", "a", "x" * 50_000)
    client("RPUSH", "list", "1", "2")
    client.limit_above_used(-20_000, policy)
    assert client("SET", "b", "1") == OOM
    assert client("XADD", "s", "*", "f", "v") == OOM
    assert client("GET", "a") == b"$50000\r\n" + b"x" * 50_000 + b"\r\n"
    assert client("LPOP", "list") == b"$1\r\n1\r\n"
    assert client("DEL", "a") == b":1\r\n"
    assert client("SET", "b", "1") == b"+OK\r\n"
    client.engine.check()


def test_a_transaction_fails_if_one_of_its_commands_needs_memory() -> None:
    client = Client()
    client("SET", "a", "x" * 1000)
    client("MULTI")
    client("SET", "b", "1")
    client.engine.session()
    other = Client.__new__(Client)
    other.engine, other.clock, other.session = client.engine, client.clock, client.engine.session()
    other.limit_above_used(-500, "noeviction")
    assert client("EXEC") == b"-EXECABORT Transaction discarded because of: " + OOM[1:]
    assert client("MULTI") == b"+OK\r\n"
    assert client("GET", "a") == OOM  # queueing needs memory
    assert client("DISCARD") == b"+OK\r\n"
    client("CONFIG", "SET", "maxmemory", 0)
    client("MULTI")
    client("GET", "a")
    other.limit_above_used(-500, "noeviction")
    assert client("EXEC").startswith(b"*1\r\n$1000\r\n")


@pytest.mark.parametrize(("lazy", "name"), [("no", b"DEL"), ("yes", b"UNLINK")])
def test_evictions_are_logged_published_and_counted(lazy: str, name: bytes) -> None:
    client = Client()
    log = client.engine.log = Log()
    client("CONFIG", "SET", "lazyfree-lazy-eviction", lazy, "notify-keyspace-events", "Ee")
    listener = client.engine.session()
    client.engine.execute(listener, [b"SUBSCRIBE", b"__keyevent@0__:evicted"])
    for number in range(50):
        client("SET", f"k{number}", "x" * 1000)
    del log.commands[:]
    client("CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", client.engine.used_memory() - 10_000)
    client("PING")
    gone = [argv[1] for _, argv in log.commands]
    assert [argv[0] for _, argv in log.commands] == [name] * len(gone) != []
    assert set(gone) == {b"k%d" % number for number in range(50)} - client.names()
    assert client.engine.eviction.evicted_keys == len(gone)
    assert b"evicted_keys:%d\r\n" % len(gone) in client("INFO", "stats")
    pushed = bytes(listener.out.hand_over())
    assert pushed.count(b"message") == len(gone)


def test_a_watched_key_that_is_evicted_ends_the_transaction() -> None:
    client = Client()
    client("SET", "a", "x" * 1000)
    client("WATCH", "a")
    client("CONFIG", "SET", "maxmemory", 1, "maxmemory-policy", "allkeys-random")
    client("PING")
    client("CONFIG", "SET", "maxmemory", 0)
    client("MULTI")
    client("PING")
    assert client("EXEC") == b"*-1\r\n"


def test_lru_evicts_idle_keys_and_lfu_rare_ones() -> None:
    for policy, survivors in (("allkeys-lru", "recent"), ("allkeys-lfu", "often")):
        client = Client(maxmemory_policy=policy, maxmemory_samples=10)
        for number in range(200):
            client("SET", f"often:{number}", "x" * 500)
            client("SET", f"recent:{number}", "x" * 500)
        for _ in range(60):
            for number in range(200):
                client("GET", f"often:{number}")
        client.clock.advance(50_000)
        for number in range(200):
            client("GET", f"recent:{number}")
        used = client.engine.used_memory()
        client("CONFIG", "SET", "maxmemory", used - 60_000)
        client("PING")
        kept = sum(key.startswith(survivors.encode()) for key in client.names())
        others = len(client.names()) - kept
        assert kept > others + 50, (policy, kept, others)
        client.engine.check()


def test_ttl_evicts_the_keys_that_expire_first() -> None:
    client = Client(maxmemory_policy="volatile-ttl", maxmemory_samples=10)
    for number in range(300):
        client("SET", f"k{number}", "x" * 500, "EX", 1000 + 1000 * number)
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 60_000)
    client("PING")
    numbers = sorted(int(key[1:]) for key in client.names())
    assert sum(number < 100 for number in numbers) < sum(number >= 200 for number in numbers) - 40


def test_the_pool_keeps_the_best_candidates_of_many_samples() -> None:
    """The pool finds keys that are older than those of a single sample: Redis's reason for the pool."""
    client = Client(maxmemory_policy="allkeys-lru")
    for number in range(1000):
        client.clock.advance(1000)
        client("SET", f"k{number}", "x" * 300)
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 100_000)
    client("PING")
    gone = {int(key[1:]) for key in {b"k%d" % n for n in range(1000)} - client.names()}
    assert len(gone) > 100
    # Of keys chosen at random, half would be in the older half.
    assert sum(number < 500 for number in gone) > 0.8 * len(gone)
    client.engine.eviction.check()
    assert len(client.engine.eviction.pool.keys) <= 16


def test_a_pool_of_another_policy_is_emptied() -> None:
    client = Client(maxmemory_policy="allkeys-lru")
    for number in range(100):
        client("SET", f"k{number}", "x" * 300)
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 5000)
    client("PING")
    assert client.engine.eviction.pool.keys
    client("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    assert not client.engine.eviction.pool.keys


def test_a_candidate_that_is_persistent_now_is_not_evicted() -> None:
    client = Client(maxmemory_policy="volatile-lru")
    for number in range(40):
        client("SET", f"k{number}", "x" * 300, "EX", 1000)
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 1000)
    client("PING")
    for key in client.names():
        client("PERSIST", key)
    count = len(client.names())
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 1000)
    assert client("SET", "new", "1") == OOM
    assert len(client.names()) == count


def test_a_large_value_is_freed_in_steps_and_counts_as_freed_at_once() -> None:
    client = Client(maxmemory_policy="allkeys-lru")
    for first in range(0, 20_000, 1000):
        client("SADD", "big", *(f"member:{n}" for n in range(first, first + 1000)))
    client("SET", "small", "1")
    used = client.engine.used_memory()
    client.limit_above_used(-used // 2, "allkeys-lru")
    assert client.engine.eviction.run() == OK
    assert b"big" not in client.names()
    assert client.engine.lazyfree.pending == 1
    assert client.engine.used_memory() > used // 2 > client.engine.eviction.counted()
    assert client.engine.eviction.evicted_keys <= 2
    client.engine.lazyfree.step(2**62)
    assert client.engine.used_memory() == client.engine.eviction.counted()


def test_the_time_of_a_run_is_limited_by_the_tenacity() -> None:
    assert [time_limit(n) for n in (0, 1, 10, 11, 100)] == [0, 50_000, 500_000, 575_000, 2**62]

    if compiled():
        pytest.skip("a compiled engine reads its clock in C")

    class Slow(ManualClock):
        def ticks(self) -> int:
            self.us += 100
            return int(super().ticks())

    client = Client(Slow(1_700_000_000_000), maxmemory_policy="allkeys-random", maxmemory_eviction_tenacity=0)
    for number in range(500):
        client("SET", f"k{number}", "x" * 300)
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 100_000)
    eviction: Eviction = client.engine.eviction
    assert client("SET", "new", "1") == b"+OK\r\n"
    assert eviction.running
    runs = 0
    while eviction.running:
        assert eviction.run() in (OK, RUNNING)
        runs += 1
    assert runs > 3
    assert eviction.counted() <= eviction.limit


def test_the_time_above_the_limit_is_measured() -> None:
    client = Client()
    client("SET", "a", "x" * 1000)
    client.limit_above_used(-500, "noeviction")
    client("PING")
    client.clock.advance(2000)
    assert b"current_eviction_exceeded_time:2000\r\n" in client("INFO", "stats")
    client("DEL", "a")
    client("PING")
    info = client("INFO", "stats")
    assert b"current_eviction_exceeded_time:0\r\n" in info
    assert b"total_eviction_exceeded_time:2000\r\n" in info
    client("CONFIG", "RESETSTAT")
    assert b"total_eviction_exceeded_time:0\r\n" in client("INFO", "stats")


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_stream_is_trimmed_instead_of_evicted(policy: str) -> None:
    client = Client(maxmemory_streams="trim")
    log = client.engine.log = Log()
    client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    limit = client.limit_above_used(ENTRIES * 10, policy)
    for number in range(ENTRIES):
        assert client("XADD", "s", f"{number + 1}-0", "field", f"value {number}").startswith(b"$")
    client("PING")
    assert client.engine.used_memory() <= limit
    assert client.engine.eviction.evicted_keys == 0
    stream = client.session.db.peek(b"s")
    assert ENTRIES // 20 < stream.length < ENTRIES
    assert stream.length + client.engine.eviction.trimmed_entries == ENTRIES
    assert list(stream.groups) == [b"g"]
    trims = [argv for _, argv in log.commands if argv[0] == b"XTRIM"]
    assert trims
    assert all(argv[1:4] == [b"s", b"MAXLEN", b"="] for argv in trims)
    client.engine.check()
    # The log gives the same stream.
    twin = Client()
    for _, argv in log.commands:
        twin(*argv)
    assert twin("DUMP", "s") == client("DUMP", "s")
    assert twin("XINFO", "STREAM", "s") == client("XINFO", "STREAM", "s")


def test_an_empty_stream_is_not_a_candidate_and_other_keys_are_evicted() -> None:
    client = Client(maxmemory_streams="trim", maxmemory_policy="allkeys-lru")
    for number in range(20):
        client("XGROUP", "CREATE", f"s{number}", "g", "$", "MKSTREAM")
    client.clock.advance(10_000)
    for number in range(20):
        client("SET", f"k{number}", "x" * 10_000)
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 50_000)
    assert client("SET", "new", "1") == b"+OK\r\n"
    assert sum(key.startswith(b"s") for key in client.names()) == 20
    client("CONFIG", "SET", "maxmemory", 1)
    assert client("SET", "new", "1") == OOM
    assert client.engine.eviction.run() == FAIL
    assert sum(key.startswith(b"s") for key in client.names()) == 20


def test_a_trim_by_eviction_publishes_xtrim() -> None:
    client = Client(maxmemory_streams="trim", maxmemory_policy="allkeys-lru", notify_keyspace_events="EA")
    events: list[tuple[bytes, bytes]] = []
    client.engine.on_keyspace_event = lambda db, kind, event, key: events.append((event, key))
    for number in range(1000):
        client("XADD", "s", f"{number + 1}-0", "f", "x" * 50)
    del events[:]
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 10_000)
    client("PING")
    assert events == [(b"xtrim", b"s")]


def test_without_the_option_a_stream_is_evicted() -> None:
    client = Client(maxmemory_policy="allkeys-lru")
    for number in range(1000):
        client("XADD", "s", f"{number + 1}-0", "f", "x" * 50)
    client("CONFIG", "SET", "maxmemory", client.engine.used_memory() - 10_000)
    client("PING")
    assert client.names() == set()


# -- settings --------------------------------------------------------------------------------------


def test_units_percentages_and_errors_of_the_settings() -> None:
    client = Client(compat=COMPATS["newest"])
    for value, shown in (("10mb", 10 * 1024**2), ("1k", 1000), ("0", 0)):
        client("CONFIG", "SET", "maxmemory", value)
        assert client("CONFIG", "GET", "maxmemory").endswith(b"\r\n%d\r\n" % shown)
    client("CONFIG", "SET", "maxmemory-clients", "5%")
    assert client("CONFIG", "GET", "maxmemory-clients").endswith(b"\r\n5%\r\n")
    prefix = b"-ERR CONFIG SET failed (possibly related to argument "
    assert client("CONFIG", "SET", "maxmemory-clients", "200%") == (
        prefix + b"'maxmemory-clients') - percentage argument must be less or equal to 100\r\n"
    )
    assert client("CONFIG", "SET", "maxmemory-samples", "0").startswith(prefix)
    assert client("CONFIG", "SET", "maxmemory-streams", "drop").startswith(prefix)


def test_a_replayed_log_is_not_refused() -> None:
    client = Client()
    client("SET", "a", "x" * 1000)
    client.limit_above_used(-500, "noeviction")
    trusted = client.engine.session(trusted=True)
    client.engine.execute(trusted, [b"SET", b"b", b"1"])
    assert bytes(trusted.out.hand_over()) == b"+OK\r\n"


def test_shared_integers_are_private_with_an_lru_policy_and_a_limit() -> None:
    client = Client(compat="8.0")  # later servers share none
    client("SET", "a", 1)
    assert client("OBJECT", "REFCOUNT", "a") == b":2147483647\r\n"
    client("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
    assert client("OBJECT", "REFCOUNT", "a") == b":1\r\n"


def test_a_pipeline_of_sets_respects_the_limit() -> None:
    """The fast path of SET compares the memory with the limit, too, not only before a pipeline."""
    client = Client()
    limit = client.limit_above_used(100_000, "noeviction")
    parser = CommandParser()
    parser.feed(b"".join(b"*3\r\n$3\r\nSET\r\n$5\r\n%05d\r\n$900\r\n%s\r\n" % (n, bytes(900)) for n in range(1000)))
    client.engine.drain(client.session, parser, 1 << 20)
    replies = bytes(client.session.out.hand_over())
    assert replies.count(b"+OK\r\n") + replies.count(OOM) == 1000
    assert replies.count(b"+OK\r\n") < 150
    assert client.engine.used_memory() < limit + 16 * 1100


LARGE = b"x" * 15_000
LARGE_WRITES: dict[str, Callable[[int], list[bytes]]] = {
    "hset": lambda n: [b"HSET", b"hset", b"%d" % n, LARGE],
    "sadd": lambda n: [b"SADD", b"sadd", LARGE + b"%d" % n],
    "zadd": lambda n: [b"ZADD", b"zadd", b"%d" % n, LARGE + b"%d" % n],
    "xadd": lambda n: [b"XADD", b"xadd", b"*", b"f", LARGE],
}


def with_tables() -> Client:
    """Return a client of large values, which are awake, with a limit that some more large elements reach."""
    client = Client()
    client("HSET", "hset", *(n // 2 for n in range(1200)))
    client("SADD", "sadd", *(f"member:{n}" for n in range(600)))
    client("ZADD", "zadd", *(n // 2 for n in range(1200)))
    client("XADD", "xadd", "*", "f", "v")
    client.limit_above_used(150_000, "noeviction")
    return client


@pytest.mark.parametrize("name", LARGE_WRITES)
def test_a_pipeline_of_large_writes_ends_at_the_limit_as_single_commands_do(name: str) -> None:
    """Redis compares the memory with the limit before each command; a batch does so after 4 KiB of commands."""
    single, batch = with_tables(), with_tables()
    replies = b"".join(single(*LARGE_WRITES[name](n)) for n in range(40))
    parser = CommandParser()
    parser.feed(b"".join(pack_command(LARGE_WRITES[name](n)) for n in range(40)))
    batch.engine.drain(batch.session, parser, 1 << 20)
    assert 0 < replies.count(OOM) < 40
    assert bytes(batch.session.out.hand_over()).count(OOM) == replies.count(OOM)
    assert batch.engine.used_memory() == single.engine.used_memory()
    batch.engine.check()


def test_nothing_is_evicted_while_clients_are_paused() -> None:
    client = Client()
    for number in range(100):
        client("SET", number, "x" * 900)
    client.engine.paused = PAUSE_WRITES
    client("CONFIG", "SET", "maxmemory", 1, "maxmemory-policy", "allkeys-random")
    client("GET", 1)
    assert client("DBSIZE") == b":100\r\n"
    assert not client.engine.eviction.running  # the server's loop would call again and again
    client.engine.paused_clients.relax()
    client("PING")
    assert client("DBSIZE") == b":0\r\n"


def test_a_client_whose_stream_a_timer_evicts_is_served_at_once() -> None:
    client = Client()
    client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    waiting = client.engine.session()
    words = b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split()
    assert not client.engine.execute(waiting, words)
    client.limit_above_used(2000, "allkeys-random")
    client.engine.eviction.buffers += 2100  # the buffers of clients exceed the limit, so that the timer evicts
    assert client.engine.make_room()
    assert client.names() == set()
    assert waiting.blocked is None
    assert bytes(waiting.out.hand_over()).startswith(b"-")


@pytest.mark.parametrize("count", [300, by_speed(1200, 600)])
def test_a_small_limit_keeps_the_keys_that_fit(count: int) -> None:
    """Gaps that evicted keys leave are filled before more keys are evicted, in small tables too."""
    client = Client()
    for number in range(count):
        client("SET", f"key:{number}", "x" * 80)
    client.limit_above_used(0, "allkeys-random")
    for number in range(count, 3 * count):
        client("SET", f"key:{number}", "x" * 80)
        assert client.engine.used_memory() <= client.engine.eviction.limit + 200
    client.engine.check()
    assert len(client.names()) > 0.85 * count


def test_values_that_change_their_size_stay_within_a_small_limit() -> None:
    client = Client()
    for number in range(500):
        client("SET", f"key:{number}", "x" * 40)
    for number in range(50):
        client("HSET", f"hash:{number}", "field", "y" * 10)
    client.limit_above_used(20_000, "allkeys-lru")
    for number in range(2500):
        client("SET", f"key:{number % 500}", "x" * (30 + number % 20))
        client("HSET", f"hash:{number % 50}", "field", "y" * (number % 20))
    client.engine.check()
    assert client.engine.eviction.evicted_keys < 25


@pytest.mark.skipif(not compiled(), reason="interpreted, a block of records counts as a whole")
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_a_table_does_not_grow_beyond_the_limit(compat: str) -> None:
    client = Client(compat=compat)
    for number in range(4095):
        client("SET", f"key:{number}", "")
    client.limit_above_used(10_240, "allkeys-random")
    for number in range(4):
        client("SET", f"k{number}", "v")
    assert client.session.db.keys.buckets == 4096
    assert len(client.names()) == 4099
    for number in range(1000):
        client("SET", f"new{number}", "v")
    assert client.session.db.keys.buckets == 4096
    client("CONFIG", "SET", "maxmemory", 0)
    for number in range(100):  # the eviction can leave a few keys less than buckets
        client("SET", f"last{number}", "v")
    assert client.session.db.keys.buckets > 4096
    client("FLUSHALL")
    assert client.session.db.keys.gate is client.session.db.expires.gate is client.engine.eviction


def test_a_table_grows_beyond_the_limit_if_its_chains_are_long() -> None:
    client = Client()
    for number in range(4096):
        client("SET", f"key:{number}", "")
    client.limit_above_used(0, "volatile-ttl")  # nothing can be evicted
    database = client.session.db
    for number in range(2700):
        database.set_string(b"direct:%d" % number, b"")
    assert database.keys.buckets > 4096
