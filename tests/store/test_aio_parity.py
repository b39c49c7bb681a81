"""The asyncio API has every method of the synchronous API, with the same parameters, defaults and types."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import rillet
import rillet.aio
import rillet.records
from rillet import PartitionedConsumer, PartitionedGroup, PartitionedStream
from rillet.aio import AsyncPartitionedConsumer, AsyncPartitionedGroup, AsyncPartitionedStream
from rillet.store import aio
from rillet.store.aio.group import AsyncMessageReader
from rillet.store.aio.script import AsyncScript, AsyncStoredFunction
from rillet.store.aio.stored_key import AsyncStoredKey
from rillet.store.arguments.entry_packing import EntryPacker
from rillet.store.channels import Names
from rillet.store.group import MessageReader
from rillet.store.script import Script, StoredFunction
from rillet.store.types.stored_key import StoredKey
from tools import make_aio

PAIRS: dict[type, type] = {
    **{getattr(rillet, name.removeprefix("Async")): getattr(aio, name) for name in aio.__all__},
    StoredKey: AsyncStoredKey,
    MessageReader: AsyncMessageReader,
    Script: AsyncScript,
    StoredFunction: AsyncStoredFunction,
    PartitionedConsumer: AsyncPartitionedConsumer,
    PartitionedGroup: AsyncPartitionedGroup,
    PartitionedStream: AsyncPartitionedStream,
}
NAMES = {synchronous.__name__: twin.__name__ for synchronous, twin in PAIRS.items()}

# What has no asyncio form, and why.
VIEW = "a view has len() and `in`, which cannot wait: use `async for`, scan or get_all"
ABSENT = {
    "Store.after_fork": "the Store does this",
    "Store.aio": "it returns the asyncio API",
    "Store.before_fork": "the Store does this",
    "Store.may_wait": "a question of the asyncio API itself",
    "Store.redis": "a synchronous client: use redis_async",
    "Store.replace_transport": "part of how Store runs commands",
    "Store.replacement": "part of how Store runs commands",
    **{f"{name}.{view}": VIEW for name in ("Hash", "SortedSet") for view in ("keys", "items", "values")},
    "Subscription.after_fork": "the Store does this",
    "Subscription.connection": "part of how Subscription waits",
    "Subscription.wait": "get waits",
    "Subscription.poll": "get polls",
    "Subscription.take_message": "get takes",
}
# What the asyncio classes have in addition.
ADDED = {
    "AsyncStore": {"exclusive", "in_thread", "synchronous"},
    "AsyncSubscription": {"store", "synchronous"},
}
# Methods that run no command, and so are the same in both.
PLAIN = {
    "Store": {"array", "bitmap", "counter", "function", "geo", "hash", "hyperloglog", "list", "partitioned",
              "redis_async", "script", "set", "stream", "string", "transaction", "zset"},
    "Stream": {"entries_of", "read_command"},
    "Group": {"consumer", "pending_command"},
    "Consumer": {"claim_command", "messages_of", "parts", "read_command"},
    "MultiConsumer": {"parts"},
    "PartitionedConsumer": {"parts"},
    "PartitionedGroup": {"consumer", "created", "part"},
    "PartitionedStream": {"group"},
    "MessageReader": {"parts"},
    "Message": {"get", "items", "keys", "values"},
}  # fmt: skip
# Operators: their asyncio form, or the method to use in place of each.
OPERATORS = {
    "__aiter__": "__iter__", "__aenter__": "__enter__", "__aexit__": "__exit__",
}  # fmt: skip
NAMED = {
    "__len__": ("length", "size", "keys"),
    "__bool__": ("exists",),
    "__getitem__": ("get", "get_value", "get_object"),
    "__setitem__": ("set_value",),
    "__delitem__": ("remove", "delete"),
    "__contains__": ("contains", "exists"),
    "__reversed__": ("scan", "pages", "range"),
    "__int__": ("get_value",),
    "__float__": ("get_float",),
    "__eq__": ("get_all", "members", "get_bytes"),
    **dict.fromkeys(("__le__", "__lt__", "__ge__", "__gt__", "__or__", "__and__", "__sub__", "__xor__", "__ror__",
                     "__rand__", "__rsub__", "__rxor__"), ("members", "union", "difference")),
    **dict.fromkeys(("__ior__", "__iand__", "__isub__", "__ixor__"), ("update", "difference_update")),
}  # fmt: skip
SAME = {"__init__", "__repr__", "__slots__", "__hash__", "__reduce__"}

CLASSES = pytest.mark.parametrize(
    ("synchronous", "twin"), list(PAIRS.items()), ids=[one.__name__ for one in PAIRS]
)  # fmt: skip


def _public(cls: type) -> set[str]:
    found = {name for name in dir(cls) if not name.startswith("_")}
    slots = {name for base in cls.__mro__ for name in getattr(base, "__slots__", ())}
    return found | {name for name in slots if not name.startswith("_")}


def _absent(cls: type) -> set[str]:
    return {name.partition(".")[2] for name in ABSENT if name.partition(".")[0] == cls.__name__}


@CLASSES
def test_every_method_has_an_asyncio_form(synchronous: type, twin: type) -> None:
    missing = _public(synchronous) - _public(twin) - _absent(synchronous)
    assert not missing, f"{twin.__name__} lacks {sorted(missing)}: run python -m tools.make_aio, or add them by hand"
    extra = _public(twin) - _public(synchronous) - ADDED.get(twin.__name__, set())
    assert not extra


@CLASSES
def test_what_is_absent_is_absent(synchronous: type, twin: type) -> None:
    for name in _absent(synchronous):
        assert hasattr(synchronous, name)
        assert not hasattr(twin, name)


@CLASSES
def test_every_operator_has_a_method(synchronous: type, twin: type) -> None:
    own = {
        name
        for base in synchronous.__mro__
        if base.__module__.startswith("rillet.")
        for name, value in vars(base).items()
        if re.fullmatch("__[a-z]+__", name) and callable(value)
    }
    inherited = {name for base in twin.__mro__ if base.__module__.startswith("rillet.") for name in vars(base)}
    for name in own - SAME - inherited:
        match = [async_name for async_name, plain in OPERATORS.items() if plain == name]
        if match:
            assert hasattr(twin, match[0]), f"{twin.__name__} lacks {match[0]}"
        else:
            assert any(hasattr(twin, one) for one in NAMED[name]), f"{twin.__name__} has no method for {name}"


def _methods() -> list[Any]:
    found = []
    for synchronous, twin in PAIRS.items():
        for name in sorted(_public(synchronous) & _public(twin)):
            if callable(getattr(synchronous, name)) or isinstance(inspect.getattr_static(synchronous, name), property):
                found.append(pytest.param(synchronous, twin, name, id=f"{synchronous.__name__}.{name}"))
    return found


class _Anything(type):
    """A module that may be absent, for the annotations that name its classes."""

    def __getattr__(cls, name: str) -> Any:
        return Any


class _Missing(metaclass=_Anything):
    pass


def _hints(function: Any, owner: type) -> dict[str, str]:
    """Return the types of the parameters and of the result as text, in the names of the synchronous API."""
    names = {name: getattr(rillet, name) for name in rillet.__all__ if name != "set"}
    names |= {name: getattr(module, name) for module in (rillet.aio, rillet.records) for name in module.__all__}
    names["EntryPacker"] = EntryPacker
    names |= {one.__name__: one for pair in PAIRS.items() for one in pair}
    names |= {"pyarrow": _Missing, "polars": _Missing, "redis": _Missing, "AsyncRedis": Any}
    names |= {"Self": owner, "Names": Names}
    # An alias that is a text (Position: "IDLike | datetime") cannot be evaluated: its name stands for it.
    known = vars(inspect.getmodule(function))
    names = known | names | {name: TypeVar(name) for name, value in known.items() if isinstance(value, str)}
    hints = typing.get_type_hints(function, globalns=names)
    return {name: _text(hint) for name, hint in hints.items()}


def _text(hint: Any) -> str:
    text = inspect.formatannotation(hint) if not isinstance(hint, type) else hint.__qualname__
    text = re.sub(r"[\w.]+\.(?=\w)", "", text)
    for synchronous, twin in NAMES.items():
        text = re.sub(rf"\b{twin}\b", synchronous, text)
    return re.sub(r"\bAsync(?=Iterator|Transaction\b)", "", text).replace("StoreTransaction", "Transaction")


@pytest.mark.parametrize(("synchronous", "twin", "name"), _methods())
def test_the_signatures_are_equal(synchronous: type, twin: type, name: str) -> None:
    original, made = (inspect.getattr_static(cls, name) for cls in (synchronous, twin))
    if isinstance(original, property):
        if isinstance(made, property):
            assert _hints(original.fget, synchronous) == _hints(made.fget, twin)
            return
        assert inspect.iscoroutinefunction(made)  # a property that runs a command is a method
        original = original.fget
    else:
        original, made = getattr(synchronous, name), getattr(twin, name)
    theirs, ours = inspect.signature(original), inspect.signature(made)
    assert [(one.name, one.kind, one.default) for one in theirs.parameters.values()] == [
        (one.name, one.kind, one.default) for one in ours.parameters.values()
    ]
    if original is made:  # inherited by both, such as Entry.keys
        return
    expected, found = _hints(original, synchronous), _hints(made, twin)
    if (synchronous.__name__, name) == ("Store", "transact"):  # its function is a coroutine function
        found["function"] = found["function"].replace("Awaitable[~Result]", "~Result")
    assert found == expected
    _check_kind(synchronous, name, made)


def _check_kind(synchronous: type, name: str, made: Callable[..., Any]) -> None:
    """A method that runs a command is a coroutine function, or returns an asynchronous iterator."""
    plain = any(name in PLAIN.get(base.__name__, ()) for base in synchronous.__mro__)
    result = str(made.__annotations__.get("return"))
    iterates = "AsyncIterator" in result
    if plain or iterates:
        assert not inspect.iscoroutinefunction(made)
    else:
        assert inspect.iscoroutinefunction(made)
    if inspect.isasyncgenfunction(made):
        assert result.startswith("AsyncIterator[")


@pytest.fixture(scope="module")
def generated() -> dict[Path, str]:
    """The text of each file that the generator writes."""
    return make_aio.generated()


def test_the_files_are_what_the_generator_writes(generated: dict[Path, str]) -> None:
    for path, text in generated.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is not up to date: run python -m tools.make_aio"


def test_every_module_of_the_package_is_made_or_written_by_hand(generated: dict[Path, str]) -> None:
    folder = Path(aio.__file__).parent
    by_hand = {"__init__", "runner", "subscription"}
    made = {path.stem for path in generated}
    assert {path.stem for path in folder.glob("*.py")} == by_hand | made


def test_a_synchronous_module_with_commands_has_an_asyncio_form() -> None:
    """A new module that runs commands through a Store must be added to the generator."""
    known = {"aio", "transaction", "channels", "serving", "backend"}
    for path in sorted(make_aio.FOLDER.glob("*.py")) + sorted(make_aio.FOLDER.glob("types/*.py")):
        name = ".".join(path.relative_to(make_aio.FOLDER).with_suffix("").parts)
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, ast.Call)}  # fmt: skip
        if name not in known and any(re.search(r"\bstore\.(run|run_many|id_of)$", call) for call in calls):
            assert name in make_aio.MODULES, f"{name} runs commands: add it to MODULES in tools/make_aio.py"
