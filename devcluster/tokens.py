"""A token endpoint for development: issues signed tokens to clients that send their secret, and serves its public key.

RFC 6749 section 4.4 (client credentials), RFC 7519 (JWT), RFC 7517 (JWKS). Serves plain HTTP on the loopback interface.
"""

import json
import secrets
import time
from base64 import b64decode, urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from devcluster.listeners import AUDIENCE, ISSUER
from devcluster.ports import LOOPBACK

LIFETIME_S = 300


class TokenEndpoint:
    """A token endpoint for the clients (id to secret) in `clients`; also a context manager that starts and stops it."""

    def __init__(self, clients: dict[str, str] | None = None, *, life_s: int = LIFETIME_S) -> None:
        """Bind a port without serving yet."""
        self.clients = clients or {"link": secrets.token_hex(16)}
        self.given = 0  # number of issued tokens
        self.life_s = life_s
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler_for(self))
        self._thread = Thread(target=self._server.serve_forever, name="tokens", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the token endpoint."""
        return f"http://{LOOPBACK}:{self._server.server_port}/token"

    @property
    def jwks_url(self) -> str:
        """The URL of the public key, for brokers."""
        return f"http://{LOOPBACK}:{self._server.server_port}/jwks"

    def client_properties(self, client: str = "link", *, scope: str = "kafka") -> dict[str, str]:
        """Return the SASL properties of the Java clients."""
        login = f'clientId="{client}" clientSecret="{self.clients[client]}" scope="{scope}"'
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{module} required {login};",
            "sasl.oauthbearer.token.endpoint.url": self.url,
        }

    def token(self, client: str, *, scope: str) -> dict[str, Any]:
        """Return a new token for an authenticated client."""
        now = int(time.time())
        self.given += 1
        head = {"alg": "RS256", "typ": "JWT", "kid": "1"}
        body = {"iss": ISSUER, "sub": client, "aud": AUDIENCE, "scope": scope, "iat": now, "exp": now + self.life_s}
        signed = f"{_base64(json.dumps(head).encode())}.{_base64(json.dumps(body).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return {"access_token": f"{signed}.{_base64(signature)}", "token_type": "Bearer", "expires_in": self.life_s}

    def keys(self) -> dict[str, Any]:
        """Return the public key as JWKS."""
        numbers = self._key.public_key().public_numbers()
        modulus = numbers.n.to_bytes(256, "big")
        exponent = numbers.e.to_bytes(3, "big")
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": _base64(modulus), "e": _base64(exponent)}
        return {"keys": [key]}

    def __enter__(self) -> Self:
        """Start to serve requests."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler_for(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send_json(200, endpoint.keys())

        def do_POST(self) -> None:
            fields = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
            client, secret = _login(self.headers.get("Authorization", ""))
            if fields.get("grant_type") != ["client_credentials"]:
                self._send_json(400, {"error": "unsupported_grant_type"})
            elif not secret or endpoint.clients.get(client) != secret:
                self._send_json(401, {"error": "invalid_client"})
            else:
                self._send_json(200, endpoint.token(client, scope=fields.get("scope", [""])[0]))

        def _send_json(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


def _login(header: str) -> tuple[str, str]:
    client, _, secret = b64decode(header.removeprefix("Basic ")).decode().partition(":")
    return unquote(client), unquote(secret)


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
