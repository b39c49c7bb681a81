"""An exception from outside changes nothing, wherever it comes in a command that runs in the caller's thread.

In the compiled build, steady commands are not handed to the engine's thread (host.engine_thread), because
Python runs signal handlers and raises exceptions from outside only in interpreted code. The profiler is called for each
interpreted function and for no compiled one, so an exception that it raises comes at the moments that are possible.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import FrameType

import pytest

import rillet
from rillet import Store
from rillet._compiled import COMPILED
from rillet.host.engine_lock import COMPILED_STEPS
from rillet.host.engine_thread import CALL_THE_HOST, steady_names
from rillet.runtime.registry import TABLE
from rillet.store.transports.in_process import InProcessTransport
from rillet.types.compat import NEWEST
from tests.variants import by_speed

pytestmark = pytest.mark.skipif(not COMPILED_STEPS, reason="interpreted, no command is steady")

MOMENTS = by_speed(5, 5, 12)  # interpreted calls of one command at which an exception comes, at most
MANY = [str(number) for number in range(600)]
FIELDS = list(chain.from_iterable((number, f"value:{number}") for number in MANY))
SCORED = list(chain.from_iterable((number, f"member:{number}") for number in MANY))
SCRIPT = "redis.call('incrby', KEYS[1], 5) redis.call('del', 'hash')"
LIBRARY = f"#!lua name=l\nredis.register_function('change', function(KEYS) {SCRIPT} end)"
DATA = [
    "SET string 10", "SET other 20", "SET expiring 1 PX 100000000", "HSET hash a 1 b 2 c 3", "HSET bighash FIELDS",
    "HSET timed FIELDS", "HPEXPIRE timed 100000000 fields 2 0 1",
    "RPUSH list a b c d e f", "RPUSH biglist MANY", "SADD set a b c", "SADD ints 1 2 3", "SADD bigset FIELDS",
    "ZADD zset 1 a 2 b 3 c", "ZADD bigzset SCORED", "XADD stream 1-1 f v", "XADD stream 2-1 f v", "XADD stream 3-1 f v",
    "FUNCTION LOAD REPLACE LIBRARY", "XGROUP CREATE stream g 0",
    "XREADGROUP GROUP g c COUNT 2 STREAMS stream >", "XADD idmp 5-5 f v",
    "XIDMPRECORD idmp p i 5-5", "PFADD log MANY", "PFADD small a b", "GEOADD geo 13.36 38.11 a 15.08 37.5 b",
    "ARSET array 0 a 5 2.5 longer-than-8-bytes 700000 x", "ARINSERT array b c", "ARSET bigarray 0 MANY",
]  # fmt: skip
COMMANDS = [
    "ARDEL array 0 3 99", "ARDEL bigarray 5", "ARDELRANGE array 0 3", "ARDELRANGE bigarray 10 500 590 520",
    "ARINSERT array x y", "ARINSERT new MANY", "ARMSET array 3 x 900000 1.5", "ARMSET bigarray 4000000 far-away",
    "ARRING array 2 x y", "ARRING bigarray 100 MANY", "ARSEEK array 500", "ARSET array 4 x y z", "ARSET new 0 MANY",
    "COPY bigarray copied", "DEL bigarray array",
    "APPEND string 1", "APPEND fresh 1", "DECR string", "DECRBY string 5", "GETDEL string", "GETEX string EX 100",
    "GETEX expiring PERSIST", "GETSET string y", "INCR string", "INCRBY string 4", "INCRBYFLOAT string 1.25",
    "MSET string 1 b 2", "MSETNX n1 1 n2 2", "PSETEX string 100000 v", "SET string 1", "SET string 2 EX 100 GET",
    "SETEX string 100 v", "SETNX fresh v", "SETRANGE string 5 x",
    "SETBIT string 700 1", "SETBIT fresh 7 1", "BITFIELD string SET u8 0 200 INCRBY i5 100 1",
    "BITFIELD fresh OVERFLOW FAIL INCRBY u2 0 9 SET u8 8 1", "BITOP OR target string other", "BITOP AND string none",
    "PFADD log x", "PFADD small x y z", "PFADD fresh MANY", "PFMERGE log small", "PFMERGE target small small",
    "PFDEBUG TODENSE small", "GEOADD geo 12 42 c", "GEOADD fresh CH 1 1 a 2 2 b",
    "GEORADIUS geo 15 37 200 km STORE target", "GEORADIUSBYMEMBER geo a 1 km STOREDIST geo",
    "GEOSEARCHSTORE target geo FROMLONLAT 15 37 BYBOX 400 400 km COUNT 1",
    "SET string 1 IFEQ 10", "SET string 1 IFDNE 0123456789abcdef EX 100", "MSETEX 2 string 1 b 2 EX 100",
    "DELEX string", "DELEX string IFEQ 10", "DELEX string IFDNE 0123456789abcdef",
    "INCREX string BYINT 5 UBOUND 100 SATURATE EX 100", "INCREX fresh BYFLOAT 1.25", "INCREX expiring PERSIST",
    "INCREX string PXAT 5",
    "SORT biglist ALPHA STORE target", "SORT bigzset ALPHA DESC STORE list",
    "SORT list BY string* GET # ALPHA STORE set",
    "SORT ints BY nosort LIMIT 0 2 STORE target", "SORT none STORE list",
    "COPY string copied", "COPY bighash copied", "COPY biglist copied", "COPY ints copied", "COPY bigset copied",
    "COPY bigzset copied", "COPY stream copied", "DEL string hash", "DEL bighash bigzset biglist bigset stream",
    "EXPIRE string 100", "EXPIRE string -1", "EXPIREAT expiring 99999999999 GT", "FLUSHDB", "FLUSHDB ASYNC",
    "MOVE string 1", "PERSIST expiring", "PEXPIRE string 100000", "PEXPIREAT string 99999999999999 NX",
    "RENAME string new", "RENAMENX list new", "RESTORE new 0 DUMP", "RESTORE-ASKING new 0 DUMP", "SWAPDB 0 1",
    "UNLINK bigset bigzset",
    "HPEXPIRE hash 100000 fields 2 a b", "HEXPIRE timed 1000 fields 2 1 2",
    "HPEXPIREAT timed 69999999999999 fields 1 5",
    "HEXPIREAT hash 69999999999 fields 1 c", "HPEXPIRE timed 0 fields 3 1 2 3", "HPERSIST timed fields 2 0 1",
    "HGETEX timed PX 100000 fields 2 0 7", "HGETEX timed PERSIST fields 1 0", "HSETEX hash EX 100 fields 2 a 1 z 2",
    "HSETEX timed KEEPTTL fields 1 0 new", "HSETEX fresh PX 100000 fields 2 a 1 b 2", "HSET timed 0 new 1 other",
    "HINCRBY timed count 5", "HDEL timed 0 1 2", "COPY timed copied", "RENAME timed copied",
    "HDEL hash a b c", "HDEL bighash 1 2 3", "HGETDEL hash fields 2 a b", "HINCRBY hash a 5",
    "HINCRBYFLOAT hash a 1.5", "HMSET hash x y", "HSET hash a 9 d 8", "HSET bighash 1 new fresh 2", "HSET new FIELDS",
    "HSETNX hash z 1",
    "BLMOVE list target LEFT RIGHT 1", "BLMPOP 1 1 list LEFT COUNT 2", "BLPOP list 1", "BRPOP list 1",
    "BRPOPLPUSH list target 1", "LINSERT list BEFORE c x", "LINSERT biglist AFTER 300 x", "LMOVE list target LEFT LEFT",
    "LMOVEM biglist target RIGHT LEFT COUNT 100 OBO", "LMOVEM list list LEFT RIGHT EXACTLY 3 BULK",
    "LMPOP 2 none list RIGHT COUNT 3", "LPOP list", "LPOP biglist 100", "LPUSH list x y z", "LPUSHX list x",
    "LREM list 1 c", "LREM biglist -1 300", "LSET list 2 changed", "LTRIM list 1 2", "LTRIM biglist 100 200",
    "RPOP list", "RPOPLPUSH list target", "RPUSH list MANY", "RPUSHX list x",
    "SADD set x y", "SADD ints 4 5 word", "SADD bigset more", "SADD ints MANY", "SDIFFSTORE target bigset set ints",
    "SINTERSTORE target bigset ints", "SMOVE set ints a", "SPOP set", "SPOP bigset 100", "SPOP ints 3", "SREM set a b",
    "SREM bigset 1 2", "SUNIONSTORE target bigset set ints",
    "XACK stream g 1-1", "XACKDEL stream g DELREF IDS 1 1-1", "XADD stream * f v", "XADD stream MAXLEN = 2 * f v",
    "XADD stream NOMKSTREAM 9-9 f v g w", "XADD new MINID 5 9-9 f v g w", "XADD new IDMP p i * f v",
    "XADD idmp IDMP p j * f v", "XADD idmp IDMPAUTO p * f w", "XAUTOCLAIM stream g d 0 0",
    "XCFGSET idmp IDMP-DURATION 200", "XCLAIM stream g d 0 1-1 2-1", "XDEL stream 1-1 2-1",
    "XDELEX stream DELREF IDS 1 1-1", "XIDMPRECORD idmp p new 5-5", "XNACK stream g FAIL IDS 1 1-1",
    "XREADGROUP GROUP g d COUNT 1 STREAMS stream >",
    "XREADGROUP GROUP g d CLAIM 0 STREAMS stream >", "XSETID stream 99-1", "XTRIM stream MAXLEN 1",
    "EVAL redis.call('set','string',2)redis.call('hset','hash','a',5) 0",
    "EVAL redis.call('rpush',KEYS[1],unpack(ARGV))redis.call('incr','string') 1 list MANY",
    "EVALSHA SHA 1 string", "FCALL change 1 string", "FUNCTION LOAD REPLACE LIBRARY",
    "BZMPOP 1 1 zset MIN", "BZPOPMAX zset 1", "BZPOPMIN bigzset 1", "ZADD zset 5 a 6 d", "ZADD zset XX CH 5 a",
    "ZADD zset INCR 1.5 a", "ZADD bigzset 5 m1 3 fresh", "ZADD zset SCORED", "ZDIFFSTORE target 2 bigzset zset",
    "ZINCRBY zset 2 a", "ZINCRBY bigzset 2 member:5", "ZINTERSTORE target 2 bigzset bigzset WEIGHTS 1 2",
    "ZMPOP 1 bigzset MAX COUNT 4", "ZPOPMAX zset 2", "ZPOPMIN bigzset 2", "ZRANGESTORE target bigzset 0 100",
    "ZRANGESTORE target bigzset 3 100 BYSCORE", "ZREM zset a", "ZREM bigzset member:1 member:2",
    "ZREMRANGEBYLEX zset - +", "ZREMRANGEBYRANK zset 0 1", "ZREMRANGEBYRANK bigzset 0 100",
    "ZREMRANGEBYSCORE zset 1 2", "ZREMRANGEBYSCORE bigzset (1 100", "ZUNIONSTORE target 2 bigzset zset AGGREGATE MAX",
]  # fmt: skip

# Modules that convert integers elsewhere than between the change of a steady command and its log entry.
CONVERTS = {
    "commands/keys/scan", "commands/keys/object", "types/rdb/primitives", "protocol/reply_parser", "runtime/channels",
    "protocol/command_parser",
}  # fmt: skip


class Interrupt(BaseException):
    """An exception that comes from outside."""


class Moments:
    """Counts the interpreted calls of a command, and raises an exception in one of them."""

    def __init__(self, last: int | None = None) -> None:
        self.count = 0
        self._last = last

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.count += 1
            if self.count == self._last:
                raise Interrupt


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a log, because the log's code is part of a command."""
    with rillet.open(tmp_path_factory.mktemp("steady"), enable_debug_command="yes", appendfsync="no") as store:
        yield store


def _arguments(store: Store, line: str) -> Iterator[bytes | str]:
    for word in line.split():
        if word == "DUMP":
            yield store.execute("DUMP", "other")
        elif word == "SHA":
            yield store.execute("SCRIPT", "LOAD", SCRIPT)
        elif word == "LIBRARY":
            yield LIBRARY
        else:
            yield from {"MANY": MANY, "FIELDS": FIELDS, "SCORED": SCORED}.get(word, [word])


def _filled(store: Store) -> int:
    """Fill the store, and return the size of its log."""
    store.execute("FLUSHALL")
    store.execute_many([list(_arguments(store, line)) for line in DATA])
    return _transport(store).engine.log.position


@pytest.fixture(scope="module")
def digest(store: Store) -> bytes:
    """The digest of the filled store. It takes three times as long as to fill the store."""
    _filled(store)
    return store.execute("DEBUG", "DIGEST")


def _transport(store: Store) -> InProcessTransport:
    assert isinstance(store.transport, InProcessTransport)
    return store.transport


def _run(store: Store, line: str, moments: Moments) -> bytes:
    """Run a command beside the profiler and return the reply."""
    transport = _transport(store)
    argv = [word.encode() if isinstance(word, str) else word for word in _arguments(store, line)]
    with transport.lock:
        session = transport.engine.session()
        random.seed(7)  # SPOP takes the same members each time
        sys.setprofile(moments)
        try:
            transport.engine.execute(session, argv)
        finally:
            sys.setprofile(None)
        return session.out.take_bytes()


def test_every_steady_command_that_writes_is_tried() -> None:
    # Scripts write if their commands do; FUNCTION is a container.
    tried = {line.split()[0].lower().encode() for line in COMMANDS} - {b"eval", b"evalsha", b"fcall", b"function"}
    for entry in TABLE:
        TABLE.get(entry.name.encode())
    entries = [TABLE[name] for name in steady_names() if name.islower()]
    # A store shows the newest Redis, which lacks the commands that only Valkey has.
    assert tried == {one.name.encode() for one in entries if "write" in one.flags and one.known_to(NEWEST)}
    assert steady_names().isdisjoint(CALL_THE_HOST)


class Conversions(ast.NodeVisitor):
    """Collects the lines that convert an integer with the % operator in the compiled build."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, bytes):
            if b"d" in node.left.value.replace(b"%%", b""):
                self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave out what follows `if cython.compiled: ... return`."""
        for statement in node.body:
            self.visit(statement)
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "cython.compiled":
                if isinstance(statement.body[-1], ast.Return):
                    return

    def visit_If(self, node: ast.If) -> None:
        """Leave out the interpreted branch."""
        skipped = {"not cython.compiled": node.body, "cython.compiled": node.orelse}.get(ast.unparse(node.test), [])
        for statement in [*node.body, *node.orelse]:
            if statement not in skipped:
                self.visit(statement)


def test_steady_commands_convert_integers_with_decimal() -> None:
    """CPython's own conversion looks for signals (rillet.structs.integer_text), and the profiler does not see that."""
    found = {}
    for name in COMPILED:
        if name.startswith(("commands/", "types/", "structs/", "protocol/", "runtime/")) and name not in CONVERTS:
            conversions = Conversions()
            conversions.visit(ast.parse(Path(rillet.__file__).parent.joinpath(name + ".py").read_text()))
            if conversions.lines:
                found[name] = conversions.lines
    assert found == {}


@pytest.mark.parametrize("line", COMMANDS)
def test_an_exception_from_outside_changes_nothing(store: Store, digest: bytes, line: str) -> None:
    _filled(store)
    _run(store, line, Moments())  # the first run may fill caches
    position = _filled(store)
    moments = Moments()
    reply = _run(store, line, moments)
    assert not reply.startswith(b"-"), reply
    assert _transport(store).engine.log.position > position, f"{line} changed nothing"
    chosen = random.Random(line).sample(range(1, moments.count + 1), min(moments.count, MOMENTS))
    if not chosen:
        return
    position = _filled(store)
    assert store.execute("DEBUG", "DIGEST") == digest
    for moment in chosen:
        with pytest.raises(Interrupt):
            _run(store, line, Moments(moment))
        assert _transport(store).engine.log.position == position, f"moment {moment}"
    assert store.execute("DEBUG", "DIGEST") == digest, f"one of the moments {chosen}"
    with _transport(store).lock:
        _transport(store).engine.check()
