"""`rillet serve`: takes the same arguments as redis-server.

Every setting of the configuration file is also an option, `--name value`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rillet.cli.serve_inspector import PORT, WRITE, ServedInspector, split
from rillet.errors import RilletError

USAGE = """\
usage: rillet serve [redis.conf] [--port N] [--bind ADDRESS ...] [--unixsocket PATH] [--dir FOLDER] [--NAME VALUE ...]

Serve RESP2 and RESP3 until SIGTERM or SIGINT. Every setting of redis.conf is also an option.

  rillet serve                                      port 6379, in memory
  rillet serve --port 7000 --dir data --appendonly yes
  rillet serve --metrics-port 9121                  Prometheus metrics at http://127.0.0.1:9121/metrics
  rillet serve --inspect-port 8321                  the inspector, a web page on loopback (docs/inspector.md)
  rillet serve --compat 7.0                         emulate Redis 7.0; 7.2, 7.4, 8.0, 8.2, 8.6, newest (default), valkey
"""


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal or SHUTDOWN; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    from rillet.server.app import main

    if not {PORT, WRITE} & set(arguments):
        return main(list(arguments))
    return _with_inspector(arguments, main)


def _with_inspector(arguments: Sequence[str], main: Callable[[Sequence[str]], int]) -> int:
    from rillet.server.redis_conf import load

    try:
        rest, port, write = split(arguments)
        if port is None:
            raise RilletError(f"{WRITE} needs {PORT}")
        inspector = ServedInspector(load(rest).settings, port, write)
    except RilletError as error:
        print(f"rillet: {error}", file=sys.stderr)
        return 1
    try:
        return main(rest)
    finally:
        inspector.close()
