"""REST requests as curl commands to copy. The API key comes from shell variables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

_CREDENTIALS = '-u "$API_KEY:$API_SECRET"'


def curl(method: str, url: str, body: Mapping[str, object] | None = None) -> str:
    """Return a request as a curl command."""
    lines = [f"curl {_CREDENTIALS} -X {method} {shlex.quote(url)}"]
    if body is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(body, indent=2))}")
    return " \\\n".join(lines)
