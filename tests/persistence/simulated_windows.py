"""Run a script in a Python from which the POSIX-only parts are removed, as on Windows."""

from __future__ import annotations

import subprocess
import sys

PREAMBLE = """
import asyncio, fcntl, os, select, signal, socket, subprocess, sys, tempfile, types

_flock, _EXCLUSIVE = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB

def _locking(descriptor, mode, size):
    try:
        _flock(descriptor, _EXCLUSIVE)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None

sys.modules["msvcrt"] = types.SimpleNamespace(locking=_locking, LK_NBLCK=2)
for name in ("fcntl", "resource", "pwd", "grp", "termios", "uvloop"):
    sys.modules[name] = None
for module, names in (
    (os, "fork register_at_fork O_CLOEXEC O_DIRECTORY fdatasync sysconf WNOHANG major minor getuid geteuid fchmod"),
    (socket, "AF_UNIX"),
    (signal, "pthread_sigmask SIGKILL SIGCHLD SIGHUP SIGUSR1"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

def _missing(*_arguments, **_options):
    raise NotImplementedError

_pair = socket.socketpair
socket.socketpair = lambda *_arguments: _pair(1)

for name in ("add_signal_handler", "add_reader", "create_unix_server", "create_unix_connection"):
    setattr(asyncio.SelectorEventLoop, name, _missing)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script; its arguments are in sys.argv[1:]."""
    return subprocess.run([sys.executable, "-c", PREAMBLE + script, *arguments], capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
