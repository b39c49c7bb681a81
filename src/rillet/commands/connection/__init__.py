"""The commands about connections. The decorator `command` registers a handler."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="connection")
