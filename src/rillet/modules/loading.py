"""Finding and loading modules: files of Python, importable modules, and the modules that come with rillet.

    "bloom", "json"            a module that comes with rillet: rillet.modules.bundled.bloom
    "package.module"           an importable module
    "path/to/file.py"          a file; it is executed anew for each load
    Module(...)                a declaration (rillet.open in memory only)

A file or an importable module defines its declaration as the global name `module`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from rillet.errors import StoreError
from rillet.modules.declaration import Module
from rillet.modules.loaded_module import LoadedModule
from rillet.modules.manager import LoadError, UnloadError, modules_of

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

OWN = ("bloom", "json")
"""The modules that come with rillet."""
_DECLARATION = "module"
_C_LIBRARIES = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
_numbers = count(1)

Spec = str | os.PathLike[str] | Module


OpenModules = tuple[tuple[tuple[Any, ...], ...], dict[str, str]]
"""The modules of rillet.open, each with its arguments, and the values of their settings by full name."""
NO_MODULES: OpenModules = ((), {})


class CannotLoad(StoreError):
    """A module that rillet.open or a configuration names cannot be loaded; the message has the reason."""


def is_file(path: str) -> bool:
    """Return whether the name of a module is that of a file."""
    return path.endswith((".py", ".so")) or os.sep in path or (os.altsep is not None and os.altsep in path)


def declaration_of(spec: Spec) -> tuple[Module, str]:
    """Return the declaration that a name leads to, and the name for MODULE LIST; LoadError with the reason."""
    if isinstance(spec, Module):
        return spec, f"<{spec.name}>"
    path = os.fspath(spec)
    try:
        namespace = _execute(path) if is_file(path) else _import(path)
    except LoadError:
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(f"{type(error).__name__}: {error}") from None
    found = getattr(namespace, _DECLARATION, None)
    if not isinstance(found, Module):
        raise LoadError("it does not define `module = rillet.modules.Module(...)`")
    return found, path


def _import(name: str) -> Any:
    """Import a module by its name."""
    return importlib.import_module(f"rillet.modules.bundled.{name}" if name in OWN else name)


def _execute(path: str) -> Any:
    """Execute a file as a new Python module."""
    try:
        with open(path, "rb") as file:
            if file.read(4).startswith(_C_LIBRARIES):
                raise LoadError("it is a compiled library; rillet loads modules that are written in Python")
    except OSError as error:
        raise LoadError(str(error.strerror)) from None
    name = f"rillet_module_{next(_numbers)}_{os.path.basename(path).partition('.')[0]}"
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    namespace = importlib.util.module_from_spec(spec)
    sys.modules[name] = namespace  # dataclasses look their module up
    try:
        loader.exec_module(namespace)
    except BaseException:
        del sys.modules[name]
        raise
    return namespace


def load_module(engine: Engine, spec: Spec, arguments: Sequence[bytes] = (), settings: dict[str, str] | None = None,
                *, exact: bool = False) -> LoadedModule:  # fmt: skip
    """Load a module into an engine; LoadError with the reason. For the settings see Modules.load."""
    declaration, path = declaration_of(spec)
    return modules_of(engine).load(declaration, path, list(arguments), settings, exact=exact)


def named_modules(modules: Sequence[Any], settings: dict[str, Any], shared: bool) -> OpenModules:
    """Return the modules of rillet.open in their normal form; ValueError or TypeError for an invalid one.

    A module is a name, a path, a declaration, or one of these with arguments, as a tuple. shared: other processes load
    the modules, too, so a declaration without a name is refused.
    """
    if isinstance(modules, str | os.PathLike):
        raise TypeError(f"modules is a list of modules, not one: modules=[{os.fspath(modules)!r}]")
    found: list[tuple[Any, ...]] = []
    for one in modules:
        spec, *arguments = one if isinstance(one, tuple | list) else (one,)
        if isinstance(spec, Module):
            if shared:
                raise ValueError(f"other processes of the directory load {spec!r}, too: pass its name or its path")
        else:
            spec = os.fspath(spec)
            spec = os.path.abspath(spec) if is_file(spec) else spec
        found.append((spec, *(word if isinstance(word, bytes) else str(word) for word in arguments)))
    texts = {name: _setting_text(value) for name, value in settings.items()}
    return tuple(found), texts


def _setting_text(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def load_all(engine: Engine, modules: Sequence[Sequence[Any]], settings: dict[str, str] | None = None) -> None:
    """Load the modules of a configuration or of rillet.open, each with its arguments; CannotLoad."""
    queue = dict(settings or {})
    for spec, *arguments in modules:
        words = [one if isinstance(one, bytes) else str(one).encode("utf-8", "surrogateescape") for one in arguments]
        try:
            load_module(engine, spec, words, queue)
        except Exception as error:
            raise CannotLoad(f"Can't load module from {spec}: {error}") from None
    if queue:
        # module.c: moduleLoadFromQueue
        raise CannotLoad("Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting "
                         f"({', '.join(queue)})")  # fmt: skip


__all__ = ["NO_MODULES", "OWN", "CannotLoad", "LoadError", "OpenModules", "Spec", "UnloadError", "declaration_of",
           "load_all", "load_module", "named_modules"]  # fmt: skip
