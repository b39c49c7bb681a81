"""Modules: types, commands and settings written in Python, loaded into an engine (docs/modules.md).

    rillet.open(modules=["bloom", "my_module.py"])        rillet serve --loadmodule bloom

    Module        the declaration of a module                       modules/declaration.py
    ModuleType    the base class of its types                       types/module.py
    Context       what its functions receive                        modules/context.py
"""

from __future__ import annotations

from rillet.errors import CommandError, WrongType
from rillet.modules.blocking import KEEP_WAITING, BlockedCall
from rillet.modules.context import Context, OpenKey
from rillet.modules.declaration import Module
from rillet.modules.guard import ModuleTimeout
from rillet.modules.reply import NO_REPLY, NULL_ARRAY, Attributes, Verbatim
from rillet.modules.settings import ModuleSetting
from rillet.protocol.reply_parser import ReplyError as ErrorReply
from rillet.types.module import AFTER_KEYS, BEFORE_KEYS, DefragPass, Digest, KeyPlace, ModuleType
from rillet.types.module_io import ModuleReader, ModuleWriter

__all__ = [
    "AFTER_KEYS",
    "BEFORE_KEYS",
    "KEEP_WAITING",
    "NO_REPLY",
    "NULL_ARRAY",
    "Attributes",
    "BlockedCall",
    "CommandError",
    "Context",
    "DefragPass",
    "Digest",
    "ErrorReply",
    "KeyPlace",
    "Module",
    "ModuleReader",
    "ModuleSetting",
    "ModuleTimeout",
    "ModuleType",
    "ModuleWriter",
    "OpenKey",
    "Verbatim",
    "WrongType",
]  # fmt: skip
