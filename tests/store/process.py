"""A second process with a store of its own, driven through its standard input.

A line in is a Python expression over `store` and `path`; a line out is its repr, or "!" and the exception's. The
process ends with its input, without closing the store unless it is told to.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rillet
from tests.forked import BOTH, ROOT, Forked


class Other:
    """Another process; `ask` waits for the answer, `tell` and `answer` are its halves."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self.process = Forked([path, repr(options)], function="tests.store.process:main", stdin=subprocess.PIPE,
                              stderr=None, environment={"PYTHONPATH": BOTH}, cwd=ROOT)  # fmt: skip
        self.opened = self.answer()

    def tell(self, expression: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(expression.replace("\n", " ") + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, expression: str) -> Any:
        self.tell(expression)
        return ast.literal_eval(self.answer())

    def kill(self) -> None:
        """End it as the kernel does when memory is out: at once, nothing is tidied up."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.end()


def repeat(call: Callable[[], object]) -> None:
    """Call again and again, until it raises."""
    while True:
        call()


def main() -> None:
    try:
        store = rillet.open(sys.argv[1], **ast.literal_eval(sys.argv[2]))
        print(repr(store), flush=True)
    except Exception as error:
        print(f"!{error!r}", flush=True)
        return
    names: dict[str, Any] = {"store": store, "rillet": rillet}
    for line in sys.stdin:
        try:
            print(repr(eval(line, names)), flush=True)
        except Exception as error:
            print(repr(f"!{error!r}"), flush=True)
    os._exit(0)
