"""The settings of TLS, with Redis's names (Redis: tls.c, config.c). rillet.server.tls applies them.

The names of files are read again whenever one of them is set, also to the same value, so `CONFIG SET tls-cert-file X`
loads a renewed certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.runtime.settings.setting_types import INT_MAX, NEVER, SettingType, boolean, integer, one_of, string, words

if TYPE_CHECKING:
    from rillet.runtime.settings.settings import Settings


def _user_field(word: str, settings: Settings) -> str:
    """Return the field of a certificate that names the user; Valkey has one more."""
    return one_of(word, ("CN", "URI", "off") if settings.compat.valkey else ("CN", "off"))


TLS = [
    integer("tls-port", "TCP port for TLS; 0: none", 0, 0, 65535, needs_host=True),
    string("tls-cert-file", "File of the server's certificate and its chain, in PEM", "", null=True, volatile=True),
    string("tls-key-file", "File of the certificate's private key, in PEM", "", null=True, volatile=True),
    string("tls-key-file-pass", "Passphrase of the private key", "", null=True),
    string("tls-ca-cert-file", "File of the authorities that may sign clients' certificates", "",
           null=True, volatile=True),
    string("tls-ca-cert-dir", "Directory of the authorities that may sign clients' certificates, by their hashes",
           "", null=True, volatile=True),
    string("tls-dh-params-file", "File of the Diffie-Hellman parameters for TLS 1.2; empty: built in", "",
           null=True, volatile=True),
    words("tls-auth-clients", "Whether clients need a certificate; optional: one that is sent must be valid",
          "yes", ("no", "yes", "optional")),
    SettingType("tls-auth-clients-user", "Field of a client's certificate that names its user (CN); off: none",
                "off", str, adapt=_user_field, since=86),
    string("tls-protocols", "Accepted versions, for example \"TLSv1.2 TLSv1.3\"; empty: these two", "", null=True),
    string("tls-ciphers", "Ciphers of TLS 1.2 and older, in OpenSSL's syntax; empty: Python's default", "", null=True),
    string("tls-ciphersuites", "Cipher suites of TLS 1.3, in OpenSSL's syntax; empty: OpenSSL's default", "",
           null=True),
    boolean("tls-prefer-server-ciphers", "Whether the server's order of ciphers decides, not the client's", False),
    integer("tls-auto-reload-interval", "Seconds after which changed files of certificates are loaded again; 0: never",
            0, 0, INT_MAX, since=NEVER),
]  # fmt: skip
