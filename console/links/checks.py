"""Checks a link before it is stored: whose credentials it uses, its configs, and the connection to its source."""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from console.access import Permission, can, check_permission, visible_clusters
from console.actors import Actor
from console.errors import BadRequestError, DeniedError, InvalidInputError, UnavailableError, from_engine
from console.links import pairs
from console.models import Cluster, ClusterLink, LinkConfig, MirrorTopic
from console.models.fields import seal
from console.models.links import ConnectionMode
from console.queue import dispatch
from console.redis import rate_limit
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.connectionchecks import ConnectionCheck, ConnectionRole, checks_from_json
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection, is_set
from linkengine.domain.linkrules import (
    LOCAL,
    LinkConfigError,
    check_configs,
    differs_in_recipient,
    inbound_properties,
    is_complete,
    local_properties,
    own_properties,
    secrets_to_repeat,
    uses_registered_security,
    with_canonical_names,
)
from linkengine.domain.messages import gettext_lazy, join_messages
from linkengine.domain.plans import BrokerDistance, GapFiller
from linkengine.domain.states import LinkMode, LinkState

# --- credentials ------------------------------------------------------------------------------------------------------
#
# A link signs in at its source either with its own security properties or with those of the registered cluster. The latter
# needs the permission USE_CREDENTIALS. The rules about properties are in ``linkengine.domain.linkrules``; here the
# actor's roles are added.


ACL_SYNC, ACL_FILTERS = "acl.sync.enable", "acl.filters"
_OWN = gettext_lazy(
    "Or give the link its own credentials: bootstrap.servers, security.protocol and, with SASL, sasl.jaas.config."
)
_OWN_LOCAL = gettext_lazy("Or set local.security.protocol and, with SASL, local.sasl.mechanism and local.sasl.jaas.config.")


def choose(link: ClusterLink, *, by: Actor, before: ClusterLink | None = None) -> None:
    """Set ``uses_cluster_credentials`` of a link that is being created or, if ``before`` is given, changed.

    A link uses the registered cluster's credentials if its own security properties are incomplete or cannot work at the
    registered listeners (``uses_registered_security``). If the actor may not use these credentials, a link with complete
    properties uses its own; otherwise DeniedError is raised. A change that leaves address and security as they are keeps the
    decision.
    """
    if before is not None and before.properties == link.properties:
        return
    if link.mode == LinkMode.SOURCE:
        _choose_local(link, by=by, before=before)
    if pairs.is_inbound(link):
        if before is None and pairs.other_side(link) is None:  # otherwise this was decided when the source side was created
            _check_use(link.source, by, advice=gettext_lazy("Or create the source side of the link first."))
        return
    link.uses_cluster_credentials = _uses_source(link, by=by, before=before)


def check_secrets(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Raise InvalidInputError if a change could send a stored secret to another server and does not contain the secret."""
    for secret, config in secrets_to_repeat(stored, changes):
        raise InvalidInputError(
            gettext_lazy(
                "Changing %(config)s could send the stored %(secret)s to another server, so the request must "
                "contain %(secret)s too. Send both in one request (configs:alter takes several configs), or delete "
                "the secret in the same request.",
                config=config,
                secret=secret,
            ),
            code="SECRET_NEEDED",
            field=secret,
        )


def check_acl_sync(link: ClusterLink, config: Callable[[str], str | None], *, by: Actor) -> None:
    """Raise DeniedError if ACL sync is on and the actor may not manage ACLs of the destination."""
    if config(ACL_SYNC) == "true":
        check_permission(by, Permission.MANAGE_ACLS, cluster=link.destination)


def _uses_source(link: ClusterLink, *, by: Actor, before: ClusterLink | None) -> bool:
    own = own_properties(link.properties)
    if link.source is None or not uses_registered_security(own, link.source.properties):
        return False
    used = before is not None and before.uses_cluster_credentials
    if used and before is not None and not differs_in_recipient(before.properties, link.properties):
        return True
    if is_complete(own) and not can(by, Permission.USE_CREDENTIALS, cluster=link.source):
        return False
    _check_use(link.source, by, advice=_OWN)
    return True


def _choose_local(link: ClusterLink, *, by: Actor, before: ClusterLink | None) -> None:
    """Check the ``local.*`` properties of a source-initiated link, with which its destination side signs in at the source."""
    local = local_properties(link.properties)
    if before is not None and local == local_properties(before.properties):
        return
    if not local:
        _check_use(link.destination, by, advice=_OWN_LOCAL)
        return
    try:
        address_from_properties(inbound_properties(link.properties, link.destination.properties))
    except LinkEngineError as error:
        message = gettext_lazy(
            "The local.* configs are incomplete; they replace all registered credentials of cluster "
            "%(cluster)s. %(problem)s Set all of them with the prefix local., or none.",
            cluster=link.destination.cluster_id,
            problem=error.message,
        )
        raise InvalidInputError(message, code=error.code, field=f"{LOCAL}sasl.jaas.config") from error


def _check_use(cluster: Cluster | None, by: Actor, *, advice: str) -> None:
    try:
        check_permission(by, Permission.USE_CREDENTIALS, cluster=cluster)
    except DeniedError as error:
        raise DeniedError(join_messages(" ", (error.message, advice)), code=error.code) from error


# --- validation of a new link -----------------------------------------------------------------------------------------


CHECK_TIMEOUT_S = 20.0  # two clusters, for each of which the engine's own timeout is 8 s
# Clients repeat a create whose response was lost (a proxy's 503, a broken connection). Confluent's Terraform provider does so
# after 1, 2, 4 and 8 s, and each attempt may take CHECK_TIMEOUT_S.
REPEAT_WINDOW = timedelta(seconds=120)
MASK = "[hidden]"
MAX_CLUSTER_ID = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsavedLink:
    """An unsaved link. ``others`` are its configs beside the connection, ``cluster_link_id`` the id that the client expects."""

    link: ClusterLink
    others: Mapping[str, str]
    cluster_link_id: str = ""

    def shown_configs(self) -> dict[str, str]:
        """Return all configs for the audit, secrets masked."""
        return mask_secrets(self.link.properties) | dict(self.others)


def mask_secrets(configs: Mapping[str, str]) -> dict[str, str]:
    """Mask the sensitive values."""
    return {name: MASK if LINK_CONFIGS[name].sensitive else value for name, value in sorted(configs.items())}


def unsaved_link(
    *,
    destination: Cluster,
    name: str,
    source_cluster_id: str,
    cluster_link_id: str = "",
    configs: Mapping[str, str | None],
    by: Actor,
    now: datetime,
) -> UnsavedLink:
    """Return an unsaved link with the configs; raise InvalidInputError, with the config's name, if a config is invalid.

    Also checks the actor's permissions for credentials and ACL sync. No cluster is contacted.
    """
    configs = canonical(configs)
    check_values(configs)
    values = {key: value for key, value in configs.items() if value is not None and is_set(key, value)}
    _check_length(source_cluster_id)
    if source_cluster_id and source_cluster_id == destination.cluster_id:
        raise BadRequestError(
            gettext_lazy("Source and destination are the same cluster. Name another source."), field="source_cluster_id"
        )
    link = ClusterLink(
        name=name,
        destination=destination,
        source=registered_source(source_cluster_id, by=by),
        source_cluster_id=source_cluster_id,
        mode=values.get("link.mode", LinkMode.DESTINATION),
        connection_mode=values.get("connection.mode", ConnectionMode.OUTBOUND),
        properties={key: value for key, value in values.items() if is_connection(key)},
        prefix=values.get("cluster.link.prefix", ""),
        state=LinkState.PAUSED if values.get("cluster.link.paused") == "true" else LinkState.ACTIVE,
        state_since=now,
        created_at=now,
        created_by=by.name,
    )
    others = {key: value for key, value in values.items() if not is_connection(key)}
    _check_inbound(link)
    choose(link, by=by)
    check_acl_sync(link, others.get, by=by)
    check_address(link)
    join_pair(link, cluster_link_id)
    return UnsavedLink(link=link, others=others, cluster_link_id=cluster_link_id)


def _check_length(cluster_id: str) -> None:
    """Raise InvalidInputError for a cluster id that is too long to be stored; Kafka's own ids have 22 characters."""
    if len(cluster_id) > MAX_CLUSTER_ID:
        raise InvalidInputError(
            gettext_lazy(
                "The cluster id has %(count)s characters; at most %(most)s are allowed. Give the id that "
                "the other cluster's brokers return, or leave it out to take it from the source.",
                count=len(cluster_id),
                most=MAX_CLUSTER_ID,
            ),
            field="source_cluster_id",
        )


def _check_inbound(link: ClusterLink) -> None:
    """Raise InvalidInputError for the destination side of a source-initiated link whose source is not registered here."""
    if pairs.is_inbound(link) and link.source is None:
        raise InvalidInputError(
            gettext_lazy(
                "An INBOUND link needs a registered source cluster, and source_cluster_id is not the id of a "
                "registered cluster that you may see. Register the source first, or set connection.mode to "
                "OUTBOUND."
            ),
            field="source_cluster_id",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkValidation:
    """The result of validating an unsaved link."""

    source_cluster_id: str
    distances: tuple[BrokerDistance, ...] | None  # by broker of the source; None if they were not measured


def check_unsaved(unsaved: UnsavedLink, *, with_distances: bool) -> LinkValidation:
    """Connect to the source, sign in and compare the cluster id; set the link's cluster id if none was given.

    Raises BadRequestError if the source is the destination itself.
    """
    link = unsaved.link
    found = query_source(link, with_distances=with_distances)
    if not link.source_cluster_id:
        link.source_cluster_id = found["cluster_id"]
        _check_length(link.source_cluster_id)
    if link.source_cluster_id == link.destination.cluster_id:
        raise BadRequestError(
            gettext_lazy(
                "The bootstrap servers belong to the destination cluster itself. Give those of another cluster as source."
            ),
            field="bootstrap.servers",
        )
    link.gap_filler = found.get("gap_filler") or GapFiller.MARKERS
    link.probed_at = link.created_at
    measured = found.get("distances")
    distances = None if measured is None else tuple(BrokerDistance(**values) for values in measured)
    return LinkValidation(source_cluster_id=link.source_cluster_id, distances=distances)


def query_source(link: ClusterLink, *, with_distances: bool) -> dict[str, Any]:
    """Run the engine's check of an unsaved link in a worker; return the fields of ``ClusterProbe``."""
    try:
        sealed = seal({"source": pairs.properties_of_source(link), "destination": dict(link.destination.properties)})
        found: dict[str, Any] = dispatch.call(
            "check_link",
            timeout_s=CHECK_TIMEOUT_S,
            sealed=sealed,
            source_cluster_id=link.source_cluster_id,
            fills_gaps=link.mode != LinkMode.SOURCE,  # the mirrors of a source-initiated link are on the other cluster
            with_distances=with_distances,
        )
    except LinkEngineError as error:
        raise from_engine(error) from error
    return found


def join_pair(link: ClusterLink, cluster_link_id: str) -> None:
    """Set the link's pair id to the other side's link id, or to the expected id; raise BadRequestError if the two differ."""
    other = pairs.other_side(link)
    expected = _read_id(cluster_link_id) if cluster_link_id else None
    if other is not None and expected not in (None, other.shown_uuid):
        raise BadRequestError(
            gettext_lazy(
                "The other side of the link has the id %(known)s, but the request expects %(expected)s. Leave "
                "cluster_link_id out, or give the other side's id.",
                known=other.shown_uuid,
                expected=expected,
            ),
            field="cluster_link_id",
        )
    link.pair_uuid = other.shown_uuid if other is not None else expected


def _read_id(text: str) -> uuid.UUID:
    """Parse a link id: 22 characters of base64url, or a hyphenated UUID."""
    try:
        return uuid.UUID(text) if "-" in text and len(text) == 36 else uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError:
        raise BadRequestError(
            gettext_lazy("'%(text)s' is not the id of a cluster link. Give 22 characters of base64url, or a UUID.", text=text),
            field="cluster_link_id",
        ) from None


def canonical(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the configs under their canonical names; raise InvalidInputError if two names of a config differ in value."""
    try:
        return with_canonical_names(configs)
    except LinkConfigError as error:
        raise InvalidInputError(error.message, code="INVALID_CONFIG", field=error.name) from error


def check_values(configs: Mapping[str, str | None], *, present: Mapping[str, str | None] | None = None) -> None:
    """Raise InvalidInputError if a value is not allowed by the table of link configs; ``present`` are the stored configs."""
    try:
        check_configs(configs, present=present)
    except LinkConfigError as error:
        raise InvalidInputError(error.message, code="INVALID_CONFIG", field=error.name) from error


def check_address(link: ClusterLink) -> None:
    """Raise InvalidInputError unless the link or its registered source has complete properties to reach the source.

    A link whose source side is missing passes: its probes report that, and its own configs are not the cause.
    """
    local = {name.removeprefix("local."): value for name, value in link.properties.items() if name.startswith("local.")}
    try:
        if local:
            address_from_properties({**link.destination.properties, **local})
        address_from_properties(pairs.properties_of_source(link))
    except LinkEngineError as error:
        if error.code != ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR:
            raise InvalidInputError(error.message, code=error.code, field="bootstrap.servers") from error


def registered_source(source_cluster_id: str, *, by: Actor) -> Cluster | None:
    """Return the registered cluster with the id if the actor may see at least one of its resources, or None."""
    if not source_cluster_id:
        return None
    return visible_clusters(by).filter(cluster_id=source_cluster_id).first()


def is_repeat(existing: ClusterLink, unsaved: UnsavedLink, *, by: Actor, now: datetime) -> bool:
    """Return whether a request repeats the creation of ``existing``: same actor and values, within ``REPEAT_WINDOW``."""
    others = dict(LinkConfig.objects.filter(link=existing).values_list("name", "value"))
    same_source = unsaved.link.source_cluster_id in ("", existing.source_cluster_id)
    same = same_source and existing.properties == unsaved.link.properties and others == unsaved.others
    return same and is_recent(existing, by=by, now=now)


def is_recent(row: ClusterLink | MirrorTopic, *, by: Actor, now: datetime) -> bool:
    """Return whether the actor created the row within ``REPEAT_WINDOW``, so that an equal request is a retry."""
    return row.created_by == by.name and row.created_at >= now - REPEAT_WINDOW and row.deletion_requested_at is None


# --- connection tests -------------------------------------------------------------------------------------------------
#
# Nothing is stored, and nothing is written to the cluster.
#
# A test connects to addresses that a user enters, and occupies a thread of a worker, so the tests of a user are limited.


TEST_TIMEOUT_S = 30.0  # silent brokers delay several steps, each of which has a timeout of 3 to 5 s
TESTS_AT_ONCE, TESTS_PER_S = 30, 0.5  # of a user


def check_properties(
    properties: Mapping[str, str],
    *,
    role: ConnectionRole = ConnectionRole.ANY,
    expected_cluster_id: str = "",
    other_cluster_id: str = "",
    by: Actor,
) -> tuple[ConnectionCheck, ...]:
    """Return the checklist of a connection with client properties. The caller has checked the permission to use them.

    Raises InvalidInputError for properties that cannot be read, and UnavailableError if the user starts too many tests; a
    connection that fails is a row of the checklist.
    """
    count_test(by=by)
    try:
        address_from_properties(properties)
        rows = dispatch.call(
            "check_connection",
            timeout_s=TEST_TIMEOUT_S,
            sealed=seal(dict(properties)),
            role=str(role),
            expected_cluster_id=expected_cluster_id,
            other_cluster_id=other_cluster_id,
        )
    except LinkEngineError as error:
        raise from_engine(error, field="bootstrap.servers") from error
    return checks_from_json(rows)


def check_registered(
    *, cluster: Cluster, role: ConnectionRole = ConnectionRole.ANY, other_cluster_id: str = "", by: Actor
) -> tuple[ConnectionCheck, ...]:
    """Return the checklist of a registered cluster; the same permission as for a refresh, which connects as well."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    return check_properties(
        cluster.properties, role=role, expected_cluster_id=cluster.cluster_id, other_cluster_id=other_cluster_id, by=by
    )


def count_test(*, by: Actor) -> None:
    """Count a test, or a list of a source, of a user; raise UnavailableError if there were too many."""
    wait_s = rate_limit.take(f"connection-test:{by.name}", per_s=TESTS_PER_S, burst=TESTS_AT_ONCE)
    if wait_s:
        raise UnavailableError(
            gettext_lazy(
                "You have started too many connection tests. Nothing was sent. Try again in %(seconds)s s.",
                seconds=math.ceil(wait_s),
            ),
            code="TOO_MANY_TESTS",
        )
