"""The lag and the read counter of a group: servers implement three rules.

The table lists situations and the result of each rule. The tests compare it with the engine and with every available
server.

"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS
from tests.differential.wire import Local, Redis, read
from tests.judge import PEERS, Judge
from tests.variants import by_speed

Shown = tuple[int | None, int | None]


def entries(count: int) -> list[str]:
    """Return the commands that create a stream of that many entries, and a group that has read none."""
    return [*(f"XADD s {number}-0 f v" for number in range(1, count + 1)), "XGROUP CREATE s g 0"]


def reading(count: int) -> str:
    """Return the command with which the group reads that many entries."""
    return f"XREADGROUP GROUP g c COUNT {count} STREAMS s >"


SITUATIONS: dict[str, tuple[list[str], Shown, Shown, Shown]] = {
    "no entry was ever added": (["XGROUP CREATE s g 0 MKSTREAM"], (None, 0), (None, 0), (None, 0)),
    "no entry is read": (entries(5), (None, 5), (None, 5), (None, 5)),
    "some are read": ([*entries(5), reading(2)], (2, 3), (2, 3), (2, 3)),
    "all are read": ([*entries(5), reading(9)], (5, 0), (5, 0), (5, 0)),
    "one is read, all but the last are trimmed": (
        [*entries(5), reading(1), "XTRIM s MAXLEN 1"], (1, 4), (1, 4), (1, 1),
    ),
    "one is read, all but the last are trimmed, and the last is read": (
        [*entries(5), reading(1), "XTRIM s MAXLEN 1", reading(1)], (2, 3), (5, 0), (5, 0),
    ),
    "two of four are read and deleted": (
        [*entries(4), reading(2), "XDEL s 1 2"], (2, 2), (2, 2), (2, 2),
    ),
    "two of four are read and deleted, the third is deleted unread": (
        [*entries(4), reading(2), "XDEL s 1 2", "XDEL s 3"], (2, 2), (2, None), (2, 1),
    ),
    "two of four are read, all are deleted": (
        [*entries(4), reading(2), "XDEL s 1 2", "XDEL s 3 4"], (2, 2), (2, 2), (2, 0),
    ),
    "a deletion before the position of the group": (
        [*entries(5), reading(3), "XDEL s 2"], (3, 2), (3, 2), (3, 2),
    ),
    "a deletion after the position of the group": (
        [*entries(5), reading(1), "XDEL s 3"], (1, None), (1, None), (1, None),
    ),
    "a deletion after the position of the group, which then reads past it": (
        [*entries(5), reading(1), "XDEL s 3", reading(2)], (None, None), (None, None), (None, None),
    ),
    "a deletion after the position of the group, which then reads to the end": (
        [*entries(5), reading(1), "XDEL s 3", reading(9)], (5, 0), (5, 0), (5, 0),
    ),
    "the last entry that was read is deleted": (
        [*entries(5), reading(3), "XDEL s 3"], (3, None), (3, None), (3, None),
    ),
    "the last of all is deleted": ([*entries(5), reading(2), "XDEL s 5"], (2, None), (2, None), (2, None)),
    "the head is deleted, nothing is read": ([*entries(5), "XDEL s 1"], (None, 4), (None, 4), (None, 4)),
    "the count is set beyond what was added": (
        [*entries(5), "XGROUP SETID s g 0 ENTRIESREAD 99"], (99, -94), (99, -94), (5, 5),
    ),
    "a group is created with a count beyond what was added": (
        [*entries(5), "XGROUP CREATE s h 3 ENTRIESREAD 99", "XGROUP DESTROY s g"], (99, -94), (99, -94), (5, 0),
    ),
    "a group begins in the middle": (
        [*entries(5), "XGROUP CREATE s h 3", "XGROUP DESTROY s g"], (None, None), (None, None), (None, None),
    ),
    "a group begins after the last entry": (
        [*entries(5), "XGROUP CREATE s h 9", "XGROUP DESTROY s g"], (None, None), (None, None), (None, None),
    ),
    "a group begins at the end": (
        [*entries(5), "XGROUP CREATE s h $", "XGROUP DESTROY s g"], (None, 0), (None, 0), (None, 0),
    ),
    "a group begins at the first entry": (
        [*entries(5), "XGROUP CREATE s h 1", "XGROUP DESTROY s g"], (None, 4), (None, 4), (None, 4),
    ),
    "a group in the middle reads to the end": (
        [*entries(5), "XGROUP SETID s g 3", reading(9)], (5, 0), (5, 0), (5, 0),
    ),
    "XSETID sets a greater number of entries added": (
        [*entries(5), reading(2), "XSETID s 9 ENTRIESADDED 20"], (2, 18), (2, 18), (2, 18),
    ),
    "XSETID sets the greatest deleted ID": (
        [*entries(5), reading(2), "XSETID s 9 ENTRIESADDED 20 MAXDELETEDID 7"], (2, None), (2, None), (2, None),
    ),
}  # fmt: skip


def shown(listed: list[list[object]]) -> Shown:
    """Return entries-read and lag of the only group in an XINFO GROUPS."""
    (row,) = (dict(zip(row[::2], row[1::2], strict=True)) for row in listed)
    pair = [None if row[name] == b"-1" else row[name] for name in (b"entries-read", b"lag")]
    assert all(isinstance(value, int | None) for value in pair)
    return pair[0], pair[1]  # type: ignore[return-value]


def local_of(compat: str) -> Local:
    """Return a session of a new engine with that compat."""
    return Local(Engine(Settings(compat=compat)))



def exceptional(compat: str, situation: str) -> bool:
    """Return whether Redis 8.0 is the exception: see test_entries_read_is_limited_only_since_8_2."""
    return compat == "8.0" and "beyond what was added" in situation


CASES = [(compat, situation) for compat in COMPATS for situation in SITUATIONS if not exceptional(compat, situation)]


@pytest.mark.parametrize(("compat", "situation"), CASES)
def test_each_rule_gives_its_column_of_the_table(compat: str, situation: str) -> None:
    commands, *columns = SITUATIONS[situation]
    local = local_of(compat)
    for command in commands:
        assert not local.run(command.encode().split()).startswith(b"-"), command
    assert shown(local("XINFO", "GROUPS", "s")) == columns[COMPATS[compat].lag_rule]


def test_entries_read_is_limited_only_since_8_2() -> None:
    """Redis 8.0 uses the third rule already, but accepts any ENTRIESREAD."""
    local = local_of("8.0")
    for command in [*entries(5), "XGROUP SETID s g 0 ENTRIESREAD 99"]:
        local.run(command.encode().split())
    assert shown(local("XINFO", "GROUPS", "s")) == (99, 5)
    local("XGROUP", "SETID", "s", "g", 3, "ENTRIESREAD", 99)
    assert shown(local("XINFO", "GROUPS", "s")) == (99, -94)


@pytest.mark.parametrize("compat", PEERS)
def test_the_servers_agree_with_the_table(peer_of: Callable[[str], Judge], compat: str) -> None:
    with Redis(peer_of(compat).port) as redis:
        for situation, (commands, *columns) in SITUATIONS.items():
            if exceptional(compat, situation):
                continue
            redis.run([b"DEL", b"s"], *(command.encode().split() for command in commands))
            (reply,) = redis.run([b"XINFO", b"GROUPS", b"s"])
            assert shown(read(reply)) == columns[COMPATS[compat].lag_rule], situation


def some_command(rnd: random.Random, last: list[int]) -> str:
    """Return a random command that changes the counters of a stream or group."""
    kind = rnd.random()
    place = rnd.choice(["0", "$", f"{rnd.randint(0, last[0] + 2)}-{rnd.randint(0, 1)}"])
    if kind < 0.3:
        last[0] += rnd.choice([1, 1, 3])
        return f"XADD s {last[0]}-{rnd.randint(0, 2)} f v"
    if kind < 0.55:
        return f"XREADGROUP GROUP {rnd.choice('gh')} c COUNT {rnd.randint(1, 4)} STREAMS s >"
    if kind < 0.7:
        return f"XDEL s {rnd.randint(1, last[0] + 1)}"
    if kind < 0.78:
        return f"XTRIM s MAXLEN {rnd.randint(0, 9)}"
    if kind < 0.9:
        count = rnd.choice(["", "", f" ENTRIESREAD {rnd.choice([-1, 0, 3, 99, 2**63 - 1])}"])
        return f"XGROUP SETID s {rnd.choice('gh')} {place}{count}"
    if kind < 0.95:
        greatest = rnd.choice(["", f" MAXDELETEDID {rnd.randint(0, last[0])}"])
        return f"XSETID s {last[0]}-9 ENTRIESADDED {rnd.randint(0, 40)}{greatest}"
    return f"XDEL s {' '.join(str(number) for number in range(1, last[0] + 1))}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("compat", PEERS)
def test_random_commands_match_a_server(peer_of: Callable[[str], Judge], compat: str, seed: int) -> None:
    rnd = random.Random(seed)
    local = local_of(compat)
    last = [1]
    start = ["XADD s 1-0 f v", "XGROUP CREATE s g 0", "XGROUP CREATE s h 0"]
    commands = [*start, *(some_command(rnd, last) for _ in range(by_speed(400, 200)))]
    look = [b"XINFO", b"GROUPS", b"s"]
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"FLUSHALL"])
        for command in commands:
            argv = command.encode().split()
            _, their = redis.run(argv, look)
            local.run(argv)
            assert local.run(look) == their, command
