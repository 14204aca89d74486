"""Pages that edit, pause and delete a cluster link, and change or reset a single config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console.access import Permission, can, check_permission, visible_mirrors
from console.actors import Actor
from console.errors import ConsoleError, NotFoundError
from console.links import actions as link_actions
from console.links import pairs
from console.links import queries as link_queries
from console.links.actions import LinkConfigChange, alter_configs
from console.links.command_presenters import alteration_command, curl, rest_url
from console.links.health_queries import health_of_mirrors
from console.links.pages import crumbs, link_head
from console.links.presenters import source_servers
from console.links.queries import EffectiveConfig
from console.mirrors import figures
from console.mirrors import queries as mirror_queries
from console.mirrors.figures import sum_if_known
from console.mirrors.presenters import mirror_row
from console.mirrors.queries import MirrorSummary
from console.models import ClusterLink, MirrorTopic
from console.models.fields import readable
from console.verification.drill_actions import running_drill
from console.verification.failover_presenters import drill_row
from console.web import numbers
from console.web.forms import ConnectionForm, address_of, fingerprint, stale_form_error
from console.web.numbers import config_words, readable_config
from console.web.request_handling import actor_of, done, page, problem_of, reply, status_of
from linkengine.domain.client_properties import DEFAULTS_TAKEN, TOKEN_URL, address_from_properties, properties_of
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkconfigs import LINK_CONFIGS, ConfigKind, is_connection
from linkengine.domain.linkrules import SECRETS, own_properties, registered_properties, secrets_to_repeat
from linkengine.domain.states import COPYING, MirrorState

# --- edit, pause and delete -------------------------------------------------------------------------------------------


PAUSED = "cluster.link.paused"
JAAS = "sasl.jaas.config"
_SECRET_FIELDS = {JAAS: "password", "ssl.keystore.key": "key_pem"}
_PEM = {
    "certificate_pem": "ssl.keystore.certificate.chain",
    "key_pem": "ssl.keystore.key",
    "key_password": "ssl.key.password",
}
_ENTER_AGAIN = gettext_noop(
    "Leave empty to keep the stored one, which is never shown. Enter it again to change address, security or CA."
)
_KEPT = {  # field of a secret: help text if one is stored
    "password": _ENTER_AGAIN,
    "certificate_pem": gettext_noop("Leave empty to keep the stored one, which is never shown."),
    "key_pem": _ENTER_AGAIN,
    "key_password": gettext_noop("Leave empty to keep the stored one, which is never shown. Enter it again with the key."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """A difference between a stored and an entered value. Secrets are shown as changed, without their value."""

    name: str
    before: str
    after: str


class EditLinkForm(ConnectionForm):
    """The connection of a link. Empty secrets keep the stored ones."""

    forget_certificate = forms.BooleanField(
        label=gettext_lazy("Remove the stored client certificate and key"),
        required=False,
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )
    paused = forms.BooleanField(
        label=gettext_lazy("Pause link"),
        required=False,
        help_text=gettext_lazy("While the link is paused, none of its mirror topics is copied."),
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )

    def __init__(self, *args: Any, link: ClusterLink, registered: dict[str, str], **kwargs: Any) -> None:
        """Fill in the stored values. ``registered`` is the registered connection, if the link uses it and the user may."""
        self._uses_registered, self._own = bool(registered), dict(readable(link.properties))
        self.stored = _effective(link, registered)
        self._secrets = {"password": _password(self.stored), **{name: self.stored.get(_PEM[name], "") for name in _PEM}}
        self.seen = fingerprint(self._own, self.stored, _is_paused(link))
        super().__init__(*args, initial=_initial(link, self.stored), **kwargs)
        for name, text in _KEPT.items():
            if name == "password" or self._secrets[name]:
                self.fields[name].help_text = gettext(text)
        if self._uses_registered or not self._secrets["certificate_pem"]:
            del self.fields["forget_certificate"]

    def keeps_stored_value(self, name: str) -> bool:
        """Return True if an empty field keeps the stored value."""
        if not self._secrets.get(name) or name == "password":
            return bool(self._secrets.get(name))
        if name == "key_password" and self.data.get("key_pem"):  # the stored one is that of the former key
            return False
        if self._uses_registered:  # an entered certificate is not combined with the registered key
            return not (self.data.get("certificate_pem") or self.data.get("key_pem"))
        return not self.data.get("forget_certificate")

    def clean(self) -> dict[str, Any] | None:
        """Require secrets if the stored ones would be sent elsewhere, or a registered password copied to the link."""
        values = super().clean() or {}
        if self.errors:
            return values
        changes = {change.name: change.value for change in self._connection()}
        entered = self._entered()
        if self._uses_registered and changes.get(JAAS) and JAAS not in entered:
            message = gettext("Enter it. The registered password is not used with another user, mechanism or certificate.")
            self.add_error("password", message)
            return values
        kept = {name: value for name, value in changes.items() if value is None or name not in SECRETS or name in entered}
        for secret, config in secrets_to_repeat(self._own, kept):
            if secret in _SECRET_FIELDS:
                message = gettext("Enter it again. With another %(config)s, the stored one would be sent elsewhere.")
                self.add_error(_SECRET_FIELDS[secret], message % {"config": config})
        return values

    def changes(self, link: ClusterLink) -> list[LinkConfigChange]:
        """Return the changes from the stored configs."""
        return self._connection() + self._pause_change(link)

    def _connection(self) -> list[LinkConfigChange]:
        wanted, entered = self._wanted(kept=True), self._entered()
        changes = {change.name: change for change in _differences(wanted, self.stored)}
        if self._uses_registered and (entered & set(wanted) or set(SECRETS) & set(changes)):
            # The link gets its own credentials, without those of the registration, and stores the other configs, too.
            return _differences(self._wanted(kept=False), {})
        for name in entered & set(wanted):  # even if equal to the stored secret: it permits the other changes
            changes[name] = _change(name, wanted[name])
        return list(changes.values())

    def _entered(self) -> set[str]:
        """Return the names of the secret configs that were entered, not kept."""
        return {config for config, name in _SECRET_FIELDS.items() if self.cleaned_data.get(name)}

    def _wanted(self, *, kept: bool) -> dict[str, str]:
        """Return the connection as Kafka client properties, with the stored secrets that empty fields keep if ``kept``."""
        values = dict(self.cleaned_data)
        for name, value in self._secrets.items():
            if kept and not values[name] and self.keeps_stored_value(name):
                values[name] = value
        properties = properties_of(replace(address_of(values), oauth_extensions=_extensions(self.stored)))
        return {name: value for name, value in properties.items() if name not in DEFAULTS_TAKEN}

    def _pause_change(self, link: ClusterLink) -> list[LinkConfigChange]:
        wanted = self.cleaned_data["paused"]
        return [] if wanted == _is_paused(link) else [LinkConfigChange(name=PAUSED, value="true" if wanted else "false")]


@page("links")
@sensitive_post_parameters("password", "certificate_pem", "key_pem", "key_password")
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the connection; preview, validate or save changes."""
    by = actor_of(request)
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    check_permission(by, Permission.MANAGE_LINK, link=link)
    registered = _registered(link, by)
    if request.method == "GET":
        return _edit_form(request, link, EditLinkForm(link=link, registered=registered))
    form = EditLinkForm(request.POST, link=link, registered=registered)
    if request.POST.get("seen") != form.seen:
        problem = problem_of(stale_form_error(gettext("The configuration of this link")))
        response = _edit_form(request, link, EditLinkForm(link=link, registered=registered), problem=problem, status=409)
        response["HX-Reswap"] = "innerHTML"  # the form shows the stored values, not what was entered
        return response
    if not form.is_valid():
        return _edit_form(request, link, form, status=422)
    return _apply(request, link, form, by=by)


def _apply(request: HttpRequest, link: ClusterLink, form: EditLinkForm, *, by: Actor) -> HttpResponse:
    """Preview, validate or save the changes, by the submitted button."""
    intent, changes = request.POST.get("intent"), form.changes(link)
    shown = shown_changes(changes, form.stored)
    if intent == "preview":
        return _edit_form(request, link, form, changes=shown, previewed=True)
    try:
        link_actions.alter_configs(link=link, changes=changes, validate_only=intent != "save", by=by, now=timezone.now())
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _edit_form(request, link, form, problem=problem, changes=shown, status=status_of(error))
    if intent != "save":
        return _edit_form(request, link, form, changes=shown, previewed=True)
    if not changes:
        return done(request, link.get_absolute_url())
    message = ngettext(
        "%(count)s change saved. The source connection is being checked.",
        "%(count)s changes saved. The source connection is being checked.",
        len(changes),
    )
    return done(request, link.get_absolute_url(), message % {"count": numbers.count(len(changes))})


@page("links")
@require_http_methods(["GET", "POST"])
def pause(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show what pausing or resuming the link does, and do it.

    The form has the wanted state, so a second submit of it changes nothing.
    """
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    check_permission(by, Permission.MANAGE_LINK, link=link)
    if request.method == "GET":
        return _pause_form(request, link)
    wanted = request.POST.get("paused") == "true"
    changes = [] if wanted == _is_paused(link) else [_pausing(paused=wanted)]
    try:
        link_actions.alter_configs(link=link, changes=changes, by=by, now=now)
    except ConsoleError as error:
        return _pause_form(request, link, problem=problem_of(error), status=status_of(error))
    message = gettext("Cluster link %(link)s is paused.") if wanted else gettext("Cluster link %(link)s is resumed.")
    return done(request, link.get_absolute_url(), message % {"link": link.name})


def _pausing(*, paused: bool) -> LinkConfigChange:
    return LinkConfigChange(name=PAUSED, value="true" if paused else "false")


def _pause_form(request: HttpRequest, link: ClusterLink, *, status: int = 200, **more: object) -> HttpResponse:
    context = {
        "link": link_head(link, now=timezone.now()),
        "is_paused": _is_paused(link),
        "mirrors": link.mirrors.listed().filter(state__in=COPYING, deletion_requested_at=None).count(),
        "command": alteration_command(request, link, [_pausing(paused=not _is_paused(link))]),
        "crumbs": crumbs(link, last=gettext("Resume") if _is_paused(link) else gettext("Pause")),
        "environment_name": link.destination.environment.name,
    }
    return reply(request, "links/pause.html", context | more, status=status)


@page("links")
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the confirmation with the mirror topics that block the deletion; delete the link."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    check_permission(by, Permission.MANAGE_LINK, link=link)
    if request.method == "GET":
        return _delete_form(request, link)
    if request.POST.get("confirm", "").strip() != link.name:
        return _delete_form(request, link, wrong_name=gettext("The name does not match the link name."), status=422)
    if _stopping_mirrors(link) and request.POST.get("ends") != "true":
        not_selected = gettext("Select this option to stop copying for the paired link.")
        return _delete_form(request, link, not_selected=not_selected, status=422)
    try:
        link_actions.delete_link(link=link, force=request.POST.get("force") == "true", by=by, now=now)
    except ConsoleError as error:
        return _delete_form(request, link, problem=problem_of(error), status=status_of(error))
    message = gettext("Cluster link %(link)s is being deleted.") % {"link": link.name}
    return done(request, reverse("pages:links"), message)


def _delete_form(request: HttpRequest, link: ClusterLink, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    blockers = _unstopped(link, by=by)
    missing = sum_if_known(list(figures.records_at_risk_of([summary.mirror for summary in blockers]).values()))
    health = health_of_mirrors(link, [summary.mirror for summary in blockers], now=now)
    ending = _stopping_mirrors(link)
    seen = visible_mirrors(by).unstopped().filter(link=ending[0].link) if ending else MirrorTopic.objects.none()
    visible = list(seen.values_list("name", flat=True))
    drill = running_drill(link)
    context = {
        "link": link_head(link, now=now),
        "drill": drill_row(drill, now=now) if drill is not None else None,
        "ending": len(ending),
        "ending_names": visible,
        "ending_unseen": len(ending) - len(visible),
        "ends": request.POST.get("ends"),
        "crumbs": crumbs(link, last=gettext("Delete")),
        "environment_name": link.destination.environment.name,
        "blockers": [mirror_row(summary, now=now, health=health[summary.mirror.pk]) for summary in blockers],
        "at_risk": gettext("unknown") if missing is None else numbers.count(missing),
        "held_back": missing is not None and missing != sum_if_known([summary.total_lag for summary in blockers]),
        "force": request.POST.get("force"),
        "confirm": request.POST.get("confirm", ""),
        "command": curl("DELETE", rest_url(request, "kafka:link", link.url_args)),
        "command_note": gettext("The request does not select the option above; for that, add ?force=true to its URL.")
        if blockers or drill is not None
        else "",
    }
    return reply(request, "links/delete.html", context | more, status=status)


def _unstopped(link: ClusterLink, *, by: Actor) -> list[MirrorSummary]:
    """Return the mirrors that are not stopped and that the user may see."""
    summaries = mirror_queries.list_mirrors(link=link, by=by)
    return [summary for summary in summaries if summary.mirror.state != MirrorState.STOPPED]


def _stopping_mirrors(link: ClusterLink) -> list[MirrorTopic]:
    """Return the mirrors of the paired link that are not stopped, if it cannot copy without this link."""
    other = pairs.other_side(link)
    if other is None or not pairs.needs_other_side(other):
        return []
    return list(other.mirrors.unstopped().select_related("link"))


def _edit_form(
    request: HttpRequest, link: ClusterLink, form: EditLinkForm, *, status: int = 200, **more: object
) -> HttpResponse:
    context = {
        "link": link_head(link, now=timezone.now()),
        "crumbs": crumbs(link, last=gettext("Edit")),
        "environment_name": link.destination.environment.name,
        "form": form,
    }
    return reply(request, "links/edit.html", context | more, status=status)


def _registered(link: ClusterLink, by: Actor) -> dict[str, str]:
    """Return the registered connection that the link uses, if the user may use it; else an empty dict."""
    if not link.uses_cluster_credentials or link.source is None:
        return {}
    return dict(readable(link.source.properties)) if can(by, Permission.USE_CREDENTIALS, cluster=link.source) else {}


def _effective(link: ClusterLink, registered: dict[str, str]) -> dict[str, str]:
    """Return the effective connection to the source, as far as the user may see it."""
    own = own_properties(readable(link.properties))
    try:
        return registered_properties(own, registered) if registered else own
    except LinkEngineError:  # the link names servers that are not registered, which this page can correct
        return own


def _initial(link: ClusterLink, stored: dict[str, str]) -> dict[str, object]:
    try:
        address = address_from_properties(stored)
    except LinkEngineError:  # the stored configs are invalid, which this page can correct
        return {"bootstrap_servers": source_servers(link), "paused": _is_paused(link)}
    return {
        "bootstrap_servers": address.bootstrap_servers,
        "security_protocol": address.security_protocol,
        "sasl_mechanism": address.sasl_mechanism,
        "username": address.sasl_username,
        "token_url": address.oauth_token_url,
        "token_scope": address.oauth_scope,
        "ca_pem": address.ssl_ca_pem,
        "paused": _is_paused(link),
    }


def _extensions(stored: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the SASL extensions, which have no form field, so that an edit keeps them."""
    try:
        return address_from_properties(stored).oauth_extensions
    except LinkEngineError:
        return ()


def _password(stored: dict[str, str]) -> str:
    try:
        return address_from_properties(stored).sasl_password
    except LinkEngineError:
        return ""


def _is_paused(link: ClusterLink) -> bool:
    return any(config.name == PAUSED and config.value == "true" for config in link.configs.all())


def _differences(wanted: dict[str, str], present: dict[str, str]) -> list[LinkConfigChange]:
    covered = {*wanted, *_covered_by_form(present)}
    names = sorted(name for name in covered if _plain(wanted.get(name)) != _plain(present.get(name)))
    return [_change(name, wanted.get(name)) for name in names]


def _plain(value: str | None) -> str | None:
    """Return a value for comparison: browsers submit text areas with CRLF, and forms strip them."""
    return value and "\n".join(value.split("\r\n")).strip()


def _covered_by_form(present: dict[str, str]) -> set[str]:
    """Return the stored properties that have a form field. An edit keeps the others."""
    covered = {
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        JAAS,
        "sasl.login.callback.handler.class",
        TOKEN_URL,
        "ssl.truststore.certificates",
        *_PEM.values(),
    }
    return covered & set(present)


def _change(name: str, value: str | None) -> LinkConfigChange:
    return LinkConfigChange(name=name, value=value) if value is not None else LinkConfigChange(name=name, operation="DELETE")


def shown_changes(changes: Sequence[LinkConfigChange], stored: dict[str, str]) -> list[ShownChange]:
    """Return the differences between the stored connection and the changes."""
    rows = []
    for change in changes:
        secret = LINK_CONFIGS[change.name].sensitive
        before, after = (readable_config(change.name, value) for value in (stored.get(change.name, ""), change.value or ""))
        rows.append(
            ShownChange(
                name=change.name,
                before=gettext("hidden") if secret and before else before or gettext("not set"),
                after=gettext("changed, hidden") if secret and after else after or gettext("not set"),
            )
        )
    return rows


# --- a single config --------------------------------------------------------------------------------------------------
#
# Connection configs are on the Edit link page.


_RESET: Literal["DELETE"] = "DELETE"
_KINDS = {
    ConfigKind.TEXT: gettext_noop("text"),
    ConfigKind.NUMBER: gettext_noop("whole number"),
    ConfigKind.FLAG: gettext_noop("true or false"),
    ConfigKind.NAMES: gettext_noop("names separated by commas"),
    ConfigKind.FILTERS: gettext_noop("JSON document"),
}


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
    change = LinkConfigChange(name=config_name, operation=_RESET) if reset else LinkConfigChange(name=config_name, value=value)
    try:
        alter_configs(link=link, changes=[change], validate_only=intent == "validate", by=by, now=timezone.now())
    except ConsoleError as error:
        return _form(request, link, config, value=value, problem=problem_of(error), status=status_of(error))
    if intent == "validate":
        return _form(request, link, config, value=value, valid=True)
    message = gettext("%(config)s reset to its default.") if reset else gettext("%(config)s saved.")
    return done(request, reverse("pages:link-configuration", args=link.url_args), message % {"config": config_name})


def _config(link: ClusterLink, name: str) -> EffectiveConfig:
    """Return a config that can be changed on this page; raise NotFoundError for others."""
    spec = LINK_CONFIGS.get(name)
    if spec is None or spec.read_only or spec.immutable or is_connection(name):
        text = gettext("Config %(name)s does not exist or cannot be changed on this page.")
        raise NotFoundError(text % {"name": name}, code="UNKNOWN_CONFIG")
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
        "kind": gettext(_KINDS[spec.kind]),
    }
    return reply(request, "links/edit_config.html", context | more, status=status)
