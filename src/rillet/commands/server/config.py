"""CONFIG: read and change the settings of a running server (Redis: config.c).

CONFIG SET changes all given settings or none: it parses every value before it sets the first one, and restores all
settings if the server or store rejects one (`EngineServices.setting_changed`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import text
from rillet.commands.help_texts import declare_help
from rillet.commands.server import command
from rillet.errors import CommandError, Loading
from rillet.runtime.session import Session
from rillet.runtime.settings.setting_types import SettingError, SettingType

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_FLAGS = "admin noscript loading stale"
_NOT_WHILE_LOADING = ("appendonly", "dir", "repl-diskless-load")  # Redis: DENY_LOADING_CONFIG
_LOCAL = re.compile(r"127\.\d+\.\d+\.\d+:\d+|\[?::1\]?:\d+|/.*")


@command("config|get", arity=-3, flags=_FLAGS, since="2.0.0", syntax="parameter [parameter ...]",
         complexity="O(N) for N settings")
def config_get(session: Session, argv: list[bytes]) -> None:
    """Return the settings whose names match patterns."""
    settings = session.engine.settings
    found: dict[str, str] = {}
    for word in argv[2:]:
        found.update((name, value) for name, value in settings.matching(text(word)) if name not in found)
    session.out.map(len(found))
    for name, value in sorted(found.items()) if settings.compat.valkey else found.items():
        session.out.bulk(name.encode())
        session.out.bulk(value.encode("utf-8", "surrogateescape"))


def _refused(name: str, reason: object) -> CommandError:
    return CommandError(f"CONFIG SET failed (possibly related to argument '{name}') - {reason}")


def _reason(error: SettingError) -> str:
    return str(error).removeprefix("ERR ")


def allows(session: Session, choice: str) -> bool:
    """Return whether a setting (no, yes or local) permits a protected action to the session (allowProtectedAction)."""
    peer = getattr(session.transport, "peer", "")
    return choice == "yes" or (choice == "local" and (not peer or _LOCAL.fullmatch(peer) is not None))


def _is_loading(engine: CommandEngine) -> bool:
    """Return whether data is loaded, also beside the data that commands read (async_loading)."""
    return bool(engine.loading or getattr(engine.replication.link, "asynchronous", False))


def _chosen(session: Session, names: list[str]) -> list[SettingType]:
    """Return the settings to change; raise an error for an unknown, immutable, protected or repeated name."""
    protected: str = session.engine.settings.enable_protected_configs
    chosen: list[SettingType] = []
    for name in names:
        parameter = session.engine.settings.parameter(name)
        if parameter is None:
            raise CommandError(f"Unknown option or number of arguments for CONFIG SET - '{name}'")
        if not parameter.mutable:
            raise _refused(name, "can't set immutable config")
        if parameter.protected and not allows(session, protected):
            raise _refused(name, "can't set protected config")
        if parameter.name in _NOT_WHILE_LOADING and _is_loading(session.engine):
            raise Loading
        if parameter in chosen:
            raise _refused(name, "duplicate parameter")
        chosen.append(parameter)
    return chosen


@command("config|set", arity=-4, flags=_FLAGS, since="2.0.0", syntax="parameter value [parameter value ...]",
         complexity="O(N) for N settings")
def config_set(session: Session, argv: list[bytes]) -> None:
    """Change settings; if one is invalid, change none of them."""
    if len(argv) % 2:
        raise CommandError("syntax error")
    chosen = _chosen(session, [text(name) for name in argv[2::2]])
    values: list[Any] = []
    for parameter, value in zip(chosen, argv[3::2], strict=True):
        try:
            values.append(session.engine.settings.value_of(parameter, value.decode("utf-8", "surrogateescape")))
        except SettingError as error:
            raise _refused(parameter.name, _reason(error)) from None
    _take(session.engine, chosen, values)
    session.out.ok()


def _take(engine: CommandEngine, chosen: list[SettingType], values: list[Any]) -> None:
    """Set all values and apply them (EngineServices); restore all values if one is rejected."""
    settings = engine.settings
    before = [getattr(settings, parameter.attribute) for parameter in chosen]
    for parameter, value in zip(chosen, values, strict=True):
        setattr(settings, parameter.attribute, value)
    applied: list[tuple[SettingType, Any]] = []
    for parameter, old, new in zip(chosen, before, values, strict=True):
        if old == new and not parameter.volatile:
            continue
        try:
            _apply(engine, parameter, new)
        except SettingError as error:
            _restore(engine, chosen, before, applied)
            raise _refused(parameter.name, _reason(error)) from None
        applied.append((parameter, old))
    of_modules = [parameter for parameter, _ in applied if parameter.name.lower() in settings.module_parameters]
    if of_modules:
        try:
            engine.modules.apply_settings(of_modules)
        except SettingError as error:
            _restore(engine, chosen, before, applied)
            raise _refused(error.args[1], error.args[0].removeprefix("ERR ")) from None
    engine.take_settings()


def _apply(engine: CommandEngine, parameter: SettingType, value: Any) -> None:
    """Apply the new value of a setting in the server or store, or in the module that declares it; SettingError."""
    if parameter.name.lower() in engine.settings.module_parameters:
        engine.modules.accept_setting(parameter, value)
    else:
        engine.services.setting_changed(parameter.alias or parameter.name)


def _restore(
    engine: CommandEngine, chosen: list[SettingType], before: list[Any], applied: list[tuple[SettingType, Any]]
) -> None:
    """Restore the values of all settings, and apply again those that were applied."""
    for parameter, value in zip(chosen, before, strict=True):
        setattr(engine.settings, parameter.attribute, value)
    for parameter, old in applied:
        _apply(engine, parameter, old)


@command("config|resetstat", arity=2, flags=_FLAGS, since="2.0.0", complexity="O(1)")
def config_resetstat(session: Session, argv: list[bytes]) -> None:
    """Reset the statistics of INFO."""
    engine = session.engine
    engine.stats.reset()
    engine.defrag.reset()
    engine.lazyfree.freed = 0
    engine.eviction.reset_stats()
    engine.memory.reset()
    engine.replication.reset_stats()
    for database in engine.databases:
        database.hits = database.misses = 0
    engine.services.reset_stats()
    session.out.ok()


@command("config|rewrite", arity=2, flags=_FLAGS, since="2.8.0", complexity="O(1)")
def config_rewrite(session: Session, argv: list[bytes]) -> None:
    """Write the settings to the configuration file of the server."""
    rewrite_config(session, False)


def rewrite_config(session: Session, everything: bool) -> None:
    """Write the settings and reply; `everything` includes defaults (config.c: rewriteConfig)."""
    session.engine.services.rewrite_config(everything)
    session.out.ok()


declare_help("config", "server", "5.0.0")
