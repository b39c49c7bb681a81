"""`rillet inspect PATH|URL ...`: a local web page that shows streams, groups, pending entries, bytes and keys.

    rillet inspect events.rillet                    a directory: read-only, or attached to the process that owns it
    rillet inspect redis://user:password@host       a server: rillet, Redis, Valkey; rediss:// for TLS
    rillet inspect redis+cluster://host:7000        a cluster
    rillet inspect events.rillet redis://host       several places in one page
    rillet inspect events.rillet --write            with actions: each one shows its commands first

The page is at http://127.0.0.1:PORT/?token=...: the token lets in who has the url. It listens on loopback only, unless
--host names another address; then --allow-host adds the names under which it is reached. With --tls-cert-file and
--tls-key-file the page is at https://; a password of the key is in RILLET_INSPECT_KEY_PASS. docs/inspector.md has more.

Exit status: 0 after ^C, or 2 if the place cannot be read.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rillet.cli.output import guarded, until_interrupted
from rillet.cli.places import PLACE, db_argument
from rillet.errors import StoreError
from rillet.extras import require

if TYPE_CHECKING:
    from rillet.inspector.serving import Inspector

PORT = 8321
TOKEN = "RILLET_INSPECT_TOKEN"
URL = "RILLET_INSPECT_URL"
KEY_PASS = "RILLET_INSPECT_KEY_PASS"
PARENT = "RILLET_INSPECT_PARENT"
"""Set by `rillet serve`: the inspector ends when its standard input does, which happens when the server ends."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("places", nargs="*", metavar=PLACE,
                        help=f"directories of stores, and urls of servers (default: ${URL})")  # fmt: skip
    db_argument(parser)
    parser.add_argument("--port", type=int, default=None, metavar="N",
                        help=f"the port of the page (default {PORT}, or a free one if it is in use)")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="listen on this address")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME",
                        help="accept requests to this host name, too")  # fmt: skip
    parser.add_argument("--tls-cert-file", metavar="FILE", help="serve the page over TLS with this certificate (PEM)")
    parser.add_argument("--tls-key-file", metavar="FILE", help="the key of the certificate, if it is in another file")
    parser.add_argument("--write", action="store_true", help="allow actions and commands that write, when confirmed")
    parser.add_argument("--dump-limit", type=int, default=None, metavar="BYTES",
                        help="read the bytes of values up to this size with DUMP (default 1 MiB)")  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(options: argparse.Namespace) -> int:
    """Serve the page until ^C; return the exit status."""
    return guarded(lambda: until_interrupted(lambda: _serve(options)))


def _serve(options: argparse.Namespace) -> None:
    require("inspect", "this command")
    from rillet.inspector.place import DUMP_LIMIT
    from rillet.inspector.serving import LOOPBACK, Certificate, Inspector, inspected

    if options.tls_key_file and not options.tls_cert_file:
        raise StoreError("--tls-key-file needs --tls-cert-file")
    certificate = None
    if options.tls_cert_file:
        certificate = Certificate(options.tls_cert_file, options.tls_key_file, os.environ.get(KEY_PASS) or None)
    where = options.places or list(filter(None, [os.environ.get(URL)]))
    if not where:
        raise StoreError("pass the directory of a store, or the url of a server")
    with inspected(where, write=options.write, dump_limit=options.dump_limit or DUMP_LIMIT, db=options.db) as places:
        token = os.environ.get(TOKEN) or None
        inspector = _inspector(options, lambda port: Inspector(places, host=options.host, port=port, token=token,
                                                               names=options.allow_host,
                                                               certificate=certificate))  # fmt: skip
        for place in places:
            print(f"rillet: inspecting {place.name} ({place.server}, {place.kind})"
                  f"{', writes allowed' if place.write else ', read-only'}")  # fmt: skip
        print(f"rillet: open {inspector.url}", flush=True)
        if options.host not in LOOPBACK and not inspector.secure:
            print("rillet: the page is reachable from other machines, without TLS: use --tls-cert-file",
                  file=sys.stderr)  # fmt: skip
        if options.open:
            import webbrowser

            webbrowser.open(inspector.url)
        if os.environ.get(PARENT):
            threading.Thread(target=_end_with_parent, args=(inspector,), daemon=True).start()
        inspector.run()


def _end_with_parent(inspector: Inspector) -> None:
    sys.stdin.buffer.read()
    inspector.stop()


def _inspector(options: argparse.Namespace, make: Callable[[int], Inspector]) -> Inspector:
    if options.port is not None:
        return make(options.port)
    try:
        return make(PORT)
    except StoreError:
        return make(0)
