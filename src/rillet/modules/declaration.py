"""The declaration of a module: its types, commands, settings, and the functions that the engine calls.

    from rillet.modules import Context, Module, ModuleType

    module = Module("greeter", version=1)

    @module.command("greeter.hello", arity=2, flags="readonly fast", syntax="name", complexity="O(1)")
    def hello(context: Context, argv: list[bytes]) -> bytes:
        \"\"\"Greets a name.\"\"\"
        return b"hello " + argv[1]

A declaration contains no state of an engine, so several engines of a process can load it. `context.state` holds what
belongs to one engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rillet.modules.engine_calls import EVENT_CLASSES
from rillet.modules.settings import ModuleSetting
from rillet.runtime.settings.setting_types import INT_MAX, INT_MIN, LONG_MAX, boolean, integer, memory, string, words
from rillet.types.module import ModuleType, type_id

if TYPE_CHECKING:
    from rillet.modules.context import Context

    Handler = Callable[[Context, list[bytes]], Any]

T = TypeVar("T", bound=type[ModuleType])
F = TypeVar("F", bound=Callable[..., Any])


class CommandDeclaration(NamedTuple):
    """The parameters of a command, as for the commands of rillet itself (rillet.runtime.registry)."""

    name: str
    handler: Handler
    arity: int
    flags: str
    keys: tuple[int, int, int]
    since: str
    complexity: str
    syntax: str
    summary: str
    access: str
    categories: str
    tips: str
    get_keys: Callable[[list[bytes]], list[int]] | None


class Module:
    """A module. name: unique in a server; version: shown by MODULE LIST."""

    def __init__(self, name: str, version: int = 1) -> None:
        self.name = name
        self.version = version
        self.types: list[type[ModuleType]] = []
        self.commands: list[CommandDeclaration] = []
        self.settings: list[ModuleSetting] = []
        self.listeners: list[tuple[bytes, Callable[..., Any]]] = []
        self.server_listeners: dict[str, list[Callable[..., Any]]] = {}
        self.load_function: Callable[..., Any] | None = None
        self.unload_function: Callable[..., Any] | None = None
        self.info_function: Callable[..., Any] | None = None
        self.defrag_function: Callable[..., Any] | None = None
        self.options: tuple[str, ...] = ()

    def type(self, kind: T) -> T:
        """Declare a type: a decorator of a subclass of ModuleType. ValueError for an invalid name or version."""
        type_id(kind.name, kind.encoding_version)
        self.types.append(kind)
        return kind

    def command(self, name: str, *, arity: int = -1, flags: str = "", keys: tuple[int, int, int] = (0, 0, 0),
                since: str = "1.0.0", complexity: str = "", syntax: str = "", access: str = "", categories: str = "",
                tips: str = "",
                get_keys: Callable[[list[bytes]], list[int]] | None = None) -> Callable[[F], F]:  # fmt: skip
        """Declare a command; the docstring's first line is its summary.

        flags, keys, syntax, get_keys: as for built-in commands (rillet.runtime.registry). access: how the command uses
        its keys ("RO access", "RW access update" ...). categories: of ACL, such as "read fast"; Redis gives a module's
        command none by itself. tips: hints for proxies, as in COMMAND INFO.
        """

        def record(handler: F) -> F:
            summary = (handler.__doc__ or "").strip().partition("\n")[0]
            self.commands.append(CommandDeclaration(name.lower(), handler, arity, flags, keys, since, complexity,
                                                    syntax, summary, access, categories, tips, get_keys))  # fmt: skip
            return handler

        return record

    def on_load(self, function: F) -> F:
        """Declare a function(context, arguments) that runs when the module is loaded; raising rejects the load."""
        self.load_function = function
        return function

    def on_unload(self, function: F) -> F:
        """Declare a function(context) that runs before the module is unloaded; raising rejects that."""
        self.unload_function = function
        return function

    def on_event(self, classes: str) -> Callable[[F], F]:
        """Declare a function(context, event, key) for keyspace events, by the letters of notify-keyspace-events.

        The letter L is the class of `loaded`: a key was read from an RDB file. The function runs inside the command
        that causes the event, whether notify-keyspace-events is set or not.
        """
        letters = "g$lshzxetdnocam" if classes == "A" else classes
        for letter in letters:
            if letter.encode() not in EVENT_CLASSES:
                raise ValueError(f"{letter!r} is no class of keyspace events")

        def record(function: F) -> F:
            self.listeners.extend((letter.encode(), function) for letter in letters)
            return function

        return record

    def on_flush(self, function: F) -> F:
        """Declare a function(context, database) that runs before databases are emptied; -1: all of them."""
        self.server_listeners.setdefault("flush", []).append(function)
        return function

    def on_swap(self, function: F) -> F:
        """Declare a function(context, one, other) that runs after SWAPDB."""
        self.server_listeners.setdefault("swap", []).append(function)
        return function

    def info(self, function: F) -> F:
        """Declare a function(context) that returns {section: {field: value}} for INFO; "" is the module's section."""
        self.info_function = function
        return function

    def defrag(self, function: F) -> F:
        """Declare a function(context) that compacts what the module holds outside of keys (RegisterDefragFunc)."""
        self.defrag_function = function
        return function

    # -- settings ------------------------------------------------------------------------------------

    def boolean(self, name: str, about: str, default: bool, **options: Any) -> ModuleSetting:
        """Declare a setting that is yes or no. For the options see ModuleSetting."""
        return self._add(name, boolean(self._full(name), about, default), options)

    def integer(self, name: str, about: str, default: int, low: int = INT_MIN, high: int = INT_MAX,
                **options: Any) -> ModuleSetting:  # fmt: skip
        """Declare a setting that is a number."""
        return self._add(name, integer(self._full(name), about, default, low, high), options)

    def memory(self, name: str, about: str, default: int, low: int = 0, high: int = LONG_MAX,
               **options: Any) -> ModuleSetting:  # fmt: skip
        """Declare a setting that is a number of bytes; its text may have a unit."""
        return self._add(name, memory(self._full(name), about, default, low, high), options)

    def string(self, name: str, about: str, default: str, **options: Any) -> ModuleSetting:
        """Declare a setting that is any text."""
        return self._add(name, string(self._full(name), about, default), options)

    def choice(self, name: str, about: str, default: str, choices: tuple[str, ...], **options: Any) -> ModuleSetting:
        """Declare a setting that is one of several words."""
        return self._add(name, words(self._full(name), about, default, choices), options)

    def flags(self, name: str, about: str, default: int, bits: dict[str, int], **options: Any) -> ModuleSetting:
        """Declare a setting that is a set of words, each with its bits; the value is an integer."""
        return self._add(name, ModuleSetting.flags(self._full(name), about, default, bits), options)

    def _full(self, name: str) -> str:
        return f"{self.name}.{name}"

    def _add(self, name: str, kind: Any, options: dict[str, Any]) -> ModuleSetting:
        setting = ModuleSetting(name, kind, **options)
        if any(other.name == name for other in self.settings):
            raise ValueError(f"the setting {name} is declared twice")
        self.settings.append(setting)
        return setting

    def __repr__(self) -> str:
        return f"Module({self.name!r}, version={self.version})"
