"""What an opening imports: the engine and the API, but no socket, event loop, or command that nobody has called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rillet

# Modules of rillet, and those of the standard library that a store without a socket does without.
LOADED = """
import sys
def loaded():
    return sum(name.partition(".")[0] == "rillet" for name in sys.modules)
def heavy():
    names = ("asyncio", "ssl", "uvloop", "pydantic", "pyarrow", "redis", "lupa")
    return [name for name in names if name in sys.modules]
"""


def run(program: str, *arguments: str) -> list[str]:
    """Run a program in a new interpreter; return the lines that it prints."""
    words = [sys.executable, "-c", LOADED + program, *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()


def test_the_package_alone_imports_one_module() -> None:
    assert run("import rillet; print(loaded(), heavy())") == ["1 []"]


def test_a_store_in_memory_imports_no_socket_and_no_command() -> None:
    program = "import rillet; store = rillet.open(); print(loaded(), heavy(), 'rillet.commands' in sys.modules)"
    count, rest = run(program)[0].split(" ", 1)
    assert int(count) <= 220
    assert rest == "[] False"


def test_a_command_imports_its_own_module() -> None:
    program = "import rillet; rillet.open().stream('s').add({'a': 1}); print(*sorted(sys.modules), heavy())"
    names = run(program)[0].split()
    assert "rillet.commands.stream.add" in names
    assert not {"rillet.commands.stream.group", "rillet.commands.zset", "rillet.scripting"} & set(names)
    assert names[-1] == "[]"


def test_commands_that_are_found_one_by_one_are_those_of_the_whole_table() -> None:
    """Each name leads to all modules that declare it, in the same order, whatever was imported before."""
    program = """
from rillet.commands import MODULES
from rillet.runtime.registry import TABLE
def shown(entry):
    parts = [shown(one) for one in (entry.subcommands or {}).values()]
    return entry.fullname, entry.arity, entry.since, entry.group, entry.complexity, parts
names = list(dict.fromkeys(" ".join(MODULES.values()).split()))
if sys.argv[1] == "one by one":
    found = [shown(TABLE.get(name.encode())) for name in reversed(names)]
    print(*sorted(found), sep="\\n")
else:
    print(*sorted(map(shown, TABLE)), sep="\\n")
"""
    assert run(program, "one by one") == run(program, "all")


def test_a_directory_imports_no_event_loop(tmp_path: Path) -> None:
    program = "import rillet; store = rillet.open(sys.argv[1]); print(loaded(), heavy()); store.close()"
    count, rest = run(program, str(tmp_path / "store"))[0].split(" ", 1)
    assert int(count) <= 313
    assert rest == "[]"


COUNTED = """
import _thread, os, rillet, threading
ROOMS = ("errors", "structs", "types", "keyspace", "protocol", "runtime", "scripting", "commands", "modules",
         "persistence", "replication", "host", "server", "store")
root = os.path.dirname(rillet.__file__) + os.sep
calls, files, up = 0, set(), 0
def room(code):
    return ROOMS.index(code.co_filename[len(root):].split(os.sep)[0].removesuffix(".py"))
def count(frame, event, arg):
    global calls, up
    code, caller = frame.f_code, frame.f_back
    if event != "call" or not code.co_filename.startswith(root):
        return
    calls += 1
    files.add(code.co_filename)
    if caller is not None and caller.f_code.co_filename.startswith(root):
        try:
            up += room(code) > room(caller.f_code)
        except ValueError:  # a file beside the rooms
            pass
start_thread = _thread.start_new_thread
def start(function, args, kwargs={}):
    def counted(*args, **kwargs):
        sys.setprofile(count)
        return function(*args, **kwargs)
    return start_thread(counted, args, kwargs)
with rillet.open(sys.argv[1]) as store:
    for number in range(6):
        store.stream("s").add({"n": number})
_thread.start_new_thread = threading._start_new_thread = start
sys.setprofile(count)
store = rillet.open(sys.argv[1])
sys.setprofile(None)
print(calls, len(files), up)
"""


@pytest.mark.skipif(rillet.compiled(), reason="the profiler does not see compiled functions")
def test_the_walk_of_an_opening_is_short(tmp_path: Path) -> None:
    """The calls of all threads while a directory with a log of six commands is opened."""
    calls, files, up = map(int, run(COUNTED, str(tmp_path / "store"))[0].split())
    assert calls <= 2900
    assert files <= 129
    assert up <= 20
