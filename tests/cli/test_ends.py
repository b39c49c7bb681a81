"""How commands end: ^C at any moment, and a reader of their output that ends first. Real processes and signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rillet
from tests.cli.test_observing import run
from tests.forked import Forked, ended

DONE, DAMAGED, FAILED = 0, 1, 2
INTERRUPTED, CLOSED_PIPE = 130, 141


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that an interpreted build reads for some tenths of a second."""
    path = tmp_path_factory.mktemp("ends") / "s.rillet"
    with rillet.open(path) as store:
        store.stream("orders").add_many([{"n": n, "customer": f"c {n}", "text": "x" * 100} for n in range(3_000)])
        store.stream("orders").group("billing").consumer("one").read(100)
        store.hash("h").update({str(n): "v" * 20 for n in range(1_000)})
    return path


@contextmanager
def started(*arguments: object, **how: Any) -> Iterator[Forked]:
    process = Forked(arguments, **how)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: Forked) -> tuple[int, str]:
    process.send_signal(signal.SIGINT)
    _, problem = process.communicate(timeout=60)
    return process.returncode, problem


def waits_for_reply(process: Forked) -> None:
    """Wait until a process that has sent a command sleeps.

    Python sees a signal that arrives just before it calls `recv` only when `recv` returns.
    """
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)


# -- ^C -------------------------------------------------------------------------------------------------

FILE_COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check", "SOURCE"),
    "salvage": ("check", "SOURCE", "--salvage", "TARGET"),
    "backup": ("backup", "SOURCE", "TARGET"),
    "restore": ("restore", "SOURCE", "TARGET"),
    "export": ("export", "SOURCE", "TARGET.rdb"),
    "import": ("import", "SOURCE", "TARGET"),
    "report": ("report", "SOURCE", "-o", "TARGET"),
    "stats": ("stats", "SOURCE"),
    "groups": ("groups", "SOURCE"),
    "tail": ("tail", "SOURCE", "orders", "-n", "20000", "--no-follow"),
    "completion": ("completion", "bash"),
    "info": ("info",),
}


def words_of(name: str, folder: Path, place: Path) -> list[str]:
    return [word.replace("SOURCE", str(folder)).replace("TARGET", str(place / "t")) for word in FILE_COMMANDS[name]]


def complete(name: str, place: Path) -> bool:
    """Return whether the target is whole: the interrupt came between its last step and the end of the process.

    An import commits the manifest last. Before that the target is an empty store.
    """
    if name == "import":
        with rillet.open(place / "t") as store:
            return store.execute("DBSIZE") in (0, 2)
    if name == "report":
        return (place / "t").read_text().rstrip().endswith("</html>")
    return ended("check", place / ("t.rdb" if name == "export" else "t"))[0] == DONE


@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_an_interrupt_at_any_moment_is_silent(folder: Path, tmp_path: Path, name: str) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    seconds = 0.02
    statuses: list[int] = []
    while INTERRUPTED in statuses[-1:] or not statuses:
        place = tmp_path / f"{seconds:.2f}"
        place.mkdir()
        words = words_of(name, folder, place)
        with started(*words, function="tests.cli.announced:main", stdout=subprocess.DEVNULL) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == "here\n"
            time.sleep(seconds)
            status, problem = interrupted(process)
        assert problem == ""
        assert status in (DONE, INTERRUPTED, -signal.SIGINT)  # the last: while Python ends
        if status == INTERRUPTED and name != "salvage":
            assert not any(path.is_file() for path in place.rglob("*")) or complete(name, place)
        statuses.append(status)
        seconds *= 3
        if seconds > 20:  # the machine is busy
            break
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_interrupt_after_the_command_is_silent() -> None:
    """As between the end of `main` and that of the interpreter."""
    program = "import os, signal, rillet.cli; rillet.cli.main(); os.kill(os.getpid(), signal.SIGINT)"
    done = subprocess.run([sys.executable, "-c", program, "completion", "bash"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert "rillet" in done.stdout


@pytest.mark.parametrize(
    "words",
    [("backup", "URL", "t"), ("import", "URL", "t"), ("import", "FOLDER", "URL"), ("report", "URL"), ("stats", "URL"),
     ("groups", "URL"), ("tail", "URL", "s", "--no-follow")],
    ids=" ".join,
)  # fmt: skip
def test_an_interrupt_while_a_server_does_not_answer(folder: Path, tmp_path: Path, words: Sequence[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        names = {"URL": url, "FOLDER": str(folder), "t": str(tmp_path / "t")}
        with started(*(names.get(word, word) for word in words)) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()
            connection.recv(1)
            waits_for_reply(process)
            with connection:
                assert interrupted(process) == (INTERRUPTED, "")


@pytest.mark.parametrize("words", [("tail", "FOLDER", "orders"), ("stats", "FOLDER", "--watch", "0.1")], ids=" ".join)
def test_commands_that_run_until_an_interrupt_succeed(folder: Path, words: Sequence[str]) -> None:
    with started(*(str(folder) if word == "FOLDER" else word for word in words)) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert interrupted(process) == (DONE, "")


def test_an_interrupt_of_a_server_is_a_shutdown(tmp_path: Path) -> None:
    with started("serve", "--port", "0", "--dir", tmp_path) as process:
        assert process.stdout is not None
        while "listening" not in process.stdout.readline():
            assert process.poll() is None
        assert interrupted(process) == (DONE, "")


# -- a closed pipe --------------------------------------------------------------------------------------


def with_closed_pipe(*words: object, unbuffered: str) -> tuple[int, str]:
    """Run a command whose reader has ended, as in `| head -0`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        status, _, problem = ended(*words, environment={"PYTHONUNBUFFERED": unbuffered}, stdout=writing)
    finally:
        os.close(writing)
    return status, problem


@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_a_closed_pipe_is_silent(folder: Path, tmp_path: Path, name: str) -> None:
    unbuffered = "1" if len(name) % 2 else ""
    ended = with_closed_pipe(*words_of(name, folder, tmp_path), unbuffered=unbuffered)
    assert ended == (CLOSED_PIPE, "")


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help"), ("pipeline",)], ids=str)
def test_the_help_of_a_closed_pipe(words: Sequence[str]) -> None:
    assert with_closed_pipe(*words, unbuffered="") == (CLOSED_PIPE, "")


def test_a_reader_that_ends_after_a_line(folder: Path) -> None:
    with started("tail", folder, "orders", "-n", "20000") as process:  # it would run until ^C
        assert process.stdout is not None
        assert process.stdout.readline().count("customer=") == 1
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == CLOSED_PIPE


# -- a name that does not exist -------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_stream_that_does_not_exist(folder: Path, as_json: Sequence[str]) -> None:
    error = "rillet: the stream 'typo' does not exist: `rillet stats` lists the streams\n"
    assert run("tail", folder, "typo", "--no-follow", *as_json, status=FAILED) == error
    assert run("tail", folder, "typo", "--group", "billing", *as_json, status=FAILED) == error
    assert "no stream 'typo'" in run("stats", folder, "typo", *as_json, status=FAILED)
    assert "no stream 'typo'" in run("groups", folder, "orders", "typo", *as_json, status=FAILED)
    error = run("tail", folder, "h", *as_json, status=FAILED)
    assert error == "rillet: 'h' has the type hash: it is not a stream\n"


def test_a_tail_prints_the_streams_that_exist(folder: Path) -> None:
    status, output, problem = ended("tail", folder, "orders", "typo", "other", "-n", "2", "--no-follow")
    assert (status, output.count("\n")) == (FAILED, 2)
    assert problem == "rillet: the streams 'typo', 'other' do not exist: `rillet stats` lists the streams\n"


# -- rillet serve ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--dir", "{place}/missing"), "the directory {place}/missing does not exist (--dir)"),
        (("--prot", "1"), "prot"),
        (("--port", "x"), "port"),
        (("--port", "{port}"), "{port}"),
        (("{place}/redis.conf",), "redis.conf"),
        (("--dir", "{place}", "--dbfilename", "bad.rdb"), "bad.rdb"),
        (("--dir", "{place}", "--logfile", "{place}/no/log"), "Can't open the log file"),
        (("--unixsocket", "{place}/no/socket", "--port", "0"), "{place}/no/socket"),
        (("--inspect-port", "x"), "--inspect-port needs the number of a port, not 'x'"),
        (("--aclfile", "{place}/missing.acl"), "missing.acl"),
        (("--loadmodule", "{place}/missing.py"), "missing.py"),
    ],
    ids=str,
)  # fmt: skip
def test_a_server_says_once_why_it_cannot_start(tmp_path: Path, words: Sequence[str], text: str) -> None:
    (tmp_path / "bad.rdb").write_bytes(b"REDIS0011 is not the beginning of data")
    with socket.create_server(("127.0.0.1", 0)) as used:
        names = {"place": str(tmp_path), "port": str(used.getsockname()[1])}
        status, output, problem = ended("serve", *(word.format(**names) for word in words), cwd=tmp_path)
    expected = text.format(**names)
    assert status == 1
    assert problem.startswith("rillet: ")
    assert (problem.count("\n"), problem.count(expected) > 0) == (1, True)
    reason = problem.removeprefix("rillet: ").strip()
    assert reason not in output


def test_the_reason_is_also_in_a_log_file(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        _, _, problem = ended("serve", "--port", used.getsockname()[1], "--logfile", tmp_path / "log")
    reason = problem.removeprefix("rillet: ").strip()
    assert (tmp_path / "log").read_text().count(reason) == 1
