"""Write what Cython reads: a copy of each compiled module, and the .pxd files, which are written from the sources.

    python -m tools.declarations FOLDER

    FOLDER/rillet.structs.rax.pxd       the declarations of a typed module
    FOLDER/src/rillet/structs/rax.py    the copy of its source: the same lines, without what the .pxd file says

The sources say everything in Python, so that nobody keeps a declaration twice. A .pxd file gets:

- the classes (`@cython.cclass`), with their attributes, which are the annotations of the class body, and with the
  methods that are C functions (`@cython.cfunc`, `@cython.ccall`), except those that a base class declares;
- the C functions, and the variables (`NAME = cython.declare(type, value)`), that another typed module imports;
- a cimport of each type that its declarations name.

In the copy, the import of a C function or a variable is a cimport, and so is that of a class that the module uses as a
type, except under `if TYPE_CHECKING:`. C code declares and imports each type that it reaches by cimports, whether it
uses the type or not.

Python sees an attribute of a compiled class if its annotation says so, `public[...]` or `readonly[...]`. For a C type
that has no Python reading it is `Annotated[Any, ...]`, such as `Annotated[Any, cython.int[16]]`.

A function that returns a C integer fails by -1 and an exception unless `exceptval` says how. This is the default in a
.py file; in a .pxd file, whose functions would otherwise cost each caller a question to Python, it must be written.
The function in the copy then loses `cfunc` or `ccall`, for Cython compares both forms. (Not `long long`: Cython would
write the -1 as `-1LLLL`.)

What Python cannot say stays in .pxd files that have no source beside them: macros, and the types of C functions.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

IMPORT = re.compile(r"^from rillet\._cython import cython\b.*", re.MULTILINE)
EXTERN = "cython.cimports.rillet."
BUILTINS = {"bytes", "bytearray", "dict", "frozenset", "list", "set", "str", "tuple"}
ARRAY = re.compile(r"\[\d+\]$")
C_NAMES = {"longlong": "long long", "ulonglong": "unsigned long long", "uint": "unsigned int",
           "uchar": "unsigned char", "ulong": "unsigned long", "ushort": "unsigned short",
           "schar": "signed char"}  # fmt: skip
NUMBERS = {"bint", "int", "Py_ssize_t"}  # what a function returns that fails by -1 unless it says how
Node = ast.expr | None


@dataclass
class Module:
    """A typed module: its source, and what it declares."""

    name: str
    source: str
    others: dict[str, Module]
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.source)

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Return the extension types."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef) and _has(node, "cclass")}

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """Return the C functions."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef) and _kind(node)}

    @cached_property
    def variables(self) -> dict[str, ast.expr]:
        """Return the C types of the module's variables."""
        found = [node for node in _at_module_level(self.tree.body) if isinstance(node, ast.Assign)]
        return {
            node.targets[0].id: node.value.args[0]
            for node in found
            if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "cython.declare"
        }  # fmt: skip

    @cached_property
    def types(self) -> set[str]:
        """Return the names that stand for a type: in annotations, base classes, declarations, casts, `isinstance`."""
        nodes: list[ast.expr | None] = []
        for node in ast.walk(self.tree):
            match node:
                case ast.arg() | ast.AnnAssign():
                    nodes.append(node.annotation)
                case ast.FunctionDef():
                    nodes.append(node.returns)
                case ast.ClassDef():
                    nodes += node.bases
                case ast.Call(func=ast.Attribute(attr="cast" | "declare"), args=[c_type, *_]):
                    nodes.append(c_type)
                case ast.Call(func=ast.Attribute(value=owner), args=[ast.Name(id="self"), *_]):  # a base's method
                    nodes.append(owner)
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, c_type]):
                    nodes.append(c_type)
        return {part.id for node in nodes if node for part in ast.walk(node) if isinstance(part, ast.Name)}

    @cached_property
    def cimports(self) -> dict[str, tuple[Module, str]]:
        """Return the module and the name there of each name that is imported and is more than Python's."""
        found = {}
        for node in _at_module_level(self.tree.body):
            other = self.others.get(node.module or "") if isinstance(node, ast.ImportFrom) else None
            if other is not None and isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    name = alias.asname or alias.name
                    is_type = alias.name in other.classes and name in self.types
                    if is_type or alias.name in other.functions or alias.name in other.variables:
                        found[name] = other, alias.name
        return found

    @cached_property
    def exported(self) -> set[str]:
        """Return the imported C functions that `__all__` names: an attribute of the module, which a cimport is not."""
        assigned = [node for node in self.tree.body if isinstance(node, ast.Assign)]
        exports = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
        named = {part.value for node in exports for part in ast.walk(node) if isinstance(part, ast.Constant)}
        functions = {name for name, (module, original) in self.cimports.items() if original in module.functions}
        return functions & named

    @cached_property
    def externs(self) -> dict[str, str]:
        """Return the file of each name that comes from a .pxd file without a source."""
        nodes = [node for node in _at_module_level(self.tree.body) if isinstance(node, ast.ImportFrom)]
        found = [(node, node.module.removeprefix(EXTERN)) for node in nodes if node.module and EXTERN in node.module]
        return {alias.name: f"rillet.{file}" for node, file in found for alias in node.names}

    def base(self, name: str) -> tuple[Module, str] | None:
        """Return the extension type from which a class is derived."""
        bases = self.classes[name].bases
        if not bases:
            return None
        parent = ast.unparse(bases[0])
        return (self, parent) if parent in self.classes else self.cimports.get(parent)

    def methods(self, name: str) -> dict[str, ast.FunctionDef]:
        """Return the C methods of a class, without those of its bases."""
        body = self.classes[name].body
        return {node.name: node for node in body if isinstance(node, ast.FunctionDef) and _kind(node)}

    def inherited(self, name: str) -> dict[str, str]:
        """Return the way in which each C method of the bases of a class fails."""
        found: dict[str, str] = {}
        parent = self.base(name)
        if parent:
            module, name = parent
            found |= {method: module.failure(node) for method, node in module.methods(name).items()}
            found |= module.inherited(name)
        return found

    def c_type(self, node: Node) -> str:
        """Return the C type of an annotation."""
        match node:
            case ast.Constant(value=None):
                return "void"
            case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
                return self.c_type(left)
            case ast.Attribute(value=ast.Name(id="cython"), attr=name):
                pointers, _, plain = name.rpartition("p_")
                if re.fullmatch("p*", pointers.removesuffix("p_")) and len(plain) < len(name):
                    const = "const " if plain.startswith("const_") else ""
                    plain = plain.removeprefix("const_")
                    return f"{const}{C_NAMES.get(plain, plain)} {'*' * (len(pointers) + 1)}"
                return C_NAMES.get(name, name)
            case ast.Name(id=name):
                known = name in BUILTINS or name in self.classes or name in self.externs
                return name if known or name in self.cimports and self._is_class(name) else "object"
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[_, c_type])):
                return self.c_type(c_type)
            case ast.Subscript(value=ast.Attribute() as element, slice=ast.Constant(value=int() as length)):
                return f"{self.c_type(element)}[{length}]"
            case ast.Subscript(value=ast.Name(id="list"), slice=element):
                inner = self.c_type(element)
                return f"list[{inner}]" if inner == "bytes" or inner.startswith("list[") else "list"
            case ast.Subscript() if ast.unparse(node) == "tuple[bytes, ...]":
                return "tuple[bytes, ...]"
            case ast.Subscript(value=ast.Name() as container):
                return self.c_type(container)
        return "object"

    def _is_class(self, name: str) -> bool:
        module, original = self.cimports[name]
        return original in module.classes

    def failure(self, node: ast.FunctionDef) -> str:
        """Return the clause that says how a C function fails."""
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "cython.exceptval":
                checked = {word.arg: ast.unparse(word.value) for word in decorator.keywords}.get("check", "True")
                if not decorator.args:
                    return "noexcept" if checked == "False" else "except *"
                return f"{'except' if checked == 'False' else 'except?'} {ast.unparse(decorator.args[0])}"
        return "except? -1" if self.c_type(node.returns) in NUMBERS else ""

    def signature(self, node: ast.FunctionDef, of_class: bool = False) -> str:
        """Return the declaration of a C function."""
        arguments = node.args.posonlyargs + node.args.args
        required = len(arguments) - len(node.args.defaults)
        words = []
        for at, argument in enumerate(arguments):
            c_type = "" if of_class and at == 0 else self.c_type(argument.annotation)
            words.append(_declared(c_type, argument.arg) + ("=*" if at >= required else ""))
        returned = self.c_type(node.returns) if node.returns else "object"
        parts = [f"{_kind(node)} {_declared(returned, node.name)}({', '.join(words)})", self.failure(node)]
        parts += [words for decorator, words in (("nogil", "nogil"), ("with_gil", "with gil")) if _has(node, decorator)]
        return " ".join(filter(None, parts))

    def attributes(self, name: str) -> Iterator[str]:
        """Yield the declarations of a class's attributes."""
        for node in self.classes[name].body:
            if isinstance(node, ast.AnnAssign):
                match node.annotation:
                    case ast.Subscript(value=ast.Name(id="public" | "readonly" as visible), slice=inner):
                        visibility, c_type = f"{visible} ", self.c_type(inner)
                    case _:
                        visibility, c_type = "", self.c_type(node.annotation)
                length = ARRAY.search(c_type)
                declared = _declared(ARRAY.sub("", c_type), ast.unparse(node.target))
                yield f"cdef {visibility}{declared}{length[0] if length else ''}"

    def declarations(self, used: set[str]) -> list[str]:
        """Return the lines of the .pxd file after its cimports."""
        variables = {name: self.c_type(c_type) for name, c_type in self.variables.items() if name in used}
        lines = [f"cdef {_declared(c_type, name)}" for name, c_type in variables.items()]
        lines += [self.signature(node) for name, node in self.functions.items() if name in used]
        for name, node in self.classes.items():
            lines += ["", *_decorators(node, ("final", "no_gc", "no_gc_clear", "internal"))]
            lines.append(f"cdef class {name}{f'({ast.unparse(node.bases[0])})' if node.bases else ''}:")
            body = list(self.attributes(name))
            inherited = self.inherited(name)
            for method, function in self.methods(name).items():
                if method not in inherited:
                    body += [*_decorators(function, ("final",)), self.signature(function, True)]
            lines += [f"    {line}" for line in body or ["pass"]]
        return lines

    def pxd(self, used: set[str]) -> str:
        """Return the text of the .pxd file, with the cimports that it needs itself."""
        lines = self.declarations(used)
        named = set(re.findall(r"\w+", "\n".join(lines)))
        cimports: dict[str, list[str]] = {}
        for name, (module, original) in self.cimports.items():
            if name in named:
                cimports.setdefault(module.name, []).append(original if name == original else f"{original} as {name}")
        for name, file in self.externs.items():
            if name in named:
                cimports.setdefault(file, []).append(name)
        head = [f"from {module} cimport {', '.join(names)}" for module, names in cimports.items()]
        return "\n".join(["cimport cython", *head, "", *lines, ""])

    def copy(self, used: set[str]) -> str:
        """Return the source as Cython reads it beside the .pxd file: with the same lines."""
        lines = [line.encode() for line in self.source.splitlines(keepends=True)]
        edits: list[tuple[ast.expr | ast.stmt, str]] = []
        declared = [(node, self.failure(node)) for name, node in self.functions.items() if name in used]
        for name, owner in self.classes.items():
            inherited = self.inherited(name)
            declared += [(node, inherited.get(key, self.failure(node))) for key, node in self.methods(name).items()]
            edits += [(node, "") for node in owner.body if isinstance(node, ast.AnnAssign)]
        for node in _at_module_level(self.tree.body):
            if isinstance(node, ast.ImportFrom) and node.module in self.others:
                edits.append((node, self._imports(node)))
        for name, function in self.functions.items():
            edits += self._optional(function) if name not in used else ()
        for function, failure in declared:
            edits += self._plain_containers(function)
            if failure == "except? -1" and not any("exceptval" in ast.unparse(one) for one in function.decorator_list):
                for decorator in function.decorator_list:
                    if ast.unparse(decorator) in ("cython.cfunc", "cython.ccall"):
                        lines[decorator.lineno - 1] = lines[decorator.lineno - 1].replace(b"@", b"#", 1)
        for edit in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
            _replace(lines, *edit)
        return IMPORT.sub("import cython", b"".join(lines).decode())

    def _imports(self, node: ast.ImportFrom) -> str:
        """Return an import of a typed module, as a cimport of what is more than Python's and not exported again."""
        names = self.cimports.keys() - self.exported
        cimported = [alias for alias in node.names if (alias.asname or alias.name) in names]
        others = [alias for alias in node.names if alias not in cimported]
        lines = [(f"cython.cimports.{node.module}", cimported), (str(node.module), others)]
        return "; ".join(f"from {name} import {', '.join(map(ast.unparse, names))}" for name, names in lines if names)

    def _optional(self, node: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
        """Yield the annotations of objects that may be None, as all may be that a .pxd file declares."""
        for argument in node.args.args:
            kind = self.c_type(argument.annotation).partition("[")[0]
            if argument.annotation and (kind in BUILTINS or kind in self.classes or kind in self.cimports):
                yield argument.annotation, f"{ast.unparse(argument.annotation)} | None"

    def _plain_containers(self, node: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
        """Yield the annotations of containers, and their C types: Cython compares both, and what they contain."""
        for annotation in [*(argument.annotation for argument in node.args.args), node.returns]:
            if annotation is not None and any(isinstance(part, ast.Subscript) for part in ast.walk(annotation)):
                optional = " | None" if annotation is not node.returns and _is_optional(annotation) else ""
                yield annotation, self.c_type(annotation) + optional


def _is_optional(annotation: ast.expr) -> bool:
    """Return whether an annotation is that of something or None."""
    return isinstance(annotation, ast.BinOp) and ast.unparse(annotation.right) == "None"


def _replace(lines: list[bytes], node: ast.expr | ast.stmt, text: str) -> None:
    """Replace the text of a node; the number of lines stays."""
    last = node.end_lineno or node.lineno
    before, after = lines[node.lineno - 1][: node.col_offset], lines[last - 1][node.end_col_offset :]
    lines[node.lineno - 1 : last] = [before + text.encode() + after, *[b"\n"] * (last - node.lineno)]


def _at_module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those under a condition too, except `if TYPE_CHECKING:`."""
    for node in body:
        if isinstance(node, ast.If):
            if ast.unparse(node.test) != "TYPE_CHECKING":
                yield from _at_module_level(node.body)
            yield from _at_module_level(node.orelse)
        else:
            yield node


def _has(node: ast.ClassDef | ast.FunctionDef, decorator: str) -> bool:
    return any(isinstance(found, ast.Attribute) and found.attr == decorator for found in node.decorator_list)


def _kind(node: ast.FunctionDef) -> str:
    return "cdef" if _has(node, "cfunc") else "cpdef" if _has(node, "ccall") else ""


def _decorators(node: ast.ClassDef | ast.FunctionDef, names: tuple[str, ...]) -> list[str]:
    return [f"@cython.{name}" for name in names if _has(node, name)]


def _declared(c_type: str, name: str) -> str:
    return f"{c_type}{'' if c_type.endswith('*') or not c_type else ' '}{name}"


def typed_modules(src: Path) -> dict[str, Module]:
    """Return the typed modules below the folder `src`, by their names."""
    modules: dict[str, Module] = {}
    for name in runpy.run_path(str(src / "rillet" / "_compiled.py"))["TYPED"]:
        dotted = "rillet." + name.replace("/", ".")
        modules[dotted] = Module(dotted, (src / "rillet" / f"{name}.py").read_text(encoding="utf-8"), modules)
    return modules


def write(src: Path, folder: Path) -> None:
    """Write the copies and the .pxd files of all compiled modules below the folder `src`."""
    modules = typed_modules(src)
    used: dict[str, set[str]] = {name: set() for name in modules}
    for module in modules.values():
        for other, name in module.cimports.values():
            used[other.name].add(name)
    texts = {}
    for path in src.rglob("*.pxd"):
        texts[Path(".".join(path.relative_to(src).parts))] = path.read_text(encoding="utf-8")
    for name in runpy.run_path(str(src / "rillet" / "_compiled.py"))["PLAIN"]:
        path = Path("rillet", f"{name}.py")
        texts["src" / path] = (src / path).read_text(encoding="utf-8")
    for name, module in modules.items():
        texts[Path("src", *name.split(".")).with_suffix(".py")] = module.copy(used[name])
        texts[Path(f"{name}.pxd")] = module.pxd(used[name])
    for found, text in texts.items():
        path = folder / found
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in [*folder.rglob("*.py"), *folder.rglob("*.pxd")]:
        if path.relative_to(folder) not in texts:
            path.unlink()


if __name__ == "__main__":
    write(Path("src"), Path(sys.argv[1]))
