"""Entry, and the functions that turn replies about streams into entries and dicts."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from rillet.store import PublicNames
from rillet.store.arguments.encoding import EntryData, Fields, decode
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The type of the values of a stream. `Stream` without a type is Stream[Fields]: type checkers know the default.
    T = TypeVar("T", default=Fields)
else:
    from typing import TypeVar

    T = TypeVar("T")

# Fields, and the value that each must have, or several of which one suffices (arguments.conditions). The annotation is
# Any, because mypy infers dict[str, object] for mixed values.
Where: TypeAlias = Mapping[Any, Any]


class Entry(PublicNames, EntryData, Mapping[str, str], Generic[T]):
    """An entry of a stream: its `id`, and a read-only mapping of its fields to their values, as text, in order.

    `entry["name"]` is the last value of a field; `fields` is a dict of all fields. `pairs` are the raw (field, value)
    bytes, for fields that occur twice or are not text. `value` is the value of a typed stream (rillet.store.typed).
    Two entries are equal if their IDs and raw fields are.
    The ID and the texts are decoded on demand, because most readers use only a part of a batch.
    """

    __slots__ = ("_value",)
    _id: StreamID | None
    _text: dict[str, str] | None
    _value: T  # set for entries of typed streams only

    @property
    def id(self) -> StreamID:
        """The entry's ID."""
        found = self._id
        if found is None:
            found = self._id = self._parsed_id()
        return found

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The fields as (field, value) bytes, in the order in which they were added."""
        return list(zip(self.flat[::2], self.flat[1::2], strict=True))

    @property
    def fields(self) -> dict[str, str]:
        """The fields as text, in a new dict; a field that occurs twice has its last value."""
        return self._decoded_fields() if self._text is None else self._text.copy()

    @property
    def value(self) -> T:
        """The value of an entry of a typed stream; of another entry, its fields."""
        try:
            return self._value
        except AttributeError:
            fields: T = self._untyped()
            return fields

    def _untyped(self) -> Any:
        return self.fields

    def _decoded(self) -> dict[str, str]:
        """Return the fields as text; the same dict for every call."""
        text = self._text
        if text is None:
            text = self._text = self._decoded_fields()
        return text

    def __getitem__(self, field: str) -> str:
        return self._decoded()[field]

    def __contains__(self, field: object) -> bool:
        return field in self._decoded()

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def keys(self) -> KeysView[str]:
        """Return the names of the fields."""
        return self._decoded().keys()

    def values(self) -> ValuesView[str]:
        """Return the values of the fields."""
        return self._decoded().values()

    def items(self) -> ItemsView[str, str]:
        """Return the fields and their values."""
        return self._decoded().items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.id, self.flat) == (other.id, other.flat)

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce_ex__(self, protocol: Any) -> Any:
        assert self.flat is not None  # objects instead of the part of a reply
        return super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.id)!r}, {getattr(self, '_value', self.fields)!r})"


def entries_of(reply: Any) -> list[Entry[Any]]:
    """Return the entries of an XRANGE reply; an entry that was deleted while pending has no fields."""
    return [Entry(raw_id, flat or []) for raw_id, flat in reply or ()]


def stream_parts(reply: Any) -> list[tuple[bytes, Any]]:
    """Return (key, entries) of each stream in an XREAD or XREADGROUP reply (RESP2: pairs, RESP3: a map)."""
    return list(reply.items() if isinstance(reply, dict) else reply or ())


def stream_part(reply: Any) -> Any:
    """Return the entries of the one stream in an XREAD or XREADGROUP reply."""
    parts = stream_parts(reply)
    return parts[0][1] if parts else []


def pairs_in(reply: Any) -> Iterable[tuple[bytes, Any]]:
    """Return the pairs of a reply: alternating names and values (RESP2), or a map (RESP3)."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)


def named(reply: Any) -> dict[str, Any]:
    """Return a reply of alternating names and values, or a map, as a dict with text keys (XINFO); bytes become text."""
    return {decode(field): _plain(decode(field), value) for field, value in pairs_in(reply)}


def texts(reply: Any) -> Any:
    """Return a reply whose bytes are text, at every depth; bytes that are not UTF-8 become surrogates. O(reply)"""
    if isinstance(reply, bytes):
        return decode(reply)
    if isinstance(reply, (list, tuple, set, frozenset)):
        return type(reply)(map(texts, reply))
    return {texts(name): texts(value) for name, value in reply.items()} if isinstance(reply, dict) else reply


def _plain(field: str, value: Any) -> Any:
    if field in ("first-entry", "last-entry"):
        return None if value is None else Entry(value[0], value[1])
    if field == "entries" and isinstance(value, list):
        return entries_of(value)
    if field in ("groups", "consumers") and isinstance(value, list):
        return [named(one) for one in value]
    return decode(value) if isinstance(value, bytes) else value
