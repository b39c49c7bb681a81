"""Protobuf payloads, by Google's protobuf, from descriptors alone: no code is generated.

Spark's types of Protobuf's:

    bool, int32 and its kin, int64 and its kin     boolean, int, bigint
    uint32, uint64 and their kin                   bigint, decimal(20,0)
    float, double, string, bytes                   the same; bytes: binary
    enum                                           string: the value's name, or its number if the schema lacks it
    message, group; repeated; map                  struct; array; map
    google.protobuf.Timestamp                      timestamp, in microseconds
    wrappers (google.protobuf.Int64Value ...)      the type that they wrap

A field that tracks presence (`optional`, a member of a oneof, a message) is null if it is not set; other fields have
their default then. Messages that contain themselves, such as google.protobuf.Struct, are refused.

A message needs no writer's schema: its fields have numbers. With a registry, the schema with the ID before it shows
which message it is, because a file of Protobuf may define several.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from rillet.spark.options import OptionError, Options
from rillet.spark.payload.formats import Decode, Encode, Format
from rillet.spark.payload.registry import HEADER, NotRegistered, Registry, header_of, schema_number, subject_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # seconds of the years 1 to 9999, which a Timestamp may have
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{name}Value" for name in _WRAPPED}
_FILES = {"google/": "", "confluent/": "confluent_kafka.schema_registry."}  # those with generated code in a package

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class ProtobufFormat(Format):
    """A Protobuf message."""

    files: tuple[bytes, ...]  # FileDescriptorProtos, in any order
    message: str  # its full name
    registry: Registry | None = None
    header: bytes = b""  # what is before a message that is written
    writers: dict[int, bytes] = field(default_factory=dict)  # by ID: the files that the driver has seen

    source = "the Protobuf message"

    @property
    def title(self) -> str:  # type: ignore[override]
        """Return the name of the format and of the message."""
        return f"protobuf {self.message}"

    @classmethod
    def of(cls, options: Options, writing: bool) -> ProtobufFormat:
        """Return the format with the descriptors of the options, or with the latest of the registry's subject."""
        registry = Registry.of(options)
        if options.payload_schema is not None:
            made = cls(_descriptor_set(options.payload_schema), str(options.payload_message), registry)
            message = made.descriptor  # raises the error for an unknown name
            if registry is not None and writing:
                made = replace(made, header=_registered(registry, subject_of(options), message))
            elif registry is not None:
                registry.require_answer()
            return made
        assert registry is not None  # the options require one of both
        subject = subject_of(options)
        found = registry.latest(subject, "serialized")
        if found.kind != "PROTOBUF":
            raise OptionError(f"rillet: the subject {subject!r} at {registry.place} has a schema of type {found.kind}")
        file = _file("rillet.payload", found.text)
        if file is None or not file.message_type:
            raise OptionError(f"rillet: the registry at {registry.place} returns {subject!r} as text or without a "
                              "message: give the descriptors in payloadSchema")  # fmt: skip
        name = options.payload_message or _full_name(file, [0])
        others = [_file(name, text) for name, text in found.references]
        files = tuple(one.SerializeToString() for one in (*others, file) if one is not None)
        made = cls(files, name, registry, b"", {found.number: file.SerializeToString()})
        return replace(made, header=header_of(found.number) + _written(_indexes(made.descriptor)))

    @property
    def descriptor(self) -> Any:
        """Return the message's descriptor; OptionError if the files lack it, or a file that they import."""
        files = {one.name: one for one in map(FileDescriptorProto.FromString, self.files)}
        pool, added = DescriptorPool(), set[str]()

        def add(name: str) -> None:
            if name not in added:
                added.add(name)
                file = files.get(name) or _packaged(name)
                for one in file.dependency:
                    add(one)
                pool.Add(file)

        try:
            for name in files:
                add(name)
        except TypeError as error:  # of the pool
            raise OptionError(f"rillet: payloadSchema: {error}") from None
        try:
            return pool.FindMessageTypeByName(self.message)
        except KeyError:
            names = [_full_name(file, [place]) for file in files.values() for place in range(len(file.message_type))]
            raise OptionError(f"rillet: payloadMessage is {self.message!r}: the descriptors have "
                              f"{', '.join(sorted(names))}") from None  # fmt: skip

    def types(self, columns: StructType) -> Mapping[str, Callable[[], DataType]]:
        """Return a function for the type of each field of the message."""
        message = self.descriptor
        within = (message.full_name,)
        return {one.name: lambda one=one: _type(one, one.name, within) for one in message.fields}  # type: ignore[misc]

    def required(self) -> Sequence[str]:
        """Return the required fields, which only the older syntax has."""
        return [one.name for one in self.descriptor.fields if one.is_required]

    def decoder(self, columns: StructType) -> Decode:
        """Return a function that parses a message into the columns."""
        message = self.descriptor
        parse = GetMessageClass(message).FromString
        read = _message_reader(message, columns.names)
        if self.registry is None:
            return lambda data: read(parse(data))
        wrong: dict[bytes, str] = {}  # by what is before the message: why it is another one; empty if it is not

        def decode(data: bytes) -> Any:
            end = HEADER + 1 if data[HEADER : HEADER + 1] == b"\0" else _read_indexes(data)[1]
            header = data[:end]
            if header not in wrong:
                try:
                    self._require(header)
                    wrong[header] = ""
                except (NotRegistered, ValueError) as error:
                    wrong[header] = str(error).removeprefix("rillet: ")
            if wrong[header]:
                raise ValueError(wrong[header])
            return read(parse(data[end:]))

        return decode

    def _require(self, header: bytes) -> None:
        """Raise ValueError if the registry's schema shows that another message follows a header."""
        number = schema_number(header)
        if number not in self.writers:
            found = self.registry.by_number(number, "serialized")  # type: ignore[union-attr]
            if found.kind != "PROTOBUF":
                raise ValueError(f"the schema with the ID {number} is of type {found.kind}")
            file = _file("", found.text)
            if file is None:  # a registry that returns text only
                return
            self.writers[number] = file.SerializeToString()
        name = _full_name(FileDescriptorProto.FromString(self.writers[number]), _read_indexes(header)[0])
        if name != self.message:
            raise ValueError(f"the message is a {name}")

    def encoder(self, columns: StructType) -> Encode:
        """Return a function that writes a row as a message, after its header if there is a registry."""
        message = self.descriptor
        make, convert = GetMessageClass(message), _message_writer(message)
        return lambda row: self.header + make(**convert(row)).SerializeToString(deterministic=True)


# ---- descriptors --------------------------------------------------------------------------------------------------


def _descriptor_set(path: str) -> tuple[bytes, ...]:
    try:
        files = FileDescriptorSet.FromString(Path(path).read_bytes()).file
    except Exception as error:  # of the file, or of protobuf
        raise OptionError(f"rillet: payloadSchema is not the path of a Protobuf descriptor set: {error}") from None
    return tuple(one.SerializeToString() for one in files)


def _file(name: str, text: str) -> FileDescriptorProto | None:
    """Return the file that a registry has returned in base64, under a name; None if it has returned its text."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except Exception:
        return None
    file.name = name
    return file


def _packaged(name: str) -> FileDescriptorProto:
    """Return a file that the descriptors import and that a package has, such as google/protobuf/timestamp.proto."""
    for folder, package in _FILES.items():
        if name.startswith(folder):
            module = package + name.removesuffix(".proto").replace("/", ".") + "_pb2"
            try:
                return FileDescriptorProto.FromString(importlib.import_module(module).DESCRIPTOR.serialized_pb)
            except ImportError:
                break
    raise OptionError(f"rillet: the Protobuf descriptors lack {name!r}: protoc has the option --include_imports")


def _registered(registry: Registry, subject: str, message: Any) -> bytes:
    """Register a message's file under a subject, and the files that it imports; return the header of its messages."""
    client = registry.client
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    made = GetMessageClass(message)
    settings = {"use.deprecated.format": False, "subject.name.strategy": lambda context, name: subject}
    context = SerializationContext(subject, MessageField.VALUE)
    write = ProtobufSerializer(made, client, settings)
    return bytes(registry.asked(f"subject {subject!r}", lambda _: write(made(), context)))  # the message is empty


def _indexes(message: Any) -> list[int]:
    """Return the places that lead from a file to a message."""
    above = message.containing_type
    if above is not None:
        return [*_indexes(above), [one.name for one in above.nested_types].index(message.name)]
    file = FileDescriptorProto.FromString(message.file.serialized_pb)
    return [[one.name for one in file.message_type].index(message.name)]


def _full_name(file: FileDescriptorProto, indexes: Sequence[int]) -> str:
    """Return the name of the message at some places; ValueError if there is none."""
    names, inside = [file.package] if file.package else [], file.message_type
    for place in indexes:
        if not 0 <= place < len(inside):
            raise ValueError(f"the message indexes {list(indexes)} lead to no message of the schema")
        names.append(inside[place].name)
        inside = inside[place].nested_type
    return ".".join(names)


def _written(indexes: Sequence[int]) -> bytes:
    """Return message indexes as zigzag varints after their number; [0] is a zero byte."""
    if list(indexes) == [0]:
        return b"\0"
    found = bytearray()
    for number in (len(indexes), *indexes):
        rest = 2 * number
        while rest > 127:
            found.append(rest & 127 | 128)
            rest >>= 7
        found.append(rest)
    return bytes(found)


def _read_indexes(data: bytes) -> tuple[list[int], int]:
    """Return the message indexes after a schema ID, and where they end; ValueError if they are cut off."""
    schema_number(data)
    at, numbers, left = HEADER, list[int](), 1
    while left:
        number = shift = 0
        while True:
            if at == len(data) or shift > 28:
                raise ValueError("the message indexes are malformed")
            number |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                break
        numbers.append(number >> 1)
        left = left - 1 if len(numbers) > 1 else number >> 1
    return numbers[1:] or [0], at


# ---- types and values ---------------------------------------------------------------------------------------------


def _is_map(one: Any) -> bool:
    return one.message_type is not None and one.message_type.GetOptions().map_entry


def _type(one: Any, path: str, within: tuple[str, ...], element: bool = False) -> DataType:
    """Return Spark's type for a field, or for an element of a repeated one; OptionError with the path."""
    from pyspark.sql import types

    if _is_map(one):
        key, value = (one.message_type.fields_by_name[name] for name in ("key", "value"))
        return types.MapType(_type(key, path, within), _type(value, f"{path}.value", within))
    if one.is_repeated and not element:
        return types.ArrayType(_type(one, f"{path}.element", within, True))
    message = one.message_type
    if message is not None:
        if message.full_name == _TIMESTAMP:
            return types.TimestampType()
        if message.full_name in _WRAPPERS:
            return _type(message.fields_by_name["value"], path, within)
        if message.full_name in within:
            raise OptionError(f"rillet: the field {path!r} of the Protobuf message is a {message.full_name} inside "
                              "itself: no type of a column can hold it")  # fmt: skip
        inner = (*within, message.full_name)
        return types.StructType([types.StructField(each.name, _type(each, f"{path}.{each.name}", inner))
                                 for each in message.fields])  # fmt: skip
    if one.type == one.TYPE_BYTES:
        return types.BinaryType()
    return {
        one.CPPTYPE_BOOL: types.BooleanType, one.CPPTYPE_INT32: types.IntegerType, one.CPPTYPE_INT64: types.LongType,
        one.CPPTYPE_UINT32: types.LongType, one.CPPTYPE_UINT64: lambda: types.DecimalType(20, 0),
        one.CPPTYPE_FLOAT: types.FloatType, one.CPPTYPE_DOUBLE: types.DoubleType,
    }.get(one.cpp_type, types.StringType)()  # fmt: skip


def _message_reader(message: Any, wanted: Sequence[str] | None = None) -> Convert:
    """Return a function that converts a message to a dict, of all fields or of those wanted."""
    parts = [(one.name, one.has_presence, _reader(one))
             for one in message.fields if wanted is None or one.name in wanted]  # fmt: skip

    def read(value: Any) -> dict[str, Any]:
        return {name: convert(getattr(value, name)) if convert is not None else getattr(value, name)
                for name, optional, convert in parts if not optional or value.HasField(name)}  # fmt: skip

    return read


def _reader(one: Any, element: bool = False) -> Convert | None:
    """Return a function that converts a field's value to what Arrow takes; None if it takes the value."""
    if _is_map(one):
        inner = _reader(one.message_type.fields_by_name["value"])
        return dict if inner is None else lambda value: {key: inner(each) for key, each in value.items()}
    if one.is_repeated and not element:
        convert = _reader(one, True)
        return list if convert is None else lambda value: [convert(each) for each in value]
    if one.message_type is not None:
        if one.message_type.full_name == _TIMESTAMP:
            return _moment
        if one.message_type.full_name in _WRAPPERS:
            return lambda value: value.value
        return _message_reader(one.message_type)
    if one.enum_type is not None:
        names = {number: value.name for number, value in one.enum_type.values_by_number.items()}
        return lambda value: names.get(value) or str(value)
    return None


def _moment(value: Any) -> int:
    if not _FIRST <= value.seconds <= _LAST or not 0 <= value.nanos < 1_000_000_000:
        raise ValueError(f"{value.seconds} s and {value.nanos} ns are not a google.protobuf.Timestamp")
    return int(value.seconds * 1_000_000 + value.nanos // 1000)


def _message_writer(message: Any) -> Convert:
    """Return a function that converts a dict to the arguments of a message's class; null values are left out."""
    parts = {one.name: _writer(one) for one in message.fields}

    def write(row: Any) -> dict[str, Any]:
        return {name: value if (convert := parts[name]) is None else convert(value)
                for name, value in row.items() if value is not None}  # fmt: skip

    return write


def _writer(one: Any, element: bool = False) -> Convert | None:
    """Return a function that converts a value of a row to what a message's class takes; None if it takes the value."""
    if _is_map(one):
        key, value = (_writer(one.message_type.fields_by_name[name]) or _same for name in ("key", "value"))
        return lambda pairs: {key(name): value(_there(one, each)) for name, each in pairs.items()}
    if one.is_repeated and not element:
        convert = _writer(one, True) or _same
        return lambda values: [convert(_there(one, each)) for each in values]
    if one.message_type is not None:
        if one.message_type.full_name == _TIMESTAMP:
            return _seconds_and_nanos
        if one.message_type.full_name in _WRAPPERS:
            convert = _writer(one.message_type.fields_by_name["value"]) or _same
            return lambda value: {"value": convert(value)}
        return _message_writer(one.message_type)
    if one.enum_type is not None:
        return _enum_writer(one.enum_type)
    return int if one.cpp_type == one.CPPTYPE_UINT64 else None  # a decimal, in rows


def _enum_writer(kind: Any) -> Convert:
    numbers: dict[str, int] = {name: value.number for name, value in kind.values_by_name.items()}

    def write(name: str) -> int:
        if name in numbers:
            return numbers[name]
        if name.lstrip("-").isdigit():  # as `_reader` shows a number without a name
            return int(name)
        raise ValueError(f"{name!r} is not a value of the enum {kind.full_name}")

    return write


def _same(value: Any) -> Any:
    return value


def _there(one: Any, value: Any) -> Any:
    if value is None:
        raise ValueError(f"the field {one.name!r} contains a null, which Protobuf does not have")
    return value


def _seconds_and_nanos(value: datetime) -> dict[str, int]:
    seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, 1_000_000)
    return {"seconds": seconds, "nanos": 1000 * micros}
