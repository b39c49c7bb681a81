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
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError, Corrupt, ModuleFailure, RilletError
from rillet.keyspace.database import Database
from rillet.modules.blocking import KEEP_WAITING, BlockedCall
from rillet.modules.context import CALLABLE_STATE, Context
from rillet.modules.declaration import EVENT_CLASSES, LOADED, CommandDeclaration, Module
from rillet.modules.guard import Guard, Watchdog
from rillet.modules.reply import NO_REPLY, WrongReply, write_reply
from rillet.modules.timers import Timers
from rillet.protocol.reply_parser import parse_all
from rillet.runtime import session_state
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.session import Session
from rillet.runtime.settings.setting_types import SettingError, SettingType
from rillet.types.module import KeyPlace, ModuleType, ModuleValue, TypeHandle

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

_FAILURES = (CommandError, Corrupt)
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


class _Uninterrupted:
    """A step of the engine, during which the watchdog raises nothing. `with` may be nested."""

    __slots__ = ("_watchdog",)

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog

    def __enter__(self) -> None:
        self._watchdog.pause()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._watchdog.resume()


class LoadedModule:
    """A module in one engine."""

    def __init__(self, manager: Modules, declaration: Module, path: str, arguments: list[bytes]) -> None:
        self.manager = manager
        self.declaration = declaration
        self.name = declaration.name
        self.path = path
        self.arguments = arguments
        self.state = SimpleNamespace()
        self.handles: list[TypeHandle] = []
        self.commands: list[Command] = []
        self.waiting: set[BlockedCall] = set()
        self.uninterrupted = _Uninterrupted(manager.guard.watchdog)
        self._listening: set[Callable[..., Any]] = set()

    # -- calling the module's code -------------------------------------------------------------------

    def handler(self, declared: CommandDeclaration) -> Callable[[Session, list[bytes]], None]:
        """Return the handler of a command, as the engine calls it."""
        function = declared.handler

        def run(session: Session, argv: list[bytes]) -> None:
            session.propagate_nothing()  # a module replicates explicitly
            context = Context(self, session.db, session, argv)
            mark = session.out.mark()
            try:
                self._write(session, context, self.manager.guard.call(self.name, function, context, argv), mark)
            except _FAILURES as error:
                if session.blocked is not None:
                    self.manager.engine.blocking.unblock(session)
                if isinstance(error, Corrupt):
                    raise CommandError(str(error)) from None
                raise

        return run

    def _write(self, session: Session, context: Context, value: Any, mark: int) -> None:
        """Write the result of a command, unless the client waits; ModuleFailure if it cannot be a reply.

        mark: the position in the output at which the reply begins.
        """
        if context.blocked_on is not None or isinstance(value, BlockedCall):
            return
        try:
            if value is NO_REPLY:
                _check_written(session, mark)
            else:
                session.out.truncate(mark)
                write_reply(session.out, value)
        except WrongReply as error:
            session.out.truncate(mark)
            name = "the reply" if session.command is None else session.command.fullname
            self.manager.log(f"Module {self.name}: {name}: {error}")
            raise ModuleFailure(f"the module '{self.name}' failed: {error}") from None

    def reply_to(self, session: Session, argv: list[bytes], function: Callable[[Context], Any],
                 wait: bool = False) -> bool:  # fmt: skip
        """Reply to a client that was blocked with the result of a function; False if it keeps waiting (`wait`)."""
        context = Context(self, session.db, session, argv)
        mark = session.out.mark()
        try:
            value = self.manager.guard.call(self.name, function, context)
            if wait and value is KEEP_WAITING:
                session.out.truncate(mark)
                return False
            self._write(session, context, value, mark)
        except _FAILURES as error:
            self.manager.engine.stats.count_failure(session.command)
            session.reply_error(mark, error if isinstance(error, CommandError) else CommandError(str(error)))
        return True

    def run(self, function: Callable[..., Any], database: Database, *arguments: Any) -> Any:
        """Call function(context, ...) outside of a command; return None if it fails, which is logged."""
        try:
            return self.manager.guard.call(self.name, function, Context(self, database), *arguments)
        except ModuleFailure:  # logged by the guard
            return None
        except _FAILURES as error:
            self.manager.log(f"Module {self.name}: {getattr(function, '__qualname__', 'a function')}: {error}")
            return None

    def post(self, function: Callable[[Context], None], database: Database) -> None:
        """Run function(context) in the engine soon. Any thread."""
        self.manager.post(self.run, function, database)

    def hear(self, function: Callable[..., Any], database: Database, event: bytes, key: bytes) -> None:
        """Call a listener for an event, unless the event comes from this listener (module.c: sub->active)."""
        if function not in self._listening:
            self._listening.add(function)
            try:
                self.run(function, database, event, key)
            finally:
                self._listening.discard(function)

    # -- settings --------------------------------------------------------------------------------------

    def setting(self, name: str) -> Any:
        """Return the value of a setting of the module."""
        for setting in self.declaration.settings:
            if setting.name == name:
                return getattr(self.manager.engine.settings, setting.type.attribute)
        raise KeyError(name)


class Modules:
    """The modules of an engine. event_classes: the classes of keyspace events that modules listen to, as bits."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.loaded: dict[str, LoadedModule] = {}
        self.commands: dict[bytes, Command] = {}
        self.event_classes = 0
        self.guard = Guard(self._limit, self.log)
        self.timers = Timers(self)
        self._listeners: dict[bytes, list[tuple[LoadedModule, Callable[..., Any]]]] = {}
        self._spare: list[Session] = []
        self._next_index = TABLE.size

    def _limit(self) -> int:
        limit: int = self.engine.settings.module_time_limit
        return limit

    def log(self, text: str, level: str = "warning") -> None:
        """Write a line to the server's log."""
        self.engine.host.log_line(text, level)

    # -- loading -----------------------------------------------------------------------------------------

    def load(self, declaration: Module, path: str, arguments: list[bytes], settings: dict[str, str] | None = None,
             *, exact: bool = False) -> LoadedModule:  # fmt: skip
        """Load a module; LoadError with a text for the log. settings: values by full name, removed as they are used.

        exact: every value of `settings` must be one of the module's (MODULE LOADEX).
        """
        if declaration.name in self.loaded:
            raise LoadError(f"the module name '{declaration.name}' is busy")
        module = LoadedModule(self, declaration, path, arguments)
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
                self.run_in_engine(self.guard.call, module.name, declaration.load_function, context, arguments)
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
            if TABLE.by_name.get(container) is not None:
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
            except _FAILURES as error:
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
            except _FAILURES:
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
        except _FAILURES as error:
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
            except _FAILURES as error:
                refused = SettingError(str(error).removeprefix("ERR "))
                refused.args = (*refused.args, setting.name)
                raise refused from None

    # -- what modules call -----------------------------------------------------------------------------------

    def find(self, argv: list[bytes]) -> Command | None:
        """Return the command or subcommand that argv calls, None for an unknown command."""
        entry = TABLE.find(argv[0], self.engine.settings.compat) or self.commands.get(argv[0].lower())
        if entry is not None and entry.subcommands is not None and len(argv) > 1:
            return entry.subcommands.get(argv[1].lower(), entry)
        return entry

    def handle_of(self, kind: type[ModuleType]) -> TypeHandle:
        """Return the type of a class of a loaded module."""
        for handle in self.engine.settings.module_types.values():
            if type(handle.type) is kind:
                found: TypeHandle = handle
                return found
        raise ValueError(f"{kind.__name__} is not a type of a loaded module: declare it with @module.type")

    def name_of_type(self, database: Database, n: int) -> str:
        """Return the name of the type of an entry's value."""
        from rillet.commands.keys.lookup import type_name

        return type_name(database, n).decode()

    def inner_session(self, database: Database, logged: bool) -> Session:
        """Return a session for one call of a command by a module; pass it to `release` afterwards."""
        inner = self._spare.pop() if self._spare else Session(self.engine, database, 0)
        inner.db = database
        inner.state = CALLABLE_STATE if logged else CALLABLE_STATE | session_state.TRUSTED
        return inner

    def release(self, inner: Session) -> None:
        """Take back a session."""
        inner.out.truncate(0)
        if len(self._spare) < 16:
            self._spare.append(inner)

    def run_in_engine(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function outside of a command, and act on the effects: log them together, serve blocked clients."""
        engine = self.engine
        engine.propagation.depth += 1
        try:
            return function(*arguments)
        finally:
            engine.propagation.depth -= 1
            if engine.propagation.depth == 0:
                if engine.propagation.pending:
                    engine.propagation.flush_pending()
                if engine.blocking.ready:
                    engine.blocking.serve_ready()

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a function in the engine soon. Any thread."""
        self.engine.host.post(lambda: self.run_in_engine(function, *arguments))


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


def _check_written(session: Session, mark: int) -> None:
    """Raise WrongReply unless the module has written one complete reply itself."""
    try:
        complete = len(parse_all(bytes(session.out.buf[mark : session.out.used]))) == 1
    except Exception:
        complete = False
    if not complete:
        raise WrongReply("the module wrote no complete reply")


def modules_of(engine: Engine) -> Modules:
    """Return the modules of an engine."""
    if engine.modules is None:
        engine.modules = Modules(engine)
    found: Modules = engine.modules
    return found


__all__ = ["LoadError", "LoadedModule", "Modules", "UnloadError", "modules_of"]
