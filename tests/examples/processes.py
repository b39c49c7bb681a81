"""Start the example programs as a user does: `python examples/...`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import rillet

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT = 120.0


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start examples/<program> with the rillet under test."""
    environment = {**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)}
    command = [sys.executable, str(EXAMPLES / program), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
