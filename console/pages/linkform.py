"""The form that creates a cluster link. It has only the fields that the chosen direction needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django import forms

from console.errors import ConsoleError
from console.models import Cluster
from console.pages.forms import ConnectionForm
from console.presenters.directions import Direction
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.naming import MAX_LINK_LENGTH

# Form field -> the configs that it turns on, for all topics, groups and ACLs. Filters are set later on the link's pages.
_ALL = {"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}
_ANY_ACL = {
    "resourceFilter": {"resourceType": "any", "patternType": "any"},
    "accessFilter": {"operation": "any", "permissionType": "any"},
}
SWITCHES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "auto_create": {AUTO_CREATE: "true", AUTO_CREATE_FILTERS: json.dumps({"topicFilters": [_ALL]})},
        "sync_offsets": {
            "consumer.offset.sync.enable": "true",
            "consumer.offset.group.filters": json.dumps({"groupFilters": [_ALL]}),
        },
        "sync_acls": {"acl.sync.enable": "true", "acl.filters": json.dumps({"aclFilters": [_ANY_ACL]})},
    }
)
_NAME_ATTRIBUTES = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


def _switch(label: str, help_text: str) -> forms.BooleanField:
    box = forms.CheckboxInput(attrs={"class": "form-check-input"})
    return forms.BooleanField(label=label, help_text=help_text, required=False, widget=box)


class CreateLinkForm(ConnectionForm):
    """Two clusters and a link name. ``destination`` is the cluster on which the link is created, ``source`` the other one.

    The connection fields apply to a cluster that is not registered.
    """

    conditional = ConnectionForm.conditional | {"connection_mode"}

    source_kind = forms.ChoiceField(choices=[("registered", ""), ("other", "")], initial="registered", required=False)
    source = forms.ChoiceField(required=False)
    source_cluster_id = forms.CharField(
        label="Cluster ID",
        required=False,
        max_length=64,
        help_text="If empty, it is read from the cluster. If set, it must match.",
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )
    destination = forms.ChoiceField()
    name = forms.CharField(
        label="Link name",
        max_length=MAX_LINK_LENGTH,
        error_messages={"required": "Enter a link name, for example west-to-east."},
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )
    topic_prefix = forms.CharField(
        label="Mirror topic prefix",
        required=False,
        max_length=12,
        help_text="Example: west. changes orders to west.orders. Cannot be changed later.",
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )
    auto_create = _switch(
        "Auto-create mirror topics",
        "For all existing and future topics. Otherwise, add mirror topics by name, or define filters later.",
    )
    sync_offsets = _switch(
        "Sync consumer offsets",
        "Consumer groups resume on the destination at their committed offsets. Required for migration and disaster recovery.",
    )
    sync_acls = _switch("Sync ACLs", "All ACLs. Required for disaster recovery. Not available with a prefix.")
    connection_mode = forms.ChoiceField(
        label="Connection mode",
        required=False,
        initial="OUTBOUND",
        choices=[("OUTBOUND", "Outbound: this cluster connects"), ("INBOUND", "Inbound: the other cluster connects")],
        help_text="Cannot be changed later. Inbound uses the registered address of the other cluster.",
    )

    def __init__(self, *args: Any, direction: Direction, clusters: list[Cluster], **kwargs: Any) -> None:
        """Offer the clusters that the user may see, and remove the fields that the direction does not need."""
        super().__init__(*args, **kwargs)
        self.direction = direction
        self._offer(clusters)
        is_paired = direction.mode != "DESTINATION" or direction.needs_registered
        self.fields["name"].help_text = "Cannot be changed later." + (
            " The paired link must have the same name." if is_paired else ""
        )
        if not direction.has_mirrors:
            for name in ("topic_prefix", *SWITCHES):
                del self.fields[name]
        if direction.mode != "BIDIRECTIONAL":
            del self.fields["connection_mode"]
        if not self.has_connection_fields():
            for name in ConnectionForm.base_fields:
                self.fields[name].required = False

    def _offer(self, clusters: list[Cluster]) -> None:
        choices = [
            ("", "Choose a cluster"),
            *((cluster.cluster_id, f"{cluster.name} ({cluster.environment.name})") for cluster in clusters),
        ]
        for name, label in (("source", self.direction.other), ("destination", self.direction.own)):
            self.fields[name].choices = choices  # type: ignore[attr-defined]
            self.fields[name].label = label
        own = self.fields["destination"]
        own.help_text = self.direction.own_hint
        own.error_messages["required"] = "Choose a registered cluster. A link is created on one of them."

    def has_connection_fields(self) -> bool:
        return not self.direction.needs_registered and self.data.get("source_kind", "registered") == "other"

    def clean(self) -> dict[str, Any] | None:
        """Check the combination of fields."""
        values = super().clean() or {}
        if not self.has_connection_fields() and not values.get("source"):
            alternative = ", or register it first"
            if not self.direction.needs_registered:
                alternative = ', or select "Other Apache Kafka" and enter its address'
            self.add_error("source", f"Choose the other cluster of the link{alternative}.")
        elif values.get("source") and values.get("source") == values.get("destination") and not self.has_connection_fields():
            self.add_error("source", "Source and destination are the same cluster. Choose another cluster.")
        if values.get("sync_acls") and values.get("topic_prefix"):
            self.add_error(
                "sync_acls", "ACL sync is not available with a prefix, because ACLs contain source topic names. Choose one."
            )
        if values.get("connection_mode") == "INBOUND" and self.has_connection_fields():
            self.add_error(
                "connection_mode",
                "Inbound requires a registered cluster. Register the other cluster and choose it above, or choose outbound.",
            )
        return values

    def refuse(self, error: ConsoleError) -> bool:
        """Show an error at its field. For a registered cluster, whose fields are hidden, show it at the list of clusters."""
        assigned = super().refuse(error)
        if assigned and not self.has_connection_fields():
            for name in ("source_cluster_id", *ConnectionForm.base_fields):
                for problem in self.errors.pop(name, forms.utils.ErrorList()).as_data():
                    self.add_error("source", problem)
        return assigned

    def source_id(self) -> str:
        values = self.cleaned_data
        return str(values["source_cluster_id"] if self.has_connection_fields() else values["source"])

    def configs(self) -> dict[str, str | None]:
        """Return the configs of the link; without connection configs for a registered cluster."""
        connection: dict[str, str] = self.properties() if self.has_connection_fields() else {}
        prefix = self.cleaned_data.get("topic_prefix")
        inbound = {"connection.mode": "INBOUND"} if self.cleaned_data.get("connection_mode") == "INBOUND" else {}
        switched_on = {name: value for field in self.switched_on() for name, value in SWITCHES[field].items()}
        own = {"cluster.link.prefix": prefix} if prefix else {}
        return {**connection, **own, **switched_on, **self.direction.configs(), **inbound}

    def switches(self) -> list[forms.BoundField]:
        """Return the fields of ``SWITCHES`` that this form has."""
        return [self[name] for name in SWITCHES if name in self.fields]

    def switched_on(self) -> list[str]:
        """Return the names of the selected fields of ``SWITCHES``."""
        return [name for name in SWITCHES if self.cleaned_data.get(name)]
