"""The settings of modules: `module.name` in redis.conf, CONFIG GET and CONFIG SET (Redis: module configurations).

A module declares a setting with the same types as rillet's own (runtime.setting_types). The value belongs to the engine
(`Settings`), and code of the module reads it with `context.setting(name)`. Two functions of a module may react:

    on_set(context, value)     before the value is taken; raising CommandError or ValueError rejects it
    apply(context)             after all values of a CONFIG SET are taken; raising restores all of them

`apply` runs once for the settings that share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rillet.runtime.settings.setting_types import SettingError, SettingType, quoted

_NAME = re.compile(r"[A-Za-z0-9_-]+")


class ModuleSetting:
    """One setting of a module. mutable: CONFIG SET may change it; hidden, protected: as for SettingType."""

    def __init__(self, name: str, kind: SettingType, *, mutable: bool = True, hidden: bool = False,
                 protected: bool = False, on_set: Callable[..., Any] | None = None,
                 apply: Callable[..., Any] | None = None) -> None:  # fmt: skip
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name of a setting has letters, digits, - and _ only: {name!r}")
        self.name = name
        self.type = replace(kind, mutable=mutable, hidden=hidden, protected=protected, written=_written(kind))
        self.on_set = on_set
        self.apply = apply

    @staticmethod
    def flags(name: str, about: str, default: int, bits: dict[str, int]) -> SettingType:
        """Return the type of a set of words, whose value is an integer (config.c: enum with MULTI_ARG_CONFIG)."""

        def parse(texts: list[str]) -> int:
            value = 0
            for text in texts:
                found = [bit for word, bit in bits.items() if word.lower() == text.lower()]
                if not found:
                    raise SettingError("argument(s) must be one of the following: " + ", ".join(bits))
                value |= found[0]
            return value

        def show(value: int) -> str:
            """Name the bits in the order of the declaration (config.c: configEnumGetName)."""
            names, left = [], value
            for word, bit in bits.items():
                if bit == value:
                    return word
                if bit and bit & left == bit:
                    names.append(word)
                    left &= ~bit
            return " ".join(names) if names and not left else "unknown"

        return SettingType(name, about, default, parse, show, multi=True)


def _written(kind: SettingType) -> Callable[[Any], list[tuple[str, bool]]]:
    """Return the function that writes the value to redis.conf: text in quotes, other values as they are shown."""

    def written(value: Any) -> list[tuple[str, bool]]:
        text = quoted(value) if isinstance(value, str) else kind.show(value)
        return [(text, value != kind.default)]

    return written
