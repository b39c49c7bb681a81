"""A schema registry on loopback for tests, with the requests of Confluent's REST API that clients of rillet send.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html: schemas by ID and by version of a subject,
registering, looking up, basic authentication, the error codes 40401 to 40403 and 409. Protobuf schemas are stored as
clients register them, serialized, and returned so for `format=serialized`.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class SchemaRegistry:
    """The schemas of a registry, and how often each path was requested."""

    def __init__(self) -> None:
        self.url = ""
        self.subjects: dict[str, list[int]] = {}  # IDs of the versions
        self.schemas: list[dict[str, Any]] = [{}]  # by ID; the first one is 1
        self.requests: Counter[str] = Counter()
        self.auth = ""  # user:password; if not empty, required
        self.refuses = ""  # the reason why schemas are incompatible
        self.fails = False

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[dict[str, Any]] = ()) -> int:
        """Register a schema, which has the same ID under every subject; return its ID."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        stored = {"schema": text, "schemaType": kind, "references": list(references)}
        if stored not in self.schemas:
            self.schemas.append(stored)
        number = self.schemas.index(stored)
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the HTTP status and the value of an answer."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if self.fails:
            return 503, {"error_code": 50301, "message": "no leader"}
        if parts == ["schemas", "types"]:
            return 200, ["AVRO", "JSON", "PROTOBUF"]
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if not 0 < number < len(self.schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self.schemas[number]
        subject = parts[1]
        if method == "POST" and parts[2:] == ["versions"]:
            if self.refuses:
                return 409, {"error_code": 409, "message": self.refuses}
            return 200, {"id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"),
                                        body.get("references", ()))}  # fmt: skip
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if method == "POST":
            for version, number in enumerate(versions, 1):
                if self.schemas[number]["schema"] == body["schema"]:
                    return 200, {"subject": subject, "id": number, "version": version, **self.schemas[number]}
            return 404, {"error_code": 40403, "message": "Schema not found"}
        version = len(versions) if parts[3] == "latest" else int(parts[3])
        if not 0 < version <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = versions[version - 1]
        return 200, {"subject": subject, "id": number, "version": version, **self.schemas[number]}


@contextmanager
def running_registry() -> Iterator[SchemaRegistry]:
    """Run a registry without schemas."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            wanted = "Basic " + base64.b64encode(registry.auth.encode()).decode()
            if registry.auth and self.headers.get("Authorization") != wanted:
                status, value = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                registry.requests[f"{self.command} {url.path}"] += 1
                status, value = registry.answer(self.command, url.path, body)
            serialized = parse_qs(url.query).get("format") == ["serialized"]
            if isinstance(value, dict) and value.get("schemaType") == "PROTOBUF" and not serialized:
                value = {**value, "schema": 'syntax = "proto3"; // the text of the schema'}
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
