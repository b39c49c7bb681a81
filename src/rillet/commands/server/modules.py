"""MODULE: load, unload and list modules (Redis: module.c). rillet.modules contains the modules themselves.

This layer is below rillet.modules, so it imports that package by its name, as `runtime` does with the commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rillet.commands.arguments import text
from rillet.commands.help_texts import declare_help
from rillet.commands.server import command
from rillet.commands.server.config import allows
from rillet.errors import CommandError
from rillet.runtime.session import Session

_LOADING = "rillet.modules.loading"
_NOT_ALLOWED = (
    'MODULE command not allowed. If the enable-module-command option is set to "local", you can run it from a local '
    "connection, otherwise you need to set this option in the configuration file, and then restart the server."
)
_FAILED = "Error loading the extension. Please check the server logs."


def _check_allowed(session: Session) -> None:
    """Raise an error unless enable-module-command allows the session to change the loaded modules."""
    if not allows(session, session.engine.settings.enable_module_command):
        raise CommandError(_NOT_ALLOWED)


def _load(session: Session, path: bytes, arguments: list[bytes], settings: dict[str, str] | None) -> None:
    """Load a module and reply; the reason of a failure is in the log (moduleLoad)."""
    loading: Any = import_module(_LOADING)
    name = path.decode("utf-8", "surrogateescape")
    try:
        loading.load_module(session.engine, name, arguments, settings, exact=settings is not None)
    except loading.LoadError as error:
        session.engine.services.log_line(f"Module {name} failed to load: {error}")
        raise CommandError(_FAILED) from None
    session.out.ok()


@command("module|load", arity=-3, flags="admin noscript no_async_loading protected", since="4.0.0",
         syntax="path [arg [arg ...]]", complexity="O(1)")
def module_load(session: Session, argv: list[bytes]) -> None:
    """Load a module."""
    _check_allowed(session)
    _load(session, argv[2], argv[3:], None)


@command("module|loadex", arity=-3, flags="admin noscript no_async_loading protected", since="7.0.0",
         syntax="path [CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]", complexity="O(1)")
def module_loadex(session: Session, argv: list[bytes]) -> None:
    """Load a module with values of its settings."""
    _check_allowed(session)
    settings: dict[str, str] = {}
    arguments: list[bytes] = []
    at = 3
    while at < len(argv):
        word = argv[at].lower()
        if word == b"args":
            arguments = argv[at + 1 :]
            break
        if word != b"config" or at + 2 >= len(argv):
            session.engine.services.log_line(
                "CONFIG specified without name value pair" if word == b"config"
                else f"Syntax Error from arguments to loadex around {text(argv[at])}.", "notice")  # fmt: skip
            raise CommandError(_FAILED)
        settings[text(argv[at + 1])] = argv[at + 2].decode("utf-8", "surrogateescape")
        at += 3
    _load(session, argv[2], arguments, settings)


@command("module|unload", arity=3, flags="admin noscript no_async_loading protected", since="4.0.0", syntax="name",
         complexity="O(1)")
def module_unload(session: Session, argv: list[bytes]) -> None:
    """Unload a module; one that defines types cannot be unloaded."""
    _check_allowed(session)
    modules = session.engine.modules
    if modules is None:
        raise CommandError("Error unloading module: no such module with that name")
    loading: Any = import_module(_LOADING)
    try:
        modules.unload(argv[2].decode("utf-8", "surrogateescape"))
    except loading.UnloadError as error:
        raise CommandError(f"Error unloading module: {error}") from None
    session.out.ok()


@command("module|list", arity=2, flags="admin noscript", since="4.0.0", complexity="O(N) for N modules")
def module_list(session: Session, argv: list[bytes]) -> None:
    """List the loaded modules."""
    out, modules = session.out, session.engine.modules
    loaded = [] if modules is None else list(modules.loaded.values())
    out.array(len(loaded))
    for module in loaded:
        out.map(4)
        for name, value in ((b"name", module.name), (b"ver", module.declaration.version), (b"path", module.path)):
            out.bulk(name)
            if isinstance(value, int):
                out.integer(value)
            else:
                out.bulk(value.encode("utf-8", "surrogateescape"))
        out.bulk(b"args")
        out.array(len(module.arguments))
        for argument in module.arguments:
            out.bulk(argument)


declare_help("module", "server", "5.0.0")
