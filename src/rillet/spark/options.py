"""The options of the data source: `parse` checks them all and reports every mistake in one error.

Spark passes options as strings, with names in any case. `parse` turns them into an `Options`. Its `OptionError` lists
every unknown name, every malformed value and every contradiction, so that a user can correct all of them at once.

The class `Options` declares each option once: attribute, parser, default and use (such as batch read or write).
`TABLE` lists these declarations. `Options.refuse` rejects options that do not apply to a use.

One of five options selects the keys to read: `stream` (one key), `streams` (keys with commas between them),
`streamPattern` (a glob, resolved again for every micro-batch), `partitionedStream` (a partitioned stream of the
library), or `stream` with `partitioned` = n, which selects the n keys <stream>:0 to <stream>:<n - 1>.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rillet.client.address import Address, NodeAddress, Tls
from rillet.client.sentinel import current_master
from rillet.errors import RilletError
from rillet.spark.option_types import (
    EARLIEST,
    LATEST,
    Bound,
    Bounds,
    before,
    boolean,
    bounds,
    ending_bound,
    field_map,
    json_object,
    names,
    non_empty,
    one_of,
    starting_bound,
    stream_id,
    stream_target,
    text_map,
    timestamp,
    whole_number,
)
from rillet.spark.option_types import timeout as positive_duration
from rillet.spark.server_address import owner_address, url_problems
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.columns.column import Column

# Options that Spark itself adds to the options of a source or sink.
SPARK_OPTIONS = frozenset(("checkpointlocation", "queryname", "outputmode", "triggerinterval"))

NO_STREAM = (
    "stream is missing: set it to the key to read or to append to (or use streams or streamPattern to read several, "
    "streamColumn to write to several)"
)


NO_TABLE = (
    "Spark passes the OPTIONS of CREATE TABLE ... USING rillet to no Python source, so the table has no server. Use "
    "CREATE TEMPORARY VIEW name USING rillet OPTIONS (url '...', stream '...'), or create the table with its columns "
    "and give the options in each query: SELECT ... FROM name WITH (url = '...', stream = '...')"
)


class Decoder(Protocol):
    """What a task needs to read payloads (payload/columns.py)."""

    column: str

    def attach(self, column: Column) -> None:
        """Make a column of a batch read payloads."""

    def reasons(self, payloads: Sequence[bytes | None]) -> list[str]:
        """Return what is wrong with each of some payloads; an empty text if nothing is."""
        raise NotImplementedError


class OptionError(RilletError):
    """The options are invalid; the message lists every mistake."""


ALL, READ, BATCH, FOLLOW, WRITE = "all", "read", "batch read", "streaming read", "write"


def option(read: Callable[[str], Any], use: str, default: Any = None, *, name: str = "", secret: bool = False) -> Any:
    """Declare an option of `Options`: its parser (option_types.py), the uses (such as batch read), and its default.

    The option's name is the attribute's name in camel case, unless `name` is given.
    """
    return field(default=default, repr=not secret, metadata={"read": read, "use": use, "name": name})


@dataclass(frozen=True)
class ConnectionOptions:
    """The options that select a server and are common to streams and tables of other types."""

    url: str | None = option(non_empty, ALL, secret=True)  # may contain a password
    path: str | None = option(non_empty, ALL)
    user: str | None = option(non_empty, ALL)
    password: str | None = option(non_empty, ALL, secret=True)
    ca_file: str | None = option(non_empty, ALL)
    cert_file: str | None = option(non_empty, ALL)
    key_file: str | None = option(non_empty, ALL)
    tls_verify: bool = option(boolean, ALL, True)
    timeout: float = option(positive_duration, ALL, 60.0)
    named: frozenset[str] = field(default=frozenset(), compare=False)  # options that the user set, in lower case
    owner: str | None = field(default=None, compare=False)  # the socket of the store's owner when a task was planned

    def address(self) -> Address:
        """Return the server's address; for a path, the socket of the process that owns the store.

        Of a service that sentinels watch, it is the current master.
        """
        if self.url is None:
            return owner_address(str(self.path), self.owner)
        address = self._url_address()
        return address if address.sentinels is None else current_master(address)

    def _url_address(self) -> Address:
        address = Address.parse(str(self.url))
        if address.tls is not None:
            tls = Tls(self.ca_file, self.cert_file, self.key_file, self.tls_verify)
            address = replace(address, tls=tls)
        return replace(address, user=self.user or address.user, password=self.password or address.password)

    def seeds(self) -> tuple[NodeAddress, ...]:
        """Return the cluster nodes that the url names; none if the url names a single server."""
        return () if self.url is None else self._url_address().seeds

    def place(self) -> str:
        """Return the server's address or the store's directory, for messages."""
        return str(self.path) if self.url is None else str(self._url_address())

    def refuse(self, names: Collection[str], use: str) -> None:
        """Raise OptionError if the user set any of the options `names`, which this use does not support."""
        wrong = [name for name in names if name.lower() in self.named]
        if wrong:
            raise OptionError(f"rillet: these options are not allowed for {use}: {', '.join(wrong)}")


@dataclass(frozen=True)
class SinkOptions(ConnectionOptions):
    """The options of writing that are common to streams and tables of other types."""

    wait_replicas: int | None = option(whole_number(1), WRITE)
    wait_aof: bool = option(boolean, WRITE, False)
    wait_timeout: float = option(positive_duration, WRITE, 30.0)

    @property
    def waits(self) -> bool:
        """Return whether a write waits until its rows are on replicas or on disk."""
        return self.wait_aof or self.wait_replicas is not None

    @property
    def fail_on_data_loss(self) -> bool:
        """Return whether lost entries or batches are an error."""
        raise NotImplementedError


@dataclass(frozen=True)
class Options(SinkOptions):
    """The checked options of a reader or writer of streams; small, because Spark sends them with every task."""

    type: str = option(one_of("stream"), ALL, "stream")
    stream: str = option(non_empty, ALL, "")
    partitioned: int | None = option(whole_number(1), ALL)
    partitioned_stream: str | None = option(non_empty, ALL)
    streams: tuple[str, ...] | None = option(names, READ)
    stream_pattern: str | None = option(non_empty, READ)
    read_from: str = option(one_of("master", "replica"), READ, "master")
    starting_offsets: Bounds = option(bounds(starting_bound), READ, EARLIEST)  # Reading starts after this ID.
    ending_offsets: Bounds = option(bounds(ending_bound), BATCH, LATEST)  # The last ID to read.
    starting_timestamp: int | None = option(timestamp, READ)  # Milliseconds since 1970.
    ending_timestamp: int | None = option(timestamp, BATCH)
    fail_on_data_loss: bool = option(boolean, ALL, True)
    on_stream_end: str | None = option(one_of("forget", "fail"), FOLLOW)  # None: forget for a pattern, else fail
    max_entries_per_trigger: int | None = option(whole_number(1), FOLLOW)
    max_bytes_per_trigger: int | None = option(whole_number(1), FOLLOW)
    min_entries_per_trigger: int | None = option(whole_number(1), FOLLOW)
    max_trigger_delay: float = option(positive_duration, FOLLOW, 900.0)
    exact_triggers: bool = option(boolean, FOLLOW, False)
    min_partitions: int | None = option(whole_number(1), READ)
    page_entries: int = option(whole_number(1), READ, 2500)
    batch_entries: int = option(whole_number(1), READ, 10000)
    mode: str = option(one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST"), READ, "PERMISSIVE")
    corrupt_column: str = option(non_empty, READ, "_corrupt", name="columnNameOfCorruptRecord")
    bad_records: str | None = option(stream_target, READ)
    unknown_fields: str = option(one_of("ignore", "warn", "fail"), READ, "warn")
    infer_schema: bool = option(boolean, READ, False)
    sample_entries: int = option(whole_number(1), READ, 1000)
    push_filters: bool = option(boolean, BATCH, False)
    group: str | None = option(non_empty, FOLLOW)
    group_mode: str = option(one_of("follow", "deliver"), FOLLOW, "follow")
    consumer: str = option(non_empty, FOLLOW, "spark")
    payload: str | None = option(one_of("json", "avro", "protobuf"), ALL)
    payload_field: str = option(non_empty, ALL, "payload")
    payload_schema: str | None = option(non_empty, ALL)
    payload_message: str | None = option(non_empty, ALL)
    payload_subject: str | None = option(non_empty, ALL)
    schema_registry: str | None = option(non_empty, ALL, secret=True)  # may contain a password
    schema_registry_user: str | None = option(non_empty, ALL)
    schema_registry_password: str | None = option(non_empty, ALL, secret=True)
    schema_registry_options: dict[str, Any] | None = option(json_object, ALL, secret=True)
    payload_decoder: Decoder | None = field(default=None, compare=False)  # in tasks
    archive: str | None = option(non_empty, BATCH)
    archive_options: dict[str, str] | None = option(text_map, BATCH, secret=True)  # may contain credentials
    maxlen: int | None = option(whole_number(0), WRITE)
    minid: str | None = option(stream_id, WRITE)
    trim_exactly: bool = option(boolean, WRITE, False)
    id_column: str | None = option(non_empty, WRITE)
    field_columns: tuple[str, ...] | None = option(names, WRITE)
    fields: dict[str, str] | None = option(field_map, WRITE)  # {column: field}
    stream_column: str | None = option(non_empty, WRITE)
    partition_column: str | None = option(non_empty, WRITE)
    exactly_once: str = option(one_of("auto", "transaction", "idmp", "none"), WRITE, "auto")
    order: str | None = option(one_of("stream", "none"), WRITE)  # None: stream if the rows come from one stream
    order_wait: float = option(positive_duration, WRITE, 10.0)
    transaction_bytes: int = option(whole_number(1 << 10), WRITE, 16 << 20)
    txn_app_id: str | None = option(non_empty, WRITE)
    txn_version: int | None = option(whole_number(0), WRITE)

    @property
    def readers(self) -> dict[str, Callable[[Column], None]]:
        """Return what gives the column of payloads its `read`, by the name of the column."""
        return {} if self.payload_decoder is None else {self.payload_decoder.column: self.payload_decoder.attach}

    @property
    def forgets_streams(self) -> bool:
        """Return whether a stream may disappear without an error after all its known entries were read."""
        return (self.on_stream_end or ("forget" if self.stream_pattern is not None else "fail")) == "forget"

    def require_stream(self) -> None:
        """Raise OptionError if no stream is selected."""
        if self.keys() == ():
            raise OptionError(f"rillet: {NO_STREAM}")

    def keys(self) -> tuple[str, ...] | None:
        """Return the selected keys; None for a pattern or a partitioned stream, which the servers must resolve."""
        if self.stream_pattern is not None or self.partitioned_stream is not None:
            return None
        if self.streams is not None:
            return self.streams
        if self.partitioned is not None:
            return tuple(f"{self.stream}:{number}" for number in range(self.partitioned))
        return (self.stream,) if self.stream else ()

    def reads(self, stream: str) -> bool:
        """Return whether a name is that of a selected stream."""
        if self.stream_pattern is not None:
            from rillet.structs.glob import matches

            return matches(self.stream_pattern.encode(), stream.encode())
        return stream in (self.keys() or ())

    def start_of(self, stream: str) -> Bound:
        """Return the ID after which a stream is read; None for latest. By default, reading starts at earliest."""
        return _bound(self.starting_timestamp, self.starting_offsets, stream, EARLIEST)

    def end_of(self, stream: str) -> Bound:
        """Return the last ID to read of a stream; None for latest. Without an offset, a stream is read to its end."""
        return _bound(self.ending_timestamp, self.ending_offsets, stream, LATEST)


def _bound(milliseconds: int | None, offsets: Bounds, stream: str, default: Bound) -> Bound:
    """Return the last ID before the time in milliseconds; without a time, the stream's ID from the offsets option."""
    if milliseconds is not None:
        return EARLIEST if milliseconds <= 0 else before(StreamID(milliseconds, 0))
    return offsets.get(stream, default) if isinstance(offsets, dict) else offsets


class Option(NamedTuple):
    """An option: its name, its attribute in Options, its parser, and the uses (such as batch read) that allow it."""

    name: str
    attribute: str
    read: Callable[[str], Any]
    use: str


def _camel_case(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(word.capitalize() for word in others)


def declared(options: type[ConnectionOptions]) -> tuple[Option, ...]:
    """Return the options that a class declares."""
    return tuple(
        Option(one.metadata["name"] or _camel_case(one.name), one.name, one.metadata["read"], one.metadata["use"])
        for one in fields(options)
        if one.metadata
    )


TABLE = declared(Options)
_LOWER = {option.name.lower(): option for option in TABLE}


def _for(*uses: str) -> tuple[str, ...]:
    return tuple(option.name for option in TABLE if option.use in uses)


NAMES = tuple(option.name for option in TABLE)
READ_ONLY = _for(READ, BATCH, FOLLOW)
BATCH_ONLY = _for(BATCH)
FOLLOW_ONLY = _for(FOLLOW)
WRITE_ONLY = _for(WRITE)

# The options that select the keys to read.
_SELECTORS = ("stream", "streams", "streampattern", "partitioned", "partitionedstream")
_NOT_TOGETHER = (
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
    ("maxlen", "minid"),
    ("fieldColumns", "fields"),
    ("badRecords", "mode"),
    ("badRecords", "columnNameOfCorruptRecord"),
    ("badRecords", "archive"),
    ("payload", "archive"),
    ("payload", "inferSchema"),
    ("streamColumn", "stream"),
    ("streamColumn", "partitioned"),
    *(("partitionedStream", name) for name in ("streamColumn", "partitionColumn", "minPartitions", "group", "archive",
                                               "idColumn")),
)
_NEEDS = (
    ("partitioned", "stream"),
    ("groupMode", "group"),
    ("consumer", "group"),
    ("maxTriggerDelay", "minEntriesPerTrigger"),
    ("exactTriggers", "maxEntriesPerTrigger"),
    ("partitionColumn", "partitioned"),
    ("txnAppId", "txnVersion"),
    ("txnVersion", "txnAppId"),
    ("sampleEntries", "inferSchema"),
    ("archiveOptions", "archive"),
    ("payloadField", "payload"),
    ("payloadSchema", "payload"),
    ("payloadMessage", "payload"),
    ("payloadSubject", "schemaRegistry"),
    ("schemaRegistry", "payload"),
    ("schemaRegistryUser", "schemaRegistryPassword"),
    ("schemaRegistryPassword", "schemaRegistryUser"),
    ("schemaRegistryUser", "schemaRegistry"),
    ("schemaRegistryOptions", "schemaRegistry"),
)


def parse(given: Mapping[str, str]) -> Options:
    """Return the checked options, or raise an OptionError that lists every mistake."""
    values = {name.lower(): value for name, value in given.items()}
    parsed, wrong = read_values(values, _LOWER)
    wrong += _contradictions(values)
    options = Options(**parsed, named=frozenset(values))  # defaults replace invalid values
    if all(_LOWER[name].attribute in parsed for name in _SELECTORS if name in values):
        wrong += _unselected(options)
    wrong += _disorder(options) + _payload_problems(options)
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong + _missing(values)))
    return options


def is_catalog_table(given: Mapping[str, str]) -> bool:
    """Return whether options are those that Spark passes for a table of its catalog: none, or the table's properties.

    While CREATE TABLE infers a schema, it passes provider, owner, and the table's options as option.<name>.
    """
    names = {name.lower() for name in given}
    return names <= SPARK_OPTIONS or "provider" in names or any(name.startswith("option.") for name in names)


_SECRET = frozenset(("password", "archiveoptions", "schemaregistryoptions"))  # those that may be invalid


def read_values(values: Mapping[str, str], table: Mapping[str, Option]) -> tuple[dict[str, Any], list[str]]:
    """Return the parsed values by attribute, and error messages for unknown options and invalid values."""
    wrong = [_unknown(name, table) for name in values if name not in SPARK_OPTIONS and name not in table]
    parsed: dict[str, Any] = {}
    for name, option in table.items():
        if name in values:
            try:
                parsed[option.attribute] = option.read(values[name])
            except ValueError as error:
                shown = "invalid" if name in _SECRET else repr(values[name])
                wrong.append(f"{option.name} is {shown}: {error}")
    return parsed, wrong


def server_problems(values: Mapping[str, str]) -> list[str]:
    """Return error messages for a missing server, or options that do not apply to it."""
    wrong = []
    if ("url" in values) == ("path" in values):
        wrong.append("give one of url (redis://host:port/db) and path (the directory of an embedded store)")
    if "keyfile" in values and "certfile" not in values:
        wrong.append("keyFile needs certFile")
    for name in ("user", "password", "caFile", "certFile", "tlsVerify", "readFrom"):
        if name.lower() in values and "path" in values:
            wrong.append(f"{name} applies to a url, not to a path")
    return wrong + url_problems(values)


def _contradictions(values: Mapping[str, str]) -> list[str]:
    """Return error messages for missing options and for combinations that are not allowed."""
    wrong = []
    selectors = [name for name in ("stream", "streams", "streamPattern", "partitionedStream") if name.lower() in values]
    if len(selectors) > 1:
        wrong.append(f"give only one of {' and '.join(selectors)}")
    return wrong + pair_problems(values, _NOT_TOGETHER, _NEEDS) + server_problems(values)


Pairs = tuple[tuple[str, str], ...]


def pair_problems(values: Mapping[str, str], not_together: Pairs, needs: Pairs) -> list[str]:
    """Return error messages for options that exclude each other, and for those without an option that they need."""
    wrong = [f"give only one of {one} and {other}" for one, other in not_together
             if one.lower() in values and other.lower() in values]  # fmt: skip
    wrong += [f"{one} needs {other}" for one, other in needs
              if one.lower() in values and other.lower() not in values]  # fmt: skip
    if "waittimeout" in values and not {"waitreplicas", "waitaof"} & values.keys():
        wrong.append("waitTimeout needs waitReplicas or waitAof")
    return wrong


def _missing(values: Mapping[str, str]) -> list[str]:
    """Return [error message] if no option selects a stream; only added to other errors, as rows may name streams."""
    named = any(name in values for name in (*_SELECTORS, "streamcolumn"))
    return [] if named else [NO_STREAM]


def _unselected(options: Options) -> list[str]:
    """Return error messages for starting and ending offsets of streams that are not selected."""
    keys = options.keys() or None  # `_missing` reports that no stream is selected
    wrong = []
    for name, given in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        if isinstance(given, dict) and keys is not None:
            others = [stream for stream in given if stream not in keys]
            if others:
                wrong.append(f"{name} names streams that are not read: {', '.join(others)}")
    return wrong


def _disorder(options: Options) -> list[str]:
    """Return error messages for pairs of options in the wrong order, such as a start after the end."""
    wrong = []
    least, most = options.min_entries_per_trigger, options.max_entries_per_trigger
    if least is not None and most is not None and least > most:
        wrong.append("minEntriesPerTrigger is larger than maxEntriesPerTrigger")
    for name, given in (("maxBytesPerTrigger", options.max_bytes_per_trigger), ("badRecords", options.bad_records)):
        if given is not None and options.group_mode == "deliver":
            wrong.append(f"{name} is not possible with groupMode=deliver")
    if options.bad_records is not None and options.reads(options.bad_records):
        wrong.append(f"badRecords names a stream that is read, {options.bad_records}")
    since, until = options.starting_timestamp, options.ending_timestamp
    if since is not None and until is not None and since > until:
        wrong.append("startingTimestamp is after endingTimestamp")
    after, last = options.starting_offsets, options.ending_offsets
    if isinstance(after, StreamID) and isinstance(last, StreamID) and after > last:
        wrong.append("startingOffsets is after endingOffsets")
    return wrong


def _payload_problems(options: Options) -> list[str]:
    """Return error messages for a format of payloads without its schema, and for options of another format."""
    wrong = []
    kind, schema, registry = options.payload, options.payload_schema, options.schema_registry
    if kind in ("avro", "protobuf") and schema is None and registry is None:
        wrong.append(f"payload={kind} needs payloadSchema or schemaRegistry")
    if kind == "json" and registry is not None:
        wrong.append("schemaRegistry is for payload=avro and payload=protobuf")
    if kind == "protobuf" and schema is not None and options.payload_message is None:
        wrong.append("payloadSchema needs payloadMessage, the full name of the message")
    if kind not in ("protobuf", None) and options.payload_message is not None:
        wrong.append("payloadMessage is for payload=protobuf")
    return wrong


def _unknown(name: str, table: Mapping[str, Option]) -> str:
    """Return the error message for an unknown option; it suggests the most similar known name."""
    near = difflib.get_close_matches(name, table, 1)
    return f"unknown option {name}" + (f" (did you mean {table[near[0]].name}?)" if near else "")
