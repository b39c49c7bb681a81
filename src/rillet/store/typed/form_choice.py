"""The form of a type and a codec: `form_of`, which is made once for each of them."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from rillet.store.codecs import Codec, name_of
from rillet.store.typed.class_fields import DictForm, TaggedForm, dataclass_form, is_struct, is_typed_dict, struct_form
from rillet.store.typed.forms import CodecName, Form, MadeForm, ValueForm
from rillet.store.typed.pydantic_models import is_model, model_form
from rillet.store.typed.whole_values import codec_of


def form_of(type: Any, codec: CodecName | Codec[Any]) -> Form[Any] | None:
    """Return the form of a type and a codec; None for neither. TypeError for a type that cannot be stored."""
    if type is None and codec == "fields":
        return None
    if isinstance(codec, str):
        return _named_form(type, codec)
    if not callable(getattr(codec, "encode", None)) or not callable(getattr(codec, "decode", None)):
        raise TypeError("codec must be 'fields', 'json', 'msgpack', 'raw' or a codec of rillet.codecs, "
                        f"not {codec!r:.200}")  # fmt: skip
    return ValueForm(codec)


@lru_cache(maxsize=1024)
def _named_form(type: Any, codec: str) -> Form[Any]:
    form: MadeForm = _fields_form(type) if codec == "fields" else ValueForm(codec_of(type, codec))
    form.origin = (form_of, (type, codec))
    return form


def _fields_form(kind: Any) -> MadeForm:
    """Return the form that stores each attribute as a field; TypeError for a type without fields."""
    if is_struct(kind):
        return struct_form(kind) if kind.__struct_config__.tag is None else TaggedForm(kind, [kind])
    if is_typed_dict(kind):
        return DictForm(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return dataclass_form(kind)
    if is_model(kind):
        return model_form(kind)
    if get_origin(kind) in (Union, UnionType):
        members = get_args(kind)
        if all(is_struct(member) and member.__struct_config__.tag is not None for member in members):
            return TaggedForm(kind, members)
        raise TypeError(f"{kind} has no fields, because its types have no tags: use tagged Structs, or codec='json'")
    raise TypeError(
        f"type: {name_of(kind)} has no fields: pass a dataclass, a msgspec Struct, a pydantic model or a TypedDict, "
        "or a codec such as codec='json'"
    )
