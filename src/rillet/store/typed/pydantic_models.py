"""The form of pydantic models in typed streams. pydantic is imported when a stream has a model as its type.

A field has the name of its serialization alias. A field whose type has a text in rillet.store.codecs is written as that
text, any other field as the JSON that pydantic writes, and so is a field with a field_serializer. On write and on read
the model validates all fields together, so a validator must accept its own results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import InvalidValue
from rillet.store import codecs
from rillet.store.codecs import Codec, checked_decoder, has_text, name_of
from rillet.store.typed.class_fields import FACTORY, NO_DEFAULT, FieldsForm, TypedField, field_of, taker
from rillet.store.typed.forms import InvalidField

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def is_model(kind: Any) -> bool:
    """Return whether a type is a pydantic model."""
    pydantic = sys.modules.get("pydantic")  # a model exists only if the module was imported
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


class ModelForm(FieldsForm):
    """The form of a model. `dumped` are the fields that have a serializer."""

    __slots__ = ("_dumped", "_given")

    def __init__(self, kind: Any, fields: list[TypedField], dumped: set[str]) -> None:
        self._given = [field.given for field in fields]
        self._dumped = dumped
        # Without the checks of model_validate's arguments, in half the time.
        validate: Callable[[Any], Any] = kind.__pydantic_validator__.validate_python
        forbids = kind.model_config.get("extra") == "forbid"
        super().__init__(kind, fields, taker([field.name for field in fields]), validate, forbids)

    def append(self, argv: list[bytes], value: Any, /) -> None:
        """Append the fields of a model that is valid now; its fields may have been assigned since it was made."""
        if value.__class__ is not self._kind:
            raise self._another_class(value)
        parts = self._take(value)
        try:
            self._make(dict(zip(self._given, parts)))  # noqa: B905
        except ValueError as error:
            raise InvalidValue(self._refused(error).reason) from error
        if self._dumped:
            dumped = value.model_dump(mode="json", include=self._dumped)
            parts = tuple(dumped.get(field.name, part) for field, part in zip(self._fields, parts, strict=True))
        self._append(argv, parts)

    def _construct(self, values: list[Any]) -> Any:
        return self._make(dict(zip(self._given, values)))  # noqa: B905

    def _construct_some(self, values: dict[str, Any]) -> Any:
        return self._make(values)

    def _refused(self, error: Exception) -> InvalidField:
        """Return the first of pydantic's errors, with the name of its field."""
        details: Any = getattr(error, "errors", list)()
        if not details or not details[0]["loc"]:
            return InvalidField(f"{name_of(self._kind)}: {details[0]['msg'] if details else error}")
        first, *rest = details[0]["loc"]
        name = next((field.name for field in self._fields if field.given == first), str(first))
        place = "".join(f"[{part!r}]" for part in rest)
        return InvalidField(f"field {name!r}{place}: {details[0]['msg']}, got {details[0]['input']!r:.80}", name)


def model_form(kind: Any) -> ModelForm:
    """Return the form of a model; TypeError for a model that fields cannot represent."""
    import pydantic

    decorators = kind.__pydantic_decorators__
    extra = kind.model_config.get("extra") == "allow"
    if issubclass(kind, pydantic.RootModel) or decorators.model_serializers or extra:
        raise TypeError(
            f"{name_of(kind)} cannot be stored as fields, because it is a RootModel, has a model_serializer, or allows "
            "extra fields: use codec='json'"
        )
    dumped = {name for one in decorators.field_serializers.values() for name in one.info.fields}
    dumped = set(kind.model_fields) if "*" in dumped else dumped
    fields = []
    for name, info in kind.model_fields.items():
        default = NO_DEFAULT if info.is_required() else FACTORY if info.default_factory is not None else info.default
        if info.exclude:
            if default is NO_DEFAULT:
                raise TypeError(f"{name_of(kind)}.{name} is excluded and has no default: it could not be read")
            continue
        annotation = Any if name in dumped else info.annotation
        forms = None if has_text(annotation) else _json_forms(annotation)
        names = {"stored": info.serialization_alias or name, "given": _given(kind, name, info)}
        fields.append(field_of(kind, name, annotation, default, forms=forms, **names))
    return ModelForm(kind, fields, dumped)


def _given(kind: Any, name: str, info: FieldInfo) -> str:
    """Return the name under which the model accepts a field."""
    import pydantic

    config = kind.model_config
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    alias = info.validation_alias
    if isinstance(alias, pydantic.AliasChoices):
        alias = next((one for one in alias.choices if isinstance(one, str)), None)
    if isinstance(alias, str) and config.get("validate_by_alias", True):
        return alias
    if info.validation_alias is None or by_name:
        return name
    raise TypeError(f"{name_of(kind)}.{name} has an alias that is a path: allow its name with validate_by_name=True")


def _json_forms(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return the functions of a field that is written as JSON."""
    import pydantic

    adapter: Any = pydantic.TypeAdapter(kind)

    def write(value: Any) -> bytes:
        raw: bytes = adapter.dump_json(value, by_alias=True, warnings="error")
        read(raw)
        return raw

    read = checked_decoder(adapter.validate_json)
    return write, read


def json_of_model(kind: Any) -> Codec[Any]:
    """Return the codec that stores a model as JSON."""

    def write(value: Any) -> bytes:
        raw: bytes = value.model_dump_json(by_alias=True).encode()
        return raw

    return codecs.made("json", kind, write, checked_decoder(kind.model_validate_json))


def msgpack_of_model(kind: Any) -> Codec[Any]:
    """Return the codec that stores a model as MessagePack: the values are those of its JSON."""
    plain, text = codecs.msgpack_of(Any), codecs.json_of(Any)
    read = checked_decoder(kind.model_validate_json)
    return codecs.made(
        "msgpack", kind, lambda value: plain.encode(value.model_dump(mode="json", by_alias=True)),
        lambda raw: read(text.encode(plain.decode(raw))),
    )  # fmt: skip
