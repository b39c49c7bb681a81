"""Finds the columns of a schema whose field occurs in no entry, such as misspelled ones: they would be null.

The same sample shows timestamp columns whose fields are seconds since 1970, which would be read as milliseconds, so as
days in 1970: a warning names them.

A Python source has no channel from its tasks to the driver, so the planner looks at a sample before the tasks start:

    first   the first and the last FEW entries of each stream's range. If they have all fields, nothing else is read
    then    MANY entries from the start, the middle and the end of each range

The option `unknownFields` determines what follows if a field is still missing: nothing (`ignore`), one line in the log
(`warn`, the default) or an error (`fail`). Both name the fields that were seen. A field that is missing from the sample
may still occur, so the message states the size of the sample.

A process logs a warning once. A server that rejects XRANGE or XREVRANGE is reported by the reader itself.

Cost: one round trip and about 1 us per sampled entry; with a missing field up to 12 * MANY entries, once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from rillet.client.pages import successor
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import field_names, kind_of
from rillet.columns.column import TIMESTAMP
from rillet.errors import RilletError
from rillet.loggers import logger
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.types.stream.id import StreamID

FEW, MANY = 50, 1000  # entries from one place of a stream; fewer if there are many streams
MOST_STREAMS = 100
_SECONDS = re.compile(rb"[0-9]{9,10}")  # from 1973 to 2286; as milliseconds, from 1970-01-02 to 1970-04-26
SHOWN = 30  # the maximum number of field names in a message

log = logger("spark")
_warned: set[tuple[str, ...]] = set()


class UnknownField(RilletError):
    """The schema has columns whose fields occur in no sampled entry, and unknownFields is `fail`."""


def check_fields(
    options: Options, servers: Servers, schema: Any, ranges: Mapping[str, tuple[StreamID, StreamID]],
    archived: Iterable[bytes] = (), place: str | None = None,
) -> None:  # fmt: skip
    """Warn or raise UnknownField if the entries of ranges (after, last] lack a field of an Arrow schema.

    archived: the fields that occur in an archive of the same streams. place: what was sampled, for messages.
    """
    wanted = {} if options.unknown_fields == "ignore" else field_names(schema, options.corrupt_column)
    names = dict.fromkeys(archived)  # in order of appearance
    sample = Sample({name for name, column in wanted.items() if kind_of(schema.field(column).type) == TIMESTAMP})
    for entries in (FEW, MANY):
        if not wanted.keys() - names.keys():
            break
        sample.add(servers, ranges, entries)
        names.update(sample.names)
    _warn_of_seconds(options, wanted, sample)
    missing = [name for name in wanted if name not in names]
    if not missing or not names:
        return
    if place is None:
        streams = repr(next(iter(ranges))) if len(ranges) == 1 else f"{len(ranges)} streams"
        place = f"{len(sample.entries):,} sampled entries of {streams} at {servers}"
    text = _message([(name.decode("utf-8", "backslashreplace"), wanted[name]) for name in missing], names, place)
    if options.unknown_fields == "fail":
        raise UnknownField(f"{text}. Set unknownFields to warn or ignore if the fields are rare")
    key = (options.place(), *ranges, *wanted.values())
    if key not in _warned:
        _warned.add(key)
        log.warning("%s. unknownFields=ignore turns this warning off", text)


def _warn_of_seconds(options: Options, wanted: Mapping[bytes, str], sample: Sample) -> None:
    """Log a warning, once, that names the columns whose values look like seconds since 1970."""
    columns = {wanted[name]: value for name, value in sample.seconds.items()}
    key = (options.place(), *columns)
    if columns and key not in _warned:
        _warned.add(key)
        values = ", ".join(f"{column!r} ({value.decode()})" for column, value in columns.items())
        log.warning(
            "rillet: the timestamp columns %s contain integers that look like seconds since 1970, but integers are "
            "read as milliseconds: read them as bigint, and convert them with timestamp_seconds. unknownFields=ignore "
            "turns this warning off", values,
        )  # fmt: skip


class Sample:
    """Sampled entries of some streams: their IDs and field names, and the time of each stream's first entry.

    times: the fields to look at for seconds since 1970.
    """

    def __init__(self, times: Set[bytes] = frozenset()) -> None:
        self.times = times
        self.seconds: dict[bytes, bytes] = {}  # by field: a value
        self.entries: set[tuple[bytes, bytes]] = set()  # (key, ID)
        self.names: dict[bytes, None] = {}  # in order of appearance
        self.starts: dict[bytes, int] = {}  # key -> milliseconds

    def add(self, servers: Servers, ranges: Mapping[str, tuple[StreamID, StreamID]], entries: int) -> None:
        """Add the first and last entries of each range; from the second call on also entries from its middle."""
        count = b"%d" % max(min(4 * entries // max(len(ranges), 1), entries), 10)
        requests: list[tuple[bytes, Sequence[bytes]]] = []
        for stream, (after, last) in list(ranges.items())[:MOST_STREAMS]:
            if after >= last:
                continue
            key, low, high = stream.encode(), b"%d-%d" % successor(after), b"%d-%d" % last
            requests.append((key, (b"XRANGE", key, low, high, b"COUNT", count)))
            requests.append((key, (b"XREVRANGE", key, high, low, b"COUNT", count)))
            if key in self.starts:
                middle = b"%d" % ((self.starts[key] + last.ms) // 2)
                requests.append((key, (b"XRANGE", key, middle, high, b"COUNT", count)))
        for (key, _), reply in zip(requests, servers.each(requests), strict=True):
            for identifier, fields in () if isinstance(reply, ReplyError) else reply:
                self.starts.setdefault(key, StreamID.parse(identifier).ms)
                self.entries.add((key, identifier))
                self.names.update(dict.fromkeys((fields or ())[::2]))
                for name in self.times & set((fields or ())[::2]):
                    value = fields[fields.index(name) + 1]
                    if _SECONDS.fullmatch(value):
                        self.seconds[name] = value


def _message(missing: Sequence[tuple[str, str]], names: Iterable[bytes], place: str) -> str:
    """Return the sentences for missing fields, each with its column; they name similar fields, and all fields."""
    known = [name.decode("utf-8", "backslashreplace") for name in names]
    lower = {name.lower(): name for name in known}
    parts = []
    for name, column in missing:
        near = difflib.get_close_matches(name.lower(), lower, 1)
        of_column = "" if column == name else f" of the column {column!r}"
        parts.append(f"{name!r}{of_column}" + (f" (did you mean {lower[near[0]]!r}?)" if near else ""))
    shown = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    fields, columns = ("field", "the column is") if len(parts) == 1 else ("fields", "these columns are")
    return f"rillet: none of {place} has the {fields} {', '.join(parts)}, so {columns} null. Fields seen: {shown}"
