"""The GEO commands: positions as the scores of a sorted set. By default the command's key is argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="geo", keys=(1, 1, 1))
