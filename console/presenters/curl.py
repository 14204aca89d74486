"""The same thing over REST, as a command to copy. Secrets are names of shell variables, never values."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from linkengine.domain.linkconfigs import LINK_CONFIGS

_CREDENTIALS = '-u "$API_KEY:$API_SECRET"'


def curl(method: str, url: str, body: Mapping[str, object] | None = None) -> str:
    """Write a request as a curl command."""
    lines = [f"curl {_CREDENTIALS} -X {method} {shlex.quote(url)}"]
    if body is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(body, indent=2))}")
    return " \\\n".join(lines)


def config_list(configs: Mapping[str, str | None]) -> list[dict[str, str | None]]:
    """Write configs as REST takes them; a sensitive value is replaced by a placeholder."""
    return [
        {"name": name, "value": "<secret>" if value and LINK_CONFIGS[name].sensitive else value}
        for name, value in configs.items()
    ]
