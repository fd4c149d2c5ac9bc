"""Certificates for the tests of TLS: one authority per process, a certificate for `localhost` and 127.0.0.1."""

import ssl
from functools import cache
from pathlib import Path

import trustme

from cronoq._runtime.tls import GRPC_PROTOCOLS, server_context
from cronoq_sansio.settings import TlsSettings


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def certificate() -> trustme.LeafCert:
    return authority().issue_cert("localhost", "127.0.0.1")


def write(folder: Path) -> TlsSettings:
    """The certificate and its key as files, and the authority's certificate as `ca.pem`."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in certificate().cert_chain_pems))
    key.write_bytes(certificate().private_key_pem.bytes())
    authority().cert_pem.write_to_path(str(folder / "ca.pem"))
    return TlsSettings(str(cert), str(key))


def server_side(folder: Path) -> ssl.SSLContext:
    return server_context(write(folder), GRPC_PROTOCOLS)


def client_side(*protocols: str) -> ssl.SSLContext:
    """A client that trusts the authority; ALPN offers `protocols`, by default `h2`."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    context.set_alpn_protocols(list(protocols or ("h2",)))
    return context
