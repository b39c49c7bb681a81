"""The loaded modules of one engine (Redis: module.c).

    Engine.modules ── Modules ── loaded["bloom"] ── LoadedModule ── declaration     Module: shared by all engines
                         │                               ├─ handles, commands       what the engine uses of it
                         │                               ├─ state, waiting          what belongs to this engine
                         ├─ commands[b"bf.add"] ◄────────┘
                         ├─ guard      calls the modules' code
                         └─ timers

A module is loaded completely or not at all: `Modules.load` removes what a failed load has registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import RilletError
from rillet.keyspace.database import Database
from rillet.modules.context import Context
from rillet.modules.declaration import CommandDeclaration, Module
from rillet.modules.engine_calls import EVENT_CLASSES, LOADED, EngineCalls
from rillet.modules.guard import Guard
from rillet.modules.loaded_module import FAILURES, LoadedModule
from rillet.modules.module_state import ModuleServices
from rillet.modules.timers import Timers
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.settings.setting_types import SettingError, SettingType
from rillet.types.module import KeyPlace, ModuleValue, TypeHandle

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

# Redis's names of flags, where those of the declarations differ.
_FLAGS = {
    "deny-oom": "denyoom", "deny-script": "noscript", "allow-loading": "loading", "allow-stale": "stale",
    "no-monitor": "skip_monitor", "no-slowlog": "skip_slowlog", "may-replicate": "may_replicate",
    "getkeys-api": "movablekeys", "no-auth": "no_auth", "allow-busy": "allow_busy",
    "no-mandatory-keys": "no_mandatory_keys", "random": "", "no-cluster": "", "getchannels-api": "",
}  # fmt: skip


class LoadError(RilletError):
    """A module cannot be loaded; the text is for the log."""


class UnloadError(RilletError):
    """A module cannot be unloaded; the text is the end of Redis's error."""


class Modules:
    """The modules of an engine. event_classes: the classes of keyspace events that modules listen to, as bits."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.loaded: dict[str, LoadedModule] = {}
        self.commands: dict[bytes, Command] = {}
        self.event_classes = 0
        self.guard = Guard(self._limit, self.log)
        calls = EngineCalls(engine, self.commands)
        self.timers = Timers(engine, calls)
        self._services = ModuleServices(engine, calls, self.timers, self.guard)
        self._listeners: dict[bytes, list[tuple[LoadedModule, Callable[..., Any]]]] = {}
        self._next_index = TABLE.size

    def _limit(self) -> int:
        limit: int = self.engine.settings.module_time_limit
        return limit

    def log(self, text: str, level: str = "warning") -> None:
        """Write a line to the server's log."""
        self._services.log(text, level)

    # -- loading -----------------------------------------------------------------------------------------

    def load(self, declaration: Module, path: str, arguments: list[bytes], settings: dict[str, str] | None = None,
             *, exact: bool = False) -> LoadedModule:  # fmt: skip
        """Load a module; LoadError with a text for the log. settings: values by full name, removed as they are used.

        exact: every value of `settings` must be one of the module's (MODULE LOADEX).
        """
        if declaration.name in self.loaded:
            raise LoadError(f"the module name '{declaration.name}' is busy")
        module = LoadedModule(self._services, declaration, path, arguments)
        queue = {} if settings is None else settings
        try:
            self._register_types(module)
            self._register_commands(module)
            self._register_settings(module, queue)
            if exact and queue:
                raise LoadError(f"unknown settings: {', '.join(queue)}")
            self.loaded[module.name] = module
            if declaration.load_function is not None:
                context = Context(module, self.engine.databases[0])
                run_in_engine = self._services.calls.run_in_engine
                run_in_engine(self.guard.call, module.name, declaration.load_function, context, arguments)
        except (RilletError, ValueError, AssertionError) as error:
            self._remove(module)
            raise LoadError(str(error).removeprefix("ERR ") or type(error).__name__) from None
        self._take_effect()
        self.log(f"Module '{module.name}' loaded from {path}", "notice")
        return module

    def _register_types(self, module: LoadedModule) -> None:
        types = self.engine.settings.module_types
        for kind in module.declaration.types:
            instance = self.guard.call(module.name, kind)
            handle = TypeHandle(instance, module.name, self._guard_of(module))
            if handle.id >> 10 in types:
                raise LoadError(f"the type '{handle.name}' is already defined")
            types[handle.id >> 10] = handle
            module.handles.append(handle)

    def _guard_of(self, module: LoadedModule) -> Callable[..., Any]:
        call, name = self.guard.call, module.name

        def guarded(function: Callable[..., Any], *arguments: Any) -> Any:
            return call(name, function, *arguments)

        return guarded

    def _register_commands(self, module: LoadedModule) -> None:
        for declared in module.declaration.commands:
            container = declared.name.partition("|")[0].encode()
            if TABLE.get(container) is not None:
                raise LoadError(f"the command '{declared.name}' exists")
            self._add_command(module, self._command(module, declared))

    def _command(self, module: LoadedModule, declared: CommandDeclaration) -> Command:
        flags = " ".join(_FLAGS.get(flag, flag) for flag in declared.flags.split())
        return Command(declared.name, declared.arity, flags, declared.keys, "module", declared.since,
                       declared.complexity, declared.syntax, declared.summary, module.handler(declared),
                       declared.get_keys, module=module.name, access=declared.access, categories=declared.categories,
                       tips=declared.tips)  # fmt: skip

    def _add_command(self, module: LoadedModule, entry: Command) -> None:
        same_level = self.commands
        if entry.container:
            name = entry.container.encode()
            if name not in self.commands:
                self._add_command(module, Command(
                    entry.container, -2, "", (0, 0, 0), "module", entry.since, "", "", "", None, None,
                    module=module.name,
                ))  # fmt: skip
            container = self.commands[name]
            if container.handler is not None or container.module != module.name:
                raise LoadError(f"the command '{entry.container}' exists")
            if container.subcommands is None:
                container.subcommands = {}
            same_level = container.subcommands
        if entry.name.encode() in same_level:
            raise LoadError(f"the command '{entry.fullname}' exists")
        same_level[entry.name.encode()] = entry
        entry.index = self._next_index
        self._next_index += 1
        module.commands.append(entry)

    def _register_settings(self, module: LoadedModule, queue: dict[str, str]) -> None:
        settings = self.engine.settings
        for setting in module.declaration.settings:
            kind = setting.type
            settings.module_parameters[kind.name.lower()] = kind
            setattr(settings, kind.attribute, kind.default)
        for setting in module.declaration.settings:
            kind = setting.type
            given = next((name for name in queue if name.lower() == kind.name.lower()), None)
            value = kind.default
            if given is not None:
                try:
                    value = settings.value_of(kind, queue.pop(given))
                except SettingError as error:
                    raise _refused(kind, error) from None
            try:
                self._accept(module, setting, value)
            except FAILURES as error:
                raise _refused(kind, error) from None
            setattr(settings, kind.attribute, value)

    def _accept(self, module: LoadedModule, setting: Any, value: Any) -> None:
        """Let the module accept a value; SettingError with its reason if it rejects it."""
        if setting.on_set is None:
            return

        def accept() -> None:
            try:
                setting.on_set(Context(module, self.engine.databases[0]), value)
            except ValueError as error:
                raise SettingError(str(error)) from None

        self.guard.call(module.name, accept)

    def unload(self, name: str) -> None:
        """Unload a module; UnloadError with Redis's reason if that is impossible (moduleUnload)."""
        module = self.loaded.get(name)
        if module is None:
            raise UnloadError("no such module with that name")
        if module.handles:
            raise UnloadError("the module exports one or more module-side data types, can't unload")
        if module.waiting:
            raise UnloadError("the module has blocked clients. Please wait them unblocked and try again")
        if self.timers.any_of(module):
            raise UnloadError("the module holds timer that is not fired. Please stop the timer or wait until it fires.")
        if module.declaration.unload_function is not None:
            try:
                context = Context(module, self.engine.databases[0])
                self.guard.call(module.name, module.declaration.unload_function, context)
            except FAILURES:
                self.log(f"Module {name} OnUnload failed.  Unload canceled.")
                raise UnloadError("operation not possible.") from None
        self._remove(module)
        self._take_effect()
        self.log(f"Module {name} unloaded", "notice")

    def _remove(self, module: LoadedModule) -> None:
        """Remove everything that a module has registered."""
        settings = self.engine.settings
        self.loaded.pop(module.name, None)
        for handle in module.handles:
            settings.module_types.pop(handle.id >> 10, None)
        for entry in module.commands:
            if not entry.container:
                self.commands.pop(entry.name.encode(), None)
        for setting in module.declaration.settings:
            if settings.module_parameters.pop(setting.type.name.lower(), None) is not None:
                delattr(settings, setting.type.attribute)

    def _take_effect(self) -> None:
        """Let the engine use the loaded modules."""
        self._listeners = {}
        self.event_classes = 0
        for module in self.loaded.values():
            for letter, function in module.declaration.listeners:
                self._listeners.setdefault(letter, []).append((module, function))
                self.event_classes |= EVENT_CLASSES[letter]
        unlinks = any(handle.overrides("unlink") for module in self.loaded.values() for handle in module.handles)
        for database in self.engine.databases:
            database.on_unlinked = self._unlinked if unlinks else None
        defrags = any(module.declaration.defrag_function is not None for module in self.loaded.values())
        self.engine.defrag.on_started = self.defrag if defrags else None
        self.engine.settings.loaded_modules = [
            [module.path, *(word.decode("utf-8", "surrogateescape") for word in module.arguments)]
            for module in self.loaded.values()
        ]
        self.engine.take_settings()

    # -- what the engine calls -----------------------------------------------------------------------------

    def keyspace_event(self, database: Database, kind: bytes, event: bytes, key: bytes) -> None:
        """Call the modules that listen to a class of events."""
        for module, function in self._listeners.get(kind, ()):
            module.hear(function, database, event, key)

    def rows(self) -> list[str]:
        """Return the lines of INFO modules (genModulesInfoString)."""
        return [
            f"module:name={module.name},ver={module.declaration.version},api=1,filters=0,usedby=[],using=[],"
            f"options=[{'|'.join(module.declaration.options)}]"
            for module in self.loaded.values()
        ]

    def info(self, wanted: list[str]) -> dict[str, list[str]]:
        """Return the lines of the modules' own sections of INFO, by the head of the section (modulesCollectInfo).

        A section is wanted by its name, by the name of its module, by "modules" and by "everything".
        """
        sections: dict[str, list[str]] = {}
        for module in self.loaded.values():
            if module.declaration.info_function is None:
                continue
            every = not {"modules", "everything", module.name.lower()}.isdisjoint(wanted)
            found = None
            if every or any(name.startswith(module.name.lower()) for name in wanted):
                found = module.run(module.declaration.info_function, self.engine.databases[0])
            for name, facts in found.items() if isinstance(found, dict) else ():
                head = f"{module.name}_{name}" if name else module.name
                if (every or head.lower() in wanted) and isinstance(facts, dict):
                    sections[head] = [f"{module.name}_{field}:{_info_text(value)}" for field, value in facts.items()]
        return sections

    @property
    def hears_loading(self) -> bool:
        """Whether a module listens to the event `loaded`."""
        return LOADED in self._listeners

    def key_loaded(self, database: Database, key: bytes) -> None:
        """Call the modules that listen to `loaded`."""
        self.keyspace_event(database, LOADED, b"loaded", key)

    def server_event(self, event: str, *arguments: Any) -> None:
        """Call the modules' functions for `flush` or `swap`."""
        for module in list(self.loaded.values()):
            for function in module.declaration.server_listeners.get(event, ()):
                module.run(function, self.engine.databases[0], *arguments)

    def _unlinked(self, database: Database, key: bytes, value: ModuleValue) -> None:
        value.unlinked(KeyPlace(database.index, key))

    def defrag(self) -> None:
        """Let the modules compact what they hold outside of keys (moduleDefragGlobals)."""
        for module in self.loaded.values():
            if module.declaration.defrag_function is not None:
                module.run(module.declaration.defrag_function, self.engine.databases[0])

    def setting_of(self, parameter: SettingType) -> tuple[LoadedModule, Any]:
        """Return the module and the declaration of a setting."""
        for module in self.loaded.values():
            for setting in module.declaration.settings:
                if setting.type is parameter:
                    return module, setting
        raise KeyError(parameter.name)

    def accept_setting(self, parameter: SettingType, value: Any) -> None:
        """Let a module accept a new value of its setting; SettingError if it rejects the value."""
        try:
            self._accept(*self.setting_of(parameter), value)
        except SettingError:
            raise
        except FAILURES as error:
            raise SettingError(str(error).removeprefix("ERR ")) from None

    def apply_settings(self, parameters: list[SettingType]) -> None:
        """Call the functions `apply` of settings that have changed, each once; SettingError names the setting."""
        done: list[Any] = []
        for parameter in parameters:
            module, setting = self.setting_of(parameter)
            if setting.apply is None or setting.apply in done:
                continue
            done.append(setting.apply)
            try:
                self.guard.call(module.name, setting.apply, Context(module, self.engine.databases[0]))
            except FAILURES as error:
                refused = SettingError(str(error).removeprefix("ERR "))
                refused.args = (*refused.args, setting.name)
                raise refused from None

def _refused(kind: SettingType, error: Exception) -> LoadError:
    """Return the error for a value that a module or its setting rejects (module.c: loadModuleConfigs)."""
    return LoadError(f"Issue during loading of configuration {kind.name} : {str(error).removeprefix('ERR ')}")


def _info_text(value: Any) -> str:
    """Return the value of a field of INFO; a dict is a field with several parts."""
    if isinstance(value, dict):
        return ",".join(f"{name}={_info_text(one)}" for name, one in value.items())
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, float):
        return f"{value:.17g}"
    return " ".join(str(value).splitlines())


def modules_of(engine: Engine) -> Modules:
    """Return the modules of an engine."""
    if engine.modules is None:
        engine.modules = Modules(engine)
    found: Modules = engine.modules
    return found
