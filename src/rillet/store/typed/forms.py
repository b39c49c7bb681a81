"""Typed streams: each entry is a value of a class, checked when it is written and constructed when it is read.

    @dataclass
    class Order:                                         entry 1700000000000-0
        customer: int                                        customer  42
        total: Decimal                                       total     99.90
        tags: list[str]                                      tags      ["new","eu"]

    orders = store.stream("orders", type=Order)          Stream[Order]
    orders.add(Order(42, Decimal("99.90"), ["new", "eu"]))
    for entry in orders:                                 Entry[Order]
        print(entry.id, entry.value.total, entry.fields)
    for message in orders.group("billing").consumer("w1").messages():      Message[Order]
        bill(message.value)
        message.ack()

A type is a dataclass, a msgspec Struct, a pydantic model, a TypedDict, or a union of tagged Structs.

**One shape.** A typed stream is a `Stream`, and its entries are `Entry` objects with a `value`; a stream without a type
is `Stream[Fields]`. So every method, class and asyncio form exists once, and entries keep their ID and raw fields.
Rejected: the values themselves instead of entries, because a frozen value cannot hold its ID, and `ack` needs it.
Classes such as TypedStream beside Stream: twice the classes to name in annotations, and nothing is gained.

**Fields.** Each attribute is one field of the entry, as the text in rillet.store.codecs; nested values are JSON. So
redis-cli, redis-py and Spark read the same fields. The name of a field is msgspec's `rename` or pydantic's alias.

    None                 the field is absent. Absent fields take their default, or else None if the type allows it. A
                         field that allows None and has another default is rejected when the stream is created, and so
                         is NotRequired[T | None]: absent would mean two values.
    missing field        takes its default; without a default the entry is invalid
    msgspec.UNSET        the field is absent (`name: str | UnsetType = UNSET`); absent is read as UNSET.
                         Another default is rejected, and so is None in the same type.
    unknown field        ignored, unless the type forbids it (forbid_unknown_fields, extra="forbid")
    empty text           also read as None where the type allows None and has no empty text, such as int | None
    no field at all      XADD needs one: a value that consists of None is one field whose name and value are empty
    tagged Struct        the tag is a field too

**Codecs.** `codec="fields"` is the default. "json", "msgpack", "raw" or any codec stores the whole value in the one
field `value`, the name that Spark's Kafka source uses.

**Checks.** `add` raises TypeError for a value or field of another type, and InvalidValue for one that the type does not
allow (a constraint, an item of a nested value). An entry that `add` has written can be read with the same type.
The class must be that of the stream: the fields of a subclass would be lost.

**Invalid entries.** `on_invalid` says what happens to an entry that is not a value of the type:

    "raise"              InvalidEntry, with the entry; the default, because it neither loses nor moves anything.
                         messages() raises it once, at the first delivery of the message, after the valid messages
                         before it. The same iterator continues with the next message, and so does a new one. The
                         message stays pending: handle it and call error.message.ack(), or pass max_deliveries and
                         dead_letters to messages(), which move it after some deliveries. Later deliveries by messages()
                         write a warning to the log; read() and claim() raise at each delivery.
    "skip"               reads leave it out; a consumer acknowledges it. Both write a warning to the log "rillet.store".
    "dead_letter"        as a stream: the one that is passed as messages(dead_letters=...). read() and claim() of a
                         consumer have no such stream, so they raise; other reads skip.
    a stream             as "skip", but a consumer writes it to that stream (its fields, then _stream, _group, _id,
                         _deliveries, and _error with the reason) and acknowledges it in the same transaction. On a
                         cluster with the streams in different slots, in two commands: the letter first.

Reads such as range() never write: an entry can be read any number of times, so it would become many dead letters.

**Speed.** The functions that write and read the fields of a type are made once per type. An entry whose fields are
those of the type, in order, takes a fast path; others are read field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

from rillet.errors import InvalidEntry, InvalidValue
from rillet.loggers import logger
from rillet.store.arguments.encoding import find_field
from rillet.store.codecs import Codec
from rillet.store.entry import Entry

LOGGER = logger("store")
V = TypeVar("V")
VALUE = b"value"  # the field of a value that a codec stores as a whole


class InvalidField(InvalidValue):
    """A field, or the fields together, are not a value of a type; `field` is None if no single field is the cause."""

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason

    def in_entry(self, stream: str, entry: Entry[Any]) -> InvalidEntry:
        """Return the error of a read."""
        return InvalidEntry(stream, entry, self.reason, self.field)


class Form(Protocol[V]):
    """Converts values of a type to fields of an entry and back."""

    def append(self, argv: list[bytes], value: V, /) -> None:
        """Append the fields and their values to a command; raise TypeError or InvalidValue."""

    def read(self, flat: list[bytes], /) -> V:
        """Return the value of alternating field names and values; raise InvalidField."""


class HasKey(Protocol):
    """A stream: Stream or AsyncStream."""

    @property
    def key(self) -> bytes:
        """The key of the stream."""


OnInvalid: TypeAlias = Literal["raise", "skip", "dead_letter"] | HasKey
CodecName: TypeAlias = Literal["fields", "json", "msgpack", "raw"]


def checked_action(on_invalid: OnInvalid) -> OnInvalid:
    """Return on_invalid; raise ValueError for a value without a meaning."""
    if isinstance(on_invalid, str):
        if on_invalid in ("raise", "skip", "dead_letter"):
            return on_invalid
    elif isinstance(getattr(on_invalid, "key", None), bytes):
        return on_invalid
    raise ValueError(
        "on_invalid must be 'raise', 'skip', 'dead_letter', or the stream for invalid entries, such as "
        f"store.stream('orders.invalid'), not {on_invalid!r}"
    )


def append_value(argv: list[bytes], value: Any, form: Form[Any], stream: str) -> None:
    """Append the fields of a value to a command; raise TypeError or InvalidValue with the name of the stream."""
    try:
        form.append(argv, value)
    except TypeError as error:
        raise TypeError(f"stream {stream!r}: {error}") from error.__cause__
    except (ValueError, OverflowError) as error:  # msgspec raises OverflowError for an int of more than 64 bits
        raise InvalidValue(f"stream {stream!r}: {error}") from error.__cause__


def typed_entries(rows: Any, form: Form[V], stream: str, on_invalid: OnInvalid) -> Iterator[Entry[V]]:
    """Yield the entries of an XRANGE reply with their values; raise InvalidEntry, or leave invalid ones out."""
    read = form.read
    for raw_id, flat in rows or ():
        entry: Entry[V] = Entry(raw_id, flat)
        try:
            entry._value = read(flat)
        except InvalidField as error:
            problem = error.in_entry(stream, entry)
            if on_invalid == "raise":
                raise problem from error.__cause__
            LOGGER.warning("%s: skipped", problem)
            continue
        yield entry


class RaisingIterator:
    """An iterator over messages that raises the errors among them and can be continued after each.

    A generator cannot: it ends when it raises. The synchronous and the asyncio API use the same class, each with its
    own generator.
    """

    __slots__ = ("_found",)

    def __init__(self, found: Any) -> None:
        self._found = found

    def __iter__(self) -> RaisingIterator:
        return self

    def __aiter__(self) -> RaisingIterator:
        return self

    def __next__(self) -> Any:
        return _raised(next(self._found))

    async def __anext__(self) -> Any:
        return _raised(await anext(self._found))

    def close(self) -> None:
        """End the iteration."""
        self._found.close()

    async def aclose(self) -> None:
        """End the iteration."""
        await self._found.aclose()


def _raised(found: Any) -> Any:
    if isinstance(found, InvalidEntry):
        raise found
    return found


class MadeForm:
    """The base class of the forms. `origin` is the call that makes the form, so that it can be pickled."""

    __slots__ = ("origin",)
    origin: tuple[Callable[..., Any], tuple[Any, ...]]

    def append(self, argv: list[bytes], value: Any, /) -> None:
        """See Form.append."""
        raise NotImplementedError

    def read(self, flat: list[bytes], /) -> Any:
        """See Form.read."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return self.origin


class ValueForm(MadeForm):
    """The form of a codec: the whole value in one field."""

    __slots__ = ("_codec",)

    def __init__(self, codec: Codec[Any]) -> None:
        self._codec = codec
        self.origin = (ValueForm, (codec,))

    def append(self, argv: list[bytes], value: Any, /) -> None:
        """Append the field `value`."""
        argv += (VALUE, self._codec.encode(value))

    def read(self, flat: list[bytes], /) -> Any:
        """Return the value of the field `value`."""
        raw = find_field(flat, VALUE)
        if raw is None:
            raise InvalidField("the field 'value' is missing", "value")
        try:
            return self._codec.decode(cast("bytes", raw))
        except (ValueError, TypeError) as error:
            raise InvalidField(f"field 'value': {error}", "value") from error
