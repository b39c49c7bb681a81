"""`rillet serve`: redis-server's own argument grammar, so that what starts one starts the other.

Any setting of the configuration file may be given as `--name value`; the words go to the server as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

USAGE = """\
usage: rillet serve [redis.conf] [--port N] [--bind ADDRESS ...] [--unixsocket PATH] [--dir FOLDER] [--NAME VALUE ...]

Serve RESP2 and RESP3 until SIGTERM or SIGINT. Every setting of the file may be given as an option too.

  rillet serve                                      port 6379, in memory
  rillet serve --port 7000 --dir data --appendonly yes
  rillet serve --compat 7.0                         as Redis 7.0: or 7.2, 7.4, 8.0, 8.6, newest (default), valkey
"""


def run(arguments: Sequence[str]) -> int:
    """Serve until told to stop; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    from rillet.server.app import main

    return main(list(arguments))
