"""Access control against real servers: rules and their errors, descriptions, decisions, and the log of denied calls.

Redis 7.0 lists the single commands of a description in the order of a hash table with a random seed, so the words of a
selector are compared sorted, without rillet's own commands. Commands that rillet lacks are described,
but not decided about.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.acls import Generator
from tests.differential.wire import Local, Redis, read
from tests.judge import PEERS, Judge, required_binary, running_redis
from tests.variants import by_speed

ROUNDS = by_speed(60, 25)


@pytest.fixture(scope="module", params=PEERS)
def judge(request: pytest.FixtureRequest) -> Iterator[tuple[str, Judge]]:
    """A server of each compat that is at hand."""
    with running_redis(binary=required_binary(request.param)) as server:
        yield request.param, server


class Pair:
    """An engine and a real server that get the same commands."""

    def __init__(self, compat: str, port: int) -> None:
        self.compat = compat
        self.local = Local(Engine(Settings(compat=compat)))
        self.server = Redis(port)
        for words in (b"ACL DELUSER u v", b"ACL LOG RESET", b"ACL SETUSER default reset on nopass ~* &* +@all"):
            self.both(words.split())

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    def both(self, argv: list[bytes]) -> tuple[bytes, bytes]:
        """Return the replies of both."""
        ours = self.local.run(argv)
        return ours, self.server.run(argv)[0]

    def same(self, argv: list[bytes]) -> bytes:
        """Return the reply, which must be the same."""
        ours, theirs = self.both(argv)
        assert self.comparable(ours) == self.comparable(theirs), argv
        return ours

    def comparable(self, reply: bytes) -> object:
        """Return a description with its words sorted where chance orders them."""
        if self.compat != "7.0" or b"@all" not in reply:
            return reply
        return _sorted(read(reply))


def _sorted(value: object) -> object:
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    if isinstance(value, bytes):
        return [sorted(word for word in part.rstrip(b" )").split(b" ") if b"rillet." not in word)
                for part in value.split(b"(")]  # fmt: skip
    return value


def rules_agree(compat: str, port: int, seed: int, rounds: int) -> None:
    """Apply random rules to a user on both sides, and compare the errors and the descriptions."""
    generator = Generator(seed, compat)
    with Pair(compat, port) as pair:
        for number in range(rounds):
            rules = generator.rules()
            if not generator.safe(rules):
                continue
            if number % 10 == 0:
                pair.same([b"ACL", b"DELUSER", b"u"])
            pair.same([b"ACL", b"SETUSER", b"u", *rules])
            pair.same([b"ACL", b"GETUSER", b"u"])
            pair.same([b"ACL", b"LIST"])
            pair.local.engine.check()


def decisions_agree(compat: str, port: int, seed: int, rounds: int) -> None:
    """Compare the decisions about random calls by users with random rules."""
    generator = Generator(seed, compat)
    with Pair(compat, port) as pair:
        for _ in range(rounds):
            rules = [rule for _ in range(8) for rule in [generator.of_selector()] if generator.safe([rule])]
            extra = [b"(" + b" ".join(generator.of_selector() for _ in range(4)) + b")" for _ in range(2)]
            for rule in [b"reset", *rules, *extra]:
                pair.both([b"ACL", b"SETUSER", b"u", rule])
            for _ in range(25):
                line = [b"ACL", b"DRYRUN", b"u", *generator.call()]
                ours, theirs = pair.both(line)
                if not theirs.startswith(b"-ERR wrong number of arguments"):  # later versions have more options
                    assert ours == theirs, (line, pair.both([b"ACL", b"LIST"])[1])


def test_two_servers_of_7_0_list_commands_in_different_orders() -> None:
    """The order of single commands is that of a hash table with a random seed, so no program can foretell it."""
    rules = b"reset +@read -get +set +config|get +xadd -xrange +lpush +acl|whoami".split()
    with running_redis() as one, running_redis() as other, Pair("7.0", one.port) as pair, Redis(other.port) as second:
        for argv in ([b"ACL", b"SETUSER", b"u", *rules], [b"ACL", b"GETUSER", b"u"]):
            ours, first = pair.both(argv)
            third = second.run(argv)[0]
            assert pair.comparable(ours) == pair.comparable(first) == pair.comparable(third)
        assert first != third


@pytest.mark.parametrize("seed", range(2))
def test_rules_and_descriptions(judge: tuple[str, Judge], seed: int) -> None:
    rules_agree(judge[0], judge[1].port, seed, ROUNDS)


@pytest.mark.parametrize("seed", range(2))
def test_decisions(judge: tuple[str, Judge], seed: int) -> None:
    decisions_agree(judge[0], judge[1].port, seed, ROUNDS // 2)


@pytest.mark.long
def test_many_rules_and_decisions(judge: tuple[str, Judge]) -> None:
    """100,000 rules, in users of about three rules."""
    for seed in range(100, 110):
        rules_agree(judge[0], judge[1].port, seed, 3400)
        decisions_agree(judge[0], judge[1].port, seed, 300)
