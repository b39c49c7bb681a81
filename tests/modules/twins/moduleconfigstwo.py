"""The twin of Redis's tests/modules/moduleconfigstwo.c."""

from __future__ import annotations

from rillet.modules import Module

module = Module("configs", 1)
module.boolean("test", "A setting of a second module", True)
