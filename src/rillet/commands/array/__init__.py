"""The array commands, in the newest Redis only (since 8.8). By default the command's key is argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="array", keys=(1, 1, 1), since="8.8.0")
