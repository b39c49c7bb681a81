"""The state of a session: every command takes it where the table of transitions says."""

from __future__ import annotations

import random

import pytest

from rillet.errors import CommandError
from rillet.runtime import session_state
from rillet.runtime.session_state import TRANSITIONS, Transition, after, names
from tests.commands.ends import Bench
from tests.variants import by_speed

FLAGS = session_state._FLAGS


@pytest.mark.parametrize("event", TRANSITIONS)
def test_a_transition_names_known_flags_and_does_not_undo_itself(event: str) -> None:
    row = TRANSITIONS[event]
    assert not (row.requires | row.forbids | row.sets | row.clears) & ~sum(FLAGS.values())
    assert not row.sets & row.clears
    assert not row.requires & row.forbids


def test_every_flag_can_be_set_and_cleared_except_those_of_an_end() -> None:
    rows = TRANSITIONS.values()
    for name, bit in FLAGS.items():
        if name in ("IN_SCRIPT", "KEEPS_TEXT"):  # a session that runs the commands of scripts does nothing else
            continue
        assert any(row.sets & bit for row in rows), name
        assert any(row.clears & bit for row in rows) != (name in ("CLOSING", "REPLICA")), name


def test_a_flag_has_one_bit_of_its_own() -> None:
    assert sorted(FLAGS.values()) == [1 << at for at in range(len(FLAGS))]


@pytest.mark.parametrize("event", [event for event, row in TRANSITIONS.items() if row != Transition()])
def test_an_event_in_a_wrong_state_is_an_assertion_error(event: str) -> None:
    row = TRANSITIONS[event]
    assert after(row.requires, event) == (row.requires & ~row.clears) | row.sets
    for name, bit in FLAGS.items():
        if row.requires & bit:
            with pytest.raises(AssertionError, match=event):
                after(row.requires & ~bit, event)
        elif row.forbids & bit:
            with pytest.raises(AssertionError, match=name):
                after(row.requires | bit, event)
        else:
            assert after(row.requires | bit, event) & ~row.clears & bit or row.clears & bit


@pytest.mark.parametrize(
    ("commands", "state"),
    [
        ("MULTI", "IN_MULTI"),
        ("MULTI, NOSUCH", "IN_MULTI MULTI_FAILED"),
        ("MULTI, SET a 1, EXEC", "ordinary"),
        ("MULTI, NOSUCH, EXEC", "ordinary"),
        ("MULTI, DISCARD", "ordinary"),
        ("SUBSCRIBE a", "SUBSCRIBED"),
        ("SUBSCRIBE a, UNSUBSCRIBE", "ordinary"),
        ("CLIENT REPLY OFF, PING", "REPLY_OFF"),
        ("CLIENT REPLY OFF, CLIENT REPLY SKIP", "REPLY_OFF"),
        ("CLIENT REPLY OFF, CLIENT REPLY ON", "ordinary"),
        ("CLIENT REPLY SKIP", "REPLY_SKIP_NEXT"),
        ("CLIENT REPLY SKIP, PING", "ordinary"),
        ("BLPOP a 0", "BLOCKED"),
        ("MULTI, BLPOP a 0, EXEC", "ordinary"),
        ("QUIT", "CLOSING"),
        ("CLIENT REPLY OFF, MULTI, RESET", "ordinary"),
    ],
)
def test_commands_lead_to_the_state_of_the_table(commands: str, state: str) -> None:
    bench = Bench()
    for command in commands.split(", "):
        bench.engine.execute(bench.session, command.encode().split())
        bench.session.out.take_bytes()
    assert names(bench.session.state) == state
    bench.engine.check()


def test_the_invariants_hold_after_any_sequence_of_commands() -> None:
    words = ["MULTI", "EXEC", "DISCARD", "SUBSCRIBE a", "UNSUBSCRIBE", "CLIENT REPLY OFF", "CLIENT REPLY ON",
             "CLIENT REPLY SKIP", "PING", "NOSUCH", "SET a 1", "WATCH a", "RESET", "BLPOP list 0", "RPUSH list 1",
             "HELLO 3", "AUTH secret", "AUTH wrong", "CONFIG SET requirepass secret"]  # fmt: skip
    chance = random.Random(11)
    bench = Bench()
    session, other = bench.session, bench.beside()
    for _ in range(by_speed(700, 700, 3000)):
        if session.blocked is not None:
            other("RPUSH", "list", 1)
        elif session.closing:
            bench.engine.close_session(session)
            session = bench.engine.session()
        else:
            bench.engine.execute(session, chance.choice(words).encode().split())
        session.out.take_bytes()
        bench.engine.check()


def test_a_session_without_a_password_is_refused_until_it_gives_one() -> None:
    bench = Bench(requirepass="secret")
    session = bench.engine.session()
    assert names(session.state) == "UNAUTHENTICATED"
    bench.engine.execute(session, [b"GET", b"a"])
    assert session.out.take_bytes().startswith(b"-NOAUTH")
    bench.engine.execute(session, [b"AUTH", b"secret"])
    assert names(session.state) == "ordinary"
    assert names(bench.engine.session(trusted=True).state) == "TRUSTED"


def test_a_blocked_session_keeps_its_state_when_it_is_closed() -> None:
    bench = Bench()
    bench.engine.execute(bench.session, [b"BLPOP", b"a", b"0"])
    assert bench.session.state == session_state.BLOCKED | session_state.AUTHENTICATED
    bench.engine.blocking.fail(bench.session, CommandError("interrupted"))
    assert names(bench.session.state) == "ordinary"
    assert bench.session.out.take_bytes() == b"-ERR interrupted\r\n"
