"""An OpenID Connect provider for tests: discovery, token and userinfo endpoint, with the code flow and PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CLIENT_ID, CLIENT_SECRET = "console", "secret-of-the-client"


@dataclass
class Provider:
    """A running provider. ``authorize`` stands for the user who signs in there."""

    address: str = ""
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def authorize(self, url: str, claims: dict[str, Any], *, userinfo: dict[str, Any] | None = None) -> dict[str, str]:
        """Return the parameters of the redirect back to the client, after a sign-in as the user with these claims."""
        requested = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert requested["response_type"] == "code"
        assert requested["client_id"] == CLIENT_ID
        assert requested["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = {**requested, "claims": claims, "userinfo": claims if userinfo is None else userinfo}
        return {"code": code, "state": requested["state"]}

    def exchange(self, form: dict[str, str], basic: str) -> dict[str, Any] | None:
        """Return the tokens for a code; None if the client or the code is wrong. A code is exchanged once."""
        given = self.codes.pop(form.get("code", ""), None)
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if given is None or (form.get("client_secret") != CLIENT_SECRET and basic != f"Basic {expected}"):
            return None
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(verifier).decode().rstrip("=") != given["code_challenge"]:
            return None
        if form.get("redirect_uri") != given["redirect_uri"]:
            return None
        token, now = secrets.token_urlsafe(16), int(time.time())
        self.tokens[token] = given["userinfo"]
        id_token = {"iss": self.address, "aud": CLIENT_ID, "iat": now, "exp": now + 60, **given["claims"]}
        return {"access_token": token, "token_type": "Bearer", "id_token": _unsigned(id_token)}


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Run a provider on a free port of this machine."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/.well-known/openid-configuration":
                paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "userinfo_endpoint": "userinfo"}
                found = {name: f"{provider.address}/{path}" for name, path in paths.items()}
                self._reply({"issuer": provider.address, "jwks_uri": f"{provider.address}/jwks", **found})
            elif self.path == "/userinfo":
                self._reply(provider.tokens.get(self.headers.get("Authorization", "").removeprefix("Bearer ")))
            else:
                self._reply(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            response = provider.exchange(form, self.headers.get("Authorization", ""))
            if response is None:
                provider.refused.append(self.path)
            self._reply(response)

        def _reply(self, content: dict[str, Any] | None) -> None:
            text = json.dumps(content or {"error": "invalid_grant"}).encode()
            self.send_response(200 if content is not None else 400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_args: Any) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield provider
        server.shutdown()
        thread.join()


def _unsigned(claims: dict[str, Any]) -> str:
    parts = ({"alg": "HS256", "kid": "test"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join([*encoded, "c2lnbmF0dXJl"])
