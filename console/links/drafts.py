"""Drafts of cluster links that are created in steps: their values, the stored rows, and how they become links.

``DraftValues.own`` is the registered cluster on which the link is created. The other cluster is either registered or described
by ``connection``, as Kafka client properties. A filter document is kept while its switch is off, so that the switch can be
turned on again, but it is no config then.

A draft holds the credentials that its user entered. Only that user reads or changes it until it expires, and the credentials
are never shown again. As for links, a stored secret is sent only to the address for which it was entered: a change of the
address, or of the configs that protect the connection, needs the secret again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, cast

from django.db import transaction
from django.db.models import QuerySet

from console.access import Permission, check_anywhere, check_permission, visible_clusters
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError, NotFoundError, from_engine
from console.links import actions as link_actions
from console.links import checks as link_checks
from console.links import pairs
from console.links.checks import LinkValidation
from console.models import Cluster, ClusterLink, LinkDraft
from console.models.fields import readable, seal, unseal
from console.queue import dispatch
from linkengine.domain.clusterviews import SourceListing, listing_from_json
from linkengine.domain.connectionchecks import ConnectionCheck, ConnectionRole, checks_from_json
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS, SECRETS, secrets_to_repeat
from linkengine.domain.messages import gettext_lazy

REGISTERED, OTHER = "registered", "other"
OWN_SIDE, OTHER_SIDE = "own", "other"
SYNC_OFFSETS, GROUP_FILTERS = "consumer.offset.sync.enable", "consumer.offset.group.filters"
SYNC_ACLS, ACL_FILTERS = "acl.sync.enable", "acl.filters"
PREFIX = "cluster.link.prefix"
_ALL = {"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}
_ANY_ACL = {
    "resourceFilter": {"resourceType": "any", "patternType": "any"},
    "accessFilter": {"operation": "any", "permissionType": "any"},
}
# Switch -> its two configs, and the document that includes everything, with which it starts.
SWITCHES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "auto_create": (AUTO_CREATE, AUTO_CREATE_FILTERS, json.dumps({"topicFilters": [_ALL]})),
        "sync_offsets": (SYNC_OFFSETS, GROUP_FILTERS, json.dumps({"groupFilters": [_ALL]})),
        "sync_acls": (SYNC_ACLS, ACL_FILTERS, json.dumps({"aclFilters": [_ANY_ACL]})),
    }
)
DOCUMENTS: Mapping[str, str] = MappingProxyType(
    {"auto_create": "topic_filters", "sync_offsets": "group_filters", "sync_acls": "acl_filters"}
)  # switch -> field of its filter document


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftValues:
    """The fields of all steps."""

    direction: str = ""  # key of the direction that the user chose; it decides the texts of the pages
    preset: str = ""
    link_mode: str = "DESTINATION"
    connection_mode: str = "OUTBOUND"
    remote_field: str = "source_cluster_id"  # name of the other cluster in the REST API
    own: str = ""  # cluster id
    other_kind: str = REGISTERED
    other: str = ""  # cluster id of a registered cluster
    other_cluster_id: str = ""  # of a cluster that is not registered; "": it is read from the cluster
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)  # with secrets
    auto_create: bool = False
    topic_filters: str = SWITCHES["auto_create"][2]
    add_prefix: bool = False
    prefix: str = ""
    sync_offsets: bool = False
    group_filters: str = SWITCHES["sync_offsets"][2]
    sync_acls: bool = False
    acl_filters: str = SWITCHES["sync_acls"][2]
    configured: bool = False  # the step with switches and filters was stored
    name: str = ""

    @property
    def has_own_connection(self) -> bool:
        """Return whether the link gets connection configs of its own, because the other cluster is not registered."""
        return self.other_kind == OTHER

    @property
    def has_mirrors(self) -> bool:
        """Return whether mirror topics can be added to this link: the source side of a link has none."""
        return self.link_mode != "SOURCE"

    @property
    def remote_id(self) -> str:
        """The id of the other cluster; "" if it is to be read from the cluster."""
        return self.other_cluster_id if self.has_own_connection else self.other

    @property
    def has_other(self) -> bool:
        """Return whether the other cluster was chosen or entered."""
        return bool(self.connection if self.has_own_connection else self.other)

    def connection_configs(self) -> dict[str, str | None]:
        """Return the configs that decide how the link connects, secrets included."""
        mode = {"link.mode": self.link_mode} if self.link_mode != "DESTINATION" else {}
        direction = {"connection.mode": self.connection_mode} if self.connection_mode != "OUTBOUND" else {}
        return {**(self.connection if self.has_own_connection else {}), **mode, **direction}

    def configs(self) -> dict[str, str | None]:
        """Return all configs of the link, secrets included."""
        if not self.has_mirrors:
            return self.connection_configs()
        prefix = {PREFIX: self.prefix} if self.add_prefix and self.prefix else {}
        switched: dict[str, str | None] = {}
        for switch, (enable, filters, _) in SWITCHES.items():
            if getattr(self, switch):
                switched |= {enable: "true", filters: getattr(self, DOCUMENTS[switch])}
        return {**self.connection_configs(), **prefix, **switched}

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON, secrets included."""
        return asdict(self) | {"connection": dict(self.connection)}


def values_of(draft: LinkDraft) -> DraftValues:
    """Return the values of a draft; the defaults if no key decrypts them, so that they can be entered again."""
    stored = readable(draft.values)
    known = {each.name for each in fields(DraftValues)}
    return DraftValues(**{name: value for name, value in stored.items() if name in known})  # type: ignore[arg-type]


def kept_secrets(
    before: Mapping[str, str], after: Mapping[str, str], *, entered: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Return (secret, config) for each stored secret that the new connection would send elsewhere without being entered again.

    A secret config that differs counts as entered only if it is in ``entered``: another user name changes
    ``sasl.jaas.config``, but the password in it is the stored one.
    """
    changes: dict[str, str | None] = {
        name: after.get(name) for name in {*before, *after} if name not in SECRETS and before.get(name) != after.get(name)
    }
    changes |= {name: after.get(name) for name in SECRETS if name in entered or name not in after}
    return secrets_to_repeat(before, changes)


# --- stored drafts ----------------------------------------------------------------------------------------------------


KEEP_DRAFTS = timedelta(days=7)  # after the last change


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChecks:
    """The last connection test of a side."""

    checks: tuple[ConnectionCheck, ...]
    tested_at: datetime


def own_drafts(*, by: Actor, now: datetime) -> QuerySet[LinkDraft]:
    """Return the drafts of a user that have not expired, newest first."""
    return LinkDraft.objects.filter(user=by.user, updated_at__gte=now - KEEP_DRAFTS)


def get_draft(*, draft_id: int, by: Actor, now: datetime, with_listing: bool = False) -> LinkDraft:
    """Return a draft of the user; raise NotFoundError. The list of its source is long, and loaded on request only."""
    drafts = own_drafts(by=by, now=now) if with_listing else own_drafts(by=by, now=now).defer("listing")
    draft = drafts.filter(pk=draft_id).first() if by.user is not None else None
    if draft is None:
        message = gettext_lazy(
            "Draft %(draft_id)s does not exist. Its link may have been created, or it expired after %(days)s days.",
            draft_id=draft_id,
            days=KEEP_DRAFTS.days,
        )
        raise NotFoundError(message, code="UNKNOWN_DRAFT")
    return draft


def checks_of(draft: LinkDraft) -> dict[str, StoredChecks]:
    """Return the last connection tests by side; a side that was not tested since its last change is left out."""
    stored = cast("Mapping[str, dict[str, object]]", readable(draft.checks))
    return {
        side: StoredChecks(
            checks=checks_from_json(cast("list[dict[str, str]]", test["checks"])),
            tested_at=datetime.fromisoformat(cast("str", test["tested_at"])),
        )
        for side, test in stored.items()
    }


def listing_of(draft: LinkDraft) -> SourceListing | None:
    """Return the stored listing of the source, None if it was not listed. One query, unless the listing is loaded."""
    stored = readable(draft.listing)
    return listing_from_json(stored) if stored else None


# --- actions ----------------------------------------------------------------------------------------------------------


MOST_DRAFTS = 20  # per user
LIST_TIMEOUT_S = 25.0  # topics, groups and ACLs of a large cluster take a few seconds
UNNAMED = "new-link"  # name of a link without one, while its source is listed
# A change of these makes connection tests and lists out of date.
_CONNECTING = ("own", "other_kind", "other", "other_cluster_id", "connection", "connection_mode")


def start(*, values: DraftValues, by: Actor, now: datetime) -> LinkDraft:
    """Create a draft; the user must be allowed to manage links somewhere."""
    check_anywhere(by, Permission.MANAGE_LINK)
    assert by.user is not None  # pages require a sign-in, and only pages create drafts
    if LinkDraft.objects.filter(user=by.user).count() >= MOST_DRAFTS:
        raise ConflictError(
            gettext_lazy(
                "You already have %(count)s drafts of cluster links. Continue or discard one of them.",
                count=MOST_DRAFTS,
            ),
            code="TOO_MANY_DRAFTS",
        )
    return LinkDraft.objects.create(user=by.user, values=values.to_json(), created_at=now, updated_at=now)


def save(*, draft: LinkDraft, changes: Mapping[str, Any], entered: Collection[str] = (), by: Actor, now: datetime) -> LinkDraft:
    """Store the fields of a step; other steps, which may have been changed in another window, stay as they are.

    ``entered`` names the secret configs that the request contains. Raises InvalidInputError (SECRET_NEEDED) if another stored
    secret would be sent elsewhere. Connection tests and lists are dropped if they no longer belong to the connection.
    """
    with transaction.atomic():
        locked = _locked(draft, by=by)
        before = values_of(locked)
        after = replace(before, **changes)
        for secret, config in kept_secrets(before.connection, after.connection, entered=entered):
            raise InvalidInputError(
                gettext_lazy(
                    "Another %(config)s would send the stored %(secret)s elsewhere. Enter the secret again.",
                    config=config,
                    secret=secret,
                ),
                code="SECRET_NEEDED",
                field=secret,
            )
        locked.values, locked.updated_at = after.to_json(), now
        if any(getattr(before, name) != getattr(after, name) for name in _CONNECTING):
            locked.checks, locked.listing, locked.listed_at = {}, {}, None
        locked.save()
    return locked


def discard(*, draft: LinkDraft, by: Actor) -> None:
    """Delete a draft with its credentials."""
    LinkDraft.objects.filter(pk=draft.pk, user=by.user).delete()


def check_side(*, draft: LinkDraft, side: str, by: Actor, now: datetime) -> tuple[ConnectionCheck, ...]:
    """Test the connection to the link's own or to the other cluster through a worker, and store the checklist.

    Takes up to ``links.checks.TEST_TIMEOUT_S``. Stored credentials of the other cluster are used only if the user may.
    """
    values = values_of(draft)
    if side == OWN_SIDE:
        cluster = _own_cluster(values, by=by)
        checks = link_checks.check_registered(cluster=cluster, role=_own_role(values), other_cluster_id=values.remote_id, by=by)
    else:
        checks = link_checks.check_properties(
            _other_properties(values, by=by),
            role=_other_role(values),
            expected_cluster_id=values.remote_id,
            other_cluster_id=values.own,
            by=by,
        )
    tested = {"checks": [asdict(check) for check in checks], "tested_at": now.isoformat()}
    with transaction.atomic():
        locked = _locked(draft, by=by)
        if values_of(locked) == values:  # otherwise it was changed in another window
            locked.checks = {**readable(locked.checks), side: tested}
            locked.save(update_fields=["checks"])
    return checks


def list_source(*, draft: LinkDraft, by: Actor, now: datetime) -> None:
    """List topics, groups and ACLs of the source through a worker, with the link's credentials, and store them.

    Needs the permission to create the link: a paired link's stored credentials may be used for it.
    """
    values = values_of(draft)
    own, name = _own_cluster(values, by=by), values.name or UNNAMED
    link_actions.check_creation(destination=own, name=name, by=by)
    link_checks.count_test(by=by)
    unsaved = link_checks.unsaved_link(
        destination=own,
        name=name,
        source_cluster_id=values.remote_id,
        configs=values.connection_configs(),
        by=by,
        now=now,
    )
    try:
        sealed = seal(pairs.properties_of_source(unsaved.link))
        found = unseal(dispatch.call("list_source", timeout_s=LIST_TIMEOUT_S, sealed=sealed))
    except LinkEngineError as error:
        raise from_engine(error) from error
    with transaction.atomic():
        locked = _locked(draft, by=by)
        if values_of(locked) == values:
            locked.listing, locked.listed_at = found, now
            locked.save(update_fields=["listing", "listed_at"])


def launch(*, draft: LinkDraft, validate_only: bool = False, by: Actor, now: datetime) -> ClusterLink | LinkValidation:
    """Create the link of a draft and delete the draft; with ``validate_only`` change nothing and return the validation.

    If the deletion of the draft fails, a repetition returns the link that was created (``links.actions.create_link``).
    """
    values = values_of(draft)
    created = link_actions.create_link(
        destination=_own_cluster(values, by=by),
        name=values.name,
        source_cluster_id=values.remote_id,
        configs=values.configs(),
        validate_only=validate_only,
        by=by,
        now=now,
    )
    if isinstance(created, ClusterLink):
        discard(draft=draft, by=by)
    return created


def _locked(draft: LinkDraft, *, by: Actor) -> LinkDraft:
    locked = LinkDraft.objects.select_for_update().defer("listing").filter(pk=draft.pk, user=by.user).first()
    if locked is None:
        raise NotFoundError(
            gettext_lazy("The draft was discarded, or its link was created, in another window."), code="UNKNOWN_DRAFT"
        )
    return locked


def _own_cluster(values: DraftValues, *, by: Actor) -> Cluster:
    clusters = visible_clusters(by).select_related("environment__organization")
    found = clusters.filter(cluster_id=values.own).first() if values.own else None
    if found is None:
        raise InvalidInputError(gettext_lazy("Choose the registered cluster on which the link is created."), field="own")
    return found


def _other_properties(values: DraftValues, *, by: Actor) -> Mapping[str, str]:
    """Return the properties to test the other cluster with; those of a registered cluster only if the user may use them."""
    if values.has_own_connection:
        check_anywhere(by, Permission.MANAGE_LINK)
        return values.connection
    clusters = visible_clusters(by).select_related("environment__organization")
    cluster = clusters.filter(cluster_id=values.other).first() if values.other else None
    if cluster is None:
        raise InvalidInputError(gettext_lazy("Choose the other cluster of the link."), field="other")
    check_permission(by, Permission.USE_CREDENTIALS, cluster=cluster)
    properties: Mapping[str, str] = cluster.properties
    return properties


def _own_role(values: DraftValues) -> ConnectionRole:
    return _ROLES.get(values.link_mode, ConnectionRole.ANY)


def _other_role(values: DraftValues) -> ConnectionRole:
    own = _own_role(values)
    opposite = {
        ConnectionRole.SOURCE: ConnectionRole.DESTINATION,
        ConnectionRole.DESTINATION: ConnectionRole.SOURCE,
    }
    return opposite.get(own, ConnectionRole.ANY)


_ROLES = {"DESTINATION": ConnectionRole.DESTINATION, "SOURCE": ConnectionRole.SOURCE}
