"""A schema registry, by Confluent's client: it speaks the REST API of Confluent's registry, Karapace and Apicurio.

A process has one client for each configuration. It keeps the schemas that it has fetched by ID, because an ID never
changes its meaning; the latest schema of a subject is fetched anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rillet.errors import MissingExtra, RilletError
from rillet.extras import require
from rillet.spark.options import OptionError, Options

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient

MAGIC = b"\0"  # the first byte of a record with a schema ID
HEADER = 5  # bytes: MAGIC and the ID
ATTEMPTS = 4  # the client's default
_clients: dict[str, SchemaRegistryClient] = {}
T = TypeVar("T")


class RegistryError(RilletError):
    """The schema registry is unreachable, or it has rejected a request."""


class NotRegistered(RegistryError):
    """The schema registry does not have the schema."""


@dataclass(frozen=True)
class Registered:
    """A schema of a registry, with the schemas that it refers to: pairs of name and text, dependencies first."""

    number: int  # its ID
    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Registry:
    """The configuration of a registry's client; small, because Spark sends it with every task."""

    settings: str = field(repr=False)  # JSON; it may contain a password
    place: str  # for messages

    @classmethod
    def of(cls, options: Options) -> Registry | None:
        """Return the registry that the options name, or None."""
        if options.schema_registry is None:
            return None
        settings: dict[str, Any] = {"url": options.schema_registry, "timeout": options.timeout / ATTEMPTS}
        if options.schema_registry_user is not None:
            settings["basic.auth.user.info"] = f"{options.schema_registry_user}:{options.schema_registry_password}"
        settings.update(options.schema_registry_options or {})
        return cls(json.dumps(settings), re.sub(r"//[^/@]*@", "//", options.schema_registry))

    @property
    def client(self) -> SchemaRegistryClient:
        """Return this process's client."""
        require("registry", "schemaRegistry")
        if self.settings not in _clients:
            try:
                from confluent_kafka.schema_registry import SchemaRegistryClient

                _clients[self.settings] = SchemaRegistryClient(json.loads(self.settings))
            except ImportError as error:
                raise MissingExtra(f"schemaRegistry: {error}: pip install 'rillet[registry]'") from None
            except (TypeError, ValueError, OSError) as error:
                raise OptionError(f"rillet: schemaRegistry, schemaRegistryOptions: {error}") from None
        return _clients[self.settings]

    def require_answer(self) -> None:
        """Raise RegistryError if the registry does not answer."""
        self.asked("the types of schemas", lambda client: client.get_schema_types())

    def latest(self, subject: str, fmt: str | None = None) -> Registered:
        """Return the latest schema of a subject. fmt: `serialized` for Protobuf."""
        found = self.asked(f"subject {subject!r}", lambda client: client.get_version(subject, "latest", fmt=fmt))
        assert found.schema_id is not None and found.schema is not None
        return self._registered(found.schema_id, found.schema, fmt)

    def by_number(self, number: int, fmt: str | None = None) -> Registered:
        """Return the schema with an ID; NotRegistered if there is none."""
        found = self.asked(f"schema with the ID {number}", lambda client: client.get_schema(number, fmt=fmt))
        return self._registered(number, found, fmt)

    def register(self, subject: str, kind: str, text: str) -> int:
        """Register a schema under a subject, unless it is its latest already; return its ID."""

        def ask(client: SchemaRegistryClient) -> int:
            from confluent_kafka.schema_registry import Schema

            return client.register_schema(subject, Schema(text, kind))

        return self.asked(f"subject {subject!r}", ask)

    def _registered(self, number: int, schema: Schema, fmt: str | None) -> Registered:
        references = dict(self._references(schema, fmt))
        return Registered(number, schema.schema_type or "AVRO", schema.schema_str or "", tuple(references.items()))

    def _references(self, schema: Schema, fmt: str | None) -> list[tuple[str, str]]:
        found = []
        for one in schema.references or ():
            subject = str(one.subject)
            other = self.asked(f"subject {subject!r}", partial(_version, subject, one.version or 1, fmt))
            assert other.schema is not None
            found += [*self._references(other.schema, fmt), (str(one.name), other.schema.schema_str or "")]
        return found

    def asked(self, what: str, ask: Callable[[SchemaRegistryClient], T]) -> T:
        """Return the result of a request to the registry; raise RegistryError if it fails. what: for messages."""
        client = self.client
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return ask(client)
        except SchemaRegistryError as error:
            if (error.error_code or 0) // 100 == 404:  # 40401: subject, 40402: version, 40403: schema
                raise NotRegistered(f"rillet: the schema registry at {self.place} has no {what}") from None
            text = f"{error.error_message} (HTTP status {error.http_status_code})"
            raise RegistryError(f"rillet: the schema registry at {self.place} rejects {what}: {text}") from None
        except Exception as error:  # the client has no class for errors of its connections
            text = str(error) or type(error).__name__
            raise RegistryError(f"rillet: the schema registry at {self.place} is unreachable: {text}") from None


def _version(subject: str, version: int, fmt: str | None, client: SchemaRegistryClient) -> RegisteredSchema:
    return client.get_version(subject, version, fmt=fmt)


def subject_of(options: Options) -> str:
    """Return the subject of the payloads: payloadSubject, or <stream>-value."""
    name = options.stream or options.partitioned_stream
    if options.payload_subject is None and not name:
        raise OptionError("rillet: schemaRegistry needs payloadSubject, because the options name no single stream")
    return options.payload_subject or f"{name}-value"


def header_of(number: int) -> bytes:
    """Return what is before a record whose schema has this ID."""
    return MAGIC + number.to_bytes(HEADER - 1, "big")


def schema_number(data: bytes) -> int:
    """Return the schema ID before a record; raise ValueError if there is none."""
    if len(data) < HEADER or data[:1] != MAGIC:
        raise ValueError("a schema ID is missing: the first byte is not 0, or there are fewer than 5 bytes")
    return int.from_bytes(data[1:HEADER], "big")
