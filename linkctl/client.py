"""The HTTP client of the REST API, with its settings, and errors with the exit codes that scripts can check."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx
from click import ClickException

from linkctl import __version__

# --- errors -----------------------------------------------------------------------------------------------------------


class Exit(IntEnum):
    """Exit codes; 2 is also click's code for an invalid command line."""

    DONE = 0
    REFUSED = 1  # the service refused the request, or a topic of it
    USAGE = 2
    NOT_FOUND = 3  # no such cluster, link, mirror or topic
    NOT_ALLOWED = 4  # wrong API key, or a role is missing
    UNAVAILABLE = 5  # the service or a part of it does not respond, or there were too many requests: retry


_BY_STATUS = {401: Exit.NOT_ALLOWED, 403: Exit.NOT_ALLOWED, 404: Exit.NOT_FOUND, 429: Exit.UNAVAILABLE}


class LinkctlError(ClickException):
    """A failure with a message for the user; ``exit_code`` is a member of ``Exit``."""

    def __init__(self, message: str, *, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance, but annotates a class attribute


def _exit_of(status: int) -> Exit:
    """Return the exit code for the HTTP status of a failed request."""
    return _BY_STATUS.get(status, Exit.UNAVAILABLE if status >= 500 else Exit.REFUSED)


# --- settings ---------------------------------------------------------------------------------------------------------
#
# Address, credentials and cluster. Options take precedence over environment variables, and these over a file.
#
# The file contains a JSON object: {"url", "api_key", "api_secret", "token", "cluster"}. It is given by ``--file`` or
# ``LINKCTL_FILE``; the default is ``var/demo.json`` of a running demo in the current folder, or ``~/.config/linkctl.json``.
# There are no options for secrets, because all users of a machine can read command lines.


DEMO_FILE = Path("var/demo.json")
USER_FILE = Path("~/.config/linkctl.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Address of the service, credentials and cluster."""

    url: str
    api_key: str = ""
    api_secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    cluster: str = ""  # id of the destination cluster; "": the only visible cluster


def read_settings(
    *, options: Mapping[str, str | None], file: Path | None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings; raise LinkctlError if the address or the credentials are missing."""
    variables = os.environ if environment is None else environment
    named = file or (Path(variables["LINKCTL_FILE"]) if variables.get("LINKCTL_FILE") else None)
    stored = _read_file(named) if named else _first_file()
    values = {name: _pick(name, options, variables, stored) for name in Settings.__dataclass_fields__}
    if not values["url"]:
        raise _missing("the address of the service", "--url, LINKCTL_URL or the file's url")
    if not values["token"] and not (values["api_key"] and values["api_secret"]):
        raise _missing("an API key with its secret", "LINKCTL_API_KEY and LINKCTL_API_SECRET (or LINKCTL_TOKEN), or the file")
    return Settings(**values)


def _pick(name: str, options: Mapping[str, str | None], variables: Mapping[str, str], stored: Mapping[str, Any]) -> str:
    return str(options.get(name) or variables.get(f"LINKCTL_{name.upper()}") or stored.get(name) or "")


def _first_file() -> dict[str, Any]:
    for path in (DEMO_FILE, USER_FILE.expanduser()):
        if path.is_file():
            return _read_file(path)
    return {}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise LinkctlError(
            f"{path} cannot be read: {error}. Check the file, or give another with --file.", code=Exit.USAGE
        ) from None
    if not isinstance(found, dict):
        raise LinkctlError(f"{path} does not contain a JSON object. Check the file.", code=Exit.USAGE)
    return {**_demo_settings(found), **found}


def _demo_settings(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings from the file of a running demo, which has other field names."""
    clusters = found.get("clusters")
    destination = clusters.get("destination", {}) if isinstance(clusters, dict) else {}
    return {"url": found.get("base_url"), "cluster": destination.get("id")}


def _missing(setting: str, sources: str) -> LinkctlError:
    return LinkctlError(f"Missing: {setting}. Give it with {sources}.", code=Exit.USAGE)


# --- the client -------------------------------------------------------------------------------------------------------
#
# With HTTP Basic or bearer authentication.


TIMEOUT_S = 60.0  # creating a link contacts two clusters, each of which may be slow
_CHUNK_BYTES = 1 << 20
_LAST_PORT = (1 << 16) - 1
PREFIX = "/kafka/v3"
OWN_PREFIX = "/api/v1"  # resources that Kafka REST v3 does not have
Json = dict[str, Any]


class RestClient:
    """A client of a service. Every failure raises LinkctlError, with the service's error message if it returned a message."""

    def __init__(self, settings: Settings, *, transport: httpx.BaseTransport | None = None) -> None:
        """Create the client without sending anything; raise LinkctlError if the address is invalid."""
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
        """Return the id of the configured cluster, or of the only visible cluster; raise LinkctlError otherwise."""
        if not self._cluster:
            visible = [cluster["cluster_id"] for cluster in self.call("GET", f"{PREFIX}/clusters")["data"]]
            if len(visible) != 1:
                listed = ", ".join(visible) or "none"
                message = f"No cluster is chosen. Give it with --cluster or LINKCTL_CLUSTER. Visible clusters: {listed}."
                raise LinkctlError(message, code=Exit.USAGE)
            self._cluster = visible[0]
        return self._cluster

    def get(self, *parts: str, **query: object) -> Json:
        """Get a resource of the cluster; ``parts`` are the percent-encoded segments of its path below the cluster."""
        resource: Json = self.call("GET", self._path(parts), query=query)
        return resource

    def send(self, method: str, *parts: str, body: Json | None = None, **query: object) -> Any:
        """Send a request that changes a resource of the cluster; return the JSON, or None for an empty response."""
        return self.call(method, self._path(parts), body=body, query=query)

    def get_own(self, *parts: str, **query: object) -> Json:
        """Get a resource of the cluster below /api/v1."""
        resource: Json = self.call("GET", self._path(parts, prefix=OWN_PREFIX), query=query)
        return resource

    def send_own(self, method: str, *parts: str, body: Json | None = None, **query: object) -> Any:
        """Send a request that changes a resource below /api/v1; return the JSON, or None for an empty response."""
        return self.call(method, self._path(parts, prefix=OWN_PREFIX), body=body, query=query)

    def call_own(self, method: str, *parts: str, **query: object) -> Any:
        """Send a request to a resource below /api/v1 that belongs to no cluster; return the JSON, or None if it is empty."""
        return self.call(method, "/".join((OWN_PREFIX, *map(_segment, parts))), query=query)

    def download(self, *parts: str) -> Iterator[bytes]:
        """Yield the content of a file below /api/v1 in chunks."""
        try:
            with self._http.stream("GET", self._path(parts, prefix=OWN_PREFIX), headers={"Accept": "*/*"}) as response:
                if not response.is_success:
                    response.read()
                    raise LinkctlError(_reason(response), code=_exit_of(response.status_code))
                yield from response.iter_raw(_CHUNK_BYTES)
        except httpx.TransportError as error:
            message = f"The download from {self._http.base_url} was interrupted: {error}. Retry it."
            raise LinkctlError(message, code=Exit.UNAVAILABLE) from None

    def call(self, method: str, path: str, *, body: Json | None = None, query: dict[str, object] | None = None) -> Any:
        """Send a request and return the JSON, or None for an empty response.

        Query parameters that are None are omitted; booleans are sent as true and false.
        """
        parameters = {name: _query(value) for name, value in (query or {}).items() if value is not None}
        try:
            response = self._http.request(method, path, json=body, params=parameters)
        except httpx.TransportError as error:
            message = f"{self._http.base_url} does not respond: {error}. Check the address and that the service is running."
            raise LinkctlError(message, code=Exit.UNAVAILABLE) from None
        if not response.is_success:
            raise LinkctlError(_reason(response), code=_exit_of(response.status_code))
        return _json(response) if response.content else None

    def _path(self, parts: tuple[str, ...], *, prefix: str = PREFIX) -> str:
        return "/".join((f"{prefix}/clusters", quote(self.cluster_id(), safe=""), *map(_segment, parts)))


def _segment(part: str) -> str:
    """Return a name percent-encoded as a path segment; unencoded dot segments would be removed (RFC 3986, section 5.2.4)."""
    return {".": "%2E", "..": "%2E%2E"}.get(part) or quote(part, safe=":")


def address_of(url: str) -> httpx.URL:
    """Return the parsed address of the service; raise LinkctlError (USAGE) if it is invalid."""
    try:
        address = httpx.URL(url.strip().rstrip("/"))
    except httpx.InvalidURL as error:
        raise _invalid_address(f"is not a URL ({error})") from None
    if address.scheme not in ("http", "https"):
        raise _invalid_address("does not begin with https:// or http://")
    if not address.host or (address.port or 0) > _LAST_PORT:
        raise _invalid_address("has no host or an invalid port")
    return address


def _invalid_address(reason: str) -> LinkctlError:
    """Return an error that does not contain the address, since it may contain a password."""
    advice = "Give an address like https://links.example.com with --url, LINKCTL_URL or the file's url"
    return LinkctlError(f"The address of the service {reason}. {advice}.", code=Exit.USAGE)


def _query(value: object) -> str | list[str]:
    return [_text(item) for item in value] if isinstance(value, list) else _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        message = f"{response.url} does not return JSON. Check that it is the address of the service."
        raise LinkctlError(message, code=Exit.UNAVAILABLE) from None


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{response.request.method} {response.url} failed with {response.status_code} {response.reason_phrase}."
