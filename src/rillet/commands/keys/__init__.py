"""The commands about keys. The decorator `command` registers a handler; by default the command's key is argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="generic", keys=(1, 1, 1))
