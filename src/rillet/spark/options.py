"""The options of the data source: `parse` checks them all and reports every mistake in one error.

Spark passes options as strings, with names in any case. `parse` turns them into an `Options`. Its `OptionError` lists
every unknown name, every malformed value and every contradiction, so that a user can correct all of them at once.

`TABLE` is the only list of options: name, attribute, parser and use (such as batch read or write). `Options.refuse`
rejects options that do not apply to a use.

One of four options selects the keys to read: `stream` (one key), `streams` (keys with commas between them),
`streamPattern` (a glob, resolved again for every micro-batch), or `stream` with `partitioned` = n, which selects the n
keys <stream>:0 to <stream>:<n - 1>.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rillet.client.address import Address, NodeAddress, Tls
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
    names,
    non_empty,
    one_of,
    starting_bound,
    stream_id,
    timeout,
    timestamp,
    whole_number,
)
from rillet.spark.server_address import owner_address, url_problems
from rillet.types.stream.id import StreamID

# Options that Spark itself adds to those of a source or sink.
SPARK_OPTIONS = frozenset(("checkpointlocation", "queryname", "outputmode", "triggerinterval"))

NO_STREAM = (
    "stream is missing: set it to the key to read or to append to (or use streams or streamPattern to read several, "
    "streamColumn to write to several)"
)


class OptionError(RilletError):
    """The options are invalid; the message lists every mistake."""


@dataclass(frozen=True)
class Options:
    """The checked options of a reader or writer; small, because Spark sends them with every task."""

    stream: str = ""
    streams: tuple[str, ...] | None = None
    stream_pattern: str | None = None
    partitioned: int | None = None
    url: str | None = field(default=None, repr=False)  # may contain a password
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    tls_verify: bool = True
    read_from: str = "master"
    timeout: float = 60.0
    starting: Bounds = EARLIEST  # reading starts after this ID; None = latest; a dict has one bound per stream
    ending: Bounds = LATEST  # the last ID to read
    starting_timestamp: int | None = None  # milliseconds since 1970
    ending_timestamp: int | None = None
    fail_on_data_loss: bool = True
    max_entries_per_trigger: int | None = None
    min_entries_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    exact_triggers: bool = False
    min_partitions: int | None = None
    page_entries: int = 2500
    batch_entries: int = 10000
    mode: str = "PERMISSIVE"
    corrupt_column: str = "_corrupt"
    infer_schema: bool = False
    sample_entries: int = 1000
    push_filters: bool = True
    group: str | None = None
    group_mode: str = "follow"
    consumer: str = "spark"
    archive: str | None = None
    maxlen: int | None = None
    minid: str | None = None
    trim_exactly: bool = False
    id_column: str | None = None
    field_columns: tuple[str, ...] | None = None
    fields: dict[str, str] | None = None  # column -> field
    stream_column: str | None = None
    partition_column: str | None = None
    exactly_once: str = "auto"
    transaction_bytes: int = 16 << 20
    txn_app_id: str | None = None
    txn_version: int | None = None
    named: frozenset[str] = field(default=frozenset(), compare=False)  # names of the options that were set, lower case

    def address(self) -> Address:
        """Return the server's address; for a path, the socket of the process that owns the store."""
        return self._url_address() if self.url is not None else owner_address(str(self.path))

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
        """Raise OptionError if any of the options `names` was set, because they do not apply to `use`."""
        wrong = [name for name in names if name.lower() in self.named]
        if wrong:
            raise OptionError(f"rillet: not allowed for {use}: {', '.join(wrong)}")

    def require_stream(self) -> None:
        """Raise OptionError if no stream is selected."""
        if self.keys() == ():
            raise OptionError(f"rillet: {NO_STREAM}")

    def keys(self) -> tuple[str, ...] | None:
        """Return the selected keys; None for a pattern, which the servers must resolve."""
        if self.stream_pattern is not None:
            return None
        if self.streams is not None:
            return self.streams
        if self.partitioned is not None:
            return tuple(f"{self.stream}:{number}" for number in range(self.partitioned))
        return (self.stream,) if self.stream else ()

    def start_of(self, stream: str) -> Bound:
        """Return the ID after which a stream is read; None for latest. A stream without a bound starts at earliest."""
        if self.starting_timestamp is not None:
            return EARLIEST if self.starting_timestamp <= 0 else before(StreamID(self.starting_timestamp, 0))
        return self.starting.get(stream, EARLIEST) if isinstance(self.starting, dict) else self.starting

    def end_of(self, stream: str) -> Bound:
        """Return the last ID to read of a stream; None for latest. Streams without a bound are read to their end."""
        if self.ending_timestamp is not None:  # the end is exclusive
            return EARLIEST if self.ending_timestamp <= 0 else before(StreamID(self.ending_timestamp, 0))
        return self.ending.get(stream, LATEST) if isinstance(self.ending, dict) else self.ending


# ---- the table ---------------------------------------------------------------------------------------------------

ALL, READ, BATCH, FOLLOW, WRITE = "all", "read", "batch read", "streaming read", "write"


class Option(NamedTuple):
    """One option: its name, its attribute in Options, its parser (option_types.py), and the uses that allow it."""

    name: str
    attribute: str
    read: Callable[[str], Any]
    use: str


TABLE = (
    Option("url", "url", non_empty, ALL),
    Option("path", "path", non_empty, ALL),
    Option("user", "user", non_empty, ALL),
    Option("password", "password", non_empty, ALL),
    Option("caFile", "ca_file", non_empty, ALL),
    Option("certFile", "cert_file", non_empty, ALL),
    Option("keyFile", "key_file", non_empty, ALL),
    Option("tlsVerify", "tls_verify", boolean, ALL),
    Option("timeout", "timeout", timeout, ALL),
    Option("stream", "stream", non_empty, ALL),
    Option("partitioned", "partitioned", whole_number(1), ALL),
    Option("streams", "streams", names, READ),
    Option("streamPattern", "stream_pattern", non_empty, READ),
    Option("readFrom", "read_from", one_of("master", "replica"), READ),
    Option("startingOffsets", "starting", bounds(starting_bound), READ),
    Option("endingOffsets", "ending", bounds(ending_bound), BATCH),
    Option("startingTimestamp", "starting_timestamp", timestamp, READ),
    Option("endingTimestamp", "ending_timestamp", timestamp, BATCH),
    Option("failOnDataLoss", "fail_on_data_loss", boolean, READ),
    Option("maxEntriesPerTrigger", "max_entries_per_trigger", whole_number(1), FOLLOW),
    Option("minEntriesPerTrigger", "min_entries_per_trigger", whole_number(1), FOLLOW),
    Option("maxTriggerDelay", "max_trigger_delay", timeout, FOLLOW),
    Option("exactTriggers", "exact_triggers", boolean, FOLLOW),
    Option("minPartitions", "min_partitions", whole_number(1), READ),
    Option("pageEntries", "page_entries", whole_number(1), READ),
    Option("batchEntries", "batch_entries", whole_number(1), READ),
    Option("mode", "mode", one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST"), READ),
    Option("columnNameOfCorruptRecord", "corrupt_column", non_empty, READ),
    Option("inferSchema", "infer_schema", boolean, READ),
    Option("sampleEntries", "sample_entries", whole_number(1), READ),
    Option("pushFilters", "push_filters", boolean, BATCH),
    Option("group", "group", non_empty, FOLLOW),
    Option("groupMode", "group_mode", one_of("follow", "deliver"), FOLLOW),
    Option("consumer", "consumer", non_empty, FOLLOW),
    Option("archive", "archive", non_empty, BATCH),
    Option("maxlen", "maxlen", whole_number(0), WRITE),
    Option("minid", "minid", stream_id, WRITE),
    Option("trimExactly", "trim_exactly", boolean, WRITE),
    Option("idColumn", "id_column", non_empty, WRITE),
    Option("fieldColumns", "field_columns", names, WRITE),
    Option("fields", "fields", field_map, WRITE),
    Option("streamColumn", "stream_column", non_empty, WRITE),
    Option("partitionColumn", "partition_column", non_empty, WRITE),
    Option("exactlyOnce", "exactly_once", one_of("auto", "transaction", "idmp", "none"), WRITE),
    Option("transactionBytes", "transaction_bytes", whole_number(1 << 10), WRITE),
    Option("txnAppId", "txn_app_id", non_empty, WRITE),
    Option("txnVersion", "txn_version", whole_number(0), WRITE),
)
_LOWER = {option.name.lower(): option for option in TABLE}


def _for(*uses: str) -> tuple[str, ...]:
    return tuple(option.name for option in TABLE if option.use in uses)


NAMES = tuple(option.name for option in TABLE)
READ_ONLY = _for(READ, BATCH, FOLLOW)
BATCH_ONLY = _for(BATCH)
FOLLOW_ONLY = _for(FOLLOW)
WRITE_ONLY = _for(WRITE)

_SELECTORS = ("stream", "streams", "streampattern", "partitioned")  # the options that select the keys to read
_NOT_TOGETHER = (
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
    ("maxlen", "minid"),
    ("fieldColumns", "fields"),
    ("streamColumn", "stream"),
    ("streamColumn", "partitioned"),
)
_NEEDS = (
    ("partitioned", "stream"),
    ("groupMode", "group"),
    ("consumer", "group"),
    ("maxTriggerDelay", "minEntriesPerTrigger"),
    ("exactTriggers", "maxEntriesPerTrigger"),
    ("partitionColumn", "partitioned"),
    ("keyFile", "certFile"),
    ("txnAppId", "txnVersion"),
    ("txnVersion", "txnAppId"),
    ("sampleEntries", "inferSchema"),
)


def parse(given: Mapping[str, str]) -> Options:
    """Return the checked options, or raise an OptionError that lists every mistake."""
    values = {name.lower(): value for name, value in given.items()}
    wrong = [_unknown(name) for name in values if name not in SPARK_OPTIONS and name not in _LOWER]
    parsed: dict[str, Any] = {}
    for name, option in _LOWER.items():
        if name in values:
            try:
                parsed[option.attribute] = option.read(values[name])
            except ValueError as error:
                shown = "invalid" if name == "password" else repr(values[name])
                wrong.append(f"{option.name} is {shown}: {error}")
    wrong += _contradictions(values)
    options = Options(**parsed, named=frozenset(values))  # invalid values are replaced by defaults
    if all(_LOWER[name].attribute in parsed for name in _SELECTORS if name in values):
        wrong += _unselected(options)
    wrong += _disorder(options)
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong + _missing(values)))
    return options


def _contradictions(values: Mapping[str, str]) -> list[str]:
    """Return error messages for missing options and for combinations that are not allowed."""
    wrong = []
    if ("url" in values) == ("path" in values):
        wrong.append("give one of url (redis://host:port/db) and path (the directory of an embedded store)")
    selectors = [name for name in ("stream", "streams", "streamPattern") if name.lower() in values]
    if len(selectors) > 1:
        wrong.append(f"give only one of {' and '.join(selectors)}")
    for one, other in _NOT_TOGETHER:
        if one.lower() in values and other.lower() in values:
            wrong.append(f"give only one of {one} and {other}")
    for one, other in _NEEDS:
        if one.lower() in values and other.lower() not in values:
            wrong.append(f"{one} needs {other}")
    for name in ("user", "password", "caFile", "certFile", "tlsVerify", "readFrom"):
        if name.lower() in values and "path" in values:
            wrong.append(f"{name} applies to a url, not to a path")
    return wrong + url_problems(values)


def _missing(values: Mapping[str, str]) -> list[str]:
    """Return the error message if no stream is selected. `parse` only adds it to other errors: rows may name it."""
    named = any(name in values for name in ("stream", "streams", "streampattern", "streamcolumn"))
    return [] if named else [NO_STREAM]


def _unselected(options: Options) -> list[str]:
    """Return error messages for starting and ending offsets of streams that are not selected."""
    keys = options.keys() or None  # `_missing` reports a missing selection
    wrong = []
    for name, given in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
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
    since, until = options.starting_timestamp, options.ending_timestamp
    if since is not None and until is not None and since > until:
        wrong.append("startingTimestamp is after endingTimestamp")
    after, last = options.starting, options.ending
    if isinstance(after, StreamID) and isinstance(last, StreamID) and after > last:
        wrong.append("startingOffsets is after endingOffsets")
    return wrong


def _unknown(name: str) -> str:
    """Return the error message for an unknown option, with the most similar known name."""
    near = difflib.get_close_matches(name, _LOWER, 1)
    return f"unknown option {name}" + (f" (did you mean {_LOWER[near[0]].name}?)" if near else "")
