"""Print 100 docstrings, comments and messages of the package, drawn at random with the commit hash as the seed.

    python -m tools.sample_prose [--count 100] [--seed TEXT]

For a review of the language: a reader who has not seen the code reads each piece and marks those that need a second
reading. Pieces are docstrings (of modules, classes and functions), comment blocks, and error or log messages.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHORT = 20  # characters: shorter pieces say nothing by themselves


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of raised errors, warnings and log lines; values are shown as their expressions in braces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            call = node.exc
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("warn", "error"):
            call = node
        else:
            continue
        for argument in call.args[:1]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value
            elif isinstance(argument, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{...}" for part in argument.values
                )


def comments(text: str) -> Iterator[str]:
    """Yield comment blocks: lines below each other with the same indentation. A comment behind code is one piece."""
    block: list[str] = []
    last = (-2, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# fmt", "# type", "# noqa", "# pragma")):
            continue
        line, column = token.start
        own_line = not token.line[:column].strip()
        if block and not (own_line and (line - 1, column) == last):
            yield " ".join(block)
            block = []
        block.append(token.string.lstrip("# "))
        last = (line, column) if own_line else (-2, 0)
    if block:
        yield " ".join(block)


def pieces() -> list[tuple[str, str, str]]:
    """Return all pieces as (kind, file, text)."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        name = path.relative_to(ROOT / "src" / "rillet").as_posix()
        for kind, texts in (("docstring", docstrings(tree)), ("message", messages(tree)), ("comment", comments(text))):
            found += [(kind, name, piece) for piece in texts if len(piece) >= SHORT]
    return found


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description="Print a random sample of docstrings, comments and messages.")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", help="the commit hash by default")
    options = parser.parse_args()
    head = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    seed = options.seed or subprocess.check_output(head, text=True).strip()
    print(f"seed {seed}")
    for number, (kind, name, text) in enumerate(random.Random(seed).sample(pieces(), options.count), 1):
        print(f"\n[{number}] {kind} in {name}\n{text}")


if __name__ == "__main__":
    main()
