"""INFO, CONFIG, COMMAND and DEBUG, compared with Redis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rillet.commands.server.info import UNLISTED, all_commands
from rillet.runtime import command_syntax
from rillet.runtime.engine_services import DefaultServices
from rillet.runtime.registry import TABLE
from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import PARAMETERS
from rillet.types.compat import COMPATS
from tests.commands.ends import Bench
from tests.differential.wire import Redis, read
from tests.judge import PEERS, Judge


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- INFO ---------------------------------------------------------------------------------------------


def info(bench: Bench, *sections: str) -> dict[str, str]:
    lines = bench("INFO", *sections).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if line and not line.startswith("#"))


def test_info_counts_what_happens(bench: Bench) -> None:
    bench("SET", "k", "v", "PX", 5000)
    bench("GET", "k")
    bench("GET", "none")
    bench("NOSUCH")
    bench.engine.expire_cycle()
    facts = info(bench)
    assert facts["redis_version"] == "7.0.15"
    assert facts["db0"] == "keys=1,expires=1,avg_ttl=5000"
    assert (facts["keyspace_hits"], facts["keyspace_misses"], facts["total_error_replies"]) == ("1", "1", "1")
    assert facts["errorstat_ERR"] == "count=1"
    assert facts["connected_clients"] == "1"
    assert info(bench, "commandstats")["cmdstat_get"].startswith("calls=")
    bench("CONFIG", "RESETSTAT")
    assert info(bench, "stats")["keyspace_hits"] == "0"
    assert "errorstat_ERR" not in info(bench, "errorstats")


def test_errors_count_under_their_first_word(bench: Bench) -> None:
    texts = "WRONGTYPE x", "ABC\r\n-ABC FAKE", "NOBLANK", "NOBLANK\r\n", "a:#b c", "A" * 31 + " x", "B" * 30 + " x"
    for one in texts:
        bench.engine.stats.count_error(one, bench.engine.settings.compat)
    assert info(bench, "errorstats") == {
        "errorstat_ABC": "count=1", f"errorstat_{'B' * 30}": "count=1", "errorstat_ERR": "count=3",
        "errorstat_WRONGTYPE": "count=1", "errorstat_a__b": "count=1",
    }  # fmt: skip


@pytest.mark.parametrize(("compat", "others"), [
    ("7.0", ["OTHER"]), ("8.6", ["ERRORSTATS_DISABLED"]), ("valkey", ["ERRORSTATS_OVERFLOW", "OTHER"]),
])  # fmt: skip
def test_the_words_of_scripts_are_limited(compat: str, others: list[str]) -> None:
    bench = Bench(compat=compat)
    stats = bench.engine.stats
    for number in range(100, 228):
        stats.count_error(f"W{number} text", bench.engine.settings.compat, True)
    assert len(info(bench, "errorstats")) == 128
    stats.count_error("W200 text", bench.engine.settings.compat, True)
    stats.count_error("W300 text", bench.engine.settings.compat, True)
    stats.count_error("OTHER text", bench.engine.settings.compat)
    counted = info(bench, "errorstats")
    assert counted.get("errorstat_W200") == (None if compat == "8.6" else "count=2")
    assert [word.removeprefix("errorstat_") for word in counted if not word.startswith("errorstat_W")] == others
    assert stats.error_replies == 131
    bench("CONFIG", "RESETSTAT")
    stats.count_error("OTHER text", bench.engine.settings.compat)
    assert info(bench, "errorstats") == {"errorstat_OTHER": "count=1"}


def test_info_shows_the_requested_sections_and_those_of_the_host(bench: Bench) -> None:
    class SectionServices(DefaultServices):
        def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
            return {"replication": lambda: {"connected_slaves": 7}, "store": lambda: {"path": "/somewhere"}}

    bench.engine.services = SectionServices(bench.engine)
    heads = [line for line in bench("INFO").decode().splitlines() if line.startswith("#")]
    assert heads[0] == "# Server"
    assert "# Store" in heads
    assert "# Commandstats" not in heads
    assert info(bench, "replication")["connected_slaves"] == "7"
    assert info(bench, "STORE", "nosuch") == {"path": "/somewhere"}
    assert bench("INFO", "nosuch") == b""


# -- CONFIG -------------------------------------------------------------------------------------------


def test_config_set_is_all_or_nothing(bench: Bench) -> None:
    before = bench("CONFIG", "GET", "*")
    for name, value in (("timeout", "x"), ("databases", 3), ("hz", 30), ("nosuch", 1), ("io-threads", 4),
                        ("appendonly", "yes")):  # fmt: skip
        assert bench("CONFIG", "SET", "hz", 20, name, value).startswith("ERR"), name
        assert bench("CONFIG", "GET", "*") == before
    assert bench("CONFIG", "SET", "hz", 20, "stream-node-max-bytes", "8kb") == b"OK"
    assert bench("CONFIG", "GET", "HZ", "stream-node-max-b*") == [b"HZ", b"20", b"stream-node-max-bytes", b"8192"]


def test_the_host_can_reject_a_change_of_settings(bench: Bench) -> None:
    heard: list[str] = []

    class FullDiskServices(DefaultServices):
        def setting_changed(self, name: str) -> None:
            heard.append(name)
            if name == "appendonly":
                raise SettingError("the disk is full")

    bench.engine.services = FullDiskServices(bench.engine)
    reply = bench("CONFIG", "SET", "hz", 20, "appendonly", "yes")
    assert reply == "ERR CONFIG SET failed (possibly related to argument 'appendonly') - the disk is full"
    assert heard == ["hz", "appendonly", "hz"]
    assert bench.engine.settings.hz == 10


def test_every_setting_has_a_one_line_description() -> None:
    for parameter in PARAMETERS.values():
        assert parameter.about[:1].isupper(), parameter.name
        assert not parameter.about.endswith("."), parameter.name
        assert not set("\n|") & set(parameter.about), parameter.name


def test_every_setting_accepts_its_own_text(bench: Bench) -> None:
    for parameter in PARAMETERS.values():
        shown = parameter.show(parameter.default)
        assert bench.engine.settings.value_of(parameter, shown) == parameter.default, parameter.name


@pytest.mark.parametrize(
    ("name", "value"),
    [("hz", "x"), ("maxclients", "-1"), ("appendonly", "maybe"), ("appendfsync", "sometimes"),
     ("client-query-buffer-limit", "12zb"), ("nosuch", "1"), ("databases", "3")],
)  # fmt: skip
def test_errors_of_config_set_equal_those_of_redis(bench: Bench, judge: Judge, name: str, value: str) -> None:
    with Redis(judge.port) as redis:
        theirs = read(redis.run([b"CONFIG", b"SET", name.encode(), value.encode()])[0])
    assert bench("CONFIG", "SET", name, value) == theirs


def test_some_settings_cannot_change_while_data_is_loaded(bench: Bench) -> None:
    bench.engine.settings.set_text("enable-protected-configs", "yes")
    bench.engine.loading = True
    assert bench("CONFIG", "SET", "loglevel", "debug") == b"OK"
    for name, value in (("dir", "asdf"), ("appendonly", "yes")):
        assert bench("CONFIG", "SET", "hz", 20, name, value) == "LOADING Redis is loading the dataset in memory"
    assert bench.engine.settings.hz == 10


# -- COMMAND ------------------------------------------------------------------------------------------


def test_docs_have_the_arguments_of_the_table(bench: Bench) -> None:
    docs = bench("COMMAND", "DOCS", "set", "nosuch")
    facts = dict(zip(docs[1][::2], docs[1][1::2], strict=True))
    assert docs[0] == b"set"
    assert facts[b"group"] == b"string"
    assert facts[b"since"] == b"1.0.0"
    arguments = [dict(zip(one[::2], one[1::2], strict=True)) for one in facts[b"arguments"]]
    assert [one[b"name"] for one in arguments] == [b"key", b"value", b"condition", b"get", b"expiration"]
    assert [one[b"type"] for one in arguments] == [b"key", b"string", b"oneof", b"pure-token", b"oneof"]
    assert len(bench("COMMAND", "DOCS")) == 2 * bench("COMMAND", "COUNT")


def test_every_syntax_line_can_be_parsed(bench: Bench) -> None:
    for entry in all_commands(bench.engine):
        command_syntax.parse(entry.syntax)


@pytest.mark.parametrize(
    ("syntax", "tree"),
    [
        ("key [key ...]", "key*"),
        ("[section [section ...]]", "[section*]"),
        ("key value [key value ...]", "key(key value)*"),
        ("[NX | XX] [EX seconds | KEEPTTL]", "[nx{NX|XX}] [seconds{EX=seconds|KEEPTTL}]"),
        ("STREAMS key [key ...] id [id ...]", "streams(STREAMS: key* id*)"),
        ("[KEEPREF | DELREF]@8.2.0 field", "[keepref{KEEPREF|DELREF}]@8.2.0 field"),
        ("key [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id>",
         "key [maxlen(maxlen{MAXLEN|MINID} [={=|~}] threshold [LIMIT=count])] *{*|id}"),
    ],
)  # fmt: skip
def test_a_syntax_line_becomes_a_tree_of_arguments(syntax: str, tree: str) -> None:
    def show(one: command_syntax.Argument) -> str:
        if one.type == "pure-token":
            text = one.token
        elif one.type == "oneof":
            text = one.name + "{" + "|".join(map(show, one.arguments)) + "}"
        elif one.type == "block":
            token = f"{one.token}: " if one.token else ""
            text = f"{one.name}({token}{' '.join(map(show, one.arguments))})"
        else:
            text = f"{one.token}={one.name}" if one.token else one.name
        text += "*" if one.multiple else ""
        return f"[{text}]{'@' * bool(one.since)}{one.since}" if one.optional else text

    assert " ".join(map(show, command_syntax.parse(syntax))) == tree


@pytest.mark.parametrize("compat", COMPATS)
def test_newer_commands_and_options_are_hidden_at_an_older_level(compat: str) -> None:
    """COMMAND DOCS lists the options of each level; GETKEYS, ACL CAT and HELP contain no newer command."""
    bench = Bench(compat=compat)
    level = COMPATS[compat].level

    def tokens(arguments: list[Any]) -> set[bytes]:
        rows = [dict(zip(one[::2], one[1::2], strict=True)) for one in arguments]
        found = {row[b"token"] for row in rows if b"token" in row}
        return found.union(*(tokens(row[b"arguments"]) for row in rows if b"arguments" in row))

    def words(name: str) -> set[bytes]:
        facts = bench("COMMAND", "DOCS", name)[1]
        return tokens(dict(zip(facts[::2], facts[1::2], strict=True))[b"arguments"])

    references = {b"KEEPREF", b"DELREF", b"ACKED"}
    for name, word, since in [
        ("xreadgroup", b"CLAIM", 84), ("xreadgroup", b"MAXCOUNT", 810), ("xread", b"MAXSIZE", 810),
        ("xread", b"COUNT", 50), ("xadd", b"IDMPAUTO", 86), ("xadd", b"IDMP", 86), ("xadd", b"NOMKSTREAM", 50),
    ]:  # fmt: skip
        assert (word in words(name)) == (level >= since), (name, word)
    for name in ("xadd", "xtrim"):
        assert references & words(name) == (references if level >= 82 else set())
    keys: Any = bench("COMMAND", "GETKEYS", "XNACK", "s", "g", "FAIL", "IDS", 1, "1-1")
    assert keys == ([b"s"] if level >= 88 else "ERR Invalid command specified")
    assert (b"xdelex" in bench("ACL", "CAT", "stream")) == (level >= 82)
    assert any(line.startswith(b"SETINFO") for line in bench("CLIENT", "HELP")) == (level >= 72)


def test_command_list_filters_by_category_and_pattern(bench: Bench) -> None:
    everything = bench("COMMAND", "LIST")
    known = sum(entry.level <= 70 and entry.name not in UNLISTED for entry in all_commands(bench.engine))
    assert len(everything) == known > len(TABLE.known(COMPATS["7.0"]))
    assert sorted(bench("COMMAND", "LIST", "FILTERBY", "PATTERN", "xle*")) == [b"xlen"]
    assert b"get" in bench("COMMAND", "LIST", "FILTERBY", "ACLCAT", "string")
    assert bench("COMMAND", "LIST", "FILTERBY", "MODULE", "x") == []


@pytest.mark.parametrize("compat", PEERS)
def test_help_equals_the_servers(compat: str, peer_of: Callable[[str], Judge]) -> None:
    """HELP of every container; CLUSTER HELP is an error without cluster mode."""
    bench = Bench(compat=compat)
    containers = [entry.name for entry in TABLE.known(COMPATS[compat]) if entry.subcommands]
    with Redis(peer_of(compat).port) as redis:
        for name in containers:
            expected = redis.run([name.encode(), b"HELP"])[0]
            assert bench(name, "HELP") == read(expected), name
    assert len(containers) > 14


# -- DEBUG --------------------------------------------------------------------------------------------


def test_debug_is_refused_unless_allowed() -> None:
    bench = Bench()
    bench.engine.settings.set_text("enable-debug-command", "no")
    assert bench("DEBUG", "DIGEST").startswith("ERR DEBUG command not allowed.")
    bench.engine.settings.set_text("enable-debug-command", "local")
    assert bench("DEBUG", "DIGEST") == b"0" * 40


def test_debug_sleeps_on_the_clock_and_stops_active_expiry(bench: Bench) -> None:
    before = bench.clock.now_ms()
    bench("SET", "k", "v", "PX", 100)
    bench("DEBUG", "SLEEP", "0.5")
    assert bench.clock.now_ms() == before + 500
    bench("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    assert bench.engine.expire_cycle() == 0
    bench("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    assert bench.engine.expire_cycle() == 1


def test_reload_keeps_the_digest(bench: Bench) -> None:
    bench("SET", "k", "v", "EX", 100)
    bench("XADD", "s", "1-1", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", 0)
    digest = bench("DEBUG", "DIGEST")
    assert bench("DEBUG", "RELOAD") == b"OK"
    assert bench("DEBUG", "DIGEST") == digest
    bench("SET", "k", "w", "KEEPTTL")
    assert bench("DEBUG", "DIGEST") != digest


def test_the_host_carries_out_shutdown(bench: Bench) -> None:
    assert bench("SHUTDOWN").startswith("ERR SHUTDOWN needs a server")
    stopped: list[dict[str, bool]] = []

    class StoppingServices(DefaultServices):
        def shutdown(self, *, save: bool, nosave: bool, force: bool, now: bool) -> bool:
            stopped.append({"save": save, "nosave": nosave, "force": force, "now": now})
            return True

    bench.engine.services = StoppingServices(bench.engine)
    assert bench.run([b"SHUTDOWN", b"NOSAVE", b"NOW", b"FORCE"]) == b""
    assert stopped == [{"save": False, "nosave": True, "force": True, "now": True}]
    assert bench.session.closing
