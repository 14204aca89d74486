"""Change or reset a config of a link. Connection configs are on the Edit link page."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from console.access import Permission, check_permission
from console.actions.linkconfigs import ConfigChange, alter_configs
from console.errors import ConsoleError, NotFoundError
from console.models import ClusterLink
from console.pages.linkpages import crumbs, link_head
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.presenters.configs import config_words
from console.queries import links as link_queries
from console.queries.links import EffectiveConfig
from linkengine.domain.linkconfigs import LINK_CONFIGS, ConfigKind, is_connection

_RESET: Literal["DELETE"] = "DELETE"


@page("links")
@require_http_methods(["GET", "POST"])
def edit_config(request: HttpRequest, cluster_id: str, link_name: str, config_name: str) -> HttpResponse:
    """Show a config; save, reset or validate it."""
    by = actor_of(request)
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    check_permission(by, Permission.MANAGE_LINK, link=link)
    config = _config(link, config_name)
    if request.method == "GET":
        return _form(request, link, config, value=config.value or "")
    value, intent = request.POST.get("value", "").strip(), request.POST.get("intent")
    reset = intent == "reset"
    change = ConfigChange(name=config_name, operation=_RESET) if reset else ConfigChange(name=config_name, value=value)
    try:
        alter_configs(link=link, changes=[change], validate_only=intent == "validate", by=by, now=timezone.now())
    except ConsoleError as error:
        return _form(request, link, config, value=value, problem=problem_of(error), status=status_of(error))
    if intent == "validate":
        return _form(request, link, config, value=value, valid=True)
    message = f"{config_name} reset to its default." if reset else f"{config_name} saved."
    return done(request, reverse("pages:link-configuration", args=link.url_args), message)


def _config(link: ClusterLink, name: str) -> EffectiveConfig:
    """Return a config that can be changed on this page; raise NotFoundError for others."""
    spec = LINK_CONFIGS.get(name)
    if spec is None or spec.read_only or spec.immutable or is_connection(name):
        raise NotFoundError(f"Config {name} does not exist or cannot be changed on this page.", code="UNKNOWN_CONFIG")
    return next(config for config in link_queries.effective_configs(link=link) if config.name == name)


def _form(
    request: HttpRequest, link: ClusterLink, config: EffectiveConfig, *, value: str, status: int = 200, **more: object
) -> HttpResponse:
    spec = LINK_CONFIGS[config.name]
    context = {
        "link": link_head(link, now=timezone.now()),
        "crumbs": crumbs(link, last=config.name),
        "environment_name": link.destination.environment.name,
        "config": config,
        "value": value,
        "choices": spec.choices or (("true", "false") if spec.kind is ConfigKind.FLAG else ()),
        "long": spec.kind in {ConfigKind.FILTERS, ConfigKind.NAMES},
        "words": config_words(config.name, value),
        "default_words": config_words(config.name, config.default or ""),
        "lowest": spec.lowest,
        "highest": spec.highest,
        "kind": spec.kind,
    }
    return reply(request, "links/edit_config.html", context | more, status=status)
