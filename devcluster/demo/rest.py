"""A client of the console's REST API, as a user would write it: HTTP Basic, JSON, no library.

The paths are those of Kafka REST v3 with cluster linking, and the product's additions below /api/v1.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

TIMEOUT_S = 30.0


class RestError(RuntimeError):
    """The console refused a request; the message is the console's."""


class Rest:
    """The REST API of a console with an API key."""

    def __init__(self, *, base_url: str, key: str, secret: str) -> None:
        """Set the address and the API key."""
        self._base_url = base_url
        self._authorization = "Basic " + base64.b64encode(f"{key}:{secret}".encode()).decode()

    def get(self, path: str) -> Any:
        """Return the decoded JSON of a resource."""
        return self._send("GET", path, None)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Send a JSON body; return the decoded JSON, or None for an empty response."""
        return self._send("POST", path, json.dumps(body).encode())

    def _send(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Authorization": self._authorization, "Accept": "application/json", "Content-Type": "application/json"}
        request = urllib.request.Request(self._base_url + path, data=body, method=method, headers=headers)  # noqa: S310 - own address
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - own address
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise RestError(f"{method} {path} returned {error.code}: {text[:500]}") from error
        except (urllib.error.URLError, TimeoutError) as error:
            raise RestError(f"{method} {path} got no response: {error}. See the log of the web process.") from error


def link_path(cluster_id: str, link: str) -> str:
    """Return the path of a link below a REST prefix."""
    return f"/clusters/{quote(cluster_id)}/links/{quote(link)}"
