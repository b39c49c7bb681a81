"""Measure the package: modules, lines, import cycles, class names with two meanings. `python -m tools.tree [-v]`

An import inside a function counts as an import: a cycle that is hidden in a function is a cycle. An import for type
checking alone does not count. The classes of the public Python API may share the name of the value that they represent.
The exit status is 1 if there is a cycle or an ambiguous class name.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src"
PUBLIC = {"Stream", "Group", "Consumer", "Message", "Hash", "Set", "List", "String", "Array"}


def modules() -> dict[str, Path]:
    """Return the path of each module, by dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(ROOT.rglob("*.py"))
    }


def imports(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a module imports when it runs."""
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the import cycles, one for each group of modules that import each other."""
    remaining = {name: set(targets) for name, targets in graph.items()}
    found = []
    while True:
        try:
            TopologicalSorter(remaining).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1]
            found.append(cycle)
            for name in cycle:  # so that the next look finds another cycle
                remaining.pop(name, None)
            for targets in remaining.values():
                targets.difference_update(cycle)
        else:
            return found


def main() -> int:
    """Print the figures and return 1 if there is a cycle or an ambiguous class name."""
    known = modules()
    graph: dict[str, set[str]] = {}
    classes: dict[str, list[str]] = defaultdict(list)
    lines = 0
    for name, path in known.items():
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        tree = ast.parse(text)
        graph[name] = set(imports(tree, known)) - {name}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
    ambiguous = {name: homes for name, homes in classes.items() if len(homes) > 1 and name not in PUBLIC}
    found = cycles(graph)
    for cycle in found:
        print("cycle:", " -> ".join(cycle))
    for name, homes in sorted(ambiguous.items()):
        print(f"class {name}: {', '.join(homes)}")
    if "-v" in sys.argv[1:]:
        for name, path in known.items():
            print(f"{path.read_text(encoding='utf-8').count(chr(10)):6} {name}")
    print(f"{len(known)} modules, {lines} lines, {len(found)} cycles, {len(ambiguous)} class names with two meanings")
    return 1 if found or ambiguous else 0


if __name__ == "__main__":
    sys.exit(main())
