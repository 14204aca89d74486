"""Settings: address, credentials and cluster. Options take precedence over environment variables, and these over a file.

The file contains a JSON object: {"url", "api_key", "api_secret", "token", "cluster"}. It is given by ``--file`` or
``LINKCTL_FILE``; the default is ``var/demo.json`` of a running demo in the current folder, or ``~/.config/linkctl.json``. There
are no options for secrets, because all users of a machine can read command lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linkctl.errors import Exit, LinkctlError

DEMO_FILE = Path("var/demo.json")
USER_FILE = Path("~/.config/linkctl.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Address of the service, credentials and cluster."""

    url: str
    api_key: str = ""
    api_secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    cluster: str = ""  # id of the destination cluster; "" for the only visible one


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
