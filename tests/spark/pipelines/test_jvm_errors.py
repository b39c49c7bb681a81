"""The stderr of Spark's JVM without the tracebacks of workers whose connection Spark has closed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rillet.spark.pipelines.jvm_errors import kept_lines

BROKEN = b"""Traceback (most recent call last):
  File "daemon.py", line 264, in manager
    code = worker(sock, authenticated)
BrokenPipeError: [Errno 32] Broken pipe
"""
OTHER = BROKEN.replace(b"BrokenPipeError", b"ValueError")


@pytest.mark.parametrize(("text", "kept"), [
    (b"a\nb\n", b"a\nb\n"),
    (BROKEN, b""),
    (b"a\n" + BROKEN + b"  b\n" + BROKEN, b"a\n  b\n"),
    (OTHER + BROKEN + b"c\n", OTHER + b"c\n"),
    (BROKEN[:60] + b"\n" + OTHER, BROKEN[:60] + b"\n" + OTHER),
    (BROKEN[:60], BROKEN[:60]),
    (b"Caused by: BrokenPipeError: x\n", b"Caused by: BrokenPipeError: x\n"),
])  # fmt: skip
def test_only_broken_pipes_are_left_out(text: bytes, kept: bytes) -> None:
    assert b"".join(kept_lines(text.splitlines(keepends=True))) == kept


def test_a_process_started_inside_has_the_filtered_stderr_and_this_one_its_own() -> None:
    script = (
        "import subprocess, sys; from rillet.spark.pipelines.jvm_errors import without_broken_pipes\n"
        "with without_broken_pipes():\n"
        "    code = 'import sys; sys.stderr.write(sys.argv[1])'\n"
        "    child = subprocess.Popen([sys.executable, '-c', code, sys.argv[1]])\n"
        "child.wait()\n"
        "import threading; [one.join() for one in threading.enumerate() if one.name == 'rillet-jvm-errors']\n"
        "sys.stderr.write(sys.argv[1])"
    )
    text = "before\n" + BROKEN.decode() + "after\n"
    ended = subprocess.run([sys.executable, "-c", script, text], capture_output=True, text=True, check=True)
    assert ended.stderr == "before\nafter\n" + text
