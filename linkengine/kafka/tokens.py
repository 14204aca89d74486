"""Bearer tokens for SASL OAUTHBEARER: fetched by a client's id and secret (RFC 6749 section 4.4, KIP-768), used until old.

One token per endpoint and client serves all connections of a process. Must not know brokers. Messages never hold a secret or a
token.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from http.client import HTTPException
from threading import Lock
from typing import Any
from urllib.parse import quote, urlencode

from kafka.net.sasl.oauth import AbstractTokenProvider

from linkengine.domain.addresses import ClusterAddress, check_token_url
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.tls import client_context

FETCH_TIMEOUT_S = 5.0
MAX_ANSWER = 1 << 20  # bytes; a token is a few thousand
USED_SHARE = 0.8  # of a token's life; a clock that is a little off must not matter
LONGEST_LIFE_S = 30 * 86_400.0
LIFE_UNKNOWN_S = 60.0  # of a token whose endpoint does not say
_lock = Lock()
_tokens: dict[tuple[str, str, str, str], _Token] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    text: str
    use_until: float  # monotonic clock


class BearerTokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types here
    """What kafka-python's OAUTHBEARER conversation asks for a token."""

    def __init__(self, address: ClusterAddress) -> None:
        super().__init__()
        self._address = address

    def token(self) -> str:
        """Answer a token that is still good; raise AUTHENTICATION_ERROR or TIMEOUT_ERROR where there is none to be had."""
        return bearer_token(self._address)

    def extensions(self) -> dict[str, str]:
        """Answer what else the broker is told."""
        return dict(self._address.oauth_extensions)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The client's secret goes to the endpoint that was named and to nobody it points to."""

    def redirect_request(self, *_: object) -> None:
        """Answer that none is followed: the redirect becomes an error."""


def bearer_token(address: ClusterAddress) -> str:
    """Answer a token of ``address``'s client, from memory while it is good."""
    key = (address.oauth_token_url, address.sasl_username, address.sasl_password, address.oauth_scope)
    with _lock:  # the second of two connections waits for the first one's token
        known = _tokens.get(key)
        if known is None or known.use_until <= time.monotonic():
            known = _tokens[key] = _fetch(address)
        return known.text


def _fetch(address: ClusterAddress) -> _Token:
    asked_at = time.monotonic()
    answer = _ask(address)
    text = answer.get("access_token")
    if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()):
        raise _refused(address, "its answer holds no access_token")
    life = answer.get("expires_in")
    life_s = min(float(life), LONGEST_LIFE_S) if isinstance(life, int | float) and 0 < life < 1 << 53 else LIFE_UNKNOWN_S
    return _Token(text=text, use_until=asked_at + life_s * USED_SHARE)


def _ask(address: ClusterAddress) -> dict[str, Any]:
    check_token_url(address.oauth_token_url)
    request = _request(address)
    tls = [urllib.request.HTTPSHandler(context=client_context(address))] if request.type == "https" else []
    try:
        with urllib.request.build_opener(_NoRedirects, *tls).open(request, timeout=FETCH_TIMEOUT_S) as response:
            answer = json.loads(response.read(MAX_ANSWER).decode())
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(address, f"it answered {error.code}") from error
    except (ValueError, RecursionError) as error:
        raise _refused(address, "its answer is not JSON") from error
    except HTTPException as error:  # what answers there does not speak HTTP
        raise _refused(address, f"its answer cannot be read ({type(error).__name__})") from error
    except OSError as error:  # no connection, no name, no answer in time
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR,
            f"The token endpoint {address.oauth_token_url} does not answer ({error}). Check the URL and that it can be reached "
            "from the machines that copy.",
        ) from error
    return answer if isinstance(answer, dict) else {}


def _request(address: ClusterAddress) -> urllib.request.Request:
    login = f"{quote(address.sasl_username, safe='')}:{quote(address.sasl_password, safe='')}"
    fields = {"grant_type": "client_credentials"} | ({"scope": address.oauth_scope} if address.oauth_scope else {})
    headers = {
        "Authorization": "Basic " + b64encode(login.encode()).decode(),
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return urllib.request.Request(  # noqa: S310 - the address allows http and https only
        address.oauth_token_url, data=urlencode(fields).encode(), headers=headers, method="POST"
    )


def _refused(address: ClusterAddress, why: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.AUTHENTICATION_ERROR,
        f"The token endpoint {address.oauth_token_url} gave client {address.sasl_username!r} no token: {why}. Correct "
        "clientId, clientSecret and scope in sasl.jaas.config; copying goes on by itself then.",
    )
