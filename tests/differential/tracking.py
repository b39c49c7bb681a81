"""Clients that cache keys, on a real server and on an engine: the same bytes for each client after each step.

A step is a pipeline of one client. After it, each client sends a PING with a number, so that all messages for it have
arrived when the number comes back.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from tests.judge import Judge

Step = list[list[bytes]]
KEYS = ("a1", "a2", "b1", "b2", "c", "")
READS = """
    GET $k|MGET $k $k|EXISTS $k $k|TYPE $k|TTL $k|STRLEN $k|LRANGE $k 0 -1|LLEN $k|SMEMBERS $k|SINTER $k $k
    HGETALL $k|HGET $k f|ZRANGE $k 0 -1|ZSCORE $k m|XRANGE $k - +|XLEN $k|OBJECT ENCODING $k|DUMP $k|BITCOUNT $k
    PFCOUNT $k|SCARD $k|GETRANGE $k 0 1|ZUNION 2 $k $k|HKEYS $k|XREAD STREAMS $k $k 0 0|KEYS nothing|DBSIZE
    XINFO STREAM $k|SORT_RO $k
""".replace("\n", "|").split("|")
WRITES = """
    SET $k v|SET $k 1|SET $k v NX|SETNX $k v|APPEND $k x|INCR $k|INCRBYFLOAT $k 1.5|GETDEL $k|GETSET $k v
    GETEX $k EX 100|GETEX $k PERSIST|MSET $k 1 $k 2|MSETNX $k 1 $k 2|SETRANGE $k 1 x|DEL $k $k|UNLINK $k
    RENAME $k $k|RENAMENX $k $k|COPY $k $k|COPY $k $k REPLACE|MOVE $k 1|EXPIRE $k 1000|EXPIRE $k -1|PERSIST $k
    PEXPIREAT $k 1|LPUSH $k a b|RPUSH $k a|LPOP $k|RPOP $k 2|LSET $k 0 z|LTRIM $k 0 1|LREM $k 0 a
    LINSERT $k BEFORE a b|LMOVE $k $k LEFT RIGHT|RPOPLPUSH $k $k|LMPOP 2 $k $k LEFT|BLPOP $k $k 0.01|SADD $k a
    SREM $k a|SPOP $k 5|SMOVE $k $k a|SINTERSTORE $k $k $k|SUNIONSTORE $k $k $k|SDIFFSTORE $k $k $k|HSET $k f v
    HSETNX $k f v|HDEL $k f|HINCRBY $k n 1|HINCRBYFLOAT $k n 1.5|ZADD $k 1 m|ZADD $k XX 2 m|ZINCRBY $k 1 m
    ZREM $k m|ZPOPMIN $k|ZMPOP 2 $k $k MIN|ZRANGESTORE $k $k 0 -1|ZUNIONSTORE $k 2 $k $k|ZREMRANGEBYRANK $k 0 0
    XADD $k 1-1 f v|XADD $k NOMKSTREAM 9-9 f v|XDEL $k 1-1|XTRIM $k MAXLEN 0|XGROUP CREATE $k g 0 MKSTREAM
    XREADGROUP GROUP g c STREAMS $k >|XACK $k g 1-1|XSETID $k 99-99|XGROUP DESTROY $k g|XAUTOCLAIM $k g c 0 0
    XGROUP SETID $k g 0|XGROUP CREATECONSUMER $k g d|SETBIT $k 1 1|BITOP NOT $k $k|BITFIELD $k SET u8 0 1
    PFADD $k a|PFMERGE $k $k|GEOADD $k 1 1 m|SORT $k STORE $k|FLUSHDB|FLUSHALL ASYNC|SWAPDB 0 1|SELECT 1
    SELECT 0|TOUCH $k|NOSUCH $k|GET|LPUSH $k
""".replace("\n", "|").split("|")
OPTIONS = """
    TRACKING ON|TRACKING ON|TRACKING ON NOLOOP|TRACKING ON OPTIN|TRACKING ON OPTOUT|TRACKING ON OPTIN NOLOOP
    TRACKING OFF|TRACKING ON BCAST|TRACKING ON BCAST PREFIX a|TRACKING ON BCAST PREFIX a PREFIX b NOLOOP
    TRACKING ON BCAST NOLOOP|TRACKING ON BCAST PREFIX b1|TRACKING ON BCAST PREFIX a PREFIX a1
    TRACKING ON BCAST PREFIX c PREFIX b PREFIX b1|TRACKING ON REDIRECT $id|TRACKING ON REDIRECT $id NOLOOP
    TRACKING ON BCAST REDIRECT $id PREFIX b|TRACKING ON PREFIX a|TRACKING ON REDIRECT 0|TRACKING ON REDIRECT x
    TRACKING ON REDIRECT $id REDIRECT $id|TRACKING ON OPTIN OPTOUT|TRACKING ON BCAST OPTIN|TRACKING MAYBE
    TRACKING ON BOGUS|CACHING YES|CACHING NO|CACHING MAYBE|GETREDIR|TRACKINGINFO
""".replace("\n", "|").split("|")


class Generator:
    """Random steps; `ids` are the IDs of the clients."""

    def __init__(self, seed: int, ids: list[int]) -> None:
        self.random = random.Random(seed)
        self.ids = ids

    def _words(self, templates: Sequence[str]) -> list[bytes]:
        line = self.random.choice(templates).split()
        while not line:
            line = self.random.choice(templates).split()
        return [self._word(word) for word in line]

    def _word(self, word: str) -> bytes:
        if word == "$k":
            return self.random.choice(KEYS).encode()
        return str(self.random.choice(self.ids)).encode() if word == "$id" else word.encode()

    def _command(self) -> list[bytes]:
        kind = self.random.random()
        if kind < 0.45:
            return self._words(READS)
        if kind < 0.85:
            return self._words(WRITES)
        return [b"CLIENT", *self._words(OPTIONS)]

    def step(self) -> Step:
        """Return the commands of one step: one, a pipeline, a transaction, or a new protocol or subscription."""
        kind = self.random.random()
        if kind < 0.05:
            return [[b"HELLO", self.random.choice((b"2", b"3", b"3"))]]
        if kind < 0.08:
            return [[self.random.choice((b"SUBSCRIBE", b"UNSUBSCRIBE")), b"__redis__:invalidate"]]
        if kind < 0.1:
            return [[b"RESET"]]
        commands = [self._command() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        if kind < 0.2:
            return [[b"CLIENT", b"CACHING", self.random.choice((b"YES", b"NO"))], *commands]
        if kind < 0.35:
            # A blocking command, or one that the transaction refuses, would differ in more than the messages.
            return [[b"MULTI"], *commands, [b"EXEC"]]
        return commands


class RealClients:
    """Connections to a real server."""

    def __init__(self, judge: Judge, count: int) -> None:
        self._port = judge.port
        self._admin = socket.create_connection(("127.0.0.1", judge.port), timeout=20)
        self.ids: list[int] = []
        self._sockets: list[socket.socket] = []
        self._fence = 0
        for _ in range(count):
            self._connect()

    def _connect(self) -> tuple[socket.socket, int]:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=20)
        connection.sendall(b"CLIENT ID\r\n")
        number = int(connection.recv(100)[1:-2])
        self._sockets.append(connection)
        self.ids.append(number)
        return connection, number

    def replace(self, at: int) -> int:
        """Kill a client and connect another one in its place; return its ID."""
        self._admin.sendall(b"CLIENT KILL ID %d\r\n" % self.ids[at])
        assert self._admin.recv(100) == b":1\r\n"
        self._sockets[at].close()
        self._sockets[at], self.ids[at] = self._connect()
        del self._sockets[-1], self.ids[-1]
        return self.ids[at]

    def run(self, at: int, step: Step) -> list[bytes]:
        """Run a step and return what each client received."""
        self._fence += 1
        token = b"%d" % self._fence
        end = b"$%d\r\n%b\r\n" % (len(token), token)
        order = [at, *(other for other in range(len(self._sockets)) if other != at)]
        received = [b""] * len(self._sockets)
        for client in order:
            connection = self._sockets[client]
            connection.sendall(b"".join(map(pack_command, step)) if client == at else b"")
            connection.sendall(pack_command([b"PING", token]))
            while not received[client].endswith(end):
                data = connection.recv(1 << 16)
                assert data, f"the server closed client {client} after {step}"
                received[client] += data
        return received

    def close(self) -> None:
        """Close all connections."""
        for connection in (self._admin, *self._sockets):
            connection.close()


class EngineClients:
    """Sessions of an engine, with the same IDs."""

    def __init__(self, engine: Engine, ids: list[int]) -> None:
        self.engine = engine
        self._sessions = [self._session(number) for number in ids]
        self._fence = 0

    def _session(self, number: int) -> object:
        self.engine.next_session_id = number
        return self.engine.session()

    def replace(self, at: int, number: int) -> None:
        """Close a session and open another one in its place."""
        self.engine.close_session(self._sessions[at])  # type: ignore[arg-type]
        self._sessions[at] = self._session(number)

    def run(self, at: int, step: Step) -> list[bytes]:
        """Run a step and return what each session received."""
        self._fence += 1
        token = b"%d" % self._fence
        session: object = self._sessions[at]
        for argv in step:
            if not self.engine.execute(session, argv):  # type: ignore[arg-type]
                self.engine.blocking.expire(session)  # type: ignore[arg-type]
        self.engine.services.run_jobs()
        received = []
        for other in self._sessions:
            self.engine.execute(other, [b"PING", token])  # type: ignore[arg-type]
            received.append(other.out.take_bytes())  # type: ignore[attr-defined]
        self.engine.check()
        return received


__all__ = ["EngineClients", "Generator", "RealClients"]
