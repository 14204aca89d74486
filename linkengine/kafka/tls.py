"""The TLS settings of a cluster address as a Python ``ssl`` context. Keys pass through a private temporary file."""

from __future__ import annotations

import ssl
import tempfile
from functools import lru_cache

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError


@lru_cache(maxsize=32)
def client_context(address: ClusterAddress) -> ssl.SSLContext:
    """Return the TLS context of ``address``; raise MISCONFIGURATION_ERROR if a PEM cannot be read."""
    try:
        context = ssl.create_default_context(cadata=address.ssl_ca_pem or None)
        context.check_hostname = address.ssl_check_hostname
        if address.ssl_certificate_pem or address.ssl_key_pem:
            _load_identity(context, address)
    except (ssl.SSLError, ValueError) as error:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"The TLS settings cannot be used ({error}). Set ssl.truststore.certificates, ssl.keystore.certificate.chain "
            "and ssl.keystore.key to PEM text.",
        ) from error
    return context


def _load_identity(context: ssl.SSLContext, address: ClusterAddress) -> None:
    # The ssl module reads client certificates from files only; the file is readable by this user only and deleted at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{address.ssl_key_pem}\n{address.ssl_certificate_pem}\n")
        file.flush()
        context.load_cert_chain(file.name, password=address.ssl_key_password or None)
