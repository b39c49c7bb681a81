"""What the ledger looks for when it is settled: events that are missing, there twice, out of order, counted wrongly.

    parquet, stream   the numbers that are there
    ordered           the numbers in the order of the stream
    hashes            event:<n>    {text}                        an upsert, whose repetition changes nothing
                      class:<k>    {events, total, latest}       of the events with n % 7 = k: HINCRBY of how many there
                                                                 are and of their sum, HSET of the latest, in one write
    counters          event:<n>    {text, times}                 HINCRBY of 1: the event itself counts how often it came

The counters must fit the hashes that are there, and those are compared with what the producer sent. So a batch that is
added twice is seen, and so is one whose hashes were written and whose counters were not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

CLASSES = 7
BATCH = 100
"""Events that the producer appends at a time: so many may be there without its knowledge."""

Hashes = dict[str, dict[str, str]]
"""Fields by the rest of the key."""


class Lost(AssertionError):
    """An event is missing, or there twice, or was never produced, or is not in order."""


def settle(events: int, found: Counter[int], problems: Iterable[str] = ()) -> None:
    """Raise Lost unless every event is there exactly once, and there are no other problems."""
    missing = sorted(set(range(events)) - set(found))
    doubled = sorted(n for n, times in found.items() if times > 1)
    strangers = sorted(set(found) - set(range(events + BATCH * 2)))
    wrong = list(problems)
    if missing or doubled or strangers:
        wrong.insert(
            0,
            f"of {events} events {len(missing)} are missing ({missing[:5]} ...), {len(doubled)} are there twice or "
            f"more ({doubled[:5]} ...), {len(strangers)} were never produced ({strangers[:5]} ...)",
        )
    if wrong:
        raise Lost("; ".join(wrong))


def order_problems(numbers: list[int], streams: int = 1) -> list[str]:
    """Return what is wrong with the order of a copy; a copy of several streams has the order of each of them."""
    newest = dict.fromkeys(range(streams), -1)
    late = []
    for n in numbers:
        if n < newest[n % streams]:
            late.append(n)
        newest[n % streams] = max(newest[n % streams], n)
    return [f"{len(late)} events are out of order ({late[:5]} ...)"] if late else []


def text_of(n: int) -> str:
    """Return the text that event n has in its hash."""
    return f"event {n}"


def times_in(hashes: Hashes) -> Counter[int]:
    """Return how often each event is in the hashes: what it counts itself, else once."""
    return Counter({int(key): int(fields.get("times", 1)) for key, fields in hashes.items()})


def hash_problems(hashes: Hashes, names: set[str]) -> list[str]:
    """Return what is wrong with the fields of the events' hashes."""
    wrong = sorted(
        int(key) for key, fields in hashes.items() if set(fields) != names or fields["text"] != text_of(int(key))
    )
    return [f"{len(wrong)} events have wrong fields ({[hashes[str(n)] for n in wrong[:3]]} ...)"] if wrong else []


def class_problems(classes: Hashes, events: Iterable[int]) -> list[str]:
    """Return what is wrong with the counters of the classes, given the events that have a hash."""
    expected = {str(k): {"events": 0, "total": 0, "latest": 0} for k in range(CLASSES)}
    for n in events:
        fields = expected[str(n % CLASSES)]
        fields["events"] += 1
        fields["total"] += n
        fields["latest"] = max(fields["latest"], n)
    found = {key: {name: int(text) for name, text in fields.items()} for key, fields in classes.items()}
    return [
        f"class {key} is {found.get(key)}, and its events make {expected.get(key)}"
        for key in sorted(set(found) | set(expected))
        if found.get(key) != expected.get(key)
    ]
