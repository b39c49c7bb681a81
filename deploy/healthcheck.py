"""Exit with status 0 if the server on this machine answers, has loaded its data and accepts writes: [PORT]

A server with a password answers, too, with NOAUTH. LOADING, MISCONF (the disk is full) and silence are failures.
"""

import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 6379), timeout=3) as server:
    server.sendall(b"PING\r\n")
    reply = server.recv(256)
if not reply.startswith((b"+PONG", b"-NOAUTH")):
    sys.exit(reply.decode("utf-8", "replace").strip() or "the server closed the connection")
