"""No wait depends on a clock that a test can stop: the sources read the real time through rillet.real_time alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

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
    found = {str(path.relative_to(SRC)): uses(ast.parse(path.read_text())) for path in sources()}
    assert {name: lines for name, lines in found.items() if lines} == {}
