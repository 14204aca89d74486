"""What the states mean: the legend, from the table that paints the badges."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from console.pages.doors import page, reply
from console.presenters.errors import ERROR_HELP
from console.presenters.reasons import GAP_LOOKS
from console.presenters.states import LINK_LOOKS, MIRROR_LOOKS
from console.presenters.verbs import VERBS
from linkengine.domain.states import BIDIRECTIONAL_ONLY, allowed_operations


@page("")
@require_GET
def states(request: HttpRequest) -> HttpResponse:
    """Explain states, reasons of filled offsets and error codes."""
    mirrors = [
        {"look": look, "verbs": [VERBS[event].label for event in allowed_operations(state) if event not in BIDIRECTIONAL_ONLY]}
        for state, look in MIRROR_LOOKS.items()
    ]
    context = {
        "mirrors": mirrors,
        "links": list(LINK_LOOKS.values()),
        "gaps": list(GAP_LOOKS.values()),
        "errors": [one for code, one in ERROR_HELP.items() if code != "NO_ERROR"],
    }
    return reply(request, "guide/states.html", context)
