"""A certificate of our own for a server on loopback."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def own_authority(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server on 127.0.0.1 speaks TLS with, and the certificate that a client must trust for it."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("needs the openssl program to make a certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
