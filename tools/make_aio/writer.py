"""The asyncio form of a definition, and of a module."""

from __future__ import annotations

import ast
import builtins
import re
import sys

from tools.make_aio.config import (
    BASES,
    COROUTINE,
    DOCSTRINGS,
    EXTRA_IMPORTS,
    HAND_WRITTEN,
    ITERATOR,
    ITERATORS,
    MODULES,
    PACKAGE,
    THREADED,
    WIDTH,
)
from tools.make_aio.editing import Edit, Editor, filled, tidy, wrapped
from tools.make_aio.program import (
    Function,
    Program,
    Reader,
    Source,
    async_name,
    is_abstract,
    is_overload,
    kept_items,
    names_in,
    type_texts,
)


class Writer:
    """Writes the asyncio form of one definition."""

    def __init__(self, program: Program, source: Source) -> None:
        self.program, self.source = program, source

    # -- names ------------------------------------------------------------------------------------------

    def _renamed(self, name: str) -> str:
        home = self.program.home(self.source, name)
        if home in self.program.twins and home is not None and home[1] in self.program.classes:
            return async_name(name)
        return name

    def _rename(self, editor: Editor, node: ast.AST) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and self._renamed(inner.id) != inner.id:
                editor.replace(inner, self._renamed(inner.id))
        for text in set(type_texts(node)):
            new = re.sub(r"[A-Za-z_]\w*", lambda match: self._renamed(match[0]), str(text.value))
            if new != text.value:
                editor.replace(text, f'"{new}"')

    def _rename_in_prose(self, line: str) -> str:
        """Rename the classes in a docstring: `see Group.ack` becomes `see AsyncGroup.ack`."""
        names = "|".join(name for _, name in self.program.twins if name in self.program.classes)
        new = re.sub(rf"(?<![\w.])({names})(?=\.\w|\()", lambda match: async_name(match[1]), line)
        return new if len(new) <= WIDTH else line

    # -- a function -------------------------------------------------------------------------------------

    def function(self, node: Function, owner: str) -> list[str]:
        """Return the lines of a function or method."""
        reader = Reader(self.program, self.source, owner, node)
        kind = self._kind(node, owner)
        editor = Editor(self.source)
        self._rename(editor, node)
        if kind and node.returns is not None:
            if kind == ITERATOR:
                for inner in ast.walk(node.returns):
                    if isinstance(inner, ast.Name) and inner.id in ITERATORS:
                        editor.replace(inner, ITERATORS[inner.id])
        declared = kind == COROUTINE or (kind == ITERATOR and reader.is_generator)
        if declared:
            editor.insert(node.lineno, node.col_offset, "async ")
        if node.name == "__iter__":
            column = self.source.lines[node.lineno - 1].index("__iter__")
            editor.edits.add(Edit(node.lineno, column, column + 8, "__aiter__"))
        drop = {one.lineno for one in node.decorator_list if kind and ast.unparse(one) == "property"}
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        assert node.end_lineno is not None
        if node.name in THREADED and not is_overload(node):
            return self._threaded(node, owner, editor, first)
        if not is_overload(node) and not is_abstract(node):
            self._await(editor, reader)
        lines = editor.lines(first, node.end_lineno)
        lines = [line for row, line in enumerate(lines, first) if row not in drop]
        lines = self._header(node, lines, len(drop), first)
        return self._docstring(node, lines, first + len(drop))

    def _kind(self, node: Function, owner: str) -> str:
        if not owner:
            return self.program.kinds.get((f":{self.source.name}", node.name), "")
        return self.program.kind_of_method(owner, node.name)

    def _await(self, editor: Editor, reader: Reader) -> None:
        """Insert `await` and `async`."""
        node = reader.node
        parents = {child: parent for parent in ast.walk(node) for child in ast.iter_child_nodes(parent)}
        for inner in ast.walk(node):
            if isinstance(inner, ast.For) and reader.kind_of_call(inner.iter) == ITERATOR:
                editor.insert(inner.lineno, inner.col_offset, "async ")
            if isinstance(inner, ast.comprehension) and reader.kind_of_call(inner.iter) == ITERATOR:
                row = inner.target.lineno
                column = self.source.lines[row - 1].rindex("for ", 0, inner.target.col_offset)
                editor.insert(row, column, "async ")
            if isinstance(inner, ast.YieldFrom):
                self._yield_each(editor, reader, inner)
            if isinstance(inner, ast.expr) and reader.kind_of_call(inner) == COROUTINE:
                parent = parents[inner]
                if isinstance(inner, ast.Attribute) and isinstance(parent, ast.Call) and parent.func is inner:
                    continue  # a call of the method, which is handled itself
                tight = (isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is inner) or (
                    isinstance(parent, ast.Call) and parent.func is inner
                )
                opening, closing = ("(await ", ")") if tight else ("await ", "")
                if isinstance(inner, ast.Attribute):
                    closing = "()" + closing
                editor.insert(inner.lineno, inner.col_offset, opening)
                if closing:
                    assert inner.end_lineno is not None
                    assert inner.end_col_offset is not None
                    editor.insert(inner.end_lineno, inner.end_col_offset, closing)

    def _yield_each(self, editor: Editor, reader: Reader, node: ast.YieldFrom) -> None:
        """Replace `yield from` in an asynchronous generator, which cannot have it, by a loop."""
        if self._kind(reader.node, reader.owner) != ITERATOR:
            return
        line = self.source.lines[node.lineno - 1]
        assert line.strip().startswith("yield from "), line
        assert node.lineno == node.end_lineno, line
        prefix = "async for" if reader.kind_of_call(node.value) == ITERATOR else "for"
        editor.edits.add(Edit(node.lineno, node.col_offset, node.col_offset + len("yield from"), f"{prefix} one in"))
        indent = " " * (node.col_offset + 4)
        editor.insert(node.lineno, len(line), f":\n{indent}yield one")

    def _header(self, node: Function, lines: list[str], dropped: int, first: int) -> list[str]:
        """Wrap the signature again if it became too long, and remove comments for the type checker that it outgrew."""
        count = node.body[0].lineno - first - dropped
        decorators = node.lineno - first - dropped
        if is_overload(node):  # its body, `...`, is on the last line of the signature
            count = len(lines)
        header = lines[decorators:count]
        header = [re.sub(r"  # type: ignore\[(override|misc|,)+\].*", "", line) for line in header]
        if any(len(re.sub(r"  # type:.*", "", line)) > WIDTH for line in header):
            header = wrapped(header)
        body = [re.sub(r"  # noqa: UP028.*", "", line) for line in lines[count:]]
        return [*lines[:decorators], *header, *body]

    def _docstring(self, node: Function, lines: list[str], first: int) -> list[str]:
        text = ast.get_docstring(node, clean=False)
        if text is None and node.name != "__repr__":
            return lines
        result, inside = [], node.name == "__repr__"
        for line in lines:
            if '"""' in line:
                inside = line.count('"""') == 1 and not inside
                result.append(self._rename_in_prose(line))
            else:
                result.append(self._rename_in_prose(line) if inside else line)
        return result

    def _threaded(self, node: Function, owner: str, editor: Editor, first: int) -> list[str]:
        """Return a method that runs the synchronous method in a worker thread."""
        assert isinstance(node.body[0], ast.Expr), f"{node.name} needs a docstring"
        assert node.body[0].end_lineno is not None
        lines = editor.lines(first, node.body[0].end_lineno)
        lines = self._docstring(node, self._header(node, lines, 0, first), first)
        spec = node.args
        passed = [one.arg for one in spec.args[1:]]
        passed += [f"{one.arg}={one.arg}" for one in spec.kwonlyargs]
        passed += [f"**{spec.kwarg.arg}"] if spec.kwarg else []
        call = f"return await self.store.in_thread({owner}(self.store.synchronous, self.key).{node.name}"
        return [*lines, *filled(" " * 8, call, passed)]

    # -- a class, or another statement ----------------------------------------------------------------------

    def definition(self, node: ast.stmt) -> list[str]:
        """Return the lines of a definition at the top level."""
        if isinstance(node, ast.FunctionDef):
            return self.function(node, "")
        if isinstance(node, ast.ClassDef):
            return self._class(node)
        editor = Editor(self.source)
        self._rename(editor, node)
        assert node.end_lineno is not None
        return editor.lines(node.lineno, node.end_lineno)

    def _class(self, node: ast.ClassDef) -> list[str]:
        bases = BASES.get(node.name) or tuple(self._base(base) for base in node.bases)
        kept = [base for base in bases if base]
        lines = [f"class {async_name(node.name)}{'(' + ', '.join(kept) + ')' if kept else ''}:"]
        row = node.body[0].lineno
        wanted = {id(item) for item in kept_items(node)}
        for item in node.body:
            first = min([item.lineno, *(one.lineno for one in getattr(item, "decorator_list", ()))])
            between = self.source.lines[row - 1 : first - 1]
            assert item.end_lineno is not None
            row = item.end_lineno + 1
            if id(item) not in wanted:
                # Comments directly above the item go with it; headings of sections stay.
                lines += [line for line in between if not line.strip() or line.strip().startswith("# --")]
                continue
            lines += between
            if isinstance(item, ast.FunctionDef):
                lines += self.function(item, node.name)
            elif isinstance(item, ast.Expr) and node.name in DOCSTRINGS:
                lines += f'    """{DOCSTRINGS[node.name]}"""'.splitlines()
            elif isinstance(item, ast.Expr):
                lines += [self._rename_in_prose(line) for line in self.source.lines[item.lineno - 1 : item.end_lineno]]
            else:
                lines += self.definition(item)
        return tidy(lines)

    def _base(self, base: ast.expr) -> str:
        inner = base.value if isinstance(base, ast.Subscript) else base
        text = ast.unparse(base)
        if isinstance(inner, ast.Name):
            new = self._renamed(inner.id)
            if new != inner.id:
                return text.replace(inner.id, new, 1)
            if inner.id in ("Generic", "ABC", "Protocol", "Entry", "PublicNames") or self._is_shared(inner.id):
                return text
        return ""

    def _is_shared(self, name: str) -> bool:
        """Return whether a base class has no commands, and so is the base of the asyncio class too."""
        if name in self.source.definitions:
            return True
        module = self.source.imports.get(name, ("", "", False))[0]
        return module.startswith(PACKAGE)


class Module:
    """The asyncio module of one synchronous module."""

    def __init__(self, program: Program, source: Source) -> None:
        self.program, self.source = program, source
        self.writer = Writer(program, source)

    def text(self) -> str:
        """Return the text of the module."""
        bodies = self._bodies()
        used = {name for lines in bodies.values() for name in names_in_text("\n".join(lines))}
        parts = [self._docstring(), "from __future__ import annotations\n"]
        imports, checking = self._imports(used, set(bodies))
        if checking and "TYPE_CHECKING" not in used:
            imports.setdefault("typing", set()).add("TYPE_CHECKING")
        parts.append(import_lines(imports))
        if checking:
            lines = import_lines(checking).splitlines()
            parts.append("if TYPE_CHECKING:\n" + "".join(f"    {line}\n" if line else "\n" for line in lines))
        head = "\n".join(parts)
        body, before = "", "import"
        for lines in bodies.values():
            kind = "large" if lines[0].startswith(("class ", "def ", "async ", "@")) else "small"
            blank = {("import", "small"): "\n", ("small", "small"): ""}.get((before, kind), "\n\n")
            body += blank + "\n".join(lines) + "\n"
            before = kind
        return head + body

    def _docstring(self) -> str:
        path = f"store/{self.source.name.replace('.', '/')}.py"
        names = [name for name in self.source.definitions if (self.source.name, name) in self.program.twins]
        classes = [async_name(name) for name in names if name in self.program.classes and not name.startswith("_")]
        about = f": {', '.join(classes)}" if classes else ""
        return (
            f'"""The asyncio form of {self.source.dotted}{about}.\n\n'
            f"Made from {path} by `python -m tools.make_aio`; edit that file, then run the command.\n"
            '"""\n'
        )

    def _bodies(self) -> dict[str, list[str]]:
        """Return the lines of each definition that the module needs, in the order of the source."""
        source = self.source
        wanted = [name for name in source.definitions if (source.name, name) in self.program.twins]
        all_lines: dict[str, list[str]] = {}
        for name in wanted:
            lines: list[str] = []
            for node in source.definitions[name]:
                first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
                lines += [*([""] if lines and not lines[-1].startswith("@") else []), *self._comments_above(first)]
                lines += self.writer.definition(node)
            all_lines[async_name(name) if name in self.program.classes else name] = lines
        # A private definition stays if another one uses it.
        needed: set[str] = {name for name in all_lines if not name.startswith("_")}
        before = -1
        while before != len(needed):
            before = len(needed)
            for name in list(needed):
                needed |= names_in_text("\n".join(all_lines[name])) & set(all_lines)
        return {name: lines for name, lines in all_lines.items() if name in needed}

    def _comments_above(self, row: int) -> list[str]:
        found: list[str] = []
        while row > 1 and self.source.lines[row - 2].startswith("#"):
            row -= 1
            found.insert(0, self.source.lines[row - 1])
        return found

    def _imports(self, used: set[str], own: set[str]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Return the imports: module -> names, and those for type checking alone."""
        imports: dict[str, set[str]] = {}
        checking: dict[str, set[str]] = {}
        synchronous = {async_name(name): name for name in (*self.source.definitions, *self.source.imports)}
        for name in used - own:
            if name in EXTRA_IMPORTS:
                imports.setdefault(EXTRA_IMPORTS[name], set()).add(name)
            elif name in HAND_WRITTEN:
                imports.setdefault(HAND_WRITTEN[name], set()).add(name)
            elif name in synchronous and self.program.is_twin(self.source, synchronous[name]):
                home = self.program.home(self.source, synchronous[name])
                assert home is not None
                late = self.source.imports.get(synchronous[name], ("", "", False))[2]
                place = checking if late or synchronous[name] == "Store" else imports
                place.setdefault(f"{PACKAGE}.{MODULES[home[0]]}", set()).add(name)
            elif name in self.source.imports:
                module, original, late = self.source.imports[name]
                place = checking if late else imports
                if not module:
                    place.setdefault("", set()).add(original)
                    continue
                home = self.program.home(self.source, name)
                if home in self.program.twins and home is not None and home[1] not in self.program.classes:
                    module = f"{PACKAGE}.{MODULES[home[0]]}"  # a function that has an asyncio form
                elif module == PACKAGE and original in MODULES:
                    module = f"{PACKAGE}.aio"
                place.setdefault(module, set()).add(name if name == original else f"{original} as {name}")
            elif name in self.source.definitions:
                imports.setdefault(self.source.dotted, set()).add(name)
            elif not hasattr(builtins, name) and name == "AsyncKeyCommands":
                imports.setdefault(f"{PACKAGE}.aio.keys", set()).add(name)
        return imports, checking


def names_in_text(text: str) -> set[str]:
    return set(names_in(ast.parse(text))) if text.strip() else set()


def import_order(name: str) -> tuple[int, str]:
    """Return the place of a name in an import: constants, classes, then the rest, as ruff sorts them."""
    plain = name.split(" ")[0]
    group = 0 if plain.isupper() and len(plain) > 1 else 1 if plain[:1].isupper() else 2
    return group, plain.lower()


def import_lines(imports: dict[str, set[str]]) -> str:
    """Return import statements, sorted as ruff sorts them."""
    sections: list[list[str]] = [[], [], []]
    for name in sorted(imports.get("", ())):
        sections[_section(name)].append(f"import {name}")
    for module in sorted(name for name in imports if name):
        names = sorted(imports[module], key=import_order)
        line = f"from {module} import {', '.join(names)}"
        if len(line) > WIDTH:
            line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
        sections[_section(module)].append(line)
    return "\n".join("\n".join(lines) + "\n" for lines in sections if lines)


def _section(module: str) -> int:
    top = module.split(".")[0]
    return 2 if top == "rillet" else 0 if top in sys.stdlib_module_names else 1
