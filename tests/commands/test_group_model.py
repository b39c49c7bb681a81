"""A consumer group compared with a model: deliveries, reads, claims, releases and deletions.

The model reads the replies and stores the existing entries, the owner of each pending entry (None for a released one),
and the entries that were delivered as new. It requires that:

    no entry is delivered as new twice, unless SETID set the group back before it
    a pending entry has one owner, and XINFO lists it for that consumer only
    pel-count is the number of the consumers' entries plus the number of released ones
    lag is the number of entries that are not delivered yet, or null

"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.commands.ends import Bench
from tests.variants import by_speed

CONSUMERS = st.sampled_from([b"a", b"b", b"c"])
COUNTS = st.integers(1, 4)
POSITIONS = st.integers(0, 30)
STRATEGIES = st.sampled_from(["KEEPREF", "DELREF", "ACKED"])
IDLE = st.sampled_from([0, 50])
ID = int


def ident(number: ID) -> bytes:
    """Return the ID of an entry number."""
    return b"%d-0" % number


def number_of(word: bytes) -> ID:
    """Return the entry number of an ID."""
    return int(word.partition(b"-")[0])


class GroupAndModel(RuleBasedStateMachine):
    """Random commands on a stream with one group, and the state that they must produce."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(compat="newest", stream_node_max_entries=3)
        self.last = self.last_given = 0
        self.living: set[ID] = set()
        self.owners: dict[ID, bytes | None] = {}
        self.given: set[ID] = set()
        self.consumers: set[bytes] = set()
        self.call("XGROUP", "CREATE", "s", "g", 0, "MKSTREAM")

    def call(self, *words: bytes | str | int) -> Any:
        """Run a command that must not fail."""
        reply = self.bench(*words)
        assert not isinstance(reply, str), (words, reply)
        return reply

    def some(self, position: int) -> list[ID]:
        """Return three numbers of entries that exist, were deleted, or may be added later."""
        return [(position * step) % (self.last + 2) for step in (1, 3, 7)]

    # -- the entries

    @rule(count=COUNTS)
    def add(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            self.call("XADD", "s", ident(self.last), "f", "v")
            self.living.add(self.last)

    @rule(position=POSITIONS)
    def delete(self, position: int) -> None:
        gone = set(self.some(position)) & self.living
        assert self.call("XDEL", "s", *map(ident, self.some(position))) == len(gone)
        self.living -= gone

    @rule(position=POSITIONS, strategy=STRATEGIES)
    def delete_by_reference(self, position: int, strategy: str) -> None:
        number = self.some(position)[0]
        (result,) = self.call("XDELEX", "s", strategy, "IDS", 1, ident(number))
        self.expect_deleted(number, strategy, result, number in self.living)

    @rule(position=POSITIONS, strategy=STRATEGIES)
    def acknowledge_and_delete(self, position: int, strategy: str) -> None:
        number = self.some(position)[0]
        pending = number in self.owners
        (result,) = self.call("XACKDEL", "s", "g", strategy, "IDS", 1, ident(number))
        if not pending:
            assert result == -1
            return
        del self.owners[number]
        self.expect_deleted(number, strategy, result, True)

    def expect_deleted(self, number: ID, strategy: str, result: int, there: bool) -> None:
        """Update the model after a deletion by strategy: -1 not found, 1 deleted, 2 kept because a group needs it.

        ACKED keeps an entry that is not delivered yet, and checks this before it checks that the entry exists.

        """
        if strategy == "ACKED" and (number in self.owners or number > self.last_given):
            assert result == 2
        else:
            assert result == (1 if there else -1)
        if strategy == "DELREF":
            self.owners.pop(number, None)  # even if the entry does not exist
        if result == 1:
            self.living.discard(number)

    @rule(length=st.integers(0, 12), strategy=st.sampled_from(["KEEPREF", "DELREF"]))
    def trim(self, length: int, strategy: str) -> None:
        gone = sorted(self.living)[: max(0, len(self.living) - length)]
        assert self.call("XTRIM", "s", "MAXLEN", length, strategy) == len(gone)
        self.living -= set(gone)
        if strategy == "DELREF":
            for number in gone:
                self.owners.pop(number, None)

    # -- the group

    @rule(consumer=CONSUMERS, count=COUNTS, noack=st.booleans())
    def read_new(self, consumer: bytes, count: int, noack: bool) -> None:
        words = ["NOACK"] if noack else []
        reply = self.call("XREADGROUP", "GROUP", "g", consumer, "COUNT", count, *words, "STREAMS", "s", ">")
        self.consumers.add(consumer)
        self.take_new(consumer, [number_of(row[0]) for row in self.rows(reply)], noack, count)

    @staticmethod
    def rows(reply: Any) -> list[Any]:
        """Return the entries of a reply to XREADGROUP, which is null if there are none."""
        return [] if reply is None else list(reply[0][1])

    def take_new(self, consumer: bytes, numbers: list[ID], noack: bool, count: int) -> None:
        """Update the model after entries are delivered for the first time."""
        ahead = sorted(number for number in self.living if number > self.last_given)
        assert numbers == ahead[:count]
        assert not self.given & set(numbers), "delivered twice"
        self.given |= set(numbers)
        self.last_given = max([self.last_given, *numbers])
        if not noack:
            self.owners.update(dict.fromkeys(numbers, consumer))

    @rule(consumer=CONSUMERS, count=st.integers(1, 6), idle=IDLE)
    def read_claimed_then_new(self, consumer: bytes, count: int, idle: int) -> None:
        due = {
            number_of(row[0]) for row in self.call("XPENDING", "s", "g", "-", "+", 1000)
            if row[1] == b"" or int(row[2]) >= idle
        }  # fmt: skip
        words = ("GROUP", "g", consumer, "COUNT", count, "CLAIM", idle, "STREAMS", "s", ">")
        rows = self.rows(self.call("XREADGROUP", *words))
        self.consumers.add(consumer)
        claimed = rows[: min(count, len(due & self.living))]
        new = rows[len(claimed) :]
        assert {number_of(row[0]) for row in claimed} <= due & self.living, "claimed entries come first"
        assert all(int(row[2]) == int(row[3]) == 0 for row in new), "new entries have 0 deliveries"
        self.owners.update({number_of(row[0]): consumer for row in claimed})
        self.take_new(consumer, [number_of(row[0]) for row in new], False, count - len(claimed))

    @rule(consumer=CONSUMERS, position=POSITIONS)
    def read_history(self, consumer: bytes, position: int) -> None:
        start = self.some(position)[0]
        reply = self.call("XREADGROUP", "GROUP", "g", consumer, "STREAMS", "s", ident(start))
        self.consumers.add(consumer)
        mine = sorted(number for number, owner in self.owners.items() if owner == consumer and number > start)
        assert [number_of(row[0]) for row in self.rows(reply)] == mine
        assert [row[1] is not None for row in self.rows(reply)] == [number in self.living for number in mine]

    @rule(position=POSITIONS)
    def acknowledge(self, position: int) -> None:
        there = set(self.some(position)) & set(self.owners)
        assert self.call("XACK", "s", "g", *map(ident, self.some(position))) == len(there)
        for number in there:
            del self.owners[number]

    @rule(consumer=CONSUMERS, position=POSITIONS, idle=IDLE, force=st.booleans())
    def claim(self, consumer: bytes, position: int, idle: int, force: bool) -> None:
        named = self.some(position)
        words = ["FORCE"] if force else []
        reply = self.call("XCLAIM", "s", "g", consumer, idle, *map(ident, named), "JUSTID", *words)
        self.consumers.add(consumer)
        for number in map(number_of, reply):
            assert number in self.living
            assert force or number in self.owners
            self.owners[number] = consumer
        self.forget(set(named) - self.living)

    def forget(self, gone: set[ID]) -> None:
        """Update the model after a claim removed pending entries that no longer exist."""
        for number in gone:
            self.owners.pop(number, None)

    @rule(consumer=CONSUMERS, position=POSITIONS, idle=IDLE, count=COUNTS)
    def claim_from(self, consumer: bytes, position: int, idle: int, count: int) -> None:
        start = self.some(position)[0]
        words = (consumer, idle, ident(start), "COUNT", count, "JUSTID")
        cursor, claimed, deleted = self.call("XAUTOCLAIM", "s", "g", *words)
        self.consumers.add(consumer)
        assert len(claimed) + len(deleted) <= count
        for number in map(number_of, claimed):
            assert number in self.living
            assert number in self.owners
            assert number >= start
            self.owners[number] = consumer
        gone = set(map(number_of, deleted))
        assert gone <= set(self.owners) - self.living
        self.forget(gone)
        assert number_of(cursor) == 0 or number_of(cursor) in self.owners

    @rule(position=POSITIONS, mode=st.sampled_from(["SILENT", "FAIL", "FATAL"]), force=st.booleans())
    def release(self, position: int, mode: str, force: bool) -> None:
        named = set(self.some(position))
        words = ["FORCE"] if force else []
        there = {number for number in named if number in self.owners or (force and number in self.living)}
        result = self.call("XNACK", "s", "g", mode, "IDS", len(named), *map(ident, sorted(named)), *words)
        assert result == len(there)
        self.owners.update(dict.fromkeys(there))

    @rule(consumer=CONSUMERS)
    def delete_consumer(self, consumer: bytes) -> None:
        mine = [number for number, owner in self.owners.items() if owner == consumer]
        assert self.call("XGROUP", "DELCONSUMER", "s", "g", consumer) == len(mine)
        self.consumers.discard(consumer)
        for number in mine:
            del self.owners[number]

    @rule(position=POSITIONS)
    def set_back_or_ahead(self, position: int) -> None:
        self.last_given = self.some(position)[0]
        self.call("XGROUP", "SETID", "s", "g", ident(self.last_given))
        self.given = {number for number in self.given if number <= self.last_given}

    @rule(passed=st.sampled_from([10, 100]))
    def wait(self, passed: int) -> None:
        self.bench.clock.advance(passed)

    # -- invariants

    @invariant()
    def everything_is_sound(self) -> None:
        self.bench.engine.check()

    @invariant()
    def every_pending_entry_has_one_owner(self) -> None:
        flat = self.bench("XINFO", "STREAM", "s", "FULL", "COUNT", 0)
        full = dict(zip(flat[::2], flat[1::2], strict=True))
        assert [number_of(row[0]) for row in full[b"entries"]] == sorted(self.living)
        (group,) = (dict(zip(row[::2], row[1::2], strict=True)) for row in full[b"groups"])
        listed = {number_of(row[0]): row[1] or None for row in group[b"pending"]}
        assert listed == self.owners
        consumers = [dict(zip(row[::2], row[1::2], strict=True)) for row in group[b"consumers"]]
        assert {consumer[b"name"] for consumer in consumers} == self.consumers
        theirs = {
            number_of(row[0]): consumer[b"name"] for consumer in consumers for row in consumer[b"pending"]
        }
        assert theirs == {number: owner for number, owner in self.owners.items() if owner is not None}
        held = sum(consumer[b"pel-count"] for consumer in consumers)
        assert group[b"pel-count"] == held + group[b"nacked-count"] == len(self.owners)

    @invariant()
    def lag_is_right_or_null(self) -> None:
        row = self.bench("XINFO", "GROUPS", "s")[0]
        group = dict(zip(row[::2], row[1::2], strict=True))
        assert number_of(group[b"last-delivered-id"]) == self.last_given
        ahead = sum(number > self.last_given for number in self.living)
        assert group[b"lag"] in (ahead, b"-1"), (group, ahead)


TestGroupAndModel = GroupAndModel.TestCase
TestGroupAndModel.settings = settings(max_examples=by_speed(12, 10, 100), stateful_step_count=40, deadline=None)
