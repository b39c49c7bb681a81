"""A blocking connection to one server: the protocol of protocol.py on a socket, a Unix socket or TLS.

A thread uses one connection at a time and takes all replies to one request before it sends a request of another kind.
Bulk readers take the bytes of a reply without parsing it: `receive` reads from the socket straight into the buffer of
a decoder (columns/receive_buffer.py). All other replies are small and go through the parser.

**The time limit for replies.** With `reply_timeout`, a server that is stopped or hangs makes a call fail (TimedOut)
instead of wait. The kernel measures the time (SO_RCVTIMEO, SO_SNDTIMEO), which costs nothing; a timeout of Python's
socket would add a poll to each call. A command that waits in the server may take so much longer: `until`. While one
waits without limit, the client asks on another connection whether the server answers, once in that time.
"""

from __future__ import annotations

import contextlib
import functools
import math
import select
import selectors
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from rillet.client.address import Address, Tls
from rillet.client.block_time import block_seconds_of_all
from rillet.client.errors import ConnectionLost, ConnectorError, TimedOut, refused
from rillet.client.protocol import ClientProtocol, pack_all
from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError
from rillet.real_time import monotonic

ONE_CALL = 1 << 12  # a Unix socket takes so many bytes at once or not at all
RECEIVE = 1 << 18  # maximum bytes per system call; larger calls are not faster
_ONE_REPLY = 1 << 12  # for the reply to one command, most often; allocated in a tenth of a larger buffer's time
_REPLY = 1 << 16  # for replies that are parsed: a larger buffer would be allocated anew for each reply
_KERNEL_TIMEOUTS = sys.platform in ("linux", "darwin")
_OTHER_HOST = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_OTHER_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# select() fails for file descriptors above 1023; Windows has no poll().
_Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)


def ready(connections: Iterable[Connection], seconds: float | None, writing: bool = False) -> bool:
    """Wait up to `seconds` until a connection has bytes (`writing`: or can accept bytes); return whether one has."""
    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
    with _Selector() as selector:
        for connection in connections:
            selector.register(connection, events)
        return bool(selector.select(seconds))


@functools.lru_cache(8)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the SSL context for a connection; loading the system's certificates takes some milliseconds."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConnectorError(f"rillet: caFile {tls.ca_file} cannot be used: {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        except (OSError, ssl.SSLError) as error:
            files = " with keyFile ".join(filter(None, (tls.cert_file, tls.key_file)))
            raise ConnectorError(f"rillet: certFile {files} cannot be used: {error}") from error
    return context


def certificate_advice(error: ssl.SSLCertVerificationError) -> str:
    """Return the remedy for a certificate that was rejected."""
    if error.verify_code in _OTHER_HOST:
        return "connect to a name or an address that the certificate names"
    if error.verify_code in _OTHER_TIME:
        return "renew the certificate, or set the clock of this machine"
    return "set caFile to the certificate of the authority"


def _host(name: str) -> Any:
    """Return a host name as bytes if it is ASCII: for text, Python would import its codec for international names.

    A signal handler that connects as well would deadlock in the middle of that import, and an exception there would
    leave the codec unusable for the rest of the process.
    """
    return name.encode() if name.isascii() else name


class Connection:
    """A connected socket; a context manager. `timeout` is in seconds, None waits without limit.

    reply_timeout: seconds within which the server must answer, in addition to the time that a command itself waits;
    TimedOut if it does not.
    """

    replica = False  # whether the server is a replica, which may lag behind its master; set by Servers
    lost = False  # True after the connection broke
    has_state = False  # set by callers that changed the connection's state (SELECT, MULTI, WATCH)

    until = 0.0  # `monotonic` time until which the reply may take longer than reply_timeout

    def __init__(self, address: Address, timeout: float | None, reply_timeout: float | None = None) -> None:
        self.address = address
        self._reply_timeout = reply_timeout
        self._socket = self._connect(timeout)
        try:
            self._poll: Any = None
            if hasattr(select, "poll"):
                self._poll = select.poll()
                self._poll.register(self._socket, select.POLLIN)
            self._protocol = ClientProtocol(address)
            opening = self._protocol.open()
            if opening:
                self.send(opening)
                while not self._protocol.opened:
                    self._protocol.next_reply()
                    if not self._protocol.opened:
                        self._feed()
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionLost):
                error.sent = False
            raise

    def _connect(self, timeout: float | None) -> socket.socket:
        connected: socket.socket | None = None
        try:
            if self.address.unix is None:
                first = timeout if self._reply_timeout is None else self._reply_timeout
                connected = socket.create_connection((_host(self.address.host), self.address.port), first)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.address.tls is not None:
                    connected = self._encrypted(connected, self.address.tls)
                self._limit(connected, timeout)
                return connected
            if not hasattr(socket, "AF_UNIX"):
                raise ConnectorError(f"rillet: {self.address}: this system has no Unix sockets")
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._limit(connected, timeout)
            connected.connect(self.address.unix)
            return connected
        except BaseException as error:
            # Also after an interrupt, whose traceback would keep the socket open, and so an owner process alive.
            if connected is not None:
                connected.close()
            if not isinstance(error, OSError):
                raise
            if self._reply_timeout is not None and isinstance(error, (BlockingIOError, TimeoutError)):
                late = self._late()
                late.sent = False
                raise late from error
            raise ConnectionLost.before(f"rillet: no server answers at {self.address}: {error}") from error

    def _limit(self, connected: socket.socket, timeout: float | None) -> None:
        """Set the timeouts of the socket."""
        seconds = self._reply_timeout
        # A TLS connection ignores the kernel's timeouts.
        if seconds is None or not _KERNEL_TIMEOUTS or isinstance(connected, ssl.SSLSocket):
            connected.settimeout(timeout if seconds is None else seconds)
            return
        connected.settimeout(None)
        fraction, whole = math.modf(max(seconds, 1e-6))  # 0 would mean without limit
        interval = struct.pack("ll", int(whole), int(fraction * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connected.setsockopt(socket.SOL_SOCKET, option, interval)

    def _encrypted(self, connected: socket.socket, tls: Tls) -> ssl.SSLSocket:
        """Perform the TLS handshake; raise ConnectorError, without a retry, if a certificate is rejected."""
        try:
            return tls_context(tls).wrap_socket(connected, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            connected.close()
            raise ConnectorError(
                f"rillet: the certificate of {self.address} is not accepted: {error.verify_message} "
                f"({certificate_advice(error)})"
            ) from error
        except ssl.SSLError as error:
            connected.close()
            raise ConnectorError(f"rillet: TLS with {self.address} failed: {error.reason or error}") from error
        except TimeoutError as error:
            connected.close()
            failure = f"rillet: TLS with {self.address} failed: the server does not answer"
            raise ConnectionLost.before(failure) from error
        except BaseException:
            connected.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __del__(self) -> None:
        # An interrupted call may have lost the connection.
        if hasattr(self, "_socket"):
            self._socket.close()

    def interrupt(self) -> None:
        """Wake the thread that waits for a reply (close() alone does not wake it). May be called from any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        """Return the file descriptor of the socket, for select and poll."""
        return self._socket.fileno()

    def stale(self) -> bool:
        """Return whether the server has closed this idle connection; all replies must have been read before."""
        if self._poll is None:
            return ready([self], 0)
        return bool(self._poll.poll(0))

    # ---- sending and receiving bytes ----

    def send(self, data: bytes | bytearray) -> None:
        """Send the bytes of commands in RESP encoding.

        If a Unix socket was closed before, nothing of at most ONE_CALL bytes was sent: ConnectionLost.sent is False.
        """
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost_at_send(error, len(data)) from error

    def exchange(self, data: bytes) -> Any:
        """Send one command that does not wait in the server, of at most ONE_CALL bytes, and return its reply.

        All replies to earlier commands must have been read.
        """
        try:
            self._socket.sendall(data)
        except OSError as error:
            lost = self._lost_at_send(error, len(data))
            if isinstance(lost, TimedOut):
                lost.sent = False
            raise lost from error
        try:
            received = self._socket.recv(_ONE_REPLY)
        except OSError as error:
            raise self._lost(error) from error
        if not received:
            raise self._lost(None)
        protocol = self._protocol
        protocol.feed(received)
        reply = protocol.next_reply()
        return self.reply() if reply is INCOMPLETE else reply

    def send_large(self, data: bytes) -> None:
        """Send commands of any size in RESP encoding; read replies meanwhile, so that neither side blocks."""
        view = memoryview(data)
        timeout = self._socket.gettimeout()
        patience = self._reply_timeout if timeout is None else timeout
        try:
            self._socket.setblocking(False)
            while view:
                with contextlib.suppress(*_BLOCKED):
                    view = view[self._socket.send(view[:RECEIVE]) :]
                    continue
                self._wait(patience)
                with contextlib.suppress(*_BLOCKED):
                    self._feed_received(self._socket.recv(RECEIVE))
        except OSError as error:
            raise self._lost(error) from error
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(timeout)

    def _wait(self, timeout: float | None) -> None:
        """Wait until the socket can accept bytes or has received some."""
        if not ready([self], timeout, writing=True):
            raise TimeoutError("timed out")

    def receive(self, decoder: ReceiveBuffer) -> None:
        """Wait for more bytes of the reply and read them into the decoder's buffer."""
        try:
            with decoder.space(RECEIVE) as room:
                received = self._socket.recv_into(room)  # a bulk read does not wait in the server
        except OSError as error:
            raise self._lost(error) from error
        if not received:
            raise self._lost(None)
        decoder.filled(received)

    def receive_bytes(self) -> bytes:
        """Wait for bytes that are not replies, and return them; all replies must have been read before."""
        try:
            received = self._socket.recv(RECEIVE)
        except OSError as error:
            raise self._lost(error) from error
        if not received:
            raise self._lost(None)
        return received

    def receive_within(self, seconds: float) -> bytes:
        """Return bytes that are not replies, b"" if none arrive in that time; see `receive_bytes`."""
        if self._socket.gettimeout() != seconds:
            self._socket.settimeout(seconds)
        try:
            received = self._socket.recv(RECEIVE)
        except (*_BLOCKED, TimeoutError):
            return b""
        except OSError as error:
            raise self._lost(error) from error
        if not received:
            raise self._lost(None)
        return received

    def _feed(self) -> None:
        """Wait for more bytes and add them to the parser."""
        while True:
            try:
                received = self._socket.recv(_REPLY)
                break
            except (BlockingIOError, TimeoutError) as error:
                if not self._waits_longer():
                    raise self._lost(error) from error
            except OSError as error:
                raise self._lost(error) from error
        self._feed_received(received)

    def _waits_longer(self) -> bool:
        """Return whether to continue to wait for the reply, after reply_timeout.

        A command that waits without limit waits as long as the server answers on another connection.
        """
        left = self.until - monotonic()
        return self._server_answers() if left == math.inf else left > 0 and ready([self], left)

    def _server_answers(self) -> bool:
        """Return False if the server accepts connections, and does not answer on a new one."""
        try:
            with Connection(self.address, None, self._reply_timeout) as other:
                other.replies([[b"PING"]])
        except TimedOut:
            return False
        except ConnectorError:  # too many clients, or the server ended: this connection will show it
            return True
        return True

    def _feed_received(self, received: bytes) -> None:
        if not received:
            raise self._lost(None)
        self._protocol.feed(received)

    # ---- commands ----

    def call(self, *words: bytes) -> Any:
        """Send one command and return its reply; an error reply raises ConnectorError."""
        return self.calls([words])[0]

    def calls(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands at once and return their replies; the first error reply raises ConnectorError."""
        replies = self.replies(commands)
        self.check(commands, replies)
        return replies

    def replies(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands at once and return their replies, with a ReplyError for each error reply."""
        self.send_all(commands)
        return [self.reply() for _ in commands]

    def send_all(self, commands: Sequence[Sequence[bytes]]) -> None:
        """Encode and send commands; the caller must read one reply for each."""
        if self._reply_timeout is not None:
            self.wait_longer(block_seconds_of_all(commands))
        data = pack_all(commands)
        if len(data) > RECEIVE:
            self.send_large(data)
        else:
            self.send(data)

    def wait_longer(self, seconds: float) -> None:
        """Let the reply to the next command take so many seconds longer."""
        self.until = monotonic() + seconds + (self._reply_timeout or 0.0) if seconds else 0.0

    def check(self, commands: Sequence[Sequence[bytes]], replies: Sequence[Any]) -> None:
        """Raise ConnectorError for the first error among the replies; return the replies if there is none."""
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise refused(self.address, words[0].decode(), str(reply))

    def reply(self) -> Any:
        """Wait for one reply and return it; a ReplyError for an error reply."""
        while (reply := self._protocol.next_reply()) is INCOMPLETE:
            self._feed()
        return reply

    def reply_within(self, seconds: float | None) -> Any:
        """Wait for one reply and return it; INCOMPLETE if none arrives within `seconds`."""
        reply = self._protocol.next_reply()
        timeout = self._socket.gettimeout()
        while reply is INCOMPLETE:
            try:
                self._socket.settimeout(seconds)
                received = self._socket.recv(RECEIVE)
            except (*_BLOCKED, TimeoutError):
                break
            except OSError as error:
                raise self._lost(error) from error
            finally:
                with contextlib.suppress(OSError):
                    self._socket.settimeout(timeout)
            self._feed_received(received)
            reply = self._protocol.next_reply()
        return reply

    def _lost_at_send(self, error: OSError, size: int) -> ConnectorError:
        """Return the error for a failed send: nothing was sent on a Unix socket that was closed before."""
        lost = self._lost(error)
        if isinstance(lost, ConnectionLost) and isinstance(error, BrokenPipeError):
            lost.sent = self.address.unix is None or size > ONE_CALL
        return lost

    def _lost(self, error: OSError | None) -> ConnectorError:
        """Return the error for a lost connection: ConnectionLost, unless a TLS server rejected the certificate."""
        self.lost = True
        if self._reply_timeout is not None and isinstance(error, (BlockingIOError, TimeoutError)):
            return self._late()
        if isinstance(error, ssl.SSLError) and error.reason and not isinstance(error, ssl.SSLEOFError):
            return ConnectorError(f"rillet: {self.address} ended TLS: {error.reason} (certFile, keyFile)")
        hint = ""
        if isinstance(error, ssl.SSLEOFError) and self.address.tls is not None and self.address.tls.cert_file is None:
            hint = " (a server that requires a client certificate may end TLS like this: certFile, keyFile)"
        lost = error or "closed by the server"
        return ConnectionLost(f"rillet: the connection to {self.address} was lost: {lost}{hint}")

    def _late(self) -> TimedOut:
        return TimedOut(f"rillet: {self.address} did not answer within {self._reply_timeout:g} s")
