"""The first examples of the documentation run after a plain `pip install rillet`, without any extra."""

from __future__ import annotations

import os
import subprocess
import sys
from doctest import DocTestParser
from pathlib import Path

import pytest

import rillet
from tests.package.test_modes import ROOT

# Hides the packages of the extras from the examples that run after it.
PLAIN = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "rillet", "lupa", "xxhash", "cython"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Absent())
"""


def quickstart() -> str:
    """Return the first Python example of README.md."""
    return (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n", 1)[1].split("```", 1)[0]


def five_minutes() -> str:
    """Return the examples of docs/five-minutes.md as one program."""
    page = (ROOT / "docs" / "five-minutes.md").read_text(encoding="utf-8")
    return "".join(example.source for example in DocTestParser().get_examples(page))


@pytest.mark.parametrize("program", [quickstart, five_minutes])
def test_the_first_examples_need_no_extra(program: object, tmp_path: Path) -> None:
    assert callable(program)
    (tmp_path / "example.py").write_text(PLAIN + program(), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "customer" in program()
    assert "bill 42 99.90" in done.stdout
