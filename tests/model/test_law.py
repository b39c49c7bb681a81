"""The law of the model detects each way in which a store could break it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.model.history import Call, Outcome
from tests.model.law import State, to_drain, violations


def _call(name: str, place: str, *tokens: str, outcome: Outcome = Outcome.DONE, result: Any = None,
          may_take: int = 0, number: int = 0) -> Call:  # fmt: skip
    unknown = outcome is Outcome.UNKNOWN
    return Call("a", number, name, place, tokens, may_take, may_take if unknown else 0, 0.0, 1.0, outcome, result)


CALLS = [
    _call("add", "stream", "s1", result="1-1"),
    _call("add_many", "stream", "s2", "s3", outcome=Outcome.UNKNOWN),
    _call("group_read", "new", result=[("1-1", "s1"), ("2-1", "s2")]),
    _call("ack", "ack", "1-1", result=1),
    _call("push", "list", "l1"),
    _call("push", "list", "l2"),
    _call("push", "list", "l3", outcome=Outcome.NOT_DONE),
    _call("pop", "list", may_take=1, result=["l1"]),
    _call("transaction", "pair", "p1"),
    _call("compare_and_set", "cas", "c1"),
    _call("compare_and_set", "cas", "c2", outcome=Outcome.UNKNOWN),
    _call("increment", "counter", result=1),
    _call("increment", "counter", outcome=Outcome.UNKNOWN),
    _call("own_set", "own:a", "o1", number=1),
    _call("own_set", "own:a", "o2", outcome=Outcome.UNKNOWN, number=2),
    _call("own_get", "own:a", result="o2", number=3),
]
STATE = State(
    stream=[("1-1", "s1"), ("2-1", "s2")],
    pending={"2-1"},
    last_delivered="2-1",
    elements={"list": ["l2"], "set": [], "zset": [], "hash": []},
    pairs=(["p1"], ["p1"], ["p1"], 1),
    numbered=[(1, "c1"), (2, "c2")],
    cas_count=2,
    counter=2,
    own={"a": "o2"},
)


def test_a_state_that_follows_from_the_calls() -> None:
    assert violations(CALLS, STATE) == []
    assert to_drain(CALLS, STATE) == ({"2-1"}, {"2-1"})


def _elements(*values: str) -> dict[str, list[str]]:
    return {**STATE.elements, "list": list(values)}


BROKEN = [
    ("an entry is lost", replace(STATE, stream=[("2-1", "s2")]), "acknowledged and lost: ['s1']"),
    ("an entry is doubled", replace(STATE, stream=[*STATE.stream, ("3-1", "s1")]), "s1 was found 2 times"),
    ("an ID belongs to another entry", replace(STATE, stream=[("1-1", "s2"), ("2-1", "s1")]), "s1 got the ID 1-1"),
    ("a batch begins in the middle", replace(STATE, stream=[("1-1", "s1"), ("2-1", "s3")]), "not the first"),
    ("an element is lost", replace(STATE, elements=_elements()), "acknowledged and lost: ['l2']"),
    ("an element was popped and stays", replace(STATE, elements=_elements("l1", "l2")), "l1 was found 2 times"),
    ("a rejected write happened", replace(STATE, elements=_elements("l2", "l3")), "the write of l3 was rejected"),
    ("an element comes from nowhere", replace(STATE, elements=_elements("l2", "x")), "x was never written"),
    ("a transaction is torn", replace(STATE, pairs=(["p1"], [], ["p1"], 1)), "transactions are torn"),
    ("a watched key was overwritten", replace(STATE, numbered=[(1, "c1"), (1, "c2")], cas_count=1), "the count is 1"),
    ("a counter went back", replace(STATE, counter=0), "counter: it is 0"),
    ("a string is of another write", replace(STATE, own={"a": "x"}), "x found in place of o1"),
    ("a message is lost", replace(STATE, pending=set()), "2-1 (s2) is neither pending nor acknowledged"),
    ("an acknowledged message is pending", replace(STATE, pending={"1-1", "2-1"}), "1-1 was acknowledged, but is"),
    ("a message was delivered too early", replace(STATE, last_delivered="1-1"), "2-1 was delivered, but the group"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "text"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_state_that_breaks_the_law(state: State, text: str) -> None:
    assert any(text in problem for problem in violations(CALLS, state)), violations(CALLS, state)


def test_an_acknowledgement_that_was_not_sent_has_no_effect() -> None:
    calls = [*CALLS, _call("ack", "ack", "2-1", outcome=Outcome.NOT_DONE)]
    problems = violations(calls, replace(STATE, pending=set()))
    assert problems == ["group: 2-1 (s2) is neither pending nor acknowledged"]


def test_two_deliveries_of_a_new_message() -> None:
    calls = [*CALLS, _call("group_read", "new", result=[("2-1", "s2")])]
    assert "group: 2-1 was delivered as new 2 times" in violations(calls, STATE)


def test_a_pop_of_unknown_outcome_explains_one_missing_element() -> None:
    calls = [*CALLS, _call("pop", "list", outcome=Outcome.UNKNOWN, may_take=1)]
    assert violations(calls, replace(STATE, elements=_elements())) == []
