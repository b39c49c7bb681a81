"""The options of the connector: known by name, read once, and everything wrong with them said at once.

Spark hands options as strings, names in any case. `parse` turns them into an `Options`; an `OptionError` lists
every unknown name, every malformed value and every contradiction, so that nobody corrects one after the other.

`TABLE` is the one list of options: name, attribute, how its text is read, and what it is for. `Options.refuse` tells
those that mean nothing for a use.

Where to read is one of four: `stream` (a key), `streams` (keys, by commas), `streamPattern` (a glob, looked up again
for every micro-batch), or `stream` with `partitioned` = n, which is the n keys <stream>:0 to <stream>:<n - 1>.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rillet.client.address import complaints
from rillet.errors import RilletError
from rillet.types.stream.id import MAX, StreamID

# What Spark itself puts among a source's or sink's options.
SPARKS_OWN = frozenset(("checkpointlocation", "queryname", "outputmode", "triggerinterval"))

EARLIEST = StreamID(0, 0)
LATEST = None
_ID = re.compile(r"(\(?)([0-9]{1,20})(?:-([0-9]{1,20}))?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
NO_STREAM = "stream is missing: the key to read or to append to (or streams, streamPattern; for writing streamColumn)"
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}

Bound = StreamID | None  # None = latest
Bounds = Bound | dict[str, Bound]


class OptionError(RilletError):
    """The options cannot be used; the text names everything that is wrong with them."""


@dataclass(frozen=True)
class Options:
    """Checked options, small enough to travel with every task."""

    stream: str = ""
    streams: tuple[str, ...] | None = None
    stream_pattern: str | None = None
    partitioned: int | None = None
    url: str | None = field(default=None, repr=False)  # it may hold a password
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    tls_verify: bool = True
    read_from: str = "master"
    timeout: float = 60.0
    starting: Bounds = EARLIEST  # after which ID reading starts; None = latest; a dict names streams
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
    named: frozenset[str] = field(default=frozenset(), compare=False)  # what the user set, lower case

    def refuse(self, names: Collection[str], use: str) -> None:
        """Raise OptionError when any of `names` was set, which mean nothing for this use."""
        wrong = [name for name in names if name.lower() in self.named]
        if wrong:
            raise OptionError(f"rillet: not for {use}: {', '.join(wrong)}")

    def require_stream(self) -> None:
        """Raise OptionError where nothing is named to read."""
        if self.keys() == ():
            raise OptionError(f"rillet: {NO_STREAM}")

    def keys(self) -> tuple[str, ...] | None:
        """Return the keys that are named; None where a pattern has to be looked up."""
        if self.stream_pattern is not None:
            return None
        if self.streams is not None:
            return self.streams
        if self.partitioned is not None:
            return tuple(f"{self.stream}:{number}" for number in range(self.partitioned))
        return (self.stream,) if self.stream else ()

    def start_of(self, stream: str) -> Bound:
        """Return the ID after which reading of a stream starts, None for latest; those not named start at earliest."""
        if self.starting_timestamp is not None:
            return EARLIEST if self.starting_timestamp <= 0 else before(StreamID(self.starting_timestamp, 0))
        return self.starting.get(stream, EARLIEST) if isinstance(self.starting, dict) else self.starting

    def end_of(self, stream: str) -> Bound:
        """Return the last ID of a stream to read, None for latest; those not named are read to their latest."""
        if self.ending_timestamp is not None:  # entries before that moment
            return EARLIEST if self.ending_timestamp <= 0 else before(StreamID(self.ending_timestamp, 0))
        return self.ending.get(stream, LATEST) if isinstance(self.ending, dict) else self.ending


# ---- the words --------------------------------------------------------------------------------------------------


def start_of(text: str) -> Bound:
    """Return the ID after which reading starts: earliest, latest (None), ID (inclusive) or (ID (exclusive)."""
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    found = _id(text, "earliest, latest")
    bound = StreamID(int(found[2]), int(found[3] or 0))
    return bound if found[1] or bound == EARLIEST else before(bound)


def end_of(text: str) -> Bound:
    """Return the last ID to read: latest (None), ID (inclusive; without -seq its whole millisecond) or (ID."""
    if text.lower() == "latest":
        return LATEST
    found = _id(text, "latest")
    if found[1]:
        bound = StreamID(int(found[2]), int(found[3] or 0))
        return bound if bound == EARLIEST else before(bound)
    return StreamID(int(found[2]), MAX if found[3] is None else int(found[3]))


def _id(text: str, words: str) -> re.Match[str]:
    found = _ID.fullmatch(text)
    if found is None or int(found[2]) > MAX or int(found[3] or 0) > MAX:
        raise ValueError(f"neither {words} nor a stream ID, like 1526919030474-0 or (1526919030474-0")
    return found


def before(bound: StreamID) -> StreamID:
    """Return the ID just below (t_stream.c, streamDecrID)."""
    return StreamID(bound.ms, bound.seq - 1) if bound.seq else StreamID(bound.ms - 1, MAX)


def _bounds(one: Callable[[str], Bound]) -> Callable[[str], Bounds]:
    """Return what reads one bound for all streams, or JSON with one for each: {"<stream>": "<bound>"}."""

    def read(text: str) -> Bounds:
        if not text.lstrip().startswith("{"):
            return one(text)
        try:
            told = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"no JSON: {error}") from None
        found: dict[str, Bound] = {}
        for stream, bound in told.items():
            if not isinstance(bound, str):
                raise ValueError(f"the bound of the stream {stream!r} is no text")
            try:
                found[stream] = one(bound)
            except ValueError as error:
                raise ValueError(f"{bound!r}, of the stream {stream!r}, is {error}") from None
        return found

    return read


def _moment(text: str) -> int:
    """Return milliseconds since 1970, of milliseconds or ISO 8601 (UTC without a zone)."""
    if text.isascii() and text.isdigit():
        if len(text) > 20 or int(text) > MAX:
            raise ValueError("more than an ID's milliseconds can be")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("neither milliseconds since 1970 nor ISO 8601, like 2024-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return -((datetime(1970, 1, 1, tzinfo=UTC) - moment) // timedelta(milliseconds=1))


def _whole_number(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"not a whole number from {least} up")
        return int(text)

    return read


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNIT_SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < 1e8:
        raise ValueError("not a time above 0 in seconds, or with a unit (500ms, 30s, 15m, 1h)")
    return seconds


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueError(f"none of {', '.join(words)}")

    return read


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("names nothing")
    if len(set(names)) < len(names):
        raise ValueError("names something twice")
    return names


def _text(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text


def _field_map(text: str) -> dict[str, str]:
    """Return which column becomes which field, of JSON {"<column>": "<field>"}."""
    try:
        told = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(told, dict) or not told or not all(isinstance(name, str) for name in told.values()):
        raise ValueError('not JSON of the form {"<column>": "<field>"}')
    return told


def _one_id(text: str) -> str:
    found = _ID.fullmatch(text)
    if found is None or found[1] or int(found[2]) > MAX or int(found[3] or 0) > MAX:
        raise ValueError("no stream ID, like 1526919030474-0")
    return text


# ---- the table ---------------------------------------------------------------------------------------------------

ALL, READ, BATCH, FOLLOW, WRITE = "all", "read", "batch read", "streaming read", "write"


class Option(NamedTuple):
    """An option: its name, the attribute of Options, how its text is read (ValueError says why not), its use."""

    name: str
    attribute: str
    read: Callable[[str], Any]
    use: str


TABLE = (
    Option("url", "url", _text, ALL),
    Option("path", "path", _text, ALL),
    Option("user", "user", _text, ALL),
    Option("password", "password", _text, ALL),
    Option("caFile", "ca_file", _text, ALL),
    Option("certFile", "cert_file", _text, ALL),
    Option("keyFile", "key_file", _text, ALL),
    Option("tlsVerify", "tls_verify", _boolean, ALL),
    Option("timeout", "timeout", _seconds, ALL),
    Option("stream", "stream", _text, ALL),
    Option("partitioned", "partitioned", _whole_number(1), ALL),
    Option("streams", "streams", _names, READ),
    Option("streamPattern", "stream_pattern", _text, READ),
    Option("readFrom", "read_from", _one_of("master", "replica"), READ),
    Option("startingOffsets", "starting", _bounds(start_of), READ),
    Option("endingOffsets", "ending", _bounds(end_of), BATCH),
    Option("startingTimestamp", "starting_timestamp", _moment, READ),
    Option("endingTimestamp", "ending_timestamp", _moment, BATCH),
    Option("failOnDataLoss", "fail_on_data_loss", _boolean, READ),
    Option("maxEntriesPerTrigger", "max_entries_per_trigger", _whole_number(1), FOLLOW),
    Option("minEntriesPerTrigger", "min_entries_per_trigger", _whole_number(1), FOLLOW),
    Option("maxTriggerDelay", "max_trigger_delay", _seconds, FOLLOW),
    Option("exactTriggers", "exact_triggers", _boolean, FOLLOW),
    Option("minPartitions", "min_partitions", _whole_number(1), READ),
    Option("pageEntries", "page_entries", _whole_number(1), READ),
    Option("batchEntries", "batch_entries", _whole_number(1), READ),
    Option("mode", "mode", _one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST"), READ),
    Option("columnNameOfCorruptRecord", "corrupt_column", _text, READ),
    Option("inferSchema", "infer_schema", _boolean, READ),
    Option("sampleEntries", "sample_entries", _whole_number(1), READ),
    Option("pushFilters", "push_filters", _boolean, BATCH),
    Option("group", "group", _text, FOLLOW),
    Option("groupMode", "group_mode", _one_of("follow", "deliver"), FOLLOW),
    Option("consumer", "consumer", _text, FOLLOW),
    Option("archive", "archive", _text, BATCH),
    Option("maxlen", "maxlen", _whole_number(0), WRITE),
    Option("minid", "minid", _one_id, WRITE),
    Option("trimExactly", "trim_exactly", _boolean, WRITE),
    Option("idColumn", "id_column", _text, WRITE),
    Option("fieldColumns", "field_columns", _names, WRITE),
    Option("fields", "fields", _field_map, WRITE),
    Option("streamColumn", "stream_column", _text, WRITE),
    Option("partitionColumn", "partition_column", _text, WRITE),
    Option("exactlyOnce", "exactly_once", _one_of("auto", "transaction", "idmp", "none"), WRITE),
    Option("transactionBytes", "transaction_bytes", _whole_number(1 << 10), WRITE),
    Option("txnAppId", "txn_app_id", _text, WRITE),
    Option("txnVersion", "txn_version", _whole_number(0), WRITE),
)
_LOWER = {option.name.lower(): option for option in TABLE}


def _for(*uses: str) -> tuple[str, ...]:
    return tuple(option.name for option in TABLE if option.use in uses)


NAMES = tuple(option.name for option in TABLE)
READ_ONLY = _for(READ, BATCH, FOLLOW)
BATCH_ONLY = _for(BATCH)
FOLLOW_ONLY = _for(FOLLOW)
WRITE_ONLY = _for(WRITE)

_WHERE = ("stream", "streams", "streampattern", "partitioned")  # what says which keys are read
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
    """Return the options, or raise OptionError about all that is wrong with them."""
    values = {name.lower(): value for name, value in given.items()}
    wrong = [_unknown(name) for name in values if name not in SPARKS_OWN and name not in _LOWER]
    parsed: dict[str, Any] = {}
    for name, option in _LOWER.items():
        if name in values:
            try:
                parsed[option.attribute] = option.read(values[name])
            except ValueError as error:
                shown = "given" if name == "password" else repr(values[name])
                wrong.append(f"{option.name} is {shown}: {error}")
    wrong += _contradictions(values)
    found = Options(**parsed, named=frozenset(values))  # what did not read has its default, which contradicts nothing
    if all(_LOWER[name].attribute in parsed for name in _WHERE if name in values):
        wrong += _strangers(found)
    wrong += _disorder(found)
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong + _missing(values)))
    return found


def _contradictions(values: Mapping[str, str]) -> list[str]:
    """Return what is missing, and what does not go together."""
    wrong = []
    if ("url" in values) == ("path" in values):
        wrong.append("give one of url (redis://host:port/db) and path (a store's directory)")
    where = [name for name in ("stream", "streams", "streamPattern") if name.lower() in values]
    if len(where) > 1:
        wrong.append(f"give one of {' and '.join(where)}")
    for one, other in _NOT_TOGETHER:
        if one.lower() in values and other.lower() in values:
            wrong.append(f"give one of {one} and {other}")
    for one, other in _NEEDS:
        if one.lower() in values and other.lower() not in values:
            wrong.append(f"{one} needs {other}")
    for name in ("user", "password", "caFile", "certFile", "tlsVerify", "readFrom"):
        if name.lower() in values and "path" in values:
            wrong.append(f"{name} is for a url, not for a path")
    return wrong + complaints(values)


def _missing(values: Mapping[str, str]) -> list[str]:
    """Return the complaint that no stream is named. Rows may name theirs, so alone it is no error before it is read."""
    named = any(name in values for name in ("stream", "streams", "streampattern", "streamcolumn"))
    return [] if named else [NO_STREAM]


def _strangers(options: Options) -> list[str]:
    """Return the complaints about bounds of streams that are not read."""
    keys = options.keys() or None  # that nothing is named to read is another complaint
    wrong = []
    for name, bounds in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if isinstance(bounds, dict) and keys is not None:
            others = [stream for stream in bounds if stream not in keys]
            if others:
                wrong.append(f"{name} names streams that are not read: {', '.join(others)}")
    return wrong


def _disorder(options: Options) -> list[str]:
    """Return the complaints about numbers that are the wrong way round."""
    wrong = []
    least, most = options.min_entries_per_trigger, options.max_entries_per_trigger
    if least is not None and most is not None and least > most:
        wrong.append("minEntriesPerTrigger is more than maxEntriesPerTrigger")
    since, until = options.starting_timestamp, options.ending_timestamp
    if since is not None and until is not None and since > until:
        wrong.append("startingTimestamp is after endingTimestamp")
    after, last = options.starting, options.ending
    if isinstance(after, StreamID) and isinstance(last, StreamID) and after > last:
        wrong.append("startingOffsets is after endingOffsets")
    return wrong


def _unknown(name: str) -> str:
    """Return the complaint about an unknown option, with the nearest known one."""
    near = difflib.get_close_matches(name, _LOWER, 1)
    return f"unknown option {name}" + (f" (did you mean {_LOWER[near[0]].name}?)" if near else "")
