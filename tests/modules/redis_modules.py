"""Redis's own test modules in C, compiled in a temporary folder, and a redis-server that loads them.

RILLET_SUITE_7_0 names an unpacked source tree of Redis 7.0. The twins in Python are in the folder `twins`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.judge import Judge, running_redis

SOURCE = os.environ.get("RILLET_SUITE_7_0", "")
NEEDS_SOURCE = pytest.mark.environment(*(() if SOURCE else ("RILLET_SUITE_7_0",)))
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
TWINS = Path(__file__).parent / "twins"


def compiled(name: str, folder: Path) -> Path:
    """Compile tests/modules/NAME.c to a shared library in the folder, as the suite's Makefile does."""
    library = folder / f"{name}.so"
    tree = Path(SOURCE)
    subprocess.run(
        [
            "gcc",
            "-I",
            str(tree / "src"),
            "-std=gnu99",
            "-O1",
            "-fPIC",
            "-fno-common",
            "-w",
            "-shared",
            "-o",
            str(library),
            str(tree / "tests" / "modules" / f"{name}.c"),
        ],
        check=True,
    )
    return library


def twin(name: str) -> str:
    """Return the path of the twin in Python."""
    return str(TWINS / f"{name}.py")


@contextmanager
def genuine(folder: Path, *modules: tuple[str, ...], arguments: tuple[str, ...] = ()) -> Iterator[Judge]:
    """Start a redis-server that has loaded the modules, each with its arguments."""
    words = [word for name, *given in modules for word in ("--loadmodule", str(compiled(name, folder)), *given)]
    with running_redis(*words, "--enable-module-command", "yes", *arguments) as judge:
        yield judge
