"""Drafts of cluster links: stored step by step, tested, and turned into links.

A draft holds the credentials that its user entered. Only that user reads or changes it, and the credentials are never shown
again. As for links, a stored secret is sent only to the address for which it was entered: a change of the address, or of the
configs that protect the connection, needs the secret again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from django.db import transaction

from console.access import Permission, check_anywhere, check_permission, visible_clusters
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError, NotFoundError, from_engine
from console.links import actions as link_actions
from console.links import checks as link_checks
from console.links import pairs
from console.links.checks import LinkValidation
from console.links.drafts import OWN_SIDE, DraftValues, kept_secrets, values_of
from console.models import Cluster, ClusterLink, LinkDraft
from console.models.fields import readable, seal, unseal
from console.queue import dispatch
from linkengine.domain.connectionchecks import ConnectionCheck, ConnectionRole
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.messages import gettext_lazy

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
