"""The forms of the steps in which a cluster link is created. Each has only the fields that the direction needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.forms import BaseFormSet, BoundField, formset_factory
from django.utils.translation import gettext, gettext_lazy

from console.errors import ConsoleError
from console.languages import translated
from console.links.draft_presenters import PRESETS
from console.links.drafts import OTHER, REGISTERED, SWITCHES, DraftValues, kept_secrets
from console.links.form_presenters import DIRECTIONS, RECEIVE, Direction
from console.models import Cluster
from console.web.forms import FIELD_OF, ConnectionForm, ConsoleForm, address_of, field_of
from linkengine.domain.acls import AclFilter, parse_acl_filters
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties, properties_of
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkrules import PREFIX_PATTERN, SECRETS
from linkengine.domain.names import (
    MAX_LINK_LENGTH,
    WILDCARD,
    FilterType,
    NameFilter,
    PatternType,
    check_link_name,
    filters_to_json,
    known_filters,
)

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

EMPTY_ROWS = 3  # for new filters, also without JavaScript
LONGEST_PREFIX = 12
_PLAIN = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
_PASSWORD, _CERTIFICATE, _KEY = "password", "certificate_pem", "key_pem"
_SECRET_FIELDS: Mapping[str, str] = {"sasl.jaas.config": _PASSWORD, "ssl.keystore.key": _KEY}
_CHECKBOX = {"class": "form-check-input"}


def _cluster_choices(clusters: Iterable[Cluster]) -> list[tuple[str, str]]:
    return [
        ("", gettext("Choose a cluster")),
        *((each.cluster_id, f"{each.name} ({each.environment.name})") for each in clusters),
    ]


def _only_other(clusters: Iterable[Cluster], chosen: str) -> str:
    """Return the id of the only cluster beside the chosen one, "" if there is no such cluster or a choice."""
    rest = [each.cluster_id for each in clusters if each.cluster_id != chosen]
    return rest[0] if len(rest) == 1 else ""


def _switch(label: StrOrPromise, help_text: StrOrPromise) -> forms.BooleanField:
    return forms.BooleanField(
        label=label, help_text=help_text, required=False, widget=forms.CheckboxInput(attrs=dict(_CHECKBOX))
    )


class StartForm(ConsoleForm):
    """Purpose and direction of a new link. The other fields are set by the page of a link whose paired link is missing."""

    preset = forms.ChoiceField(choices=[(key, preset.title) for key, preset in PRESETS.items()], initial="custom")
    direction = forms.ChoiceField(choices=[(key, each.title) for key, each in DIRECTIONS.items()], initial=RECEIVE.key)
    own = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    other = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    name = forms.CharField(required=False, max_length=MAX_LINK_LENGTH, widget=forms.HiddenInput)

    def values(self) -> DraftValues:
        """Return the values of the new draft."""
        cleaned = self.cleaned_data
        direction = DIRECTIONS[cleaned["direction"]]
        switches: dict[str, Any] = PRESETS[cleaned["preset"]].switches() if direction.has_mirrors else {}
        return DraftValues(
            direction=direction.key,
            preset=cleaned["preset"],
            link_mode=direction.mode,
            connection_mode=direction.connection_mode,
            remote_field=direction.remote_field,
            own=cleaned["own"],
            other=cleaned["other"],
            name=cleaned["name"],
            **switches,
        )


class OwnClusterForm(ConsoleForm):
    """The registered cluster on which the link is created."""

    conditional = frozenset({"own", "connection_mode"})

    own = forms.ChoiceField(
        error_messages={"required": gettext_lazy("Choose a registered cluster. A link is created on one of them.")}
    )
    connection_mode = forms.ChoiceField(
        label=gettext_lazy("Connection mode"),
        choices=[
            ("OUTBOUND", gettext_lazy("Outbound: this cluster connects")),
            ("INBOUND", gettext_lazy("Inbound: the other cluster connects")),
        ],
        help_text=gettext_lazy("Cannot be changed later. Inbound uses the registered address of the other cluster."),
    )

    def __init__(self, *args: Any, draft: DraftValues, direction: Direction, clusters: list[Cluster], **kwargs: Any) -> None:
        """Offer the clusters that the user may see. The only one that the other cluster leaves is selected."""
        suggested = _only_other(clusters, draft.remote_id) if draft.has_other else ""
        initial = {"own": draft.own or suggested, "connection_mode": draft.connection_mode}
        super().__init__(*args, initial=initial, **kwargs)
        self._draft = draft
        own = self.fields["own"]
        own.choices = _cluster_choices(clusters)  # type: ignore[attr-defined]
        own.label, own.help_text = direction.own, direction.own_hint
        if direction.mode != "BIDIRECTIONAL":
            del self.fields["connection_mode"]

    def clean(self) -> dict[str, Any] | None:
        """Check the choice against the other cluster, if that was chosen before."""
        values, draft = super().clean() or {}, self._draft
        if values.get("own") and values["own"] == draft.remote_id:
            self.add_error("own", gettext("Source and destination are the same cluster. Choose another cluster."))
        if values.get("connection_mode") == "INBOUND" and draft.has_own_connection:
            message = gettext("Inbound requires that the other cluster is registered. Choose outbound.")
            self.add_error("connection_mode", message)
        return values

    def changes(self) -> dict[str, Any]:
        """Return the fields of the draft."""
        return dict(self.cleaned_data)


class OtherClusterForm(ConnectionForm):
    """The other cluster of the link: a registered one, or the connection to any other. Empty secrets keep the stored ones."""

    conditional = ConnectionForm.conditional | {"other", "other_kind"}

    other_kind = forms.ChoiceField(choices=[(REGISTERED, ""), (OTHER, "")], initial=REGISTERED, required=False)
    other = forms.ChoiceField(required=False)
    other_cluster_id = forms.CharField(
        label=gettext_lazy("Cluster ID"),
        required=False,
        max_length=64,
        help_text=gettext_lazy("If empty, it is read from the cluster. If set, it must match."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    forget_certificate = _switch(gettext_lazy("Remove the stored client certificate and key"), "")

    def __init__(self, *args: Any, draft: DraftValues, direction: Direction, clusters: list[Cluster], **kwargs: Any) -> None:
        """Fill in the draft, except its secrets. The only cluster that the own cluster leaves is selected."""
        self._draft, self._direction = draft, direction
        self._stored = _stored_address(draft)
        suggested = _only_other(clusters, draft.own) if draft.own else ""
        initial = _initial(draft, self._stored)
        super().__init__(*args, initial={**initial, "other": initial["other"] or suggested}, **kwargs)
        other = self.fields["other"]
        other.choices = _cluster_choices(clusters)  # type: ignore[attr-defined]
        other.label = direction.other
        if not self.has_connection_fields():
            for name in ConnectionForm.base_fields:
                self.fields[name].required = False
        for name in (_PASSWORD, _CERTIFICATE, _KEY, "key_password"):
            if self._has_stored(name):
                self.fields[name].help_text = gettext("Stored in the draft and not shown. Leave empty to keep it.")
        if not self._has_stored(_CERTIFICATE):
            del self.fields["forget_certificate"]

    def has_connection_fields(self) -> bool:
        if self._direction.needs_registered:
            return False
        return (self.data.get("other_kind", REGISTERED) if self.is_bound else self._draft.other_kind) == OTHER

    def keeps_stored_value(self, name: str) -> bool:
        forgotten = name != _PASSWORD and bool(self.data.get("forget_certificate"))
        return self._has_stored(name) and not forgotten

    def clean(self) -> dict[str, Any] | None:
        """Check the choice; require secrets again that would be sent elsewhere."""
        values = super().clean() or {}
        if not self.has_connection_fields():
            self._check_registered(values)
            return values
        self._check_combination(values)
        if not self.errors:
            self._check_properties()
        if not self.errors:
            for secret, config in kept_secrets(self._draft.connection, self.properties(), entered=self.entered()):
                message = gettext("Enter it again. With another %(config)s, the stored one would be sent elsewhere.")
                self.add_error(_SECRET_FIELDS[secret], message % {"config": config})
        return values

    def changes(self) -> dict[str, Any]:
        """Return the fields of the draft. The connection to a cluster that is no longer chosen is dropped."""
        values = self.cleaned_data
        if not self.has_connection_fields():
            return {"other_kind": REGISTERED, "other": values["other"], "other_cluster_id": "", "connection": {}}
        return {
            "other_kind": OTHER,
            "other": "",
            "other_cluster_id": values["other_cluster_id"],
            "connection": self.properties(),
        }

    def entered(self) -> list[str]:
        """Return the names of the secret configs that were entered, not kept."""
        return [config for config in SECRETS if self.cleaned_data.get(_SECRET_FIELDS[config])]

    def properties(self) -> dict[str, str]:
        """Return the connection as Kafka client properties, with the entered or the stored secrets."""
        stored = self._stored
        kept = {
            _PASSWORD: stored.sasl_password,
            _CERTIFICATE: stored.ssl_certificate_pem,
            _KEY: stored.ssl_key_pem,
            "key_password": "" if self.cleaned_data.get(_KEY) else stored.ssl_key_password,
        }
        values = dict(self.cleaned_data)
        for name, value in kept.items():
            if not values.get(name) and self.keeps_stored_value(name):
                values[name] = value
        return properties_of(address_of(values))

    def _check_registered(self, values: Mapping[str, Any]) -> None:
        if not values.get("other"):
            message = gettext("Choose the other cluster of the link, or register it first.")
            if not self._direction.needs_registered:
                message = gettext('Choose the other cluster of the link, or select "Other Apache Kafka" and enter its address.')
            self.add_error("other", message)
        elif values["other"] == self._draft.own:
            self.add_error("other", gettext("Source and destination are the same cluster. Choose another cluster."))

    def _check_combination(self, values: Mapping[str, Any]) -> None:
        if self._draft.connection_mode == "INBOUND":
            message = gettext("Inbound requires a registered cluster. Register it and choose it above.")
            self.add_error("other_kind", message)
        if values.get("other_cluster_id") and values["other_cluster_id"] == self._draft.own:
            self.add_error("other_cluster_id", gettext("This is the ID of the cluster on which the link is created."))

    def _check_properties(self) -> None:
        """Show what the engine refuses at the field of the config that the message names."""
        try:
            address_from_properties(self.properties())
        except LinkEngineError as error:
            named = (field for config, field in FIELD_OF.items() if config in error.message and field in self.fields)
            self.add_error(next(named, "bootstrap_servers"), translated(error.message).replace("%", "%%"))

    def _has_stored(self, name: str) -> bool:
        stored = {
            _PASSWORD: self._stored.sasl_password,
            _CERTIFICATE: self._stored.ssl_certificate_pem,
            _KEY: self._stored.ssl_key_pem,
            "key_password": self._stored.ssl_key_password,
        }
        return bool(stored.get(name))


def _stored_address(draft: DraftValues) -> ClusterAddress:
    try:
        return address_from_properties(draft.connection)
    except LinkEngineError:  # nothing is stored yet
        return ClusterAddress(bootstrap_servers="", security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512")


def _initial(draft: DraftValues, address: ClusterAddress) -> dict[str, Any]:
    return {
        "other_kind": draft.other_kind,
        "other": draft.other,
        "other_cluster_id": draft.other_cluster_id,
        "bootstrap_servers": address.bootstrap_servers,
        "security_protocol": address.security_protocol,
        "sasl_mechanism": address.sasl_mechanism,
        "username": address.sasl_username,
        "token_url": address.oauth_token_url,
        "token_scope": address.oauth_scope,
        "ca_pem": address.ssl_ca_pem,
    }


class NameFilterForm(ConsoleForm):
    """A filter of topics or consumer groups. A row without a name is ignored."""

    name = forms.CharField(label=gettext_lazy("Name"), required=False, widget=forms.TextInput(attrs=_PLAIN))
    pattern = forms.ChoiceField(
        label=gettext_lazy("Pattern type"),
        choices=[(each.value, each.value) for each in PatternType],
        initial=PatternType.LITERAL.value,
        required=False,
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Filter type"),
        choices=[(each.value, each.value) for each in FilterType],
        initial=FilterType.INCLUDE.value,
        required=False,
    )

    def clean(self) -> dict[str, Any] | None:
        values = super().clean() or {}
        if values.get("name") == WILDCARD and values.get("pattern") == PatternType.PREFIXED:
            message = gettext("%(wildcard)s matches everything only with LITERAL.") % {"wildcard": WILDCARD}
            self.add_error("pattern", message)
        return values

    def row(self) -> NameFilter | None:
        """Return the filter, None for a row without a name."""
        values = self.cleaned_data
        if not values.get("name"):
            return None
        return NameFilter(
            name=values["name"],
            pattern_type=PatternType(values["pattern"] or PatternType.LITERAL),
            filter_type=FilterType(values["kind"] or FilterType.INCLUDE),
        )


def _acl_field(label: StrOrPromise, *words: str) -> forms.ChoiceField:
    # With this initial value an untouched row counts as unchanged, and not as a filter that matches everything.
    choices = [(word, word.lower()) for word in ("ANY", *words)]
    return forms.ChoiceField(label=label, choices=choices, required=False, initial="ANY")


class AclFilterForm(ConsoleForm):
    """A filter of ACLs. A new row counts once it was changed; an empty text matches everything."""

    resource_type = _acl_field(gettext_lazy("Resource type"), "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
    pattern_type = _acl_field(gettext_lazy("Pattern type"), "LITERAL", "PREFIXED", "MATCH")
    name = forms.CharField(label=gettext_lazy("Resource name"), required=False, widget=forms.TextInput(attrs=_PLAIN))
    principal = forms.CharField(label=gettext_lazy("Principal"), required=False, widget=forms.TextInput(attrs=_PLAIN))
    operation = _acl_field(
        gettext_lazy("Operation"),
        "ALL",
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    )
    permission = _acl_field(gettext_lazy("Permission"), "ALLOW", "DENY")

    def row(self) -> dict[str, dict[str, str]]:
        """Return the row of the filter document."""
        values = self.cleaned_data
        resource = {"resourceType": values["resource_type"] or "ANY", "patternType": values["pattern_type"] or "ANY"}
        access = {"operation": values["operation"] or "ANY", "permissionType": values["permission"] or "ANY"}
        if values["name"]:
            resource["name"] = values["name"]
        if values["principal"]:
            access["principal"] = values["principal"]
        return {
            "resourceFilter": {name: _word(name, value) for name, value in resource.items()},
            "accessFilter": {name: _word(name, value) for name, value in access.items()},
        }


def _word(name: str, value: str) -> str:
    return value if name in ("name", "principal") else value.lower()


_NameFilters = formset_factory(NameFilterForm, extra=EMPTY_ROWS)
_AclFilters = formset_factory(AclFilterForm, extra=1, can_delete=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchView:
    """A switch with the rows of its filters, for the template."""

    switch: BoundField
    filters: BaseFormSet[Any]


class ConfigurationForm(ConsoleForm):
    """The functions of the link beside copying: four switches, a prefix, and three lists of filters."""

    conditional = frozenset({"prefix"})

    auto_create = _switch(
        gettext_lazy("Auto-create mirror topics"),
        gettext_lazy("For migration, disaster recovery and sharing. Runs every five minutes."),
    )
    # Django takes fields out of the class, so these two do not replace the attributes of the same names.
    add_prefix = _switch(  # type: ignore[assignment]
        gettext_lazy("Add a prefix to mirror topics"),
        gettext_lazy("For sharing and aggregation. Cannot be changed later."),
    )
    prefix = forms.CharField(  # type: ignore[assignment]
        label=gettext_lazy("Prefix"),
        required=False,
        max_length=LONGEST_PREFIX,
        help_text=gettext_lazy("Example: west. changes orders to west.orders."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    sync_offsets = _switch(
        gettext_lazy("Sync consumer offsets"),
        gettext_lazy(
            "For migration and disaster recovery: consumer groups resume on the destination at their committed offsets."
        ),
    )
    sync_acls = _switch(gettext_lazy("Sync ACLs"), gettext_lazy("For disaster recovery. Not available with a prefix."))

    def __init__(self, data: Any = None, *, draft: DraftValues, suggested_prefix: str = "") -> None:
        """Fill in the draft. ``suggested_prefix`` is offered while no prefix was entered."""
        switches = ("auto_create", "add_prefix", "sync_offsets", "sync_acls")
        initial: dict[str, Any] = {name: getattr(draft, name) for name in switches}
        super().__init__(data, initial={**initial, "prefix": draft.prefix or suggested_prefix})
        self.topics = _NameFilters(data, prefix="topics", initial=_name_rows(draft.topic_filters, "topicFilters"))
        self.groups = _NameFilters(data, prefix="groups", initial=_name_rows(draft.group_filters, "groupFilters"))
        self.acls = _AclFilters(data, prefix="acls", initial=_acl_rows(draft.acl_filters))

    def is_valid(self) -> bool:
        formsets_valid = [formset.is_valid() for formset in (self.topics, self.groups, self.acls)]
        return super().is_valid() and all(formsets_valid)

    def clean(self) -> dict[str, Any] | None:
        """Check the combination of switches, and that each switch has a filter."""
        values = super().clean() or {}
        if values.get("add_prefix") and not self.errors.get("prefix"):
            if not values.get("prefix"):
                self.add_error("prefix", gettext("Enter a prefix, for example west."))
            elif not PREFIX_PATTERN.fullmatch(values["prefix"]):
                self.add_error("prefix", gettext("A prefix may have letters, digits, dots, underscores and dashes."))
        if values.get("sync_acls") and values.get("add_prefix"):
            message = gettext("ACL sync is not available with a prefix, because ACLs contain source topic names. Choose one.")
            self.add_error("sync_acls", message)
        for switch, filters in (("auto_create", self.topics), ("sync_offsets", self.groups)):
            if values.get(switch) and filters.is_valid() and not _name_filters(filters):
                message = gettext("Add at least one filter. The name %(wildcard)s with LITERAL matches everything.")
                self.add_error(switch, message % {"wildcard": WILDCARD})
        if values.get("sync_acls") and self.acls.is_valid() and not _acl_filters(self.acls):
            message = gettext("Add at least one filter. A row in which everything is any matches all ACLs.")
            self.add_error("sync_acls", message)
        return values

    def changes(self) -> dict[str, Any]:
        """Return the fields of the draft."""
        return {
            **self.cleaned_data,
            "configured": True,
            "topic_filters": filters_to_json(_name_filters(self.topics)),
            "group_filters": filters_to_json(_name_filters(self.groups), key="groupFilters"),
            "acl_filters": json.dumps({"aclFilters": _acl_filters(self.acls)}),
        }

    def topic_rows(self) -> SwitchView:
        return SwitchView(switch=self["auto_create"], filters=self.topics)

    def group_rows(self) -> SwitchView:
        return SwitchView(switch=self["sync_offsets"], filters=self.groups)

    def acl_rows(self) -> SwitchView:
        return SwitchView(switch=self["sync_acls"], filters=self.acls)


def _name_filters(formset: BaseFormSet[Any]) -> list[NameFilter]:
    return [row for form in formset.forms if (row := form.row()) is not None]


def _acl_filters(formset: BaseFormSet[Any]) -> list[dict[str, dict[str, str]]]:
    """Return the rows that were stored before or were changed now, without those to be removed."""
    forms_shown = [form for form in formset.forms if form not in formset.deleted_forms]
    return [form.row() for form in forms_shown if form.has_changed() or not form.empty_permitted]


def _name_rows(document: str, key: str) -> list[dict[str, str]]:
    rows = known_filters(document, key=key)
    return [{"name": row.name, "pattern": row.pattern_type.value, "kind": row.filter_type.value} for row in rows]


def _acl_rows(document: str) -> list[dict[str, str]]:
    try:
        rows = parse_acl_filters(document)
    except LinkEngineError:
        rows = ()
    return [_acl_row(row) for row in rows]


def _acl_row(row: AclFilter) -> dict[str, str]:
    return {
        "resource_type": row.resource_type,
        "pattern_type": row.pattern_type,
        "name": row.name or "",
        "principal": row.principal or "",
        "operation": row.operation,
        "permission": row.permission,
    }


class NameForm(ConsoleForm):
    """The name of the link."""

    name = forms.CharField(
        label=gettext_lazy("Link name"),
        max_length=MAX_LINK_LENGTH,
        error_messages={"required": gettext_lazy("Enter a link name, for example west-to-east.")},
        widget=forms.TextInput(attrs=_PLAIN),
    )

    def __init__(self, *args: Any, draft: DraftValues, direction: Direction, suggested_name: str = "", **kwargs: Any) -> None:
        """Fill in the draft. ``suggested_name`` is offered while no name was entered."""
        super().__init__(*args, initial={"name": draft.name or suggested_name}, **kwargs)
        is_paired = direction.mode != "DESTINATION" or direction.needs_registered
        text = gettext("Cannot be changed later.")
        if is_paired:
            text = gettext("Cannot be changed later. The paired link must have the same name.")
        self.fields["name"].help_text = text

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        try:
            check_link_name(name)
        except LinkEngineError as error:
            raise forms.ValidationError(translated(error.message).replace("%", "%%")) from error
        return name

    def changes(self) -> dict[str, Any]:
        """Return the fields of the draft."""
        return {"name": self.cleaned_data["name"]}


# Parts of the draft by the field or config that an error of an action names; all others belong to the last step.
_FIELDS_OF_PART: Mapping[str, frozenset[str]] = {
    "own": frozenset({"own", "connection.mode"}),
    "other": frozenset({"other", "other_cluster_id", *ConnectionForm.base_fields}),
    "configuration": frozenset(
        {"prefix", *(config for enable, filters, _ in SWITCHES.values() for config in (enable, filters))}
    ),
}


def part_of(error: ConsoleError) -> str:
    """Return the part of the draft, "own", "other" or "configuration", that an error of an action concerns, or ""."""
    name = field_of(error)
    return next((part for part, names in _FIELDS_OF_PART.items() if name in names), "")
