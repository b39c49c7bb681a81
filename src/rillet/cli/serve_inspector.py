"""`rillet serve --inspect-port N`: the page of `rillet inspect` beside a server.

The inspector is a separate process, so it never delays the server's event loop: it starts when the server accepts
connections, and ends with it, also after SIGKILL, because its standard input ends then. It connects like any client: to
the Unix socket if there is one, else to the port, with TLS if that is the only one; as the user `default` with
`requirepass`. A server with a tls-port lends its certificate to the page. For another user, RILLET_INSPECT_URL has the
url with the user and the password. The url reaches the inspector in the environment, which other users of the machine
cannot read.

    --inspect-port N       the port of the page, on loopback
    --inspect-write        allow actions that write, when confirmed
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from rillet.cli.inspect import KEY_PASS, PARENT, URL
from rillet.errors import RilletError
from rillet.extras import require

PORT, WRITE = "--inspect-port", "--inspect-write"
_PAUSE = 0.1  # seconds between two tries to connect


def split(arguments: Sequence[str]) -> tuple[list[str], str | None, bool]:
    """Return the arguments of the server, the port of the inspector (None without one), and whether it may write."""
    rest, port, write = list(arguments), None, False
    if WRITE in rest:
        rest.remove(WRITE)
        write = True
    if PORT in rest:
        at = rest.index(PORT)
        port = rest[at + 1] if at + 1 < len(rest) else ""
        if not port.isdigit() or int(port) > 65535:
            raise RilletError(f"{PORT} needs the number of a port, not {port!r}")
        del rest[at : at + 2]
    return rest, port, write


def url_of(settings: Any) -> str:
    """Return the url under which the server's own machine reaches it."""
    password = f":{quote(settings.requirepass, safe='')}@" if settings.requirepass else ""
    if settings.unixsocket:
        return f"unix://{password}{settings.unixsocket}"
    host = _host(settings)
    host = f"[{host}]" if ":" in host else host
    if settings.port:
        return f"redis://{password}{host}:{settings.port}"
    # The connection stays on this machine: the certificate need not have the name of the loopback.
    tls = {"ssl_cert_reqs": "none", "ssl_certfile": settings.tls_cert_file, "ssl_keyfile": settings.tls_key_file}
    return f"rediss://{password}{host}:{settings.tls_port}?{urlencode({name: one for name, one in tls.items() if one})}"


def _host(settings: Any) -> str:
    """Return the first address on which the server listens; loopback if that is every address."""
    names = [one.lstrip("-") for one in settings.bind.split()]
    return next((one for one in names if one not in ("*", "::*", "0.0.0.0", "::")), "127.0.0.1")


class ServedInspector:
    """The process of the inspector: started when the server accepts connections, ended by `close`."""

    def __init__(self, settings: Any, port: str, write: bool) -> None:
        require("inspect", PORT)
        if settings.daemonize:
            raise RilletError(f"{PORT} is for a server in the foreground: without --daemonize")
        self._settings, self._port, self._write = settings, port, write
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._start, name="rillet-inspect", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        while not self._accepts():
            if self._closing.wait(_PAUSE):
                return
        command = [sys.executable, "-m", "rillet", "inspect", "--port", self._port, *(["--write"] * self._write)]
        environment = {**os.environ, URL: os.environ.get(URL) or url_of(self._settings), PARENT: "1"}
        if self._settings.tls_port:
            command += ["--tls-cert-file", self._settings.tls_cert_file]
            if self._settings.tls_key_file:
                command += ["--tls-key-file", self._settings.tls_key_file]
            environment[KEY_PASS] = self._settings.tls_key_file_pass
        with self._guard:
            if not self._closing.is_set():
                self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)

    def _accepts(self) -> bool:
        settings = self._settings
        try:
            if settings.unixsocket:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.settimeout(1)
                    probe.connect(settings.unixsocket)
                return True
            socket.create_connection((_host(settings), settings.port or settings.tls_port), timeout=1).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the inspector, and wait for it."""
        self._closing.set()
        with self._guard:
            process = self._process
        if process is not None:
            process.terminate()
            process.wait(timeout=30)
            if process.stdin is not None:
                process.stdin.close()
