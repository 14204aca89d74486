"""Builds an unsaved link from the configs of a request, and validates it by connecting to the source."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from console.access import visible_clusters
from console.actions import linkcredentials
from console.actors import Actor
from console.errors import BadRequestError, InvalidInputError, from_engine
from console.links import pairs
from console.models import Cluster, ClusterLink, LinkConfig, MirrorTopic
from console.models.fields import seal
from console.models.links import ConnectionMode, LinkMode
from console.queue import dispatch
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection, is_set
from linkengine.domain.linkrules import LinkConfigError, check_configs, with_canonical_names
from linkengine.domain.plans import BrokerDistance, GapFiller
from linkengine.domain.states import LinkState

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
        return shown(self.link.properties) | dict(self.others)


def shown(configs: Mapping[str, str]) -> dict[str, str]:
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
    """Return an unsaved link with the configs; raise InvalidInputError, with the config's name, if one is invalid.

    Also checks the actor's permissions for credentials and ACL sync. No cluster is contacted.
    """
    configs = canonical(configs)
    check_values(configs)
    values = {key: value for key, value in configs.items() if value is not None and is_set(key, value)}
    _check_length("source_cluster_id", source_cluster_id)
    if source_cluster_id and source_cluster_id == destination.cluster_id:
        raise BadRequestError("Source and destination are the same cluster. Name another source.", field="source_cluster_id")
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
    linkcredentials.choose(link, by=by)
    linkcredentials.check_acl_sync(link, others.get, by=by)
    check_address(link)
    join_pair(link, cluster_link_id)
    return UnsavedLink(link=link, others=others, cluster_link_id=cluster_link_id)


def _check_length(field: str, cluster_id: str) -> None:
    """Raise InvalidInputError for a cluster id that is too long to be stored; Kafka's own ids have 22 characters."""
    if len(cluster_id) > MAX_CLUSTER_ID:
        raise InvalidInputError(
            f"The cluster id has {len(cluster_id)} characters; at most {MAX_CLUSTER_ID} are allowed. Give the id that the "
            "other cluster's brokers return, or leave it out to take it from the source.",
            field=field,
        )


def _check_inbound(link: ClusterLink) -> None:
    """Raise InvalidInputError for the destination side of a source-initiated link whose source is not registered here."""
    if pairs.is_inbound(link) and link.source is None:
        raise InvalidInputError(
            "An INBOUND link needs a registered source cluster, and source_cluster_id is not the id of a registered cluster "
            "that you may see. Register the source first, or set connection.mode to OUTBOUND.",
            field="source_cluster_id",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkValidation:
    """The result of validating an unsaved link."""

    source_cluster_id: str
    distances: tuple[BrokerDistance, ...] | None  # by broker of the source; None if they were not measured


def check_unsaved(unsaved: UnsavedLink, *, with_distances: bool = False) -> LinkValidation:
    """Connect to the source, sign in and compare the cluster id; set the link's cluster id if none was given.

    Raises BadRequestError if the source is the destination itself.
    """
    link = unsaved.link
    found = ask_source(link, with_distances=with_distances)
    if not link.source_cluster_id:
        link.source_cluster_id = found["cluster_id"]
    if link.source_cluster_id == link.destination.cluster_id:
        raise BadRequestError(
            "The bootstrap servers belong to the destination cluster itself. Give those of another cluster as source.",
            field="bootstrap.servers",
        )
    link.gap_filler = found.get("gap_filler") or GapFiller.MARKERS
    link.probed_at = link.created_at
    measured = found.get("distances")
    distances = None if measured is None else tuple(BrokerDistance(**values) for values in measured)
    return LinkValidation(source_cluster_id=link.source_cluster_id, distances=distances)


def ask_source(link: ClusterLink, *, with_distances: bool = False) -> dict[str, Any]:
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
            f"The other side of the link has the id {other.shown_uuid}, but the request expects {expected}. Leave "
            "cluster_link_id out, or give the other side's id.",
            field="cluster_link_id",
        )
    link.pair_uuid = other.shown_uuid if other is not None else expected


def _read_id(text: str) -> uuid.UUID:
    """Parse a link id: 22 characters of base64url, or a hyphenated UUID."""
    try:
        return uuid.UUID(text) if "-" in text and len(text) == 36 else uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError:
        raise BadRequestError(
            f"'{text}' is not the id of a cluster link. Give 22 characters of base64url, or a UUID.", field="cluster_link_id"
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
