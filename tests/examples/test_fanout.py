"""The fan-out: every one of 500 readers sees every entry, in one process and in several."""

from __future__ import annotations

import sys

import pytest

from tests.examples.processes import LIMIT, start

pytestmark = pytest.mark.slow
PROCESSES = pytest.param(2, marks=pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets"))


@pytest.mark.parametrize("processes", [0, PROCESSES])
def test_every_reader_sees_every_entry(processes: int) -> None:
    arguments = ("--readers", 500, "--entries", 10, "--pause", 0.02, "--late", 0.1, "--processes", processes)
    said, _ = start("fanout/fanout.py", *arguments).communicate(timeout=LIMIT)
    assert said.startswith("500 readers saw all of 10 entries in "), said
