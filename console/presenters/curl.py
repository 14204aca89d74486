"""REST requests as curl commands to copy. Secrets are shell variables or placeholders, never values."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from linkengine.domain.linkconfigs import LINK_CONFIGS

_CREDENTIALS = '-u "$API_KEY:$API_SECRET"'


def curl(method: str, url: str, body: Mapping[str, object] | None = None) -> str:
    """Return a request as a curl command."""
    lines = [f"curl {_CREDENTIALS} -X {method} {shlex.quote(url)}"]
    if body is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(body, indent=2))}")
    return " \\\n".join(lines)


def config_list(configs: Mapping[str, str | None]) -> list[dict[str, str | None]]:
    """Return configs in the REST format. Sensitive values are replaced by a placeholder."""
    return [
        {"name": name, "value": "<secret>" if value and LINK_CONFIGS[name].sensitive else value}
        for name, value in configs.items()
    ]
