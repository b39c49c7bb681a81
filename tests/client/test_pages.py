"""Streams read page by page, from a rillet server by nodes and from Redis by XRANGE, with the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.client.pages import PageRange, RangeReader, reply_pages  # noqa: E402
from rillet.client.servers import ClientOptions, Servers  # noqa: E402
from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.types.stream.id import MAX, StreamID  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.server.harness import running  # noqa: E402
from tests.variants import covering  # noqa: E402

SCHEMA = pa.schema([("stream", pa.string()), ("id", pa.string()), ("n", pa.int64())])
ENTRIES = 1000
LAST = StreamID(MAX, MAX)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server.port


@pytest.fixture(params=["rillet", "redis"])
def servers(request: pytest.FixtureRequest, ours: int) -> Iterator[Servers]:
    port = ours if request.param == "rillet" else request.getfixturevalue("judge").port
    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{port}", 20)) as opened:
        for key in (b"a", b"b"):
            opened.call(key, b"DEL", key)
            opened.calls(key, [(b"XADD", key, b"%d-1" % n, b"n", b"%d" % n) for n in range(1, ENTRIES + 1)])
        yield opened


def read(servers: Servers, *ranges: PageRange, **more: Any) -> list[list[dict[str, Any]]]:
    """Return the batches of rows."""
    rows = rows_for(SCHEMA, b"")
    reader = RangeReader(servers, rows, ranges, page_entries=100, batch_entries=300, **more)
    return [record_batch(rows, SCHEMA).to_pylist() for _ in reader.read()]


def numbers(batches: list[list[dict[str, Any]]], stream: str) -> list[int]:
    return [row["n"] for batch in batches for row in batch if row["stream"] == stream]


def whole(key: bytes) -> PageRange:
    return PageRange(key, StreamID(0, 0), LAST)


@pytest.mark.parametrize("nodes", [True, False])
def test_ranges_are_read_in_bounded_batches(servers: Servers, nodes: bool) -> None:
    batches = read(servers, whole(b"a"), PageRange(b"b", StreamID(10, 1), StreamID(20, 1)), whole(b"gone"), nodes=nodes)
    assert numbers(batches, "a") == list(range(1, ENTRIES + 1))
    assert numbers(batches, "b") == list(range(11, 21))
    assert max(map(len, batches)) <= 300
    assert batches[0][0]["id"] == "1-1"


@pytest.mark.parametrize("nodes", [True, False])
@pytest.mark.parametrize("limit", [1, 99, 100, 101, 300, 301, 999, 1000, 2000])
def test_a_limit_ends_a_range(servers: Servers, limit: int, nodes: bool) -> None:
    first, second = PageRange(b"a", StreamID(0, 0), LAST, limit), PageRange(b"b", StreamID(5, 0), LAST, 7)
    batches = read(servers, first, second, nodes=nodes)
    assert numbers(batches, "a") == list(range(1, min(limit, ENTRIES) + 1))
    assert numbers(batches, "b") == list(range(5, 12))
    assert (first.read, second.read) == (min(limit, ENTRIES), 7)


def test_a_lost_connection_repeats_no_entry(servers: Servers) -> None:
    rows = rows_for(SCHEMA, b"")
    reader = RangeReader(servers, rows, [whole(b"a"), whole(b"b")], page_entries=100, batch_entries=100)
    seen: list[Any] = []
    for step, _ in enumerate(reader.read()):
        seen.append(record_batch(rows, SCHEMA).to_pylist())
        if step in (1, 5):
            for connection in list(servers.masters()):
                connection.interrupt()
    assert numbers(seen, "a") == numbers(seen, "b") == list(range(1, ENTRIES + 1))


def test_the_check_is_called_when_entries_before_a_page_are_gone(servers: Servers) -> None:
    class Trimmed(Exception):
        pass

    def check(pages: PageRange, at: StreamID) -> None:
        raise Trimmed(pages.key, at)

    assert numbers(read(servers, PageRange(b"a", StreamID(1, 1), LAST), check=check), "a")[-1] == ENTRIES
    servers.call(b"a", b"XTRIM", b"a", b"MINID", b"500-1")
    with pytest.raises(Trimmed) as caught:
        read(servers, PageRange(b"a", StreamID(1, 1), LAST), check=check)
    assert caught.value.args == (b"a", StreamID(1, 1))


def test_an_error_reply_names_the_stream_and_keeps_the_line(servers: Servers) -> None:
    servers.calls(b"a", [(b"DEL", b"a"), (b"SET", b"a", b"text")])
    with pytest.raises(ConnectorError, match="^rillet: reading 'a' from 127.0.0.1:.*: WRONGTYPE") as caught:
        read(servers, whole(b"a"))
    assert caught.value.line.startswith("WRONGTYPE ")


def test_reply_pages_follow_each_other_until_a_short_one(judge: Judge) -> None:
    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}", 20)) as servers:
        adds = [(b"XADD", b"s", b"%d-1" % n, b"n", b"%d" % n) for n in range(1, 26)]
        servers.calls(b"s", [(b"DEL", b"s"), *adds])

        def pages(count: int) -> list[list[bytes]]:
            found = reply_pages(
                lambda words: servers.call(b"s", *words),
                lambda start: (b"XREVRANGE", b"s", start, b"-", b"COUNT", b"%d" % count),
                b"+", count, lambda entry: b"(" + entry[0],
            )  # fmt: skip
            return [[entry[0] for entry in page] for page in found]

        assert [len(page) for page in pages(10)] == [10, 10, 5]
        assert [len(page) for page in pages(5)] == [5] * 5
        assert pages(10)[0][0] == b"25-1"
        assert pages(10)[2][-1] == b"1-1"


SHAPES = {
    "even": lambda n: 10 * n,
    "one millisecond": lambda n: 5,
    "ever denser": lambda n: int(1000 * n**0.5),
    "ever sparser": lambda n: n * n // 10,
    "bursts": lambda n: n // 130 * 100_000 + n % 130 // 40,
    "a burst at the end": lambda n: n if n < 700 else 10_000 + n // 100,
    "a gap": lambda n: n if n < 500 else 10_000_000 + n,
}


@pytest.mark.parametrize(("shape", "page"), covering(SHAPES, [7, 100, 5000]))
def test_parts_that_are_requested_in_advance_keep_the_order(judge: Judge, shape: str, page: int) -> None:
    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}", 20)) as servers:
        adds = [(b"XADD", b"s", b"%d-%d" % (1000 + SHAPES[shape](n), n), b"n", b"%d" % n) for n in range(ENTRIES)]
        servers.calls(b"s", [(b"DEL", b"s"), (b"DEL", b"t"), *adds, *[(b"XADD", b"t", *words[2:]) for words in adds]])
        end = StreamID(1000 + SHAPES[shape](ENTRIES - 1), ENTRIES - 1)
        for broken, check in ((False, None), (True, None), (True, lambda pages, at: None)):
            rows = rows_for(SCHEMA, b"")
            ranges = [PageRange(key, StreamID(0, 0), end) for key in (b"s", b"t")]
            reader = RangeReader(servers, rows, ranges, page_entries=page, batch_entries=200, fixed=True, check=check)
            seen: list[Any] = []
            for step, _ in enumerate(reader.read()):
                seen.append(record_batch(rows, SCHEMA).to_pylist())
                if broken and step in (2, 4, 5):
                    for connection in list(servers.masters()):
                        connection.interrupt()
            assert numbers(seen, "s") == numbers(seen, "t") == list(range(ENTRIES))
            assert [one.read for one in ranges] == [ENTRIES, ENTRIES]
            assert [one.after for one in ranges] == [end, end]


@pytest.mark.parametrize("fixed", [True, False])
def test_only_a_range_with_a_fixed_end_is_cut(judge: Judge, fixed: bool) -> None:
    """An entry that is added to an open range while it is read must not be skipped for a later one."""
    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}", 20)) as servers:
        adds = [(b"XADD", b"s", b"%d-1" % (1000 + 10 * n), b"n", b"%d" % n) for n in range(ENTRIES)]
        servers.calls(b"s", [(b"DEL", b"s"), *adds])
        reader = RangeReader(
            servers, rows_for(SCHEMA, b""), [PageRange(b"s", StreamID(0, 0), StreamID(1000 + 10 * ENTRIES, 1))],
            page_entries=100, nodes=False, fixed=fixed,
        )  # fmt: skip
        rows = [row for _ in reader.read() for row in record_batch(reader.rows, SCHEMA).to_pylist()]
        assert [row["n"] for row in rows] == list(range(ENTRIES))
        assert (reader.parts > 10) is fixed
        assert reader.misjudged <= 1  # after the first page, which begins at ID 0


class Trimmed(Exception):
    """A check has found that entries are missing."""


@pytest.mark.parametrize("batch", [7, 100])
@pytest.mark.parametrize("lost", [False, True])
def test_a_part_proves_that_no_entry_was_trimmed_before_it(judge: Judge, lost: bool, batch: int) -> None:
    """A trim behind the reader needs no check; after a trim of unread entries, no later row is passed on."""
    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}", 20)) as servers:
        adds = [(b"XADD", b"s", b"%d-1" % (1000 + 10 * n), b"n", b"%d" % n) for n in range(ENTRIES)]
        servers.calls(b"s", [(b"DEL", b"s"), *adds])
        checked: list[tuple[int, StreamID]] = []

        def check(before: PageRange, at: StreamID) -> None:
            checked.append((before.read, at))
            if trimmed:
                raise Trimmed

        rows, seen, trimmed = rows_for(SCHEMA, b""), [], False
        pages = PageRange(b"s", StreamID(0, 0), StreamID(1000 + 10 * ENTRIES, 1))
        reader = RangeReader(
            servers, rows, [pages], page_entries=90, batch_entries=batch, nodes=False, fixed=True, check=check
        )
        with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}", 20)) as other:
            try:
                for _ in reader.read():
                    seen += record_batch(rows, SCHEMA).column("n").to_pylist()
                    first = 950 if lost else len(seen)
                    if len(seen) > 500 and not trimmed:
                        other.call(b"s", b"XTRIM", b"s", b"MINID", b"%d" % (1000 + 10 * first))
                        trimmed = lost
            except Trimmed:
                pass
        assert reader.parts > 10
        if lost:
            before, at = checked[-1]
            assert 500 < len(seen) <= before < 900
            assert seen == list(range(len(seen)))
            assert 1000 + 10 * (before - 1) <= at.ms < 1000 + 10 * before
        else:
            assert seen == list(range(ENTRIES))
            assert checked[0] == (0, StreamID(0, 0))
            assert len(checked) == 1 or batch < 30
