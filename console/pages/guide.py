"""The help page with the meaning of states and error codes."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from console.pages.request_handling import page, reply
from console.presenters.errors import CONSOLE_HELP, ERROR_HELP
from console.presenters.health import HEALTH_LOOKS
from console.presenters.reasons import GAP_LOOKS
from console.presenters.states import LINK_LOOKS, MIRROR_LOOKS
from console.presenters.verbs import VERBS
from linkengine.domain.states import BIDIRECTIONAL_ONLY, allowed_operations


@page("")
@require_GET
def states(request: HttpRequest) -> HttpResponse:
    """List the values of health, the states, the reasons of filled offsets and the error codes."""
    mirrors = [
        {"look": look, "verbs": [VERBS[event].label for event in allowed_operations(state) if event not in BIDIRECTIONAL_ONLY]}
        for state, look in MIRROR_LOOKS.items()
    ]
    context = {
        "health": list(HEALTH_LOOKS.values()),
        "mirrors": mirrors,
        "links": list(LINK_LOOKS.values()),
        "gaps": list(GAP_LOOKS.values()),
        "errors": [row for code, row in {**ERROR_HELP, **CONSOLE_HELP}.items() if code != "NO_ERROR"],
    }
    return reply(request, "guide/states.html", context)
