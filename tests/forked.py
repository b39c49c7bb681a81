"""Processes that begin with their imports done: one helper process imports rillet, and forks a child for each.

    test ──socket── helper ──fork── keeper ──fork── child: main()
                                      └── pid and exit status, through a pipe, to the test

A start then costs some milliseconds instead of half a second of CPU for Python and four hundred modules. The child is
a process like any other: it has its own PID, directory, environment, signals and descriptors 0 to 2, and ends as Python
does. What differs from a new Python: modules that nobody in the child has imported are there. So tests that start the
program itself (its imports, its first line, hidden modules) use `subprocess`.

The helper has one thread, holds no lock and opens no store. It ends when the test's end of the socket is closed. The
keeper, not the helper, waits for the child: only a parent receives an exit status.
"""

from __future__ import annotations

import array
import atexit
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None  # type: ignore[assignment]

import rillet
from rillet.cli import SUBCOMMANDS, module_of
from rillet.runtime.engine import Engine

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = str(Path(rillet.__file__).parent.parent)
BOTH = os.pathsep.join((PACKAGE, str(ROOT)))  # rillet and the tests
LARGEST = 1 << 20  # bytes of a request: mainly the environment


class Forked(subprocess.Popen[str]):
    """A child of the helper: the command line with `words`, or another `function`, written "module:name".

    hidden: modules that it cannot import, if rillet has not imported them yet.
    """

    def __init__(
        self, words: Sequence[object] = (), *, function: str = "rillet.cli:main", hidden: Sequence[str] = (),
        environment: dict[str, str] | None = None, cwd: Path | str | None = None, stdin: Any = None,
        stdout: Any = subprocess.PIPE, stderr: Any = subprocess.PIPE,
    ) -> None:  # fmt: skip
        self._request = {
            "function": function, "words": [str(word) for word in words], "hidden": list(hidden),
            "cwd": str(cwd or Path.cwd()), "environment": {**os.environ, "PYTHONPATH": PACKAGE, **(environment or {})},
        }  # fmt: skip
        super().__init__(["rillet"], stdin=stdin, stdout=stdout, stderr=stderr, text=True, errors="backslashreplace")

    # The methods with which subprocess.Popen starts a child and waits for it.

    def _execute_child(self, *given: Any) -> None:
        """Have a child forked. The pipes are at 10 to 15: input, output, error, each as its reading and writing end."""
        streams = [own if end == -1 else end for own, end in enumerate((given[10], given[13], given[15]))]
        reading, writing = os.pipe()
        try:
            _helper().send(self._request, [*streams, writing])
        finally:
            os.close(writing)
            self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined]
        self._told = os.fdopen(reading, "rb", buffering=0)
        self.pid = int(self._told.readline())
        self._child_created = True

    def _internal_poll(self, **_: object) -> int | None:
        """Return the exit status if the child has ended."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = int(self._told.readline() or -signal.SIGKILL)
            self._told.close()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        """Wait for the end of the child."""
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        status = self._internal_poll()
        assert status is not None
        return status


def ended(*words: object, **how: Any) -> tuple[int, str, str]:
    """Run a command to its end; return its exit status, its output and the text of its errors."""
    with Forked(words, **how) as process:
        output, errors = process.communicate(timeout=120)
        return process.returncode, output, errors


def ran(program: str, *arguments: object, **how: Any) -> tuple[int, str, str]:
    """Run the text of a program to its end, as `python -c` does; return as `ended` does."""
    return ended(program, *arguments, function="tests.forked:run_text", **{"cwd": ROOT, **how})


class Helper:
    """The test's end of the helper process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
        words = [sys.executable, "-m", "tests.forked", str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": BOTH}
        with theirs:
            self.process = subprocess.Popen(words, env=environment, pass_fds=[theirs.fileno()], cwd=ROOT,
                                            stdin=subprocess.DEVNULL)  # fmt: skip
        atexit.register(self.end)

    def end(self) -> None:
        """Have the helper end, which ends no child."""
        self.socket.close()
        if self.owner == os.getpid():
            self.process.wait()

    def send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Have a child forked with these descriptors: standard input, output, error, and the keeper's pipe."""
        socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)


_HELPERS: list[Helper] = []


def _helper() -> Helper:
    """Return the helper of this process; a fork of a test starts its own."""
    if not _HELPERS or _HELPERS[-1].owner != os.getpid():
        _HELPERS.append(Helper())
    return _HELPERS[-1]


# -- the helper process --------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> Callable[[], int | None]:
    """Fork a child for each request; return, in the child alone, what it calls."""
    keepers: set[int] = set()
    while True:
        message, control, _, _ = connection.recvmsg(LARGEST, socket.CMSG_SPACE(4 * array.array("i").itemsize))
        if not message:
            os._exit(0)
        descriptors = array.array("i")
        for _, _, data in control:
            descriptors.frombytes(data)
        keepers.add(keeper := os.fork())
        if keeper == 0:
            connection.close()
            return _keep(json.loads(message), list(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        keepers = {one for one in keepers if os.waitpid(one, os.WNOHANG)[0] == 0}


def _keep(request: dict[str, Any], descriptors: list[int]) -> Callable[[], int | None]:
    """Fork the child, write its PID, and later its exit status; return in the child."""
    *streams, told = descriptors
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.close(writing)
        os.read(reading, 1)  # until the test can know the PID
        os.close(reading)
        return _begin(request, streams)
    os.write(told, b"%d\n" % child)
    for descriptor in (*streams, reading, writing):
        os.close(descriptor)
    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


def _begin(request: dict[str, Any], streams: list[int]) -> Callable[[], int | None]:
    """Make this process what the request describes; return the function that it calls."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unbuffered = bool(request["environment"].get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    output = io.FileIO(1, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(output if unbuffered else io.BufferedWriter(output), write_through=unbuffered)
    errors = io.BufferedWriter(io.FileIO(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, errors="backslashreplace", line_buffering=True)
    sys.argv[1:] = request["words"]
    sys.modules.update(dict.fromkeys(request["hidden"]))
    module, _, name = request["function"].partition(":")
    function: Callable[[], int | None] = getattr(import_module(module), name)
    return function


def run_text() -> None:
    """Be `python -c TEXT arguments`: a function of a child."""
    text = sys.argv.pop(1)
    sys.argv[0] = "-c"
    exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})


def _main() -> NoReturn:
    for module in ("rillet.server.app", "rillet.store.opening", *map(module_of, SUBCOMMANDS)):
        import_module(module)
    Engine()  # imports the commands
    gc.collect()
    gc.freeze()  # a collection in a child would copy all pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C ends the test, whose end is the helper's
    function = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(function())


if __name__ == "__main__":
    _main()
