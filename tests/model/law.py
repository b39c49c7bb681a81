"""The law: what the recorded calls say about the data that one transaction found at the end of the round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rillet.types.stream.id import StreamID
from tests.model.history import Call, Outcome
from tests.model.operations import GROUP, Keys

Entries = list[tuple[str, str]]  # (ID, token)


@dataclass
class State:
    """The data of a round's keys."""

    stream: Entries
    pending: set[str]
    last_delivered: str
    elements: dict[str, list[str]]  # place -> the elements that are there
    pairs: tuple[list[str], list[str], list[str], int]
    numbered: list[tuple[int, str]]
    cas_count: int
    counter: int
    own: dict[str, str | None]


def read_state(store: Any, keys: Keys, actors: Sequence[str]) -> State:
    """Read the keys of a round in one transaction."""
    commands = [
        ["XRANGE", keys.stream, "-", "+"],
        ["XPENDING", keys.stream, GROUP, "-", "+", "1000000"],
        ["XINFO", "GROUPS", keys.stream],
        ["LRANGE", keys.list, "0", "-1"],
        ["LRANGE", keys.list2, "0", "-1"],
        ["SMEMBERS", keys.set],
        ["ZRANGE", keys.zset, "0", "-1"],
        ["HVALS", keys.hash],
        ["XRANGE", keys.pair1, "-", "+"],
        ["XRANGE", keys.pair2, "-", "+"],
        ["LRANGE", keys.pair_list, "0", "-1"],
        ["GET", keys.pairs],
        ["XRANGE", keys.cas, "-", "+"],
        ["GET", keys.cas_count],
        ["GET", keys.counter],
        *(["GET", keys.own(actor)] for actor in actors),
    ]
    (stream, pending, groups, one, two, members, ranked, values, pair1, pair2, pair_list, pairs, numbered, cas_count,
     counter, *own) = store.execute_many([["MULTI"], *commands, ["EXEC"]])[-1]  # fmt: skip
    group = {groups[0][at]: groups[0][at + 1] for at in range(0, len(groups[0]), 2)}
    return State(
        stream=_entries(stream),
        pending={row[0].decode() for row in pending},
        last_delivered=group[b"last-delivered-id"].decode(),
        elements={"list": _texts([*one, *two]), "set": sorted(_texts(members)), "zset": _texts(ranked),
                  "hash": sorted(_texts(values))},
        pairs=([t for _, t in _entries(pair1)], [t for _, t in _entries(pair2)], _texts(pair_list), int(pairs or 0)),
        numbered=[(int(flat[3]), flat[1].decode()) for _, flat in numbered],
        cas_count=int(cas_count or 0),
        counter=int(counter or 0),
        own={actor: value and value.decode() for actor, value in zip(actors, own, strict=True)},
    )  # fmt: skip


def _texts(raw: Iterable[bytes]) -> list[str]:
    return [one.decode() for one in raw]


def _entries(rows: Any) -> Entries:
    return [(made.decode(), flat[1].decode()) for made, flat in rows]


def violations(calls: Sequence[Call], state: State) -> list[str]:
    """Return what contradicts the law; nothing if the state follows from the calls."""
    found: list[str] = []
    of_place: dict[str, list[Call]] = {}
    for call in calls:
        of_place.setdefault(call.place, []).append(call)
    found += _stream(of_place.get("stream", []), state)
    for place, elements in state.elements.items():
        found += _elements(place, of_place.get(place, []), elements)
    found += _pairs(of_place.get("pair", []), state)
    found += _numbered(of_place.get("cas", []), state)
    found += _counter(of_place.get("counter", []), state)
    for actor, value in state.own.items():
        found += _own(of_place.get(f"own:{actor}", []), value)
    found += _messages(of_place, state)
    return found


def _presence(place: str, calls: Iterable[Call], times: Counter[str], lost: int = 0) -> list[str]:
    """Compare how often each value was found with the outcome of its write; `lost` values may be missing."""
    found: list[str] = []
    outcomes = {token: call.outcome for call in calls for token in call.tokens}
    for token, count in times.items():
        if token not in outcomes:
            found.append(f"{place}: {token} was never written, but found")
        elif count > 1:
            found.append(f"{place}: {token} was found {count} times")
        elif outcomes[token] is Outcome.NOT_DONE:
            found.append(f"{place}: the write of {token} was rejected, but the value found")
    missing = [token for token, outcome in outcomes.items() if outcome is Outcome.DONE and not times[token]]
    if len(missing) > lost:
        found.append(f"{place}: acknowledged and lost: {missing}" + (f"; only {lost} may be" if lost else ""))
    return found


def _stream(calls: list[Call], state: State) -> list[str]:
    found = _presence("stream", calls, Counter(token for _, token in state.stream))
    there = dict(state.stream)
    for call in calls:
        if call.done:
            ids = call.result if isinstance(call.result, list) else [call.result]
            for made, token in zip(ids, call.tokens, strict=True):
                if there.get(made) not in (token, None):
                    found.append(f"stream: {token} got the ID {made}, where {there[made]} is")
        # add_many is one exchange: an interrupted one added its first entries, in order.
        present = [token in set(there.values()) for token in call.tokens]
        if sorted(present, reverse=True) != present:
            found.append(f"stream: {call} added not the first of its entries: {present}")
    return found


def _elements(place: str, calls: list[Call], elements: list[str]) -> list[str]:
    times = Counter(elements)
    for call in calls:
        if call.done and call.may_take:
            times.update(call.result)
    # A call that was interrupted may have taken elements, and its caller does not know which.
    return _presence(place, calls, times, sum(call.may_lose for call in calls if call.unknown))


def _pairs(calls: list[Call], state: State) -> list[str]:
    one, two, listed, count = state.pairs
    found = _presence("pair", calls, Counter(one))
    if not one == two == listed or count != len(one):
        found.append(f"pair: transactions are torn: {one} {two} {listed} {count}")
    return found


def _numbered(calls: list[Call], state: State) -> list[str]:
    found = _presence("cas", calls, Counter(token for _, token in state.numbered))
    numbers = [number for number, _ in state.numbered]
    if numbers != list(range(1, state.cas_count + 1)):
        found.append(f"cas: the count is {state.cas_count}, but the transactions wrote {numbers}")
    return found


def _counter(calls: list[Call], state: State) -> list[str]:
    returned = sorted(call.result for call in calls if call.done)
    most = len(returned) + sum(call.unknown for call in calls)
    if len(set(returned)) != len(returned):
        return [f"counter: two calls returned the same number: {returned}"]
    if not len(returned) <= state.counter <= most or (returned and returned[-1] > state.counter):
        return [f"counter: it is {state.counter} after {len(returned)} to {most} calls that returned {returned}"]
    return []


def _own(calls: list[Call], value: str | None) -> list[str]:
    """Check a string that one actor writes. A write of unknown outcome may take effect late, so it stays possible."""
    found: list[str] = []
    last: str | None = None
    unknown: set[str] = set()
    for call in sorted(calls, key=lambda call: call.number):
        if call.name == "own_set":
            if call.done:
                last = call.tokens[0]
            elif call.unknown:
                unknown.update(call.tokens)
        elif call.done and call.result != last and call.result not in unknown:
            found.append(f"own: {call} should have returned {last} or one of {sorted(unknown)}")
    if value != last and value not in unknown:
        found.append(f"own: {value} found in place of {last}")
    return found


def _messages(of_place: dict[str, list[Call]], state: State) -> list[str]:
    found: list[str] = []
    there = dict(state.stream)
    acked, maybe, all_maybe = _acknowledged(of_place)
    last = StreamID.parse(state.last_delivered)
    delivered: Counter[str] = Counter()
    for call in (*of_place.get("new", []), *of_place.get("old", [])):
        for made, token in call.result if call.done else []:
            if there.get(made) != token:
                found.append(f"group: {call} delivered {made} as {token}, but it is {there.get(made)}")
            if StreamID.parse(made) > last:
                found.append(f"group: {made} was delivered, but the group is at {last}")
            delivered[made] += call.place == "new"
    found += [f"group: {made} was delivered as new {count} times" for made, count in delivered.items() if count > 1]
    for made in acked & state.pending:
        found.append(f"group: {made} was acknowledged, but is pending")
    for made in there:
        past = StreamID.parse(made) <= last
        if made in state.pending and not past:
            found.append(f"group: {made} is pending, but the group is at {last}")
        if past and made not in state.pending and made not in acked and made not in maybe and not all_maybe:
            found.append(f"group: {made} ({there[made]}) is neither pending nor acknowledged")
        if not past and made in acked:
            found.append(f"group: {made} was acknowledged before it was delivered")
    return found


def _acknowledged(of_place: dict[str, list[Call]]) -> tuple[set[str], set[str], bool]:
    """Return the IDs that were acknowledged, those that may have been, and whether any other may have been too."""
    acked: set[str] = set()
    maybe: set[str] = set()
    for call in of_place.get("ack", []):
        if call.outcome is not Outcome.NOT_DONE:
            (acked if call.done else maybe).update(call.tokens)
    all_maybe = False
    for call in of_place.get("handled", []):
        if call.result is None:
            all_maybe = True  # its process was killed in the loop
        elif call.done:
            acked.update(call.result)
        else:
            acked.update(call.result[:-1])
            maybe.update(call.result[-1:])
    return acked, maybe - acked, all_maybe


def to_drain(calls: Sequence[Call], state: State) -> tuple[set[str], set[str]]:
    """Return the IDs that a consumer which claims everything must get, and those that it may get as well."""
    of_place: dict[str, list[Call]] = {}
    for call in calls:
        of_place.setdefault(call.place, []).append(call)
    acked, maybe, all_maybe = _acknowledged(of_place)
    there = {made for made, _ in state.stream}
    allowed = there - acked
    return (set() if all_maybe else allowed - maybe), allowed


__all__ = ["State", "read_state", "to_drain", "violations"]
