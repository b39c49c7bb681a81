"""The synchronous modules: which definitions need an asyncio form, and which functions become coroutines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.make_aio.config import (
    COROUTINE,
    FOLDER,
    ITERATOR,
    MODULES,
    OMITTED,
    PACKAGE,
    RUNNERS,
    SELECTED,
    THREADED,
    VARIABLES,
    VIEWED,
    YIELDERS,
)

Function = ast.FunctionDef
Key = tuple[str, str]  # (class, method), or ("", name) for a function of a module


@dataclass
class Source:
    """A synchronous module, its top-level definitions, and the module from which each imported name comes."""

    name: str
    text: str
    tree: ast.Module = field(init=False)
    lines: list[str] = field(init=False)
    definitions: dict[str, list[ast.stmt]] = field(init=False, default_factory=dict)
    imports: dict[str, tuple[str, str, bool]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Parse the module."""
        self.tree = ast.parse(self.text)
        self.lines = self.text.splitlines()
        for node in self.tree.body:
            for name in defined_names(node):
                self.definitions.setdefault(name, []).append(node)
            checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node) if checking else (node,):
                if isinstance(inner, ast.ImportFrom):
                    for alias in inner.names:
                        self.imports[alias.asname or alias.name] = (inner.module or "", alias.name, checking)
                elif isinstance(inner, ast.Import):
                    for alias in inner.names:
                        self.imports[alias.asname or alias.name] = ("", alias.name, checking)

    @property
    def dotted(self) -> str:
        """The full name of the module."""
        return f"{PACKAGE}.{self.name}"


def defined_names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def async_name(name: str) -> str:
    return f"_Async{name[1:]}" if name.startswith("_") else f"Async{name}"


def type_texts(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the string constants that contain types: annotations, the first argument of `cast`, aliases."""
    roots: list[ast.AST] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg) and inner.annotation is not None:
            roots.append(inner.annotation)
        elif isinstance(inner, ast.FunctionDef) and inner.returns is not None:
            roots.append(inner.returns)
        elif isinstance(inner, ast.AnnAssign):
            roots.append(inner.annotation)
            if ast.unparse(inner.annotation) == "TypeAlias" and inner.value is not None:
                roots.append(inner.value)
        elif isinstance(inner, ast.Call) and ast.unparse(inner.func) == "cast":
            roots.append(inner.args[0])
    for root in roots:
        for inner in ast.walk(root):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a definition mentions, also in annotations that are texts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
    for text in type_texts(node):
        yield from re.findall(r"[A-Za-z_]\w*", str(text.value))


class Program:
    """All synchronous modules, and what of them needs an asyncio form."""

    def __init__(self) -> None:
        self.sources = {
            name: Source(name, (FOLDER / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
            for name in MODULES
        }
        self.classes: dict[str, tuple[Source, ast.ClassDef]] = {
            node.name: (source, node)
            for source in self.sources.values()
            for node in source.tree.body
            if isinstance(node, ast.ClassDef)
        }
        self.twins: set[tuple[str, str]] = {("store", "Store")}
        self._find_twins()
        self.attributes = {name: self._attributes_of(name) for name in self.classes}
        self.kinds: dict[Key, str] = dict.fromkeys(YIELDERS, ITERATOR)
        self.kinds |= {(name, method): COROUTINE for name in ("Store", "CommandRunner") for method in RUNNERS}
        self._find_kinds()

    # -- which definitions need an asyncio form ---------------------------------------------------------

    def home(self, source: Source, name: str) -> tuple[str, str] | None:
        """Return (module, name) of a definition in MODULES that a module defines or imports under a name."""
        if name in source.definitions:
            return source.name, name
        module, original, _ = source.imports.get(name, ("", "", False))
        short = module.removeprefix(f"{PACKAGE}.")
        return (short, original) if module.startswith(PACKAGE) and short in MODULES else None

    def is_twin(self, source: Source, name: str) -> bool:
        """Return whether a name stands for a definition that has an asyncio form."""
        return self.home(source, name) in self.twins

    def _find_twins(self) -> None:
        before = -1
        while before != len(self.twins):
            before = len(self.twins)
            for source in self.sources.values():
                for name, nodes in source.definitions.items():
                    if source.name == "store" and name != "Store":
                        continue
                    if name == "CommandRunner" or any(
                        self.is_twin(source, used) for node in nodes for used in self._used(node)
                    ):
                        self.twins.add((source.name, name))

    def _used(self, node: ast.stmt) -> Iterator[str]:
        if isinstance(node, ast.ClassDef):
            for item in kept_items(node):
                yield from names_in(item)
            for base in node.bases:
                yield from names_in(base)
        else:
            yield from names_in(node)

    # -- the classes of objects -----------------------------------------------------------------------

    def _attributes_of(self, name: str) -> dict[str, str]:
        """Return the classes of a class's attributes, from the annotations of the class and of `__init__`."""
        found = {}
        source, node = self.classes[name]
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = self.annotated(source, item.annotation)
            if not isinstance(item, ast.FunctionDef):
                continue
            if is_property(item):
                found[item.name] = self.annotated(source, item.returns)
            if item.name == "__init__":
                types = {one.arg: self.annotated(source, one.annotation) for one in arguments_of(item)}
                for inner in ast.walk(item):
                    if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Attribute):
                        found[inner.target.attr] = self.annotated(source, inner.annotation)
                    elif isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Name):
                        for target in inner.targets:
                            if isinstance(target, ast.Attribute):
                                found[target.attr] = types.get(inner.value.id, "")
        return {attribute: kind for attribute, kind in found.items() if kind}

    def annotated(self, source: Source, annotation: ast.expr | None) -> str:
        """Return the class with an asyncio form that an annotation names, or nothing."""
        if isinstance(annotation, ast.Subscript):
            annotation = annotation.value
        if isinstance(annotation, ast.Name):
            home = self.home(source, annotation.id)
            if home is not None and home[1] in self.classes and home in self.twins:
                return home[1]
        return ""

    def lineage(self, name: str) -> Iterator[str]:
        """Yield a class and its base classes in MODULES."""
        yield name
        for base in self.classes[name][1].bases:
            inner = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(inner, ast.Name) and inner.id in self.classes:
                yield from self.lineage(inner.id)

    def kind_of_method(self, name: str, method: str) -> str:
        """Return COROUTINE, ITERATOR or nothing for a method of a class."""
        for one in self.lineage(name):
            if (one, method) in self.kinds:
                return self.kinds[one, method]
        return ""

    # -- which functions are coroutines ----------------------------------------------------------------

    def functions(self) -> Iterator[tuple[Source, str, Function]]:
        """Yield each function and method that may need an asyncio form."""
        for source in self.sources.values():
            for name, nodes in source.definitions.items():
                if (source.name, name) not in self.twins:
                    continue
                for node in nodes:
                    if isinstance(node, ast.FunctionDef):
                        yield source, "", node
                    elif isinstance(node, ast.ClassDef):
                        for item in kept_items(node):
                            if isinstance(item, ast.FunctionDef) and not is_overload(item):
                                yield source, name, item

    def _find_kinds(self) -> None:
        before: dict[Key, str] = {}
        while before != self.kinds:
            before = dict(self.kinds)
            for source, owner, node in self.functions():
                key = (owner, node.name) if owner else (f":{source.name}", node.name)
                if node.name in THREADED:
                    self.kinds[key] = COROUTINE
                elif key not in self.kinds:
                    kind = Reader(self, source, owner, node).kind()
                    if kind:
                        self.kinds[key] = kind


def kept_items(node: ast.ClassDef) -> list[ast.stmt]:
    """Return the statements of a class that its asyncio form has."""
    kept = []
    for item in node.body:
        names = set(defined_names(item))
        if names & OMITTED["operators"] or (node.name in VIEWED and names & OMITTED["views"]):
            continue
        if node.name in SELECTED and not names & set(SELECTED[node.name]) and not isinstance(item, ast.Expr):
            continue
        kept.append(item)
    return kept


def arguments_of(node: Function) -> list[ast.arg]:
    spec = node.args
    return [*spec.posonlyargs, *spec.args, *([spec.vararg] if spec.vararg else []), *spec.kwonlyargs,
            *([spec.kwarg] if spec.kwarg else [])]  # fmt: skip


def decorated(node: Function, name: str) -> bool:
    return any(ast.unparse(one) == name for one in node.decorator_list)


def is_property(node: Function) -> bool:
    return decorated(node, "property")


def is_overload(node: Function) -> bool:
    return decorated(node, "overload")


def is_abstract(node: Function) -> bool:
    return decorated(node, "abstractmethod")


class Reader:
    """What a function does: the calls in it that run commands, and what it returns."""

    def __init__(self, program: Program, source: Source, owner: str, node: Function) -> None:
        self.program, self.source, self.owner, self.node = program, source, owner, node
        self.types: dict[str, str] = {"self": owner} if owner else {}
        for one in arguments_of(node):
            if one.annotation is not None:
                self.types[one.arg] = program.annotated(source, one.annotation)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
                found = self.type_of(inner.value)
                if found:
                    self.types[inner.targets[0].id] = found

    def type_of(self, node: ast.expr) -> str:
        """Return the class of an expression if it has an asyncio form, or nothing."""
        if isinstance(node, ast.Name):
            return self.types.get(node.id, VARIABLES.get(node.id, "")) if node.id in self.types or self._local(
                node.id) else ""  # fmt: skip
        if isinstance(node, ast.Attribute):
            for name in self.program.lineage(owner) if (owner := self.type_of(node.value)) else ():
                found = self.program.attributes[name].get(node.attr)
                if found:
                    return found
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                home = self.program.home(self.source, function.id)
                if home in self.program.twins and home is not None and home[1] in self.program.classes:
                    return home[1]
            elif isinstance(function, ast.Attribute):
                for name in self.program.lineage(owner) if (owner := self.type_of(function.value)) else ():
                    source, classdef = self.program.classes[name]
                    for item in classdef.body:
                        if isinstance(item, ast.FunctionDef) and item.name == function.attr:
                            return self.program.annotated(source, item.returns)
        return ""

    def _local(self, name: str) -> bool:
        return name not in self.source.definitions and name not in self.source.imports

    def kind_of_call(self, node: ast.expr) -> str:
        """Return COROUTINE or ITERATOR for a call, or the use of a property, that runs commands."""
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = self.type_of(node.value)
            return self._of_property(owner, node.attr) if owner else ""
        if not isinstance(node, ast.Call):
            return ""
        function = node.func
        if isinstance(function, ast.Name):
            home = self.program.home(self.source, function.id)
            return self.program.kinds.get((f":{home[0]}", home[1]), "") if home is not None else ""
        if isinstance(function, ast.Attribute):
            if isinstance(function.value, ast.Name) and function.value.id in self.source.imports:
                module, name, _ = self.source.imports[function.value.id]
                if module == PACKAGE and name in MODULES:
                    return self.program.kinds.get((f":{name}", function.attr), "")
            owner = self.type_of(function.value)
            return self.program.kind_of_method(owner, function.attr) if owner else ""
        return ""

    def _of_property(self, owner: str, name: str) -> str:
        for one in self.program.lineage(owner):
            for item in self.program.classes[one][1].body:
                if isinstance(item, ast.FunctionDef) and item.name == name:
                    return self.program.kinds.get((one, name), "") if is_property(item) else ""
        return ""

    def nodes(self) -> Iterator[ast.AST]:
        """Yield the nodes of the body, without those of nested functions."""
        waiting: list[ast.AST] = list(self.node.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                continue
            yield node
            waiting += ast.iter_child_nodes(node)

    def kind(self) -> str:
        """Return COROUTINE, ITERATOR or nothing for the function."""
        if is_abstract(self.node):
            return ""
        waits = yields = False
        for node in self.nodes():
            yields = yields or isinstance(node, (ast.Yield, ast.YieldFrom))
            if isinstance(node, ast.expr) and self.kind_of_call(node) == COROUTINE:
                waits = True
            if isinstance(node, ast.For) and self.kind_of_call(node.iter) == ITERATOR:
                waits = True
            if isinstance(node, ast.YieldFrom) and self.kind_of_call(node.value) == ITERATOR:
                waits = True
            if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)) and self._iterates(node):
                waits = True
        if waits:
            return ITERATOR if yields else COROUTINE
        for node in self.nodes():
            if isinstance(node, ast.Return) and node.value is not None:
                if self.kind_of_call(node.value) == ITERATOR:
                    return ITERATOR
                if isinstance(node.value, ast.GeneratorExp) and self._iterates(node.value):
                    return ITERATOR
        return ""

    def _iterates(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
        return any(self.kind_of_call(one.iter) == ITERATOR for one in node.generators)

    @property
    def is_generator(self) -> bool:
        """True if the function has a `yield`."""
        return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in self.nodes())
