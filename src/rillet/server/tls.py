"""TLS for the server's clients (Redis: tls.c).

    socket -> TlsTransport.data_received -> incoming BIO -> ssl -> ClientConnection.data_received
    socket <- outgoing BIO               <- ssl          <- TlsTransport.write

A TlsTransport is the asyncio protocol of the socket, and the transport of a ClientConnection. A session exists only
after the handshake. The ssl object is made when the first bytes arrive, so a silent client costs little. Clients in a
handshake count for `maxclients`, and are disconnected HANDSHAKE_SECONDS after their start. Bytes that are not TLS end
the connection with an alert.

While a script runs for too long, no event loop runs. `serve_busy` then takes the bytes that rillet.server.busy has read
from the socket, and writes to the socket itself.

TlsContext makes the context that new clients use. CONFIG SET of a file, a protocol or a cipher makes a new context; if
that fails, the old one stays, and the reason is in the log. Connected clients keep theirs.

Rejected: the ssl support of the event loops. It allocates 256 KB for each client before the handshake, does not show
clients in a handshake, and binds a listening socket to one context.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import StoreError
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.server.engine_loop import EngineLoop
from rillet.server.log_lines import LOGGER, VERBOSE, say

if TYPE_CHECKING:
    from rillet.server.connection import ClientConnection

HANDSHAKE_SECONDS = 10.0
_READ = 256 * 1024
_NO_AUTHORITY = ("Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or "
                 "tls-auth-clients are enabled!")  # fmt: skip
_PROTOCOLS = {
    "tlsv1": (ssl.TLSVersion.TLSv1, ssl.OP_NO_TLSv1), "tlsv1.1": (ssl.TLSVersion.TLSv1_1, ssl.OP_NO_TLSv1_1),
    "tlsv1.2": (ssl.TLSVersion.TLSv1_2, ssl.OP_NO_TLSv1_2), "tlsv1.3": (ssl.TLSVersion.TLSv1_3, ssl.OP_NO_TLSv1_3),
}  # fmt: skip
_VERIFY = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "yes": ssl.CERT_REQUIRED}
_FILES = ("tls_cert_file", "tls_key_file", "tls_ca_cert_file", "tls_ca_cert_dir", "tls_dh_params_file")
CONTEXT_SETTINGS = frozenset(
    "tls-cert-file tls-key-file tls-key-file-pass tls-ca-cert-file tls-ca-cert-dir tls-dh-params-file tls-auth-clients "
    "tls-protocols tls-ciphers tls-ciphersuites tls-prefer-server-ciphers".split()
)


class TlsError(StoreError):
    """The settings of TLS cannot be used; the message is the reason."""


def context_of(settings: Settings) -> ssl.SSLContext:
    """Return the context that the settings describe; TlsError names the file or the setting that is wrong."""
    if not settings.tls_cert_file:
        raise TlsError("No tls-cert-file configured!")
    if not settings.tls_key_file:
        raise TlsError("No tls-key-file configured!")
    if settings.tls_auth_clients != "no" and not settings.tls_ca_cert_file and not settings.tls_ca_cert_dir:
        raise TlsError(_NO_AUTHORITY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if settings.tls_prefer_server_ciphers:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _choose_protocols(context, settings.tls_protocols)
    context.verify_mode = _VERIFY[settings.tls_auth_clients]
    _load(f"Failed to load certificate: {settings.tls_cert_file} with the key {settings.tls_key_file}",
          context.load_cert_chain, settings.tls_cert_file, settings.tls_key_file, lambda: settings.tls_key_file_pass)
    if settings.tls_ca_cert_file or settings.tls_ca_cert_dir:
        _load("Failed to configure CA certificate(s) file/directory", context.load_verify_locations,
              settings.tls_ca_cert_file or None, settings.tls_ca_cert_dir or None)  # fmt: skip
    if settings.tls_ciphers:
        _load(f"Failed to configure ciphers: {settings.tls_ciphers}", context.set_ciphers, settings.tls_ciphers)
    if settings.tls_ciphersuites:
        _choose_suites(context, settings.tls_ciphersuites)
    if settings.tls_dh_params_file:
        _load(f"Failed to load DH params file: {settings.tls_dh_params_file}", context.load_dh_params,
              settings.tls_dh_params_file)  # fmt: skip
    return context


def client_context(settings: Settings) -> ssl.SSLContext:
    """Return the context of links to other servers (tls-replication); TlsError names the file that is wrong."""
    if not settings.tls_ca_cert_file and not settings.tls_ca_cert_dir:
        raise TlsError(_NO_AUTHORITY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # as Redis, which verifies the chain alone
    _choose_protocols(context, settings.tls_protocols)
    cert, key, password = settings.tls_cert_file, settings.tls_key_file, settings.tls_key_file_pass
    if settings.tls_client_cert_file:
        cert, key, password = (settings.tls_client_cert_file, settings.tls_client_key_file,
                               settings.tls_client_key_file_pass)  # fmt: skip
    if cert:
        _load(f"Failed to load certificate: {cert} with the key {key}", context.load_cert_chain, cert, key,
              lambda: password)  # fmt: skip
    _load("Failed to configure CA certificate(s) file/directory", context.load_verify_locations,
          settings.tls_ca_cert_file or None, settings.tls_ca_cert_dir or None)  # fmt: skip
    if settings.tls_ciphers:
        _load(f"Failed to configure ciphers: {settings.tls_ciphers}", context.set_ciphers, settings.tls_ciphers)
    return context


def _load(what: str, function: Callable[..., Any], *arguments: Any) -> None:
    try:
        function(*arguments)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise TlsError(f"{what}: {error}") from error


def _choose_protocols(context: ssl.SSLContext, text: str) -> None:
    chosen = text.split(" ") if text else ["TLSv1.2", "TLSv1.3"]
    for name in chosen:
        if name.lower() not in _PROTOCOLS:
            raise TlsError("Invalid tls-protocols specified. Use a combination of 'TLSv1', 'TLSv1.1', 'TLSv1.2' and "
                           "'TLSv1.3'.")  # fmt: skip
    versions = {_PROTOCOLS[name.lower()][0] for name in chosen}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the old versions, which the user has chosen
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        for version, flag in _PROTOCOLS.values():
            if version not in versions:
                context.options |= flag


def _choose_suites(context: ssl.SSLContext, text: str) -> None:
    choose = getattr(context, "set_ciphersuites", None)
    if choose is None:
        raise TlsError("tls-ciphersuites needs Python 3.15 or newer: older ones cannot choose suites of TLS 1.3")
    _load(f"Failed to configure ciphersuites: {text}", choose, text)


class TlsContext:
    """The context of new clients, and the versions of the files that it was made of."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.current: ssl.SSLContext | None = None
        self._files: list[Any] = []
        self._checked = 0.0

    def load(self) -> None:
        """Make the context again; if that fails with TlsError, the old one stays."""
        files = self._versions()
        self.current = context_of(self._settings)
        self._files, self._checked = files, monotonic()

    def reload_if_changed(self) -> None:
        """Load files that have changed, each tls-auto-reload-interval seconds. The periodic job calls this."""
        interval: int = self._settings.tls_auto_reload_interval
        if not interval or self.current is None or monotonic() - self._checked < interval:
            return
        self._checked = monotonic()
        if self._versions() != self._files:
            try:
                self.load()
                LOGGER.info("the files of certificates have changed and are loaded")
            except TlsError as error:
                LOGGER.warning("%s; the old certificates stay", error)

    def _versions(self) -> list[Any]:
        found: list[Any] = []
        for name in _FILES:
            try:
                status = os.stat(getattr(self._settings, name))
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError:
                found.append(None)
        return found


def users_in(certificate: Any, field: str) -> list[str]:
    """Return the users that a client's certificate names: its common name, or its URIs."""
    if not certificate or field == "off":
        return []
    if field == "CN":
        names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    else:
        names = [value for name, value in certificate.get("subjectAltName", ()) if name == "URI"]
    return names[:1] if field == "CN" else names


class _DirectWriter:
    """The transport of a socket, without the event loop: bytes are written at once, and the transport gets the rest."""

    def __init__(self, raw: Any, fd: int) -> None:
        self._raw = raw
        self._fd = fd

    def write(self, data: bytes) -> None:
        """Send what the socket takes."""
        sent = 0
        if not self._raw.get_write_buffer_size():
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                pass
            except OSError:
                return  # the event loop finds this out
        if sent < len(data):
            self._raw.write(data[sent:])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class Handshakes:
    """The clients of one server that have not completed the handshake of TLS: `waiting`, oldest first.

    tls: the certificates. admit: whether a new client may stay.
    """

    def __init__(self, engine: Engine, loop: EngineLoop, tls: TlsContext,
                 admit: Callable[[asyncio.Transport], bool]) -> None:  # fmt: skip
        self.engine = engine
        self.loop = loop
        self.tls = tls
        self.admit = admit
        self.waiting: dict[TlsTransport, None] = {}

    def end_slow(self) -> None:
        """Disconnect clients whose handshake takes too long."""
        oldest = monotonic() - HANDSHAKE_SECONDS
        for transport in list(self.waiting) if self.waiting else ():
            if transport.since > oldest:
                return
            LOGGER.info("Error accepting a client connection: the TLS handshake took too long")
            self.waiting.pop(transport, None)
            transport.abort()

    def close(self) -> None:
        """Disconnect all of them."""
        for transport in list(self.waiting):
            transport.abort()


class TlsTransport:
    """One client's TLS: the protocol of its socket, and the transport of its ClientConnection."""

    __slots__ = ("_busy", "_closed", "_connection", "_handshakes", "_incoming", "_open", "_outgoing", "_paused", "_raw",
                 "_ssl", "since")  # fmt: skip

    def __init__(self, handshakes: Handshakes, connection: ClientConnection) -> None:
        self._handshakes = handshakes
        self._connection = connection
        self._raw: Any = None
        self._ssl: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO
        self._outgoing: ssl.MemoryBIO
        self._open = False  # the handshake is complete
        self._closed = False
        self._paused = False
        self._busy = False  # a script of another client runs
        self.since = 0.0

    # -- callbacks of the event loop -----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Wait for the client's handshake, unless there are too many clients."""
        self._raw = transport
        if not self._handshakes.admit(transport):
            transport.abort()
            return
        self.since = monotonic()
        self._handshakes.waiting[self] = None

    def data_received(self, data: bytes) -> None:
        """Decrypt received bytes, and give their contents to the connection."""
        if self._closed:
            return
        if self._ssl is None:
            context = self._handshakes.tls.current
            assert context is not None
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        if self._open:
            self._read()
        else:
            self._shake_hands()

    def serve_busy(self, data: bytes, fd: int) -> None:
        """Do the same while a script of another client runs, and write the answer to the socket."""
        raw, self._raw, self._busy = self._raw, _DirectWriter(self._raw, fd), True
        try:
            self.data_received(data)
        finally:
            self._raw, self._busy = raw, False

    @property
    def can_serve_busy(self) -> bool:
        """Whether the client can be served while a script of another client runs."""
        waits = self._open and (self._paused or not self._connection.settled)
        return not waits and not self.is_closing() and not self._raw.get_write_buffer_size()

    def take_transport(self, transport: Any) -> None:
        """Use another transport of the same socket from now on."""
        self._raw = transport

    def _shake_hands(self) -> None:
        assert self._ssl is not None
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, OSError, ValueError) as error:
            LOGGER.info("Error accepting a client connection: %s", error)
            self._flush()  # the alert
            self._closed = True
            self._raw.close()
            return
        self._open = True
        self._handshakes.waiting.pop(self, None)
        self._flush()
        self._connection.connection_made(self)  # type: ignore[arg-type]
        self._log_in()
        self._read()

    def _log_in(self) -> None:
        """Log the client in as the user that its certificate names (tls-auth-clients-user)."""
        settings = self._handshakes.engine.settings
        assert self._ssl is not None
        if settings.tls_auth_clients_user == "off" or self._connection.transport is None:
            return
        names = [name.encode() for name in users_in(self._ssl.getpeercert(), settings.tls_auth_clients_user)]
        name = self._handshakes.engine.acl.log_in_by_certificate(self._connection.session, names)
        if name:
            shown = "*redacted*" if settings.hide_user_data_from_log else name.decode()
            say(f"TLS: Auto-authenticated client as {shown}", VERBOSE)

    def _read(self) -> None:
        assert self._ssl is not None
        try:
            while not self._closed and not self._paused:
                data = self._ssl.read(_READ)
                if not data:
                    self._end_of_data()
                    return
                if self._busy:
                    self._answer_busy(data)
                else:
                    self._connection.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._end_of_data()
        except (ssl.SSLError, OSError) as error:
            LOGGER.info("TLS error of client %s: %s", self._connection.peer, error)
            self._flush()
            self.abort()
            return
        self._flush()  # answers of the TLS layer itself

    def _answer_busy(self, data: bytes) -> None:
        replies = self._connection.run_busy(data)
        if replies:
            self.write(replies)
        if self._connection.session.closing:
            self.close()

    def _end_of_data(self) -> None:
        """The client has closed its side."""
        if not self._connection.eof_received():
            self.close()

    def eof_received(self) -> bool:
        """Close the connection after the pending replies."""
        return self._open and not self._closed and self._connection.eof_received()

    def pause_writing(self) -> None:
        """Forward the event loop's call."""
        if self._open:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Forward the event loop's call."""
        if self._open:
            self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Unregister the client."""
        self._closed = True
        self._handshakes.waiting.pop(self, None)
        if self._open:
            self._connection.connection_lost(error)

    # -- the transport of the connection -------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send bytes."""
        if self._closed:
            return
        assert self._ssl is not None
        view = memoryview(data)
        while len(view):
            view = view[self._ssl.write(view) :]
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that wait for the client."""
        return int(self._raw.get_write_buffer_size())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the event loop's information, or `ssl_object`."""
        return self._ssl if name == "ssl_object" else self._raw.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Deliver no data until resume_reading."""
        self._paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Deliver the data that has arrived meanwhile, in the next loop iteration."""
        if self._paused:
            self._paused = False
            self._raw.resume_reading()
            self._handshakes.loop.call_soon(self._continue)

    def _continue(self) -> None:
        if not self._closed and not self._paused:
            self._read()

    def is_closing(self) -> bool:
        """Return whether the connection is closed or about to be."""
        return self._closed or bool(self._raw.is_closing())

    def close(self) -> None:
        """Send the waiting bytes and TLS's goodbye, then close the socket."""
        if self._closed:
            return
        assert self._ssl is not None
        try:
            self._ssl.unwrap()
        except (ssl.SSLError, OSError):
            pass  # the client's goodbye is not awaited
        self._flush()
        self._closed = True
        self._raw.close()

    def abort(self) -> None:
        """Close the socket now, and drop waiting bytes."""
        self._closed = True
        self._raw.abort()
