"""The form of a class whose attributes are fields of an entry: dataclass, msgspec Struct, TypedDict.

    Order(42, Decimal("99.90"), None)     ->  customer 42  total 99.90
    customer 42  total 99.90              ->  Order(customer=42, total=Decimal("99.90"))    coupon takes its default

The functions that write and read each field are found once for a class. If an entry has exactly the fields
of the class in their order, which is so for entries that the class wrote without None, the values are passed to the
class by position. Any other entry is read field by field (`_read_each`), and so is one with an invalid field, because
that way the error names the field.

A dataclass with fields of other types than these needs msgspec, which reads the nested values from JSON.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from rillet.errors import InvalidValue
from rillet.store.arguments.encoding import decode, encode, find_field
from rillet.store.codecs import forms_of, name_of
from rillet.store.typed.field_table import FieldTable, code_of
from rillet.store.typed.forms import InvalidField, MadeForm

NO_DEFAULT: Any = object()
FACTORY: Any = object()  # the default is made by a function
_EMPTY = (b"", b"")  # the one field of an entry whose values are all None


@dataclasses.dataclass(frozen=True, slots=True)
class TypedField:
    """A field of a class: its name there, in the entry, and in the call that constructs a value; and its functions."""

    name: str
    stored: bytes
    given: str
    type: Any  # without None
    optional: bool  # None (or UNSET) is allowed, and stored as no field
    required: bool  # there is no default
    unset: bool  # msgspec.UNSET is allowed, and stored as no field
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def field_of(owner: Any, name: str, annotation: Any, default: Any, *, stored: str = "", given: str = "",
             forms: tuple[Callable[[Any], bytes], Callable[[bytes], Any]] | None = None) -> TypedField:  # fmt: skip
    """Return a field of a class; TypeError if absent could mean both None and the default."""
    kind, unset = _without_unset(annotation)
    kind, optional = _without(kind, NoneType)
    if unset and (optional or (default is not NO_DEFAULT and default is not _unset())):
        raise TypeError(
            f"{name_of(owner)}.{name} may be UNSET and has another default or may be None, but both are stored as an "
            "absent field: allow one of them, or use a codec such as codec='json'"
        )
    if optional and default is not NO_DEFAULT and default is not None:
        raise TypeError(
            f"{name_of(owner)}.{name} may be None and has another default, but both are stored as an absent field: use "
            "the default None, or a codec such as codec='json'"
        )
    write, read = forms or forms_of(kind)
    return TypedField(
        name, encode(stored or name), given or name, kind, optional or unset, default is NO_DEFAULT, unset,
        write, _reading_none(read) if optional else read,
    )  # fmt: skip


def _unset() -> Any:
    """Return msgspec.UNSET, or NO_DEFAULT if msgspec is not imported."""
    return getattr(sys.modules.get("msgspec"), "UNSET", NO_DEFAULT)


def _without_unset(annotation: Any) -> tuple[Any, bool]:
    """Return a type without msgspec's UnsetType, and whether it allowed UNSET."""
    module = sys.modules.get("msgspec")  # a type that contains it exists only if the module was imported
    return (annotation, False) if module is None else _without(annotation, module.UnsetType)


def _without(annotation: Any, absent: type) -> tuple[Any, bool]:
    """Return a type without a member of its union, and whether it had this member."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        inner, found = _without(inner, absent)
        return (Annotated[(inner, *metadata)] if found else annotation), found
    if origin in (Union, UnionType) and absent in get_args(annotation):
        return Union[tuple(member for member in get_args(annotation) if member is not absent)], True  # noqa: UP007
    return annotation, False


def _reading_none(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a reader that also reads the empty text as None, unless that text is a value of the type."""
    try:
        read(b"")
    except ValueError:
        return lambda raw: None if raw == b"" else read(raw)
    return read


class FieldsForm(MadeForm):
    """The form of a class. `take` returns the values of all fields of an object; `make` constructs one from them."""

    __slots__ = ("_fields", "_forbids", "_kind", "_make", "_table", "_take")

    def __init__(self, kind: Any, fields: Sequence[TypedField], take: Callable[[Any], tuple[Any, ...]],
                 make: Callable[..., Any], forbids: bool = False) -> None:  # fmt: skip
        self._kind = kind
        self._fields = tuple(fields)
        self._take = self._taking_unset(take) if any(field.unset for field in fields) else take
        self._make = make
        self._forbids = forbids
        names = [field.stored for field in fields]
        if len(set(names)) != len(names):
            raise TypeError(f"{name_of(kind)}: two fields have the same name in the entry: {names!r}")
        self._table = FieldTable(
            names, [code_of(field.type) for field in fields], [field.optional for field in fields],
            [field.write for field in fields], [field.read for field in fields],
        )  # fmt: skip

    def _taking_unset(self, take: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
        """Return a function that returns None for UNSET, which the table leaves out."""
        unset, fields = _unset(), self._fields

        def taken(value: Any) -> tuple[Any, ...]:
            parts = take(value)
            for field, part in zip(fields, parts, strict=True):
                if part is None and field.unset:
                    place = f"field {field.name!r} of {name_of(self._kind)}"
                    raise TypeError(f"{place}: expected {name_of(field.type)} or UNSET, got None")
            return tuple(None if part is unset else part for part in parts)

        return taken

    # -- writing -------------------------------------------------------------------------------------

    def append(self, argv: list[bytes], value: Any, /) -> None:
        """Append the fields of a value; TypeError for another class, or for a field of another type."""
        if value.__class__ is not self._kind:
            raise self._another_class(value)
        self._append(argv, self._take(value))

    def _append(self, argv: list[bytes], parts: tuple[Any, ...]) -> None:
        try:
            if not self._table.append(argv, parts):
                argv += _EMPTY
        except (TypeError, ValueError, OverflowError) as error:
            for field, part in zip(self._fields, parts, strict=True):
                self._write(field, part)
            raise AssertionError("each field can be written alone") from error

    def _write(self, field: TypedField, part: Any) -> bytes:
        """Return the text of a field; TypeError or InvalidValue with the name of the field."""
        try:
            return b"" if part is None and field.optional else field.write(part)
        except (TypeError, ValueError, OverflowError) as error:
            absent = " or UNSET" if field.unset else " or None" if field.optional else ""
            expected = name_of(field.type) + absent
            text = f"field {field.name!r} of {name_of(self._kind)}: expected {expected}, got {part!r:.80}"
            if isinstance(error, TypeError):
                raise TypeError(f"{text} ({type(part).__name__})") from error
            raise InvalidValue(f"{text}: {error.__context__ or error}") from error

    def _another_class(self, value: Any) -> TypeError:
        return TypeError(f"expected {name_of(self._kind)}, got {value!r:.80} ({type(value).__name__})")

    # -- reading -------------------------------------------------------------------------------------

    def read(self, flat: list[bytes], /) -> Any:
        """Return the value of the fields of an entry; InvalidField if they are not one."""
        try:
            values: Any = self._table.values(flat)
            if values is not None:
                return self._construct(values)
        except (TypeError, ValueError):
            pass  # read it again, to find the field
        return self._read_each(flat)

    def _construct(self, values: list[Any]) -> Any:
        return self._make(*values)

    def _read_each(self, flat: list[bytes]) -> Any:
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        values: dict[str, Any] = {}
        for field in self._fields:
            raw = found.pop(field.stored, None)
            if raw is not None:
                try:
                    values[field.given] = field.read(raw)
                except (TypeError, ValueError) as error:
                    raise InvalidField(f"field {field.name!r}: {error}", field.name) from error
            elif field.required:
                self._absent(field, values)
        if self._forbids and not found.keys() <= {b""}:
            unknown = decode(next(name for name in found if name))
            raise InvalidField(f"the field {unknown!r} is unknown, and {name_of(self._kind)} forbids it", unknown)
        try:
            return self._construct_some(values)
        except (TypeError, ValueError) as error:
            raise self._refused(error) from error

    def _absent(self, field: TypedField, values: dict[str, Any]) -> None:
        """Set the value of an absent field that has no default."""
        if not field.optional:
            raise InvalidField(f"the field {field.name!r} is missing", field.name)
        values[field.given] = _unset() if field.unset else None

    def _construct_some(self, values: dict[str, Any]) -> Any:
        return self._kind(**values)

    def _refused(self, error: Exception) -> InvalidField:
        """Return the error for fields that the class refuses together."""
        return InvalidField(f"{name_of(self._kind)}: {error}")


class DictForm(FieldsForm):
    """The form of a TypedDict."""

    __slots__ = ("_by_name",)

    def __init__(self, kind: Any) -> None:
        fields = _typed_dict_fields(kind)
        names = [field.name for field in fields]
        super().__init__(kind, fields, tuple, lambda *values: dict(zip(names, values, strict=True)))
        self._by_name = {field.name: field for field in fields}

    def append(self, argv: list[bytes], value: Any, /) -> None:
        """Append the items of a dict; TypeError for an unknown or a missing key."""
        if not isinstance(value, dict):
            raise self._another_class(value)
        if not value.keys() <= self._by_name.keys():
            unknown = next(key for key in value if key not in self._by_name)
            raise TypeError(f"the key {unknown!r} is not one of {name_of(self._kind)}")
        before = len(argv)
        for name, field in self._by_name.items():
            part = value.get(name, NO_DEFAULT)
            if part is NO_DEFAULT:
                if field.required:
                    raise TypeError(f"the key {name!r} of {name_of(self._kind)} is missing")
            elif part is not None or not field.optional:
                argv += (field.stored, self._write(field, part))
        if len(argv) == before:
            argv += _EMPTY

    def _construct_some(self, values: dict[str, Any]) -> Any:
        return values


class TaggedForm(MadeForm):
    """The form of a tagged msgspec Struct, or of a union of them: the tag is the first field."""

    __slots__ = ("_field", "_forms", "_kind", "_tags", "_writers")

    def __init__(self, kind: Any, members: Sequence[Any]) -> None:
        configs = [member.__struct_config__ for member in members]
        self._kind = kind
        self._field = encode(configs[0].tag_field)
        if any(config.tag_field != configs[0].tag_field for config in configs):
            raise TypeError(f"{name_of(kind)}: the Structs of a union must have the same tag_field")
        self._tags = {encode(config.tag): member for config, member in zip(configs, members, strict=True)}
        self._forms = {tag: struct_form(member) for tag, member in self._tags.items()}
        self._writers = {self._tags[tag]: ((self._field, tag), form) for tag, form in self._forms.items()}

    def append(self, argv: list[bytes], value: Any, /) -> None:
        """Append the tag and the fields of a value."""
        found = self._writers.get(value.__class__)
        if found is None:
            raise TypeError(f"expected {name_of(self._kind)}, got {value!r:.80} ({type(value).__name__})")
        argv += found[0]
        found[1].append(argv, value)

    def read(self, flat: list[bytes], /) -> Any:
        """Return the value of the class that the tag names."""
        tag = find_field(flat, self._field)
        form = self._forms.get(tag)  # type: ignore[call-overload]
        name = decode(self._field)
        if form is None:
            reason = f"the field {name!r} is missing" if tag is None else f"field {name!r}: {tag!r} is not a known tag"
            raise InvalidField(reason, name)
        if flat[0] == self._field:
            return form.read(flat[2:])
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return form.read([part for pair in pairs if pair[0] != self._field for part in pair])


# ---- the kinds of classes --------------------------------------------------------------------------------------------


def _hints_of(kind: Any) -> dict[str, Any]:
    """Return the annotations of a class; TypeError if one names something unknown."""
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise TypeError(f"the annotations of {name_of(kind)} cannot be resolved: {error}") from error


def _class_form(kind: Any, fields: Sequence[TypedField], forbids: bool = False) -> FieldsForm:
    """Return the form of a class that is called with its fields."""
    parameters = inspect.signature(kind).parameters.values()
    names = [field.name for field in fields]
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in names:
            raise TypeError(f"{name_of(kind)} cannot be constructed from its fields: {parameter.name!r} is not one")
    by_position = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD][: len(names)] == names
    make = kind if by_position else lambda *values: kind(**dict(zip(names, values, strict=True)))
    return FieldsForm(kind, fields, taker(names), make, forbids)


def taker(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the attributes of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def dataclass_form(kind: Any) -> FieldsForm:
    """Return the form of a dataclass."""
    hints = _hints_of(kind)
    found = []
    for one in dataclasses.fields(kind):
        default = one.default
        if default is dataclasses.MISSING:
            default = NO_DEFAULT if one.default_factory is dataclasses.MISSING else FACTORY
        if one.init:  # the others are computed
            found.append(field_of(kind, one.name, hints[one.name], default))
    return _class_form(kind, found)


def is_struct(kind: Any) -> bool:
    """Return whether a type is a msgspec Struct."""
    return isinstance(kind, type) and hasattr(kind, "__struct_fields__")


def struct_form(kind: Any) -> FieldsForm:
    """Return the form of a msgspec Struct, without its tag."""
    import msgspec

    found = []
    for one in msgspec.structs.fields(kind):
        default: Any = one.default
        if default is msgspec.NODEFAULT:
            default = NO_DEFAULT if one.default_factory is msgspec.NODEFAULT else FACTORY
        found.append(field_of(kind, one.name, one.type, default, stored=one.encode_name))
    return _class_form(kind, found, bool(kind.__struct_config__.forbid_unknown_fields))


def is_typed_dict(kind: Any) -> bool:
    """Return whether a type is a TypedDict."""
    # typing.is_typeddict does not accept those of typing_extensions.
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__required_keys__")


def _typed_dict_fields(kind: Any) -> list[TypedField]:
    found = []
    for name, annotation in _hints_of(kind).items():
        annotation, required = _requirement(annotation, name in kind.__required_keys__)
        if _without_unset(annotation)[1]:
            raise TypeError(f"{name_of(kind)}[{name!r}] may be UNSET: use NotRequired in a TypedDict")
        if not required and _without(annotation, NoneType)[1]:
            raise TypeError(
                f"{name_of(kind)}[{name!r}] may be absent and may be None, and both are stored as an absent field: "
                "allow one of them, or use a codec such as codec='json'"
            )
        found.append(field_of(kind, name, annotation, NO_DEFAULT if required else FACTORY))
    return found


def _requirement(annotation: Any, required: bool) -> tuple[Any, bool]:
    """Return a type without Required, NotRequired and ReadOnly, and whether the key is required.

    __required_keys__ misses these if the annotations of the module are texts.
    """
    origin = str(get_origin(annotation)).rpartition(".")[2]
    if origin in ("Required", "NotRequired"):
        return _requirement(get_args(annotation)[0], origin == "Required")
    if origin == "ReadOnly":
        return _requirement(get_args(annotation)[0], required)
    return annotation, required
