"""A real cluster: reading and writing on every node while slots migrate, nodes fail and replicas take over."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

from rillet.client.cluster import read_shards, read_slots, slot_of  # noqa: E402
from rillet.client.connection import Connection  # noqa: E402
from rillet.client.errors import ConnectionLost, ConnectorError  # noqa: E402
from rillet.client.servers import Servers  # noqa: E402
from rillet.spark.options import parse  # noqa: E402
from rillet.spark.read.page_reader import read_task  # noqa: E402
from rillet.spark.source import BatchReader, StreamingReader  # noqa: E402
from rillet.spark.spark_versions import ReadAllAvailable  # noqa: E402
from rillet.types.stream.id import MAX, StreamID  # noqa: E402
from tests.cluster import MASTERS, Cluster, running_cluster  # noqa: E402
from tests.judge import required_binary  # noqa: E402
from tests.spark.calls import Query, stopped  # noqa: E402, F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("stopped")]

SCHEMA = pa.schema([("stream", pa.string()), ("n", pa.int64())])
SPARK_SCHEMA = StructType().add("stream", "string").add("n", "long")
FIRST, LAST = StreamID(0, 0), StreamID(MAX, MAX)
ENTRIES = 300


def options(cluster: Cluster, stream: str = "events", **more: str) -> Any:
    return parse({"url": cluster.url, "stream": stream, "timeout": "20", **more})


def fill(cluster: Cluster, *streams: str, numbers: range = range(ENTRIES)) -> None:
    """Append numbered entries to streams, the same to each."""
    with Servers(options(cluster)) as servers:
        for stream in streams:
            key = stream.encode()
            servers.calls(key, [(b"XADD", key, b"%d-1" % (n + 1), b"n", b"%d" % n) for n in numbers])


def ranges(*streams: str) -> list[tuple[str, StreamID, StreamID]]:
    return [(stream, FIRST, LAST) for stream in streams]


def numbers(batches: Iterator[Any], stream: str) -> list[int]:
    return [row["n"] for batch in batches for row in batch.to_pylist() if row["stream"] == stream]


def keys(cluster: Cluster) -> list[str]:
    """Return a key of each master."""
    return [cluster.key_of(share, "events:") for share in range(MASTERS)]


def test_the_map_is_the_same_by_either_command_and_slots_are_the_servers(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    with Servers(options(cluster)) as servers:
        (first, *_) = servers.masters()
        asked = first.address
        shards = read_shards(first.call(b"CLUSTER", b"SHARDS"), asked, False)  # type: ignore[arg-type]
        assert read_slots(first.call(b"CLUSTER", b"SLOTS"), asked).owners == shards.owners  # type: ignore[arg-type]
        assert [shard.master.port for shard in shards.shards()] == [master.port for master in cluster.masters()]
        assert all(len(shard.replicas) == 1 for shard in shards.shards())
    for key in (b"", b"events", b"{a}b", b"{}x", b"a{b", b"a{b}{c}", b"\xff{\xfe}", b"}{x}"):
        assert node.run("CLUSTER", "KEYSLOT", key) == slot_of(key)


def test_commands_go_where_the_keys_are(cluster: Cluster) -> None:
    streams = keys(cluster)
    fill(cluster, *streams)
    with Servers(options(cluster)) as servers:
        by_node = servers.by_node([stream.encode() for stream in (*streams, streams[0])])
        assert [found for _, found in by_node] == [
            [streams[0].encode()] * 2, [streams[1].encode()], [streams[2].encode()]
        ]  # fmt: skip
        assert {connection.address.port for connection, _ in by_node} == {node.port for node in cluster.masters()}
        assert {connection.address.port for connection in servers.masters()} == {
            node.port for node in cluster.masters()
        }
        assert servers.each([(s.encode(), (b"XLEN", s.encode())) for s in streams * 3]) == [ENTRIES] * 9
        assert servers.scan("events:*") == sorted(stream.encode() for stream in streams)
        assert servers.scan("other") == []
    plain = parse({"url": cluster.url.replace("+cluster", ""), "stream": streams[2]})
    with (
        Servers(plain) as one,
        pytest.raises(
            ConnectorError, match="^rillet: 127.0.0.1:.* is a node of a cluster: use redis.cluster:// in the url"
        ),
    ):
        one.call(streams[2].encode(), b"XLEN", streams[2].encode())


def test_ask_and_moved_are_followed_by_commands_and_transactions(cluster: Cluster) -> None:
    stream = cluster.key_of(0, "events:")
    key = stream.encode()
    fill(cluster, stream)
    with Servers(options(cluster)) as servers, Servers(options(cluster)) as other:
        assert servers.call(key, b"XLEN", key) == other.call(key, b"XLEN", key) == ENTRIES
        with cluster.moving(stream) as move:
            assert servers.call(key, b"XLEN", key) == ENTRIES  # still at its source
            move.migrate()
            more = [(b"XADD", key, b"%d-2" % (ENTRIES + n), b"n", b"0") for n in range(3)]
            assert servers.calls(key, more) == [words[2] for words in more]
            together = [(b"WATCH", key), (b"MULTI",), (b"XLEN", key), (b"XDEL", key, more[0][2]), (b"EXEC",)]
            assert other.calls(key, together)[-1] == [ENTRIES + 3, 1]
            assert servers.each([(key, (b"XLEN", key))] * 2) == [ENTRIES + 2] * 2
            (moved,) = servers.connection(key).replies([(b"XLEN", key)])
            assert moved == ENTRIES + 2  # ASKING went before it
            assert servers.scan("events:*") == [key]
            new = cluster.key_of(0, "{" + stream + "}")  # of the slot, and nowhere yet
            assert servers.call(new.encode(), b"XADD", new.encode(), b"1-1", b"f", b"v") == b"1-1"
        assert servers.call(key, b"XLEN", key) == other.call(key, b"XLEN", key) == ENTRIES + 2
        assert other.connection(key).address.port == move.target.port
        with cluster.moving(stream):
            pass  # and on
        assert other.calls(key, together)[-1] == [ENTRIES + 2, 0]


@pytest.mark.parametrize("answer", ["ASK", "MOVED"])
def test_a_slot_moves_in_the_middle_of_paging(cluster: Cluster, answer: str) -> None:
    streams = keys(cluster)
    fill(cluster, *streams)
    chosen = options(cluster, streams[0], pageEntries="10", batchEntries="20")
    reading = read_task(chosen, ranges(*streams), SCHEMA)
    batches = [next(reading), next(reading)]
    with cluster.moving(streams[0]) as move:
        move.migrate()
        if answer == "MOVED":
            move.finish()
        before = move.source.refusals(answer)
        batches += reading
        assert move.source.refusals(answer) > before
    assert [numbers(iter(batches), stream) for stream in streams] == [list(range(ENTRIES))] * MASTERS


def test_a_query_waits_for_streams_of_several_slots(cluster: Cluster) -> None:
    streams = keys(cluster)
    fill(cluster, *streams, numbers=range(10))
    for more in ({}, {"group": "g", "groupMode": "deliver"}):
        reader = StreamingReader(parse({"url": cluster.url, "streams": ",".join(streams), **more}), SPARK_SCHEMA, 2)
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert set(end["streams"].values()) == {"10-1"}
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        reader.stop()


def test_a_planner_goes_on_while_a_slot_moves(cluster: Cluster) -> None:
    streams = keys(cluster)
    fill(cluster, *streams, numbers=range(100))
    chosen = parse({"url": cluster.url, "streams": ",".join(streams), "timeout": "20", "minPartitions": "5"})
    reader = StreamingReader(chosen, SPARK_SCHEMA, 2)
    start = reader.initialOffset()
    read: list[Any] = []

    def batch() -> None:
        nonlocal start
        end = reader.latestOffset(start, ReadAllAvailable())
        read.extend(found for part in reader.partitions(start, end) for found in reader.read(part))
        start = end

    batch()
    with cluster.moving(streams[0]) as move:
        move.migrate()
        fill(cluster, *streams, numbers=range(100, 200))
        batch()
        move.finish()
        fill(cluster, *streams, numbers=range(200, ENTRIES))
        batch()
    reader.stop()
    assert [numbers(iter(read), stream) for stream in streams] == [list(range(ENTRIES))] * MASTERS


def test_a_group_delivers_over_nodes_while_a_slot_moves_and_the_query_restarts(cluster: Cluster) -> None:
    streams = keys(cluster)
    fill(cluster, *streams, numbers=range(100))
    more: dict[str, Any] = {"group": "g", "groupMode": "deliver", "pageEntries": "20", "minPartitions": "4"}
    query = Query(cluster.url, streams=",".join(streams), maxEntriesPerTrigger="130", **more)
    read = query.batch()
    assert len(read) == 130
    assert query.plan()
    with cluster.moving(streams[0]) as move:
        move.migrate()
        refused = move.source.refusals("ASK")
        query = query.restarted()  # the driver ended between plan and read; what it was given is at another node
        read += query.read()
        query.commit()
        fill(cluster, *streams, numbers=range(100, 200))
        read += query.batch()
        assert query.plan()
        assert move.source.refusals("ASK") > refused
        move.finish()
        read += query.read()
        query.commit()
    fill(cluster, *streams, numbers=range(200, ENTRIES))
    while found := query.batch():
        read += found
    assert Counter(read) == dict.fromkeys(range(ENTRIES), MASTERS)
    for stream in streams:
        assert cluster.run(stream, "XPENDING", stream, "g")[0] == 0


def test_reading_from_replicas_takes_what_they_lack_from_their_masters(cluster: Cluster) -> None:
    stream = cluster.key_of(1, "events:")
    master = cluster.owner(stream)
    replica = next(node for node in cluster.nodes if node.info("replication", "master_port") == str(master.port))
    fill(cluster, stream)
    assert master.run("WAIT", 1, 10_000) == 1
    chosen = options(cluster, stream, readFrom="replica", pageEntries="50")
    served, kept = replica.calls_of("xrange"), master.calls_of("xrange")
    whole = [(stream, FIRST, StreamID(ENTRIES, 1))]
    assert numbers(read_task(chosen, whole, SCHEMA), stream) == list(range(ENTRIES))
    assert replica.calls_of("xrange") >= served + ENTRIES // 50
    assert master.calls_of("xrange") == kept
    fill(cluster, stream, numbers=range(ENTRIES, 2 * ENTRIES))
    with cluster.moving(stream) as move:  # a replica knows nothing of it, it only loses the key
        move.migrate()
        assert master.run("WAIT", 1, 10_000) == 1
        found = numbers(read_task(chosen, [(stream, FIRST, StreamID(2 * ENTRIES, 1))], SCHEMA), stream)
        assert found == list(range(2 * ENTRIES))


def test_a_node_that_stalls_is_asked_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = cluster.key_of(1, "events:")
    fill(cluster, stream)
    process = cluster.owner(stream).process
    assert process is not None
    forget = Servers.forget

    def awake(servers: Servers, connection: Connection) -> None:
        process.send_signal(signal.SIGCONT)
        forget(servers, connection)

    monkeypatch.setattr(Servers, "forget", awake)
    chosen = options(cluster, stream, pageEntries="10", batchEntries="20", timeout="300ms")
    reading = read_task(chosen, ranges(stream), SCHEMA)
    batches = [next(reading)]
    process.send_signal(signal.SIGSTOP)
    batches += reading
    assert numbers(iter(batches), stream) == list(range(ENTRIES))


def test_a_killed_master_is_replaced_by_its_replica(cluster: Cluster) -> None:
    streams = keys(cluster)
    fill(cluster, *streams)
    lost = cluster.owner(streams[2])
    assert lost.run("WAIT", 1, 10_000) == 1
    reading = read_task(options(cluster, streams[2], pageEntries="20", batchEntries="20"), ranges(streams[2]), SCHEMA)
    batches = [next(reading)]
    more: dict[str, Any] = {"streams": ",".join(streams), "timeout": "60"}
    queries = [Query(cluster.url, **more), Query(cluster.url, group="g", groupMode="deliver", **more)]
    assert all(query.plan() for query in queries)
    assert lost.run("WAIT", 1, 10_000) == 1
    with Servers(options(cluster)) as servers:
        key = streams[2].encode()
        assert servers.call(key, b"XLEN", key) == ENTRIES
        cluster.kill(lost)
        with pytest.raises(ConnectionLost):
            servers.call(key, b"XLEN", key)
        batches += reading  # waits for the election
        for query in queries:
            assert sorted(query.read()) == sorted([*range(ENTRIES)] * MASTERS)
            query.commit()
        assert servers.call(key, b"XADD", key, b"99999-1", b"n", b"99999") == b"99999-1"
        assert [query.batch() for query in queries] == [[99999], [99999]]
    assert numbers(iter(batches), streams[2]) == list(range(ENTRIES))
    cluster.start(lost)
    cluster.wait(lambda: lost.info("replication", "master_link_status") == "up", "the old master follows the new one")
    cluster.wait(lambda: all(len(share) == 4 for share in cluster.nodes[0].run("CLUSTER", "SLOTS")), "all know it")


@pytest.mark.peer
@pytest.mark.parametrize("compat", ["valkey", "newest"])
def test_other_servers_clusters_and_slots_that_move_at_once(compat: str) -> None:
    binary = required_binary(compat)
    with running_cluster(binary=binary) as other:
        streams = keys(other)
        fill(other, *streams)
        found = BatchReader(parse({"url": other.url, "streamPattern": "events:*"}), SPARK_SCHEMA, 3)
        batches = [batch for part in found.partitions() for batch in found.read(part)]
        assert [numbers(iter(batches), stream) for stream in streams] == [list(range(ENTRIES))] * MASTERS
        chosen = options(other, streams[0], pageEntries="10", batchEntries="20")
        reading = read_task(chosen, ranges(*streams), SCHEMA)
        batches = [next(reading)]
        with other.moving(streams[0]) as move:
            move.migrate()
            batches += reading
        assert [numbers(iter(batches), stream) for stream in streams] == [list(range(ENTRIES))] * MASTERS
        reading = read_task(chosen, ranges(*streams), SCHEMA)
        batches = [next(reading)]
        if compat == "valkey":  # the node that has it sends the whole slot, or the other one fetches it
            move.target.run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", move.slot, move.slot, "NODE", move.source.id)
        else:
            move.source.run("CLUSTER", "MIGRATION", "IMPORT", move.slot, move.slot)
        other.wait(lambda: other.owner(streams[0]) is move.source, "the slot has moved")
        batches += reading
        assert [numbers(iter(batches), stream) for stream in streams] == [list(range(ENTRIES))] * MASTERS
