"""The commands about connections. `command` declares one."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="connection")
