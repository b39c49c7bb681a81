"""No wait depends on a clock that a test can stop: the sources read the real time through rillet.real_time alone."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "rillet"
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}


def sources() -> list[Path]:
    """Return the modules, except the one that reads the clock."""
    return [path for path in sorted(SRC.rglob("*.py")) if path.name != "real_time.py"]


def uses(tree: ast.Module) -> list[int]:
    """Return the lines that take a clock from the module `time`."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            lines += [node.lineno for name in node.names if name.name in CLOCKS]
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            lines += [node.lineno] if ast.unparse(node.value) == "time" else []
    return lines


def test_one_module_reads_a_monotonic_clock() -> None:
    texts = {str(path.relative_to(SRC)): path.read_text() for path in sources()}
    named = {name: text for name, text in texts.items() if any(clock in text for clock in CLOCKS)}
    assert named  # a parse of all takes seconds
    assert {name: lines for name, text in named.items() if (lines := uses(ast.parse(text)))} == {}


OWN_LOOP = {"owner.py", "owner_process.py", "serving.py", "loop_timers.py"}
BOUNDED = {"sleep", "timeout", "wait_for"}


def waits_of_a_loop(tree: ast.Module) -> list[int]:
    """Return the lines with a wait that an event loop ends by its own clock."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            turn = bool(node.args) and ast.unparse(node.args[0]) in ("0", "None")
            bounded = owner == "asyncio" and name in BOUNDED and not turn
            bounded |= owner == "asyncio" and name == "wait" and any(word.arg == "timeout" for word in node.keywords)
            bounded |= "loop" in owner and name in ("time", "call_at", "call_later")
            lines += [node.lineno] if bounded else []
    return lines


def test_no_wait_of_a_store_ends_by_the_clock_of_the_applications_loop() -> None:
    paths = [path for path in sources() if path.is_relative_to(SRC / "store") and path.name not in OWN_LOOP]
    found = {str(path.relative_to(SRC)): waits_of_a_loop(ast.parse(path.read_text())) for path in paths}
    assert {name: lines for name, lines in found.items() if lines} == {}
