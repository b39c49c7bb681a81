"""`rillet exec`, `cli` and `dead-letters`; --db, --json and colours; the replies are those of redis-cli."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.cli import main
from rillet.cli.replies import IncomingReplies, Reply, as_json, on_terminal, quoted, raw
from rillet.errors import ProtocolError
from rillet.inspector.console import join_words
from rillet.spark.pipelines.letters import letter_of
from rillet.types.stream.id import StreamID
from tests.cluster import running_cluster
from tests.forked import Forked
from tests.judge import Judge, redis_binary

REDIS_CLI = shutil.which("redis-cli")
COMMANDS: list[list[str | bytes]] = [
    ["PING"], ["SET", "a", 'x "y" \\ \n\t\x07'], ["GET", "a"], ["GET", "none"], ["STRLEN", "a"], ["FOO", "bar"],
    ["XADD", "s", "1-1", "a", "1", "b", ""], ["XADD", "s", "1-1", "a", "1"], ["XRANGE", "s", "-", "+"],
    ["XRANGE", "none", "-", "+"], ["XINFO", "STREAM", "s"], ["RPUSH", "l", *map(str, range(12))],
    ["LRANGE", "l", "0", "-1"], ["MGET", "a", "none", "l"], ["COMMAND", "INFO", "xadd", "none"],
    ["XGROUP", "CREATE", "s", "g", "0"], ["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"],
    ["XPENDING", "s", "g"], ["EVAL", "return {1, {err='X y'}, {ok='fine'}, {{}}, false}", "0"], ["TYPE", "s"],
    ["SET", "raw", b"\xff\xfe"], ["GET", "raw"], ["HSET", "h", "a", "1"], ["HGETALL", "h"], ["GET"],
]  # fmt: skip


def run(*words: object, status: int = 0, stdin: str = "", **how: Any) -> str:
    """Run the command to its end; return its output, or the text of its error."""
    with Forked(words, stdin=subprocess.PIPE, **how) as process:
        output, problem = process.communicate(stdin, timeout=60)
    assert process.returncode == status, problem + output
    assert "Traceback" not in problem
    return output if status != 2 else problem


@pytest.mark.skipif(REDIS_CLI is None, reason="redis-cli is not installed")
@pytest.mark.parametrize("form", ["--no-raw", "--raw"])
def test_replies_are_printed_as_redis_cli_prints_them(judge: Judge, form: str, tmp_path: Path) -> None:
    lines = tmp_path / "commands"
    lines.write_text("".join(f"{join_words([_raw(word) for word in words])}\n" for words in COMMANDS), encoding="utf-8")
    printed = []
    ours = ["exec", form, f"redis://127.0.0.1:{judge.port}"]
    for program in (ours, [str(REDIS_CLI), "-p", str(judge.port), form]):
        with judge.client() as client, open(lines, "rb") as given, open(tmp_path / "out", "wb+") as out:
            client.flushall()
            if program is ours:
                with Forked(program, stdin=given, stdout=out) as process:
                    assert process.wait(60) == 1  # some of them are errors
            else:
                subprocess.run(program, stdin=given, stdout=out, timeout=60, check=True)
            out.seek(0)
            printed.append(out.read())
    assert printed[0] == printed[1]


def _raw(word: str | bytes) -> bytes:
    return word if isinstance(word, bytes) else word.encode()


def parse(data: bytes) -> tuple[Reply, int] | None:
    """Return the first reply and the position after it; None if it is incomplete."""
    replies = IncomingReplies()
    replies.feed(data)
    reply = replies.next()
    return None if reply is None else (reply, len(data) - replies.left)


def test_a_reply_that_arrives_byte_by_byte_is_the_same() -> None:
    data = b"*3\r\n|1\r\n+k\r\n+v\r\n$3\r\na\r\n\r\n%1\r\n+x\r\n*0\r\n:5\r\n" + b"*1\r\n" * 2000 + b"$1\r\na\r\n"
    replies, found = IncomingReplies(), []
    for at in range(len(data)):
        replies.feed(data[at : at + 1])
        while (reply := replies.next()) is not None:
            found.append(reply)
    pairs = Reply("%", [Reply("+", b"x"), Reply("*", [])])
    assert found[0] == Reply("*", [Reply("$", b"a\r\n"), pairs, Reply(":", b"5")])
    assert len(found) == 2
    assert replies.left == 0



def test_forms_of_replies_that_only_resp3_has() -> None:
    data = b"%2\r\n+a\r\n:1\r\n$1\r\nb\r\n~2\r\n#t\r\n,1.5\r\n"
    found = parse(data)
    assert found is not None
    reply, end = found
    assert end == len(data)
    assert on_terminal(reply) == '1# a => (integer) 1\n2# "b" => 1~ (true)\n   2~ (double) 1.5'
    assert raw(reply) == b"a 1\nb (true)\n1.5"
    assert json.loads(as_json(reply)) == {"a": 1, "b": [True, 1.5]}
    assert as_json(Reply(",", b"inf")) == '"inf"'
    assert as_json(Reply("$", b"\xff")) == '"\\udcff"'
    for text, shown in ((b"*0\r\n", "(empty array)"), (b"%0\r\n", "(empty hash)"), (b"~0\r\n", "(empty set)"),
                        (b"_\r\n", "(nil)"), (b"$-1\r\n", "(nil)"), (b"(99\r\n", "(integer) 99"),
                        (b"=5\r\ntxt:a\r\n", "a"), (b"|1\r\n+k\r\n+v\r\n:7\r\n", "(integer) 7"),
                        (b"+\x1b[2J\r\n", "\\x1b[2J")):  # fmt: skip
        one = parse(text)
        assert one is not None
        assert (on_terminal(one[0]), one[1]) == (shown, len(text))
    assert quoted(b'\x00"\xe9') == '"\\x00\\"\\xe9"'


def test_a_reply_in_parts_is_incomplete_until_its_end() -> None:
    data = b"*3\r\n$3\r\na\r\n\r\n*1\r\n:5\r\n-ERR x\r\n"
    assert [parse(data[:size]) for size in range(1, len(data))] == [None] * (len(data) - 1)
    assert parse(data) is not None
    for bad in (b"x\r\n", b"$a\r\n", b"$\r\n", b"HTTP/1.1 400\r\n"):
        with pytest.raises(ProtocolError, match="not RESP"):
            parse(bad)


# -- exec --------------------------------------------------------------------------------------------------------------


def test_exec_writes_to_a_directory_without_a_server(tmp_path: Path) -> None:
    place = tmp_path / "events.rillet"
    assert "does not exist, so there is no store to open" in run("exec", place, "PING", status=2)
    assert not place.exists()
    assert run("exec", "--create", place, "XADD", "orders", "5-1", "customer", "42") == "5-1\n"
    assert run("exec", place, "--json", "XRANGE", "orders", "-", "+") == '[["5-1", ["customer", "42"]]]\n'
    assert json.loads(run("exec", place, "--json", "XINFO", "STREAM", "orders"))["length"] == 1
    assert run("exec", place, "--", "SET", "--json", "-1") == "OK\n"
    assert run("exec", place, "GET", "--json") == "-1\n"
    assert run("exec", place, "--db", "1", "GET", "--json") == "\n"
    with rillet.open(place) as store:
        assert store.stream("orders").length() == 1
        assert run("exec", place, "XLEN", "orders") == "1\n"  # through this process
        assert run("exec", place, "--no-raw", "GET", status=1) == (
            "(error) ERR wrong number of arguments for 'get' command\n"
        )


def test_exec_reads_commands_from_its_input(tmp_path: Path) -> None:
    place = tmp_path / "s"
    lines = 'MULTI\nSET a "x\\x00y"\n\nINCR n\nEXEC\nSELECT 3\nSET b 1\n'
    assert run("exec", "--create", "--json", place, stdin=lines).splitlines() == [
        '"OK"', '"QUEUED"', '"QUEUED"', '["OK", 1]', '"OK"', '"OK"',
    ]  # fmt: skip
    with rillet.open(place) as store:
        assert store.execute("GET", "a") == b"x\0y"
        store.execute("SELECT", 3)
        assert store.execute("GET", "b") == b"1"
    assert run("exec", place, stdin='GET "a\n', status=2) == "rillet: line 1 of the input: a closing \" is missing\n"
    assert run("exec", place, "--json", stdin="GET\nPING\n", status=1).splitlines() == [
        '{"error": "ERR wrong number of arguments for \'get\' command"}', '"PONG"',
    ]  # fmt: skip


def test_exec_waits_for_blocking_commands_and_prints_messages_until_interrupted(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        with Forked(["exec", tmp_path / "s", "--json", "BLPOP", "jobs", "0"]) as process:
            while not store.info()["blocked_clients"].strip("0"):
                assert process.poll() is None
            store.list("jobs").append("a")
            assert process.communicate(timeout=60)[0] == '["jobs", "a"]\n'
        with Forked(["exec", tmp_path / "s", "--json", "SUBSCRIBE", "news"]) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == '["subscribe", "news", 1]\n'
            store.publish("news", "hello")
            assert process.stdout.readline() == '["message", "news", "hello"]\n'
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_exec_follows_the_redirections_of_a_cluster() -> None:
    with running_cluster() as cluster:
        for number in range(4):
            assert run("exec", cluster.url, "SET", f"key{number}", number) == "OK\n"
            assert run("exec", cluster.url, "GET", f"key{number}") == f"{number}\n"


# -- cli ---------------------------------------------------------------------------------------------------------------


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, words: list[str], home: Path) -> None:
        self.fd, end = pty.openpty()
        self.process = Forked(words, stdin=end, stdout=end, stderr=end, cwd=home,
                              environment={"TERM": "xterm", "HOME": str(home), "NO_COLOR": ""})  # fmt: skip
        os.close(end)
        self.shown = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.fd, text.encode())

    def expect(self, wanted: str) -> str:
        """Read until the terminal shows a text; return what it showed since the last one."""
        deadline = time.monotonic() + 60
        while wanted not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.fd], [], [], 1)[0]:
                read = os.read(self.fd, 65536).decode("utf-8", "replace")
                if "\x1b[6n" in read:  # prompt_toolkit asks where the cursor is
                    os.write(self.fd, b"\x1b[1;1R")
                self.shown += read
        before, _, self.shown = self.shown.partition(wanted)
        return before


@contextmanager
def terminal(home: Path, *words: object) -> Iterator[Terminal]:
    found = Terminal([str(word) for word in words], home)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        os.close(found.fd)


@pytest.mark.slow
def test_the_prompt_has_completion_history_help_and_the_state_of_a_connection(tmp_path: Path) -> None:
    with terminal(tmp_path, "cli", "--create", "events.rillet") as first:
        first.expect("events.rillet>")
        first.type("XADD orders 5-1 a 1\r")
        first.expect('"5-1"')
        first.type("xle\t orde\t\r")
        first.expect("(integer) 1")
        first.type("AUTH secret\r")
        first.expect("(error) ")
        first.type("SELECT 2\r")
        first.expect("events.rillet[2]>")
        first.type("MULTI\r")
        first.expect("events.rillet[2](TX)>")
        first.type("DISCARD\r")
        first.expect("events.rillet[2]>")
        first.type("help xadd\r")
        assert "XADD" in first.expect("complexity")
        first.type("BLPOP none 0\r")
        with rillet.open(tmp_path / "events.rillet") as store:
            while not store.info()["blocked_clients"].strip("0"):
                assert first.process.poll() is None
        first.process.send_signal(signal.SIGINT)  # ^C ends the command, not the prompt
        first.expect("events.rillet[2]>")
        first.type('GET "a\r')
        first.expect('a closing " is missing')
        first.expect("events.rillet[2]>")
        first.type("\x04")  # ^D
        assert first.process.wait(60) == 0
    history = (tmp_path / ".local" / "state" / "rillet" / "history").read_text()
    assert "+XADD orders 5-1 a 1" in history
    assert "secret" not in history
    assert (tmp_path / ".local" / "state" / "rillet" / "history").stat().st_mode & 0o077 == 0
    with terminal(tmp_path, "cli", "events.rillet") as second:
        second.expect("events.rillet>")
        second.type("\x12XADD\r\r")  # ^R searches
        second.expect("(error) ERR The ID specified in XADD")
        second.type("quit\r")
        assert second.process.wait(60) == 0


def test_the_prompt_needs_a_terminal(tmp_path: Path) -> None:
    assert "works on a terminal only" in run("cli", "--create", tmp_path / "s", status=2)


# -- dead letters ------------------------------------------------------------------------------------------------------


def _buried(store: rillet.Store, count: int, error: str = "bad total") -> None:
    """Let handlers give up `count` orders."""

    def fail(message: rillet.Message) -> None:
        raise ValueError(f"{error}\x1b[2J" if message["n"] == "0" else error)

    store.stream("orders").add_many({"n": n, "_id": "mine"} for n in range(count))
    store.stream("orders").group("billing").consumer("w").run(fail, max_deliveries=1, stop_when_empty=True)


@pytest.mark.parametrize("kind", ["directory", "server"])
def test_dead_letters_are_listed_requeued_and_dropped(kind: str, tmp_path: Path, judge: Judge) -> None:
    url = f"redis://127.0.0.1:{judge.port}"
    place = url if kind == "server" else str(tmp_path / "s")
    with rillet.connect(url) if kind == "server" else rillet.open(place) as store:
        store.execute("FLUSHALL")
        _buried(store, 4)
        store.stream("events").add({"a": 1})
    text = run("dead-letters", place)
    assert "ValueError: bad total" in text
    assert "\x1b" not in text
    assert "{'n': '3', '_id': 'mine'}" in text
    assert "orders.dead: 4 entries dead" in text
    letters = [json.loads(line) for line in run("dead-letters", place, "--json").splitlines()]
    assert [(one["stream"], one["group"], one["deliveries"], one["letter_stream"]) for one in letters] == [
        ("orders", "billing", 1, "orders.dead")
    ] * 4
    assert run("dead-letters", place, "none", status=2).startswith("rillet: there is no stream 'none'")
    assert "need the names" in run("dead-letters", place, "--requeue", status=2)
    one = letters[2]["letter_id"]
    assert "orders.dead: 1 dropped" in run("dead-letters", place, "orders.dead", "--id", one, "--drop")
    text = run("dead-letters", place, "orders.dead", "--reason", "x1b", "--requeue", "--json")
    assert json.loads(text) == {"stream": "orders.dead", "moved": 0, "before": 0, "gone": 0, "nowhere": 0}
    assert "orders.dead: 3 requeued" in run("dead-letters", place, "orders.dead", "--group", "billing", "--requeue")
    assert run("dead-letters", place) == "no dead letters\n"
    with rillet.connect(url) if kind == "server" else rillet.open(place) as store:
        assert [entry.fields for entry in store.stream("orders").range()[4:]] == [
            {"n": n, "_id": "mine"} for n in ("0", "1", "3")
        ]
        assert store.stream("orders.dead").length() == 0


def test_dead_letters_of_another_database_and_other_formats(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        store.execute("SELECT", 2)
        _buried(store, 2)
        store.stream("plain").add({"error": "away", "n": 1})
    assert run("dead-letters", tmp_path / "s") == "no dead letters\n"
    assert "2 requeued" in run("dead-letters", tmp_path / "s", "--db", 2, "orders.dead", "--requeue", "--to", "again")
    text = run("dead-letters", tmp_path / "s", "--db", 2, "plain", "--requeue")
    assert "away" in text
    assert "0 requeued, 1 without a stream, not requeued" in text
    assert run("exec", tmp_path / "s", "--db", 2, "XLEN", "again") == "2\n"


def test_the_origin_of_a_letter() -> None:
    old = [b"n", b"1", b"dead-letter-of", b"s", b"dead-letter-id", b"1-1", b"dead-letter-group", b"g"]
    letter = letter_of("dead", StreamID(5, 1), old)
    assert (letter.stream, letter.group, letter.id, letter.reason, letter.fields) == (
        "s", "g", "1-1", "moved in the inspector", {"n": "1"},
    )  # fmt: skip
    plain = letter_of("dead", StreamID(5, 1), [b"n", b"1"])
    assert (plain.stream, plain.reason, plain.fields) == (None, None, {"n": "1"})


# -- groups, JSON, databases, colours ----------------------------------------------------------------------------------


def test_a_group_is_moved(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with rillet.open(place) as store:
        stream = store.stream("s")
        stream.add_many((n, {"n": n}) for n in range(1, 6))
        stream.group("g").consumer("c").read()
        stream.group("other").create()
    assert "--group NAME" in run("groups", place, "--reset", "-", status=2)
    assert "No such key" in run("groups", place, "s", "--group", "none", "--reset", "-", status=2)
    with Forked(["groups", place, "s", "--group", "g", "--reset", "noon"]) as process:
        assert process.wait(60) == 2
    for position, last in (("-", "0-0"), ("3", "2-1844674407"), ("$", "5-0"), ("1970-01-01T00:00:00.004", "3-1844")):
        text = run("groups", place, "s", "--group", "g", "--reset", position)
        assert f"s / g: delivers again after {last}" in text
        assert "s / other" not in text
    assert json.loads(run("groups", place, "--group", "g", "--json"))["name"] == "g"


def test_every_command_with_figures_prints_json(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with rillet.open(place, aof_timestamp_enabled=True) as store:
        store.stream("s").add({"a": 1})

    def facts(*words: object) -> dict[str, Any]:
        (line,) = run(*words, "--json").splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    found = facts("info")
    assert found["version"] == rillet.__version__
    assert found["packages"].keys() >= {"uvloop", "prompt_toolkit"}
    assert facts("check", place)["sound"] is True
    made = facts("backup", place, tmp_path / "copy")
    assert (made["log"]["commands"], Path(made["target"])) == (2, tmp_path / "copy")  # SELECT, XADD
    assert made["log"]["last"] > 1.7e9
    assert made["verified"]["read"][0].startswith(f"{tmp_path}/copy/appendonlydir/appendonly.aof.manifest: ")
    assert facts("restore", tmp_path / "copy", tmp_path / "again")["bytes"] > 0
    assert facts("import", place, tmp_path / "third")["keys"] == 1
    assert facts("export", place, tmp_path / "out.rdb")["keys"] == 1
    assert facts("check", place, "--salvage", tmp_path / "saved.rdb")["keys"] == 1
    log = next((place / "appendonlydir").glob("*.incr.aof"))
    log.write_bytes(log.read_bytes()[:-3])
    damaged = json.loads(run("check", place, "--json", status=1))
    assert (damaged["sound"], damaged["damages"][0]["torn"]) == (False, True)
    repaired = facts("check", place, "--repair")
    assert repaired["sound"] is True
    assert Path(repaired["repaired"][0]["copy"]).exists()


def test_the_database_of_a_directory(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        store.execute("SELECT", 1)
        store.stream("one").add({"a": 1}, id="5-1")
    for words in (["stats"], ["groups"], ["tail", "one", "--no-follow"], ["delayed", "one"]):
        command, *rest = words
        assert "one" in run(command, tmp_path / "s", "--db", 1, *rest), words
    assert "no streams" in run("groups", tmp_path / "s")
    assert "out of range" in run("stats", tmp_path / "s", "--db", 99, status=2)
    with Forked(["stats", tmp_path / "s", "--db", "x"]) as process:
        assert process.wait(60) == 2


@pytest.mark.slow
def test_colours_are_for_terminals(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        store.stream("orders").add({"a": 1})
    assert "\x1b" not in run("stats", tmp_path / "s")
    with terminal(tmp_path, "stats", "s") as shown:
        shown.expect("\x1b[1mstream")
        assert shown.process.wait(60) == 0
    with terminal(tmp_path, "dead-letters", "s", "orders") as shown:
        shown.expect("\x1b[1mstream")
        assert shown.process.wait(60) == 0
    with terminal(tmp_path, "check", "s") as shown:
        shown.expect("\x1b[32msound")
        assert shown.process.wait(60) == 0
    with terminal(tmp_path, "exec", "s", "GET") as shown:
        shown.expect("\x1b[31m(error) ERR")
        assert shown.process.wait(60) == 1


def test_no_color_and_dumb_terminals_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    from rillet.cli import output

    class Screen:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.coloured("a", "red") == "\x1b[31ma\x1b[0m"
    monkeypatch.setenv("TERM", "dumb")
    assert output.coloured("a", "red") == "a"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.coloured("a", "red") == "a"


def test_options_and_names_may_be_mixed(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        store.stream("a").add({"n": 1})
        store.stream("b").add({"n": 1})
    for words in (["--json", tmp_path / "s", "a"], [tmp_path / "s", "--json", "a"], [tmp_path / "s", "a", "--json"]):
        assert [one["name"] for one in json.loads(run("stats", *words))["streams"]] == ["a"]
    with Forked(["stats"]) as process:
        assert process.communicate(timeout=60)[1].endswith("the following arguments are required: PATH|URL\n")
        assert process.returncode == 2


def test_the_same_argument_has_the_same_name_everywhere() -> None:
    from rillet.cli.completion import whole_parser

    commands: Any = next(action for action in whole_parser()._actions if action.dest == "command").choices
    names = ("place", "places", "source", "path")
    places = {name: next((one.metavar for one in parser._actions if one.dest in names), None)
              for name, parser in commands.items()}  # fmt: skip
    assert set(places.values()) == {None, "PATH", "PATH|URL"}
    assert {name for name, metavar in places.items() if metavar == "PATH"} == {"check", "export", "restore"}
    assert main([]) == 2
