"""The rules in rillet.store.types.stored_key, by which an asyncio class can be derived from each class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rillet.store.types

FOLDER = Path(rillet.store.types.__file__).parent
MODULES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")
# What no asyncio class has: it cannot be awaited, or needs no command.
SYNCHRONOUS = {"__init__", "__repr__", "__reduce__", "__reversed__"}


def _methods(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the methods of the public classes of a module, with their names."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield f"{node.name}.{method.name}", method


def _attributes(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the dotted names in a method, such as self.store.run."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_rules(path: Path) -> None:
    for name, method in _methods(path):
        used = set(_attributes(method))
        commands = {word for word in used if word.startswith("self.store.")}
        assert commands <= {"self.store.run", "self.store.run_many"}, name
        if method.name.startswith("__") and method.name not in SYNCHRONOUS:
            assert "self.store" not in used, f"{name} runs a command: move it into a method with a name"
        assert method.name in SYNCHRONOUS or not any(isinstance(node, ast.YieldFrom) for node in ast.walk(method)), name
