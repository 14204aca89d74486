"""The form behind "Create cluster link": it asks for what the chosen direction needs, and for nothing else."""

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

# Field of the form -> the configs that it switches on. A choice among topics, groups and ACLs is made on the link's pages.
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
    """Two clusters and a name. ``source`` is the cluster at the other end, ``destination`` the one the link is created at.

    The connection fields count for another cluster that is not registered.
    """

    conditional = ConnectionForm.conditional | {"connection_mode"}

    source_kind = forms.ChoiceField(choices=[("registered", ""), ("other", "")], initial="registered", required=False)
    source = forms.ChoiceField(required=False)
    source_cluster_id = forms.CharField(
        label="Cluster ID",
        required=False,
        max_length=64,
        help_text="Left empty, the cluster is asked for it. If given, it must be right.",
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )
    destination = forms.ChoiceField()
    name = forms.CharField(
        label="Link name",
        max_length=MAX_LINK_LENGTH,
        error_messages={"required": "A link is found by its name. Enter one, for example west-to-east."},
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )
    topic_prefix = forms.CharField(
        label="Prefix of mirror topics",
        required=False,
        max_length=12,
        help_text="For example west. makes orders into west.orders. Cannot be changed later.",
        widget=forms.TextInput(attrs=_NAME_ATTRIBUTES),
    )
    auto_create = _switch(
        "Mirror all topics by themselves",
        "Those that exist and those to come. Otherwise you choose topics by their names, or by filters.",
    )
    sync_offsets = _switch(
        "Carry over consumer offsets",
        "All groups go on at the destination where they stopped at the source. Needed for migration and disaster recovery.",
    )
    sync_acls = _switch("Carry over ACLs", "All of them. Needed for disaster recovery. Not possible together with a prefix.")
    connection_mode = forms.ChoiceField(
        label="Connections are opened by",
        required=False,
        initial="OUTBOUND",
        choices=[("OUTBOUND", "This cluster (outbound)"), ("INBOUND", "The other cluster (inbound)")],
        help_text="Cannot be changed later. Inbound reaches the other cluster as it is registered here.",
    )

    def __init__(self, *args: Any, direction: Direction, clusters: list[Cluster], **kwargs: Any) -> None:
        """Offer the clusters that the person may see, and drop the fields that the direction does not need."""
        super().__init__(*args, **kwargs)
        self.direction = direction
        self._offer(clusters)
        two_halves = direction.mode != "DESTINATION" or direction.needs_registered
        self.fields["name"].help_text = "Cannot be changed later." + (" Both halves have the same name." if two_halves else "")
        if not direction.has_mirrors:
            for name in ("topic_prefix", *SWITCHES):
                del self.fields[name]
        if direction.mode != "BIDIRECTIONAL":
            del self.fields["connection_mode"]
        if not self.asks_connection():
            for name in ConnectionForm.base_fields:
                self.fields[name].required = False

    def _offer(self, clusters: list[Cluster]) -> None:
        choices = [("", "Choose a cluster"), *((one.cluster_id, f"{one.name} ({one.environment.name})") for one in clusters)]
        for name, label in (("source", self.direction.other), ("destination", self.direction.own)):
            self.fields[name].choices = choices  # type: ignore[attr-defined]
            self.fields[name].label = label
        own = self.fields["destination"]
        own.help_text = self.direction.own_hint
        own.error_messages["required"] = "A link is created at one of the clusters registered here. Choose one."

    def asks_connection(self) -> bool:
        return not self.direction.needs_registered and self.data.get("source_kind", "registered") == "other"

    def clean(self) -> dict[str, Any] | None:
        """Ask for a registered cluster where that way was chosen, or where there is no other."""
        values = super().clean() or {}
        if not self.asks_connection() and not values.get("source"):
            otherwise = "; register it first if it is missing"
            if not self.direction.needs_registered:
                otherwise = ", or choose Other Apache Kafka and give its address"
            self.add_error("source", f"A link needs a cluster at its other end. Choose it{otherwise}.")
        elif values.get("source") and values.get("source") == values.get("destination") and not self.asks_connection():
            self.add_error("source", "Both ends are the same cluster, and a link joins two. Choose another one.")
        if values.get("sync_acls") and values.get("topic_prefix"):
            self.add_error(
                "sync_acls", "ACLs name topics as the source does, so a link with a prefix carries none. Choose one of both."
            )
        if values.get("connection_mode") == "INBOUND" and self.asks_connection():
            self.add_error(
                "connection_mode",
                "Inbound reaches the other cluster as it is registered, and this one is not. Register it and choose it above, "
                "or let this cluster open the connections.",
            )
        return values

    def refuse(self, error: ConsoleError) -> bool:
        """Put a refusal that concerns a registered cluster beside the list it was chosen from: its fields are not shown."""
        placed = super().refuse(error)
        if placed and not self.asks_connection():
            for name in ("source_cluster_id", *ConnectionForm.base_fields):
                for problem in self.errors.pop(name, forms.utils.ErrorList()).as_data():
                    self.add_error("source", problem)
        return placed

    def source_id(self) -> str:
        values = self.cleaned_data
        return str(values["source_cluster_id"] if self.asks_connection() else values["source"])

    def configs(self) -> dict[str, str | None]:
        """Answer the configs of the link; a registered cluster brings its own connection."""
        connection: dict[str, str] = self.properties() if self.asks_connection() else {}
        prefix = self.cleaned_data.get("topic_prefix")
        inbound = {"connection.mode": "INBOUND"} if self.cleaned_data.get("connection_mode") == "INBOUND" else {}
        switched_on = {name: value for field in self.switched_on() for name, value in SWITCHES[field].items()}
        own = {"cluster.link.prefix": prefix} if prefix else {}
        return {**connection, **own, **switched_on, **self.direction.configs(), **inbound}

    def switches(self) -> list[forms.BoundField]:
        """Answer what can be switched on, for the page."""
        return [self[name] for name in SWITCHES if name in self.fields]

    def switched_on(self) -> list[str]:
        """Name the fields of ``SWITCHES`` that were ticked."""
        return [name for name in SWITCHES if self.cleaned_data.get(name)]
