"""Any value of a composed type survives a stream, in process and in Redis, and redis-py reads the same fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

import rillet
from rillet import Store
from rillet.store.codecs import json_of, text_of
from tests.judge import Judge
from tests.variants import covering


class Status(Enum):
    NEW = "new"
    PAID = "paid"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Item:
    name: str
    prices: list[Decimal]
    status: Status | None = None


class Part(pydantic.BaseModel):
    name: str
    weight: float | None


PLAIN = (str, bool, int, float, bytes, Decimal, Enum, UUID, date, time)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SMALL = st.integers(-(2**63), 2**63 - 1)
STATUS = st.sampled_from(Status)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
ITEMS = st.builds(Item, st.text(), st.lists(DECIMALS, max_size=3), st.none() | STATUS)
TEXTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, st.text()), (bytes, st.binary()), (bool, st.booleans()), (int, st.integers()), (float, FINITE),
    (datetime, st.datetimes(timezones=st.just(UTC))), (date, st.dates()), (time, st.times()), (Decimal, DECIMALS),
    (UUID, st.uuids()), (Status, STATUS), (Level, st.sampled_from(Level)), (Literal["a", "b"], st.sampled_from("ab")),
]  # fmt: skip
NESTED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (list[int], st.lists(SMALL, max_size=3)), (dict[str, float], st.dictionaries(st.text(), FINITE, max_size=3)),
    (tuple[bool, str], st.tuples(st.booleans(), st.text())), (set[int], st.sets(SMALL, max_size=3)),
    (int | str, SMALL | st.text()), (list[UUID | None], st.lists(st.none() | st.uuids(), max_size=3)),
]  # fmt: skip
MSGSPEC = [*NESTED, (Item, ITEMS)]
PYDANTIC = [*NESTED, (Part, st.builds(Part, name=st.text(), weight=st.none() | FINITE))]


@dataclass
class Sample:
    """A class that was composed, and a value of it, as the arguments of the class."""

    kind: Any
    values: dict[str, Any]
    types: dict[str, Any]


@st.composite
def samples(draw: st.DrawFn, form: str, codec: str = "fields") -> Sample:
    """Compose a class of fields of any types, required or with a default, that allow None or not."""
    choices = st.sampled_from(TEXTS + (PYDANTIC if form == "pydantic" else MSGSPEC))
    types, values, defaults = {}, {}, {}
    for number, (kind, strategy) in enumerate(draw(st.lists(choices, max_size=6))):
        if codec != "fields" and (kind is int or (form, kind) == ("pydantic", bytes)):
            # MessagePack has integers of 64 bits; pydantic's JSON has bytes that are UTF-8.
            strategy = SMALL if kind is int else st.text().map(str.encode)
        name = f"f{number}"
        optional, has_default = draw(st.booleans()), draw(st.booleans())
        types[name] = kind | None if optional else kind
        if has_default:
            defaults[name] = None if optional else draw(strategy)
        if not (has_default and draw(st.booleans())):
            values[name] = draw(st.none() | strategy if optional else strategy)
    return Sample(_MAKERS[form](types, defaults), values, types)


def _dataclass(types: dict[str, Any], defaults: dict[str, Any]) -> Any:
    fields: list[Any] = []
    for name, kind in types.items():
        if defaults.get(name) is not None:
            fields.append((name, kind, field(default_factory=partial(defaults.get, name))))
        else:
            fields.append((name, kind, field(default=defaults.get(name, MISSING))))
    return make_dataclass("Made", fields, kw_only=True)


def _struct(types: dict[str, Any], defaults: dict[str, Any]) -> Any:
    fields: list[Any] = []
    for name, kind in types.items():
        if defaults.get(name) is not None:
            fields.append((name, kind, msgspec.field(default_factory=partial(defaults.get, name))))
        else:
            fields.append((name, kind, None) if name in defaults else (name, kind))
    return msgspec.defstruct("Made", fields, kw_only=True, rename="upper")


def _model(types: dict[str, Any], defaults: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {name: (kind, defaults.get(name, ...)) for name, kind in types.items()}
    made: Any = pydantic.create_model("Made", **fields)
    return made


def _typed_dict(types: dict[str, Any], defaults: dict[str, Any]) -> Any:
    made = TypedDict("Made", {  # type: ignore[misc]
        name: NotRequired[kind] if defaults.get(name) is not None else kind for name, kind in types.items()
    })  # fmt: skip
    return made


_MAKERS: dict[str, Any] = {"dataclass": _dataclass, "struct": _struct, "pydantic": _model, "dict": _typed_dict}


def _value_of(form: str, sample: Sample) -> Any:
    if form == "dict":  # a key that may be None is required
        optional = [name for name, kind in sample.types.items() if type(None) in getattr(kind, "__args__", ())]
        return {**dict.fromkeys(optional), **sample.values}
    return sample.kind(**sample.values)


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    with rillet.open() as store:
        yield store


@pytest.mark.parametrize(("form", "codec"), covering(_MAKERS, ["fields", "json", "msgpack"]))
@given(data=st.data())
def test_any_value_survives(memory: Store, form: str, codec: Any, data: st.DataObject) -> None:
    sample = data.draw(samples(form, codec))
    value = _value_of(form, sample)
    stream: Any = memory.stream("s", type=sample.kind, codec=codec)
    if form == "dict" and any(name not in value for name in sample.kind.__required_keys__):
        with pytest.raises(TypeError, match="is missing") if codec == "fields" else pytest.raises(ValueError):
            stream.add(value)
        return
    entry = stream[stream.add(value)]
    assert entry.value == value
    assert type(entry.value) is type(value)


@pytest.mark.parametrize("form", _MAKERS)
def test_redis_py_reads_the_fields(judge: Judge, form: str) -> None:
    with rillet.connect(f"redis://127.0.0.1:{judge.port}/0") as store, redis.Redis(port=judge.port) as client:

        @given(sample=samples(form))
        def survives(sample: Sample) -> None:
            value = _value_of(form, sample)
            if form == "dict" and any(name not in value for name in sample.kind.__required_keys__):
                return
            stream: Any = store.stream("s", type=sample.kind)
            id = stream.add(value)
            assert stream[id].value == value
            ((_, fields),) = client.xrange("s", str(id), str(id))
            for name, kind in sample.types.items():
                part = value.get(name) if form == "dict" else getattr(value, name)
                stored = fields.get((name.upper() if form == "struct" else name).encode())
                if part is None:
                    assert stored is None
                elif isinstance(part, PLAIN) and kind not in (int | str, int | str | None):
                    assert stored == text_of(type(part)).encode(part)
                elif form != "pydantic":
                    assert stored == json_of(kind).encode(part)

        survives()
