"""A client of the REST API: Kafka REST v3 with cluster linking, HTTP Basic or bearer, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import quote

import httpx

from linkctl import __version__
from linkctl.errors import Exit, LinkctlError, exit_of
from linkctl.settings import Settings

TIMEOUT_S = 60.0  # creating a link asks two clusters, of which each may be slow
_PIECE = 1 << 20
_LAST_PORT = (1 << 16) - 1
PREFIX = "/kafka/v3"
OWN_PREFIX = "/api/v1"  # what Kafka REST has no words for
Json = dict[str, Any]


class RestClient:
    """The API of one service; every failure is a LinkctlError with the service's own sentence."""

    def __init__(self, settings: Settings, *, transport: httpx.BaseTransport | None = None) -> None:
        """Remember where and who; nothing is sent yet."""
        headers = {"Accept": "application/json", "User-Agent": f"linkctl/{__version__}"}
        auth = None if settings.token else httpx.BasicAuth(settings.api_key, settings.api_secret)
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        self._cluster = settings.cluster
        address = address_of(settings.url)
        self._http = httpx.Client(base_url=address, auth=auth, headers=headers, timeout=TIMEOUT_S, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def cluster_id(self) -> str:
        """Answer the chosen cluster, or the only one we may see."""
        if not self._cluster:
            known = [one["cluster_id"] for one in self.call("GET", f"{PREFIX}/clusters")["data"]]
            if len(known) != 1:
                listed = ", ".join(known) or "none"
                message = f"Say which cluster with --cluster or LINKCTL_CLUSTER. The API key may see: {listed}."
                raise LinkctlError(message, code=Exit.USAGE)
            self._cluster = known[0]
        return self._cluster

    def get(self, *parts: str, **query: object) -> Json:
        """Read below the cluster; parts are escaped."""
        found: Json = self.call("GET", self._path(parts), query=query)
        return found

    def send(self, method: str, *parts: str, body: Json | None = None, **query: object) -> Any:
        """Change something below the cluster; answer the JSON, None for an empty answer."""
        return self.call(method, self._path(parts), body=body, query=query)

    def get_own(self, *parts: str, **query: object) -> Json:
        """Read below the cluster what only this service has."""
        found: Json = self.call("GET", self._path(parts, prefix=OWN_PREFIX), query=query)
        return found

    def send_own(self, method: str, *parts: str, body: Json | None = None, **query: object) -> Any:
        """Change below the cluster what only this service has."""
        return self.call(method, self._path(parts, prefix=OWN_PREFIX), body=body, query=query)

    def download(self, *parts: str) -> Iterator[bytes]:
        """Answer a file of this service piece by piece."""
        try:
            with self._http.stream("GET", self._path(parts, prefix=OWN_PREFIX), headers={"Accept": "*/*"}) as answer:
                if not answer.is_success:
                    answer.read()
                    raise LinkctlError(_reason(answer), code=exit_of(answer.status_code))
                yield from answer.iter_raw(_PIECE)
        except httpx.TransportError as error:
            message = f"The download from {self._http.base_url} broke off: {error}. Try again."
            raise LinkctlError(message, code=Exit.UNAVAILABLE) from None

    def call(self, method: str, path: str, *, body: Json | None = None, query: dict[str, object] | None = None) -> Any:
        """Send one request; flags are written as true and false, what is None is left out."""
        given = {name: _query(value) for name, value in (query or {}).items() if value is not None}
        try:
            answer = self._http.request(method, path, json=body, params=given)
        except httpx.TransportError as error:
            message = f"{self._http.base_url} does not answer: {error}. Check the address and that the service runs."
            raise LinkctlError(message, code=Exit.UNAVAILABLE) from None
        if not answer.is_success:
            raise LinkctlError(_reason(answer), code=exit_of(answer.status_code))
        return _json(answer) if answer.content else None

    def _path(self, parts: tuple[str, ...], *, prefix: str = PREFIX) -> str:
        return "/".join((f"{prefix}/clusters", quote(self.cluster_id(), safe=""), *map(_segment, parts)))


def _segment(part: str) -> str:
    """Return a name as one segment of a path; dots alone would be taken out of an address on its way."""
    return {".": "%2E", "..": "%2E%2E"}.get(part) or quote(part, safe=":")


def address_of(url: str) -> httpx.URL:
    """Read the address of the service; raise LinkctlError for what nothing could be sent to, however long one waits."""
    try:
        address = httpx.URL(url.strip().rstrip("/"))
    except httpx.InvalidURL as error:
        raise _no_address(f"is no URL ({error})") from None
    if address.scheme not in ("http", "https"):
        raise _no_address("does not begin with https:// or http://")
    if not address.host or (address.port or 0) > _LAST_PORT:
        raise _no_address("names no host, or no port that there is")
    return address


def _no_address(why: str) -> LinkctlError:
    """The address itself is not repeated: it may hold a password."""
    where = "Give one like https://links.example.com by --url, LINKCTL_URL or the file's url"
    return LinkctlError(f"The address of the service {why}. {where}.", code=Exit.USAGE)


def _query(value: object) -> str | list[str]:
    return [_text(one) for one in value] if isinstance(value, list) else _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        message = f"{answer.url} does not answer JSON. Is it the address of the service?"
        raise LinkctlError(message, code=Exit.UNAVAILABLE) from None


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.request.method} {answer.url} was answered {answer.status_code} {answer.reason_phrase}."
