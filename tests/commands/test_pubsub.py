"""Channels and notifications, compared with redis-server byte by byte: what every client sees after every step.

A stage has a few clients. One runs a command; then everything that any of them received is compared. A real
server is asked twice, on a connection of its own, before the others' sockets are read: what the command wrote
has then left the server, so nothing waits by the clock.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local, pack
from tests.judge import Judge, redis_binary
from tests.variants import by_speed

CLIENTS = 3
needs_redis = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")


class Stage:
    """Sessions of one engine, seen as bytes."""

    def __init__(self, **values: Any) -> None:
        self.engine = Engine(Settings(**{"compat": "7.0", **values}))
        self.clients = [Local(self.engine) for _ in range(CLIENTS)]

    def run(self, who: int, line: str) -> list[bytes]:
        """Let one client run a command; return what each client received."""
        self.engine.execute(self.clients[who].session, line.encode().split())
        return [client.session.out.take_bytes() for client in self.clients]


class RedisStage:
    """Connections to a real server."""

    def __init__(self, port: int) -> None:
        self.sockets = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(CLIENTS)]
        self.control = socket.create_connection(("127.0.0.1", port), timeout=60)
        # A command without a reply would let Nagle's algorithm hold the next one back.
        for one in (*self.sockets, self.control):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def command(self, line: str) -> bytes:
        """Run a command on the connection of its own; its reply is one line."""
        self.control.sendall(pack(line.encode().split(b" ")))
        reply = b""
        while not reply.endswith(b"\r\n"):
            reply += self.control.recv(4096)
        return reply

    def run(self, who: int, line: str) -> list[bytes]:
        """Let one client run a command; return what each client received."""
        self.sockets[who].sendall(pack(line.encode().split()))
        # The first PING is read no earlier than the command; the second one after a whole turn of the server's loop.
        for _ in range(2):
            assert self.command("PING") == b"+PONG\r\n"
        return [_received(one) for one in self.sockets]

    def close(self) -> None:
        for one in (*self.sockets, self.control):
            one.close()


def _received(one: socket.socket) -> bytes:
    one.setblocking(False)
    found = b""
    try:
        while True:
            piece = one.recv(1 << 16)
            if not piece:
                return found + b"<closed>"
            found += piece
    except BlockingIOError:
        return found
    finally:
        one.settimeout(20)


_GOING = re.compile(rb"(?:[*>]3\r\n\$\d+\r\n[ps]?unsubscribe\r\n(?:\$\d+\r\n\w*[*?]?\r\n|\$-1\r\n|_\r\n):\d+\r\n){2,}")
_MATCHED = re.compile(rb"(?:[*>]4\r\n\$8\r\npmessage\r\n(?:\$\d+\r\n[^\r]*\r\n){3}){2,}")


def normal(received: bytes) -> bytes:
    """Return what a client received, with names sorted where Redis uses the order of a hash table."""

    def names(found: re.Match[bytes]) -> bytes:
        counts = re.findall(rb":\d+\r\n", found[0])
        return b"".join(sorted(re.split(rb":\d+\r\n", found[0]))) + b"".join(counts)

    def matched(found: re.Match[bytes]) -> bytes:
        return b"".join(sorted(re.findall(rb"[*>]4\r\n\$8\r\npmessage\r\n(?:\$\d+\r\n[^\r]*\r\n){3}", found[0])))

    received = re.sub(rb"\d{13}-\d", b"id", received)
    return _MATCHED.sub(matched, _GOING.sub(names, received))


def compare(judge: Judge, steps: list[tuple[int, str]], **values: Any) -> None:
    """Run the steps on both sides and compare what every client received after each step."""
    ours, theirs = Stage(**values), RedisStage(judge.port)
    try:
        assert theirs.command("FLUSHALL") == b"+OK\r\n"
        assert theirs.command("CONFIG SET notify-keyspace-events KEA") == b"+OK\r\n"
        ours.engine.settings.set_text("notify-keyspace-events", "KEA")
        ours.engine.take_settings()
        for at, (who, line) in enumerate(steps):
            got, wanted = ours.run(who, line), theirs.run(who, line)
            for client in range(CLIENTS):
                if client == who and line.startswith("HELLO"):
                    got[client], wanted[client] = got[client][:4], wanted[client][:4]  # versions and modules follow
                assert normal(got[client]) == normal(wanted[client]), (at, who, line, client)
            ours.engine.check()
        assert theirs.command("PUBSUB NUMPAT") == b":%d\r\n" % len(ours.engine.channels.patterns)
        for one in ours.clients:
            ours.engine.close_session(one.session)
        channels = ours.engine.channels
        assert not channels.channels
        assert not channels.shards
        assert not channels.patterns
    finally:
        theirs.command("CONFIG SET notify-keyspace-events ")
        theirs.close()


# -- differential: by hand -----------------------------------------------------------------------------

SCRIPTS = {
    "confirmations count channels and patterns together": """
        0 SUBSCRIBE a b a|0 PSUBSCRIBE a* *|0 SSUBSCRIBE a c|1 PUBLISH a hi|1 SPUBLISH a hi|1 SPUBLISH c hi
        1 PUBLISH zz hi|0 UNSUBSCRIBE a x|0 PUNSUBSCRIBE a* x|0 SUNSUBSCRIBE a x|0 UNSUBSCRIBE|0 PUNSUBSCRIBE
        0 SUNSUBSCRIBE|0 GET x|0 UNSUBSCRIBE|0 PUNSUBSCRIBE|0 SUNSUBSCRIBE|1 PUBLISH a hi""",
    "the same in RESP3": """
        0 HELLO 3|0 SUBSCRIBE a b a|0 PSUBSCRIBE a* *|0 SSUBSCRIBE a c|1 PUBLISH a hi|1 SPUBLISH a hi|0 GET x
        0 PING|0 PING x|1 SET x y|0 UNSUBSCRIBE|0 UNSUBSCRIBE|0 PUNSUBSCRIBE|0 PUNSUBSCRIBE|0 SUNSUBSCRIBE
        0 SUNSUBSCRIBE""",
    "who listens may say little in RESP2": """
        0 SSUBSCRIBE a|0 GET x|0 PING|0 PING hello|0 PING a b|0 MULTI|0 EXEC|0 NOSUCH|0 PUBLISH a b|0 CLIENT ID x
        0 SUBSCRIBE|0 HELLO 3|0 RESET|0 PING|1 SPUBLISH a b|0 GET x|0 PUBSUB NUMPAT x|0 PUBSUB CHANNELS a b
        0 PUBSUB NOSUCH|0 PUBSUB|0 PUBLISH|0 SPUBLISH a|0 PUBSUB NUMSUB|0 PUBSUB SHARDNUMSUB a""",
    "a publisher hears itself": """
        0 HELLO 3|0 SUBSCRIBE a|0 PSUBSCRIBE a*|0 PUBLISH a one|1 PUBLISH a two|0 PUBLISH b three
        0 SSUBSCRIBE s|0 SPUBLISH s four""",
    "transactions": """
        0 MULTI|0 SUBSCRIBE a b|0 PING|0 UNSUBSCRIBE a|0 EXEC|0 PING|1 PUBLISH b x|0 UNSUBSCRIBE|0 MULTI
        0 PSUBSCRIBE *|0 DISCARD|1 PUBLISH b y|1 MULTI|1 PUBLISH a 1|0 SUBSCRIBE a|1 PUBLISH a 2|1 EXEC""",
    "events reach who listens now": """
        1 SET a 0|0 SUBSCRIBE __keyevent@0__:set|1 SET a 1|0 UNSUBSCRIBE|1 SET a 2|0 PSUBSCRIBE __key*|1 SET a 3
        1 HSET h f v|0 RESET|1 SET a 4|1 MULTI|1 SET a 5|1 DEL a|1 SUBSCRIBE __keyevent@0__:del|1 EXEC
        0 SSUBSCRIBE s|2 SET a 6|2 DEL a|1 UNSUBSCRIBE|2 SET a 7""",
    "replies off and skipped": """
        0 CLIENT REPLY OFF|0 SUBSCRIBE a|0 PSUBSCRIBE a*|1 PUBLISH a x|0 UNSUBSCRIBE|0 PUNSUBSCRIBE|0 PING
        0 CLIENT REPLY ON|0 CLIENT REPLY SKIP|0 SUBSCRIBE b|1 PUBLISH b x|0 PING|0 RESET|0 PING|1 PUBLISH b y""",
    "counts": """
        0 SUBSCRIBE a b|1 SUBSCRIBE a|1 SSUBSCRIBE s|2 PSUBSCRIBE a* b*|1 PUBSUB NUMSUB a b c
        2 PUNSUBSCRIBE b*|2 PUNSUBSCRIBE|2 PUBSUB NUMPAT|2 PUBSUB SHARDCHANNELS|2 PUBSUB SHARDCHANNELS x*
        2 PUBSUB CHANNELS b*|2 PUBSUB SHARDNUMSUB s t|1 RESET|2 PUBSUB NUMSUB a b|2 PUBSUB SHARDNUMSUB s""",
    "quitting": "0 SUBSCRIBE a|1 SUBSCRIBE a|0 QUIT|2 PUBLISH a x",
}  # fmt: skip


def steps_of(script: str) -> list[tuple[int, str]]:
    """Parse a script: steps of client and command, separated by bars and line ends."""
    lines = [line.strip() for line in re.split(r"[|\n]", script) if line.strip()]
    return [(int(line[0]), line[2:]) for line in lines]


@needs_redis
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "quitting"])
def test_a_script_gives_every_client_the_bytes_of_redis(judge_of_session: Judge, name: str) -> None:
    compare(judge_of_session, steps_of(SCRIPTS[name]))


_NAMES = st.sampled_from(["a", "b", "ab"])
_PATTERNS = st.sampled_from(["a*", "*", "?", "b"])
_CHANNELS = st.one_of(
    st.builds("{} {}".format, st.sampled_from(["SUBSCRIBE", "UNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"]), _NAMES),
    st.builds("{} {} {}".format, st.sampled_from(["SUBSCRIBE", "UNSUBSCRIBE", "SSUBSCRIBE"]), _NAMES, _NAMES),
    st.builds("{} {}".format, st.sampled_from(["PSUBSCRIBE", "PUNSUBSCRIBE"]), _PATTERNS),
    st.builds("{} {} message".format, st.sampled_from(["PUBLISH", "PUBLISH", "SPUBLISH"]), _NAMES),
    st.builds("PUBSUB {} a b ab".format, st.sampled_from(["NUMSUB", "SHARDNUMSUB"])),
    st.sampled_from(
        ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "PING", "PING x", "MULTI", "EXEC", "DISCARD", "RESET",
         "HELLO 2", "HELLO 3", "CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "PUBSUB NUMPAT"]
    ),
)  # fmt: skip
_WRITES = st.one_of(
    st.builds("{} {} v".format, st.sampled_from(["SET", "APPEND"]), _NAMES),
    st.builds("DEL {}".format, _NAMES),
    st.builds("XADD s{} * f v".format, _NAMES),
    st.sampled_from(["MULTI", "EXEC", "CLIENT REPLY SKIP"]),
)
_LISTENER = st.integers(0, CLIENTS - 2)
# Up to 7.0 a client hears of its own writes amid their replies; here it hears behind them. The last client only writes.
_STEPS = st.lists(st.tuples(_LISTENER, _CHANNELS) | st.tuples(st.just(CLIENTS - 1), _WRITES), max_size=40)
_NEW_STEPS = st.lists(st.tuples(_LISTENER, _CHANNELS | _WRITES), max_size=40)


@needs_redis
@settings(max_examples=by_speed(40, 40, 150), deadline=None)
@given(steps=_STEPS)
def test_random_steps_give_the_bytes_of_redis(judge_of_session: Judge, steps: list[tuple[int, str]]) -> None:
    compare(judge_of_session, steps)


@pytest.mark.peer("newest")
@settings(max_examples=by_speed(40, 40, 150), deadline=None)
@given(steps=_NEW_STEPS)
def test_random_steps_on_newer_servers(peer_of: Callable[[str], Judge], steps: list[tuple[int, str]]) -> None:
    compare(peer_of("newest"), steps, compat="newest")


# -- notifications, command by command -----------------------------------------------------------------

# Who hears everything is client 0; the commands are those of client 1. Times are far away or in the past.
EVENTS = {
    "a stream and its groups": """
        1 XADD s * f v|1 XADD s 9999999999999-1 f v|1 XADD s NOMKSTREAM * f v|1 XADD no NOMKSTREAM * f v
        1 XADD s MAXLEN 1 * f v|1 XADD s MAXLEN 10 * f v|1 XTRIM s MAXLEN 0|1 XTRIM s MAXLEN 0
        1 XADD s 9999999999999-9 f v
        1 XDEL s 1-1|1 XDEL s 9999999999999-9 1-2|1 XSETID s 99999999999999-1|1 XSETID s 1-1
        1 XGROUP CREATE s g 0|1 XGROUP CREATE s g 0|1 XGROUP CREATE t g 0|1 XGROUP CREATE t g 0 MKSTREAM
        1 XGROUP SETID s g 0|1 XGROUP SETID s nog 0|1 XGROUP CREATECONSUMER s g a|1 XGROUP CREATECONSUMER s g a
        1 XGROUP DELCONSUMER s g a|1 XGROUP DELCONSUMER s g a|1 XGROUP DESTROY s nog|1 XGROUP DESTROY s g
        1 XGROUP DESTROY s g|1 XLEN s|1 XRANGE s - +|1 XREAD STREAMS s no 0 0|1 DEL s t""",
    "consumers that come into being": """
        1 XGROUP CREATE s g 0 MKSTREAM|1 XREADGROUP GROUP g idle STREAMS s >|1 XREADGROUP GROUP g idle STREAMS s >
        1 XADD s 1-1 f v|1 XADD s 1-2 f v|1 XREADGROUP GROUP g a COUNT 1 STREAMS s >
        1 XREADGROUP GROUP g history STREAMS s 0|1 XREADGROUP GROUP g noack NOACK COUNT 1 STREAMS s >
        1 XCLAIM s g b 0 1-1|1 XCLAIM s g c 0 9-9|1 XCLAIM s g d 999999999 1-1|1 XCLAIM s g e 0 1-2 FORCE
        1 XAUTOCLAIM s g f 0 0|1 XAUTOCLAIM s g h 999999999 0|1 XAUTOCLAIM s g f 0 0 JUSTID|1 XACK s g 1-1
        1 XPENDING s g|1 XDEL s 1-1 1-2|1 XAUTOCLAIM s g i 0 0|1 XGROUP DELCONSUMER s g f|1 DEL s""",
    "a blocked reader's consumer": """
        1 XGROUP CREATE s g $ MKSTREAM|2 XREADGROUP GROUP g c BLOCK 0 STREAMS s >|1 XADD s * f v|1 DEL s""",
    "strings and keys": """
        1 SET a 1|1 SET a 2|1 SETNX a 3|1 GETSET a 4|1 MSET a 5 b 6|1 MSETNX a 7 c 8|1 APPEND a x|1 SETRANGE a 5 y
        1 SET n 1|1 INCR n|1 DECRBY n 5|1 INCRBYFLOAT n 1.5|1 SETEX e 1000 v|1 PSETEX e 100000 v|1 SET e v EX 1000
        1 SET e v KEEPTTL|1 GETEX e PERSIST|1 GETEX e EX 1000|1 GETEX e EXAT 1|1 GETDEL n|1 EXPIRE a 1000|1 PERSIST a
        1 PERSIST a|1 PEXPIRE a 100000|1 EXPIREAT a 1|1 RENAME b c|1 SET b 1|1 RENAME b c|1 RENAMENX c d|1 COPY d b
        1 SET q 1|1 COPY d q REPLACE|1 MOVE d 1|1 SELECT 1|1 DEL d|1 SELECT 0|1 UNLINK b c q|1 DEL none|1 FLUSHALL""",
    "keys that are missing": """
        1 GET no|1 MGET no no2|1 STRLEN no|1 GETRANGE no 0 1|1 EXISTS no|1 TTL no|1 TYPE no|1 OBJECT ENCODING no
        1 DUMP no|1 XLEN no|1 XRANGE no - +|1 XINFO STREAM no|1 XINFO GROUPS no|1 XPENDING no g|1 XREAD STREAMS no 0
        1 XACK no g 1-1|1 XREADGROUP GROUP g c STREAMS no >|1 XCLAIM no g c 0 1-1|1 XTRIM no MAXLEN 0|1 XDEL no 1
        1 GETEX no|1 GETDEL no|1 GETSET no v|1 SET no2 v GET|1 APPEND no3 v|1 TOUCH no4|1 COPY no4 x|1 RENAME no4 x
        1 XSETID no4 1-1|1 XGROUP CREATE no4 g 0|1 XAUTOCLAIM no4 g c 0 0|1 LCS no4 no5|1 EXPIRE no4 1
        1 PERSIST no4|1 INCR no6|1 MOVE no4 1|1 EXPIRETIME no4|1 MEMORY USAGE no4|1 SUBSTR no4 0 1""",
}  # fmt: skip

NEWER = {
    "deleting by reference": """
        1 XGROUP CREATE s g 0 MKSTREAM|1 XADD s 1-1 f v|1 XADD s 1-2 f v|1 XADD s 1-3 f v|1 XADD s 1-4 f v
        1 XREADGROUP GROUP g a COUNT 3 STREAMS s >|1 XDELEX s IDS 1 9-9|1 XDELEX s IDS 1 1-1|1 XDELEX s ACKED IDS 1 1-2
        1 XACKDEL s g IDS 1 9-9|1 XACKDEL s g IDS 1 1-1|1 XACKDEL s g DELREF IDS 2 1-2 1-3|1 XADD s 1-5 f v
        1 XADD s MAXLEN 1 DELREF 1-6 f v|1 XTRIM s MAXLEN 0 ACKED|1 XTRIM s MAXLEN 0 DELREF|1 DEL s""",
    "claiming while reading": """
        1 XGROUP CREATE s g 0 MKSTREAM|1 XADD s 1-1 f v|1 XREADGROUP GROUP g a STREAMS s >
        1 XREADGROUP GROUP g b CLAIM 0 STREAMS s >|1 XREADGROUP GROUP g c CLAIM 999999999 STREAMS s >|1 DEL s""",
    "adding once": """
        1 XADD s IDMP p 1 * f v|1 XADD s IDMP p 1 * f v|1 XCFGSET s IDMP-DURATION 10|1 XADD s IDMPAUTO p * f v
        1 XADD s IDMPAUTO p * f v|1 DEL s""",
    "giving back": """
        1 XGROUP CREATE s g 0 MKSTREAM|1 XADD s 1-1 f v|1 XREADGROUP GROUP g a STREAMS s >
        1 XNACK s g SILENT IDS 1 1-1|1 XNACK s g FAIL IDS 1 1-1|1 XREADGROUP GROUP g b STREAMS s >
        1 XNACK s g FATAL IDS 1 9-9 FORCE|1 DEL s""",
}  # fmt: skip


def told(stage: Stage | RedisStage, line: str, who: int) -> bytes:
    """Return the notifications that client 0 received for a command."""
    return stage.run(who, line)[0]


def compare_events(judge: Judge, name: str, events: str, compat: str) -> None:
    """Run a script and compare the notifications of each command, received by a pattern that matches all."""
    ours, theirs = Stage(compat=compat), RedisStage(judge.port)
    try:
        assert theirs.command("FLUSHALL") == b"+OK\r\n"
        assert theirs.command(f"CONFIG SET notify-keyspace-events {events}") == b"+OK\r\n"
        ours.engine.settings.set_text("notify-keyspace-events", events)
        ours.engine.take_settings()
        for who, line in [(0, "PSUBSCRIBE *"), *steps_of({**EVENTS, **NEWER}[name])]:
            assert told(ours, line, who) == told(theirs, line, who), line
    finally:
        theirs.command("CONFIG SET notify-keyspace-events ")
        theirs.close()


@needs_redis
@pytest.mark.parametrize("name", EVENTS)
def test_commands_send_the_events_of_redis(judge_of_session: Judge, name: str) -> None:
    compare_events(judge_of_session, name, "KEAmn", "7.0")


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize(("compat", "events"), [("8.6", "KEAmnoc"), ("newest", "KEAmnoc"), ("valkey", "KEAmn")])
def test_newer_servers_send_equal_events(peer_of: Callable[[str], Judge], name: str, compat: str, events: str) -> None:
    compare_events(peer_of(compat), name, events, compat)


@pytest.mark.peer("newest")
@pytest.mark.parametrize("name", NEWER)
def test_newer_stream_commands_send_the_events_of_their_server(peer_of: Callable[[str], Judge], name: str) -> None:
    compare_events(peer_of("newest"), name, "KEAmnoc", "newest")
