"""Each parameter of the store's methods refuses other types and values, with an error that names it.

The arguments are checked before a command is sent, so a store in memory shows it for every kind of store.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import rillet

WRONG: list[Any] = [None, "10", -1, 1.5, math.nan, b"", object(), []]
# Valid arguments, for all methods and for one.
VALID: dict[str, Any] = {
    "name": "n", "key": "k", "to": "k2", "seconds": 5, "moment": datetime(2040, 1, 1, tzinfo=UTC), "field": "f",
    "value": "1", "default": "1", "fields": {"f": "1"}, "values": {"f": "1"}, "id": "1-0", "after": "0", "count": 1,
    "function": lambda transaction: 1, "watch": ["k"], "streams": ["s"], "group": "g", "channel": "c", "data": "d",
    "source": "return 1", "idle": 0, "index": 0, "member": "m", "score": 1.0, "members": {"m": 1.0}, "by": 1,
    "entries": [{"a": "1"}], "start": 0, "end": 1, "number": 1, "offset": 1, "offsets": [1], "kind": "u8",
    "operation": "or", "size": 3, "indexes": [0], "elements": ["a"], "longitude": 1.0, "latitude": 1.0,
    "places": [("m", 1.0, 1.0)], "one": "m", "other": "m", "pivot": "1", "pattern": "*", "codec": rillet.codecs.text,
}  # fmt: skip
OF_METHOD: dict[str, dict[str, Any]] = {
    "Stream.trim": {"maxlen": 10}, "Stream.follow": {"timeout": 0.01, "after": "0"}, "Stream.add": {"id": "*"},
    "Store.read": {"after": {"s": "0"}}, "Bitmap.set_field": {"value": 1},
    "Hash.mget": {"fields": ["f"]}, "Hash.get_and_delete": {"fields": ["f"]},
    "Hash.get_and_expire": {"fields": ["f"]}, "List.extend": {"values": ["1"]}, "List.extendleft": {"values": ["1"]},
    "Set.contains_many": {"values": ["1"]}, "Set.isdisjoint": {"other": ["1"]},
    "Set.symmetric_difference": {"other": ["1"]}, "Set.symmetric_difference_update": {"other": ["1"]},
    "Geo.search": {"at": (1.0, 1.0), "radius": 1.0}, "Array.find": {"equals": "1"}, "Array.find_items": {"equals": "1"},
    "Array.set_range": {"values": ["1"]}, "Array.extend": {"values": ["1"]}, "Array.update": {"values": {0: "1"}},
    "SortedSet.sorted_values": {"alpha": True}, "SortedSet.sorted_lookup": {"alpha": True},
    "Consumer.messages": {"stop_when_empty": True, "max_deliveries": 5, "dead_letters": "d", "timeout": 0.01},
}  # fmt: skip
SEVERAL: dict[str, list[Any]] = {
    "ids": ["1-0"], "args": ["PING"], "fields": ["f"], "members": ["m"], "indexes": [0], "names": ["k"], "get": ["#"],
    "elements": ["a"], "values": ["1"], "streams": ["s"], "channels": ["c"],
}  # fmt: skip
# Methods that need another store, another thread or a package, or that are the transport's.
OMITTED = set(
    """close before_fork after_fork run run_many add_packed read_entries id_of replacement replace_transport redis
    redis_async aio workers serve save plot entries_of messages_of read_command claim_command pending_command parts
    to_arrow to_pandas to_polars add_arrow info execute_many load_functions configure_idmp delete_if search_store move
    store_sorted set hand_back create_missing post""".split()
)
# Parameters that take any object, and texts of Redis for a value of the right type.
ANYTHING = {"default", "stop"}
OF_REDIS = ("unknown command", "IDMPAUTO", "hexadecimal", "bitfield type", "regular expression", "does not contain")


@pytest.fixture
def store() -> Iterator[rillet.Store]:
    with rillet.open() as store:
        yield store


def filled(store: rillet.Store) -> dict[str, Any]:
    """Fill a store and return an object of each class."""
    store.execute("FLUSHALL")
    stream = store.stream("s")
    stream.add_many([(n + 1, {"a": n}) for n in range(3)])
    stream.group("g").create()
    made: dict[str, Any] = {
        "Store": store, "Stream": stream, "Group": stream.group("g"), "Consumer": stream.group("g").consumer("w"),
        "Hash": store.hash("h"), "List": store.list("l"), "Set": store.set("e"), "SortedSet": store.zset("z"),
        "String": store.string("k"), "Counter": store.counter("c"), "Bitmap": store.bitmap("b"),
        "Geo": store.geo("geo"), "HyperLogLog": store.hyperloglog("hll"), "Array": store.array("arr"),
    }  # fmt: skip
    made["Hash"].update({"f": "1"})
    made["List"].extend(["1", "2"])
    made["Set"].update(["1", "2"])
    made["SortedSet"].update({"m": 1.0})
    made["String"].set_value("5")
    made["Bitmap"].set_value(7)
    made["Geo"].add("m", 13.0, 38.0)
    made["Array"].extend(["1", "2"])
    return made


def call(method: Any, given: dict[str, Any], several: list[Any] | None = None) -> None:
    """Call a method, and read the first items of an iterator."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += SEVERAL.get(parameter.name, []) if several is None else several
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.name in given:
            named[parameter.name] = given[parameter.name]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(given.get(parameter.name, parameter.default))
    result = method(*positional, **named)
    if hasattr(result, "__next__"):
        list(zip(range(5), result, strict=False))
    if isinstance(result, rillet.Subscription):
        result.close()


def problem_of(
    method: Any, given: dict[str, Any], parameter: inspect.Parameter, wrong: Any
) -> tuple[str | None, bool]:
    """Return what is wrong with the error for a wrong argument, and whether the call may have changed something.

    The first is None if the error is right, or the value is accepted.
    """
    one = parameter.kind is parameter.VAR_POSITIONAL
    try:
        call(method, given if one else {**given, parameter.name: wrong}, [wrong] if one else None)
    except (KeyError, IndexError):
        return None, True
    except (TypeError, ValueError, rillet.CommandError) as error:
        return (None if _names(error, parameter) else str(error)), not isinstance(error, TypeError)
    except Exception as error:
        return repr(error), True
    accepts = parameter.name in ANYTHING or method.__name__ == "contains"
    return ("accepted" if type(wrong) is object and not accepts else None), True


def _names(error: Exception, parameter: inspect.Parameter) -> bool:
    """Return whether the text of an error names the parameter."""
    text = str(error)
    return parameter.name.rstrip("s") in text or "key '" in text or any(one in text for one in OF_REDIS)


@pytest.mark.parametrize("kind", sorted(filled(rillet.open())))
def test_each_parameter_refuses_other_values(store: rillet.Store, kind: str) -> None:
    problems = []
    made = filled(store)[kind]
    for name, _ in inspect.getmembers(type(made), inspect.isfunction):
        if name.startswith("_") or name in OMITTED:
            continue
        method = getattr(made, name)
        for parameter in inspect.signature(method).parameters.values():
            for wrong in WRONG:
                if parameter.kind is parameter.VAR_KEYWORD or wrong is parameter.default:
                    continue
                method = getattr(made, name)
                given = {**VALID, **OF_METHOD.get(f"{kind}.{name}", {})}
                required = {
                    one.name: given[one.name] for one in inspect.signature(method).parameters.values()
                    if one.name in OF_METHOD.get(f"{kind}.{name}", {})
                    or (one.default is one.empty and one.name in given)
                }  # fmt: skip
                problem, changed = problem_of(method, required, parameter, wrong)
                if problem is not None:
                    problems.append(f"{kind}.{name}({parameter.name}={wrong!r}): {problem}")
                if changed:
                    made = filled(store)[kind]
    assert problems == []
