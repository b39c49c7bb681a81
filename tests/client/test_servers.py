"""Servers and connections against real servers: who may come in, over what, and what is said where that fails."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rillet.client.address import NodeAddress
from rillet.client.cluster import Shard, read_shards, read_slots, slot_of, slots_of_node
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.redirection import Redirection
from rillet.client.servers import ClientOptions, Servers
from rillet.spark.options import parse
from rillet.spark.pipelines import group_info
from rillet.spark.read.stream_info import xinfo_groups, xinfo_streams
from tests.authority import Authority, make_authority
from tests.judge import Judge, free_port, running_redis
from tests.server.harness import running

KEY = b"events"


def servers(url: str, **more: str) -> Servers:
    return Servers(parse({"url": url, "stream": "events", "timeout": "20", **more}))


def refused(url: str, told: str, *words: bytes, **more: str) -> str:
    """Assert that a command fails with a sentence; return the sentence."""
    with servers(url, **more) as found, pytest.raises(ConnectorError, match=f"^rillet: {told}") as caught:
        found.call(KEY, *(words or (b"XLEN", KEY)))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def address(server: Judge) -> str:
    return f"127.0.0.1:{server.port}"


# ---- what a key and a map are -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        (b"123456789", 0x31C3),  # CRC16/XMODEM's check value
        (b"", 0),
        (b"{user1000}.following", slot_of(b"user1000")),
        (b"foo{}{bar}", 8363),  # an empty tag is none
        (b"foo{{bar}}zap", slot_of(b"{bar")),
        (b"foo{bar}{zap}", slot_of(b"bar")),
        (b"a{b", 13340),
    ],
)
def test_the_slot_is_that_of_the_hash_tag(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


ASKED = NodeAddress("seed", 7)


def node(role: bytes, health: bytes = b"online", **more: Any) -> list[Any]:
    told = {b"id": b"x", b"role": role, b"health": health, **{name.encode(): value for name, value in more.items()}}
    return [word for pair in told.items() for word in pair]


def test_a_map_of_shards_with_hosts_that_are_not_told() -> None:
    reply = [
        [b"slots", [0, 99, 200, 299],
         b"nodes", [node(b"master", port=1, endpoint=b""), node(b"replica", port=2, endpoint=b"r"),
                    node(b"replica", b"fail", port=3, endpoint=b"gone")]],
        [b"slots", [100, 199], b"nodes", [node(b"master", b"fail", port=4, endpoint=None, **{"tls-port": 40})]],
        [b"slots", [], b"nodes", [node(b"master", port=5, endpoint=b"?")]],
    ]  # fmt: skip
    found = read_shards(reply, ASKED, tls=False)
    shards = [Shard(NodeAddress("seed", 1), (NodeAddress("r", 2),)), Shard(NodeAddress("seed", 4))]
    assert list(found.shards()) == shards
    assert [found.owners[slot] is None for slot in (0, 99, 100, 199, 299, 300)] == [False] * 5 + [True]
    assert read_shards(reply, ASKED, tls=True).owners[150] == Shard(NodeAddress("seed", 40))
    assert found.moved(150, NodeAddress("seed", 1))
    assert found.owners[150] == found.owners[0]
    assert not found.moved(150, NodeAddress("new", 9))
    assert found.owners[150] == Shard(NodeAddress("new", 9))
    assert [place.port for place in found.nodes()] == [1, 4, 9, 2]


def test_a_map_of_slots_is_the_same_map() -> None:
    reply = [[0, 5460, [b"", 1, b"id"], [b"r", 2, b"id", []]], [5461, 16383, [None, 3, b"id"]]]
    assert list(read_slots(reply, ASKED).shards()) == [
        Shard(NodeAddress("seed", 1), (NodeAddress("r", 2),)),
        Shard(NodeAddress("seed", 3)),
    ]


def test_redirections_are_found_at_the_end_of_a_sentence() -> None:
    assert Redirection.read("MOVED 3999 ::1:7000", ASKED) == Redirection(False, 3999, NodeAddress("::1", 7000))
    assert Redirection.read("rillet: a:1 refused X: ASK 7 :7000", ASKED) == Redirection(
        True, 7, NodeAddress("seed", 7000)
    )
    assert Redirection.read("ERR MOVED 1 a:b", ASKED) is None
    assert Redirection.read("ERR said MOVED 1 a:1", ASKED) is None


def test_slots_on_their_way_stand_in_brackets() -> None:
    lines = b"a 1:1@2 master - 0 0 1 connected 9\nb 1:2@3 myself,master - 0 0 2 connected 0-5 7 [93->-id]\n"
    assert slots_of_node(lines) == "0-5 7 [93->-id]"
    assert slots_of_node(b"a 1:1@2 master - 0 0 1 connected 9\n") == ""


# ---- one server --------------------------------------------------------------------------------------------------


def test_commands_names_and_nodes_of_one_server(judge: Judge, caplog: pytest.LogCaptureFixture) -> None:
    with judge.client() as client, servers(f"redis://{address(judge)}") as found:
        client.flushall()
        assert found.scan("*") == []
        for name in ("a:1", "a:2", "b"):
            assert found.call(name.encode(), b"XADD", name.encode(), b"1-1", b"f", b"v") == b"1-1"
        client.set("a:text", "no stream")
        assert found.scan("a:*") == [b"a:1", b"a:2"]
        more = (b"XADD", b"a:1", b"2-1", b"f", b"v")
        asked = [(b"b", (b"XLEN", b"b")), (b"a:1", more), (b"b", (b"TYPE", b"b")), (b"a:1", (b"XLEN", b"a:1"))]
        assert found.each(asked) == [1, b"2-1", b"stream", 2]
        (wrong,) = found.replies(b"a:text", [(b"XLEN", b"a:text")])
        assert wrong.prefix == "WRONGTYPE"
        (one,) = found.masters()
        assert found.by_node([b"a:1", b"b"]) == [(one, [b"a:1", b"b"])]
        assert found.readers(b"b") is found.connection(b"b") is one
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(ConnectionLost):
            found.call(b"b", b"XLEN", b"b")
        assert found.call(b"b", b"XLEN", b"b") == 1  # over a new connection
        client.xadd(b"a:\xff\xfe", {"f": "v"})
        for _ in range(2):
            assert found.scan("a:*") == [b"a:1", b"a:2"]
        (said,) = caplog.messages
        assert re.search(r"names that are not UTF-8, .* are not read: 'a:\\xff\\xfe'", said)
        assert found.scan("b*") == [b"b"]
        client.flushall()


def test_many_commands_are_not_sent_to_a_server_that_waits_for_its_replies_to_be_taken(tmp_path: Path) -> None:
    """More than what sockets hold, there and back."""
    text = b"x" * 300
    with running(tmp_path) as ours, servers(f"redis://127.0.0.1:{ours.port}") as found:
        asked = [(b"%d" % n, (b"ECHO", b"%d" % n + text)) for n in range(50_000)]
        assert found.each(asked) == [words[1] for _, words in asked]


def test_a_refusal_is_never_taken_for_nothing_there(judge: Judge) -> None:
    with judge.client() as client, servers(f"redis://{address(judge)}") as found:
        client.flushall()
        client.xadd("events", {"f": "v"}, id="1-1")
        client.xgroup_create("events", "g")
        client.set("text", "no stream")
        assert [told and told["length"] for told in xinfo_streams(found, [b"none", KEY])] == [None, 1]
        assert [told and told[0]["name"] for told in xinfo_groups(found, [KEY, b"none"])] == [b"g", None]
        assert (
            group_info.xinfo_groups(found, b"none")
            == group_info.xinfo_consumers(found, KEY, b"none")
            == group_info.xinfo_consumers(found, b"none", b"g")
            == []
        )
        for ask in (xinfo_streams, xinfo_groups):
            with pytest.raises(ConnectorError, match=f"{address(judge)} refused XINFO: WRONGTYPE .* .stream 'text'.$"):
                ask(found, [KEY, b"text"])
        client.execute_command("ACL", "SETUSER", "bob", "on", ">p", "+xlen", "~*")
        with servers(f"redis://bob:p@{address(judge)}") as bob:
            for refused_to in (group_info.xinfo_groups, group_info.xinfo_stream):
                with pytest.raises(ConnectorError, match="not permit bob to run XINFO: NOPERM .* .stream 'events'.$"):
                    refused_to(bob, KEY)
            with pytest.raises(ConnectorError, match="not permit bob to run XINFO: NOPERM .* .stream 'events'.$"):
                group_info.xinfo_consumers(bob, KEY, b"g")
        client.execute_command("ACL", "DELUSER", "bob")
        client.flushall()


def test_who_may_not_come_in_is_told_why() -> None:
    with running_redis() as server:
        place = address(server)
        refused(f"redis://:p@{place}", f"{place} refused the password: ERR AUTH")
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "ann", "on", ">p@ss", "+xlen", "+xadd", "~*")
            client.execute_command("CONFIG", "SET", "requirepass", "secret")
        refused(f"redis://{place}", f"{place} requires a password .*: NOAUTH")
        wrong = f"{place} refused the user 'ann' or the password: WRONGPASS"
        assert "guess" not in refused(f"redis://ann:guess@{place}", wrong)
        assert "guess" not in refused(f"redis://{place}", wrong, user="ann", password="guess")
        refused(f"redis://ann@{place}", wrong)
        with servers(f"redis://{place}", user="ann", password="p@ss") as ann:
            assert ann.call(KEY, b"XLEN", KEY) == 0
            with pytest.raises(ConnectorError, match=f"^rillet: {place} does not permit ann to run XRANGE: NOPERM"):
                ann.call(KEY, b"XRANGE", KEY, b"-", b"+")
        refused(f"redis://:secret@{place}/99", f"{place} .database 99. refused SELECT: ERR DB index")
        refused(f"redis+cluster://:secret@{place}", f"{place} is not a node of a cluster: use redis://")


def test_nobody_there_and_nobody_who_answers() -> None:
    nowhere = free_port()
    refused(f"redis://127.0.0.1:{nowhere}", f"no server answers at 127.0.0.1:{nowhere}: ")
    nodes = f"127.0.0.1:{nowhere},127.0.0.1:1"
    refused(f"redis+cluster://{nodes}", f"no node of the cluster of {nodes} answers: ")
    with running_redis() as server, servers(f"redis://{address(server)}", timeout="1s") as found:
        assert found.call(KEY, b"XLEN", KEY) == 0
        server.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionLost, match="was lost: timed out"):
                found.call(KEY, b"XLEN", KEY)
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert found.call(KEY, b"XLEN", KEY) == 0


@pytest.mark.slow
def test_a_server_that_loads_is_waited_for() -> None:
    with running_redis() as server, server.client() as client, server.client() as other:
        pipe = client.pipeline(transaction=False)
        for number in range(2000):
            pipe.xadd(f"s{number}", {"f": "v" * 10})
        pipe.execute()
        client.execute_command(
            "CONFIG", "SET", "loading-process-events-interval-bytes", "1024", "key-load-delay", "10000"
        )
        reload = threading.Thread(target=lambda: other.execute_command("DEBUG", "RELOAD"))
        reload.start()
        try:
            while client.execute_command("INFO", "persistence").find(b"loading:1") < 0:
                pass
            place = address(server)
            refused(f"redis://{place}", f"{place} is still loading its data: LOADING", timeout="2s")
            with servers(f"redis://{address(server)}") as patient:
                assert not patient.redirected(b"s1999", "ERR something else")
                (loading,) = patient.connection(b"s1999").replies([(b"XLEN", b"s1999")])
                assert loading.prefix == "LOADING"
                client.execute_command("CONFIG", "SET", "key-load-delay", "0")
                assert patient.call(b"s1999", b"XLEN", b"s1999") == 1
        finally:
            client.execute_command("CONFIG", "SET", "key-load-delay", "0")
            reload.join()


@pytest.mark.slow
def test_replicas_are_read_from_on_request() -> None:
    with (
        running_redis("--repl-diskless-sync-delay", "0") as master,
        running_redis("--replicaof", f"127.0.0.1 {master.port}") as replica,
    ):
        with master.client() as client:
            client.xadd("events", {"f": "v"}, id="1-1")
            while client.execute_command("WAIT", "1", "100") != 1:
                pass
        with servers(f"redis://{address(master)}", readFrom="replica") as found:
            reader = found.readers(KEY)
            assert reader.replica
            assert reader.address.port == replica.port
            assert reader.call(b"XLEN", KEY) == 1
            assert found.readers(KEY) is reader
            assert found.connection(KEY).address.port == master.port
            with replica.client() as client:
                client.execute_command("CONFIG", "SET", "replica-serve-stale-data", "no")
                client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
            assert found.readers(KEY) is reader
            (down,) = reader.replies([(b"XLEN", KEY)])
            assert found.redirected(KEY, str(down))  # it is left out now
            assert found.readers(KEY).address.port == master.port
        refused(f"redis://{address(replica)}", f"{address(replica)} is a replica that has .*: MASTERDOWN")
        with servers(f"redis://{address(replica)}") as patient, replica.client() as client:
            patient.waits = True
            (down,) = patient.connection(KEY).replies([(b"XLEN", KEY)])
            assert down.prefix == "MASTERDOWN"
            client.execute_command("REPLICAOF", "127.0.0.1", str(master.port))
            assert patient.call(KEY, b"XLEN", KEY) == 1


# ---- TLS ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls"))


@contextmanager
def running_tls(authority: Authority, *more: str) -> Iterator[tuple[Judge, int]]:
    """Start a redis-server that also listens for TLS, with clients that show a certificate."""
    port = free_port()
    with running_redis("--tls-port", str(port), "--tls-ca-cert-file", authority.path("ca.crt"),
                       "--tls-cert-file", authority.path("server.crt"),
                       "--tls-key-file", authority.path("server.key"), *more) as server:  # fmt: skip
        yield server, port


@pytest.mark.slow
def test_tls_checks_both_sides_and_the_host_name(authority: Authority) -> None:
    ca = {"caFile": authority.path("ca.crt")}
    own = {"certFile": authority.path("client.crt"), "keyFile": authority.path("client.key")}
    with running_tls(authority) as (server, port):
        url = f"rediss://localhost:{port}"
        with servers(url, **ca, **own) as found:
            assert found.call(KEY, b"XADD", KEY, b"1-1", b"f", b"v" * 100_000) == b"1-1"
            assert len(found.call(KEY, b"XRANGE", KEY, b"-", b"+")[0][1][1]) == 100_000
        with servers(url, tlsVerify="false", **own) as found:
            assert found.call(KEY, b"XLEN", KEY) == 1
        both = {**ca, **own}
        refused(url, f"the certificate of localhost:{port} is not accepted: .*self.signed.* .set caFile", **own)
        other = "the certificate of .* is not accepted: IP address mismatch.* .connect to a name"
        refused(f"rediss://127.0.0.1:{port}", other, **both)
        refused(url, f".*localhost:{port} (ended TLS: .*|was lost: .*)certFile", **ca)
        refused(f"redis://localhost:{port}", ".*localhost:.* (does not speak Redis's protocol|was lost)")
        refused(f"rediss://{address(server)}", f"TLS with {address(server)} failed: ", **ca, timeout="200ms")
        refused(url, "caFile .*none.crt cannot be used: .*No such file", caFile=authority.path("none.crt"))
        refused(url, "certFile .*client.crt cannot be used: ", **ca, certFile=authority.path("client.crt"))


@pytest.mark.slow
def test_a_cluster_over_tls_whose_node_does_not_know_its_own_name(authority: Authority) -> None:
    own = {"certFile": authority.path("client.crt"), "keyFile": authority.path("client.key")}
    options = {"caFile": authority.path("ca.crt"), **own}
    alone = ("--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", str(free_port()))
    with running_tls(authority, *alone) as (server, port), server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        with servers(f"rediss+cluster://localhost:{port}", **options) as found:
            assert found.call(KEY, b"XADD", KEY, b"1-1", b"f", b"v") == b"1-1"  # CLUSTERDOWN for two seconds
            assert found.connection(KEY).address.host == "localhost"
            assert found.connection(KEY).address.port == port
            assert found.scan("*") == [KEY]


def test_a_later_command_of_connections_that_were_closed_was_not_sent(judge: Judge) -> None:
    """The store closes them when it finds that its directory has another owner."""
    found = Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}"))
    found.replies(b"k", [[b"WATCH", b"k"]])
    found.close()
    with pytest.raises(ConnectionLost, match=f"the connection to .*{judge.port}.* was lost") as caught:
        found.replies_of_node(b"k", [[b"MULTI"], [b"EXEC"]])
    assert not caught.value.sent
