"""Which service, who we are, which cluster: options first, then the environment, then a file.

The file is JSON: {"url", "api_key", "api_secret", "token", "cluster"}. It is the one of ``--file`` or ``LINKCTL_FILE``, else
``var/demo.json`` of a running demo in this folder, else ``linkctl.json`` of the user's config folder. Secrets have no option of
their own, since everybody on the machine can read a command line.
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
    """Where to ask and as whom."""

    url: str
    api_key: str = ""
    api_secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    cluster: str = ""  # the destination cluster's id; "" where the service knows one only


def read_settings(
    *, options: Mapping[str, str | None], file: Path | None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Gather the settings; raise LinkctlError where the service or the credentials are missing."""
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
        raise LinkctlError(f"{path} cannot be read: {error}.", code=Exit.USAGE) from None
    if not isinstance(found, dict):
        raise LinkctlError(f"{path} must hold a JSON object.", code=Exit.USAGE)
    return {**_of_demo(found), **found}


def _of_demo(found: Mapping[str, Any]) -> dict[str, Any]:
    """Read what a running demo leaves for scripts: it names things for more than us."""
    clusters = found.get("clusters")
    destination = clusters.get("destination", {}) if isinstance(clusters, dict) else {}
    return {"url": found.get("base_url"), "cluster": destination.get("id")}


def _missing(what: str, where: str) -> LinkctlError:
    return LinkctlError(f"I need {what}. Give it by {where}.", code=Exit.USAGE)
