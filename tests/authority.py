"""Certificates for tests of TLS, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass
class Authority:
    """An authority's certificate, a server's for the name localhost, and clients'."""

    folder: Path

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.folder / name)

    def make(self, *words: str) -> None:
        """Run openssl in the folder."""
        subprocess.run(["openssl", *words], check=True, cwd=self.folder, capture_output=True)

    def certify(self, name: str, alternatives: str, common_name: str = "") -> None:
        """Make name.key and name.crt, signed by the authority."""
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={alternatives}\n")
        self.make("req", *_NEW_KEY, "-nodes", "-keyout", f"{name}.key",
                  "-out", f"{name}.csr", "-subj", f"/CN={common_name or name}")  # fmt: skip
        self.make("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                  "-out", f"{name}.crt", "-days", "30", "-extfile", f"{name}.ext")  # fmt: skip


def make_authority(folder: Path) -> Authority:
    """Return an authority with certificates `server` and `client`; skip the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (Debian: apt-get install openssl)")
    made = Authority(folder)
    made.make("req", "-x509", *_NEW_KEY, "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "30",
              "-subj", "/CN=tests", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    made.certify("server", "DNS:localhost")
    made.certify("client", "DNS:client")
    return made
