"""Decides whose credentials a link uses, and refuses changes that would send stored secrets to another server.

A link signs in at its source either with its own security properties or with those of the registered cluster. The latter needs
the permission USE_CREDENTIALS. The rules about properties are in ``linkengine.domain.linkrules``; this module adds the
actor's roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from console.access import Permission, can, check_permission
from console.actors import Actor
from console.errors import DeniedError, InvalidInputError
from console.links import pairs
from console.models import Cluster, ClusterLink
from console.models.links import LinkMode
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkrules import (
    LOCAL,
    differs_in_recipient,
    inbound_properties,
    is_complete,
    local_properties,
    own_properties,
    secrets_to_repeat,
    uses_registered_security,
)

ACL_SYNC, ACL_FILTERS = "acl.sync.enable", "acl.filters"
_OWN = "Or give the link its own credentials: bootstrap.servers, security.protocol and, with SASL, sasl.jaas.config."
_OWN_LOCAL = "Or set local.security.protocol and, with SASL, local.sasl.mechanism and local.sasl.jaas.config."


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
            _check_use(link.source, by, advice="Or create the source side of the link first.")
        return
    link.uses_cluster_credentials = _uses_source(link, by=by, before=before)


def check_secrets(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Raise InvalidInputError if a change could send a stored secret to another server and does not contain the secret."""
    for secret, config in secrets_to_repeat(stored, changes):
        raise InvalidInputError(
            f"Changing {config} could send the stored {secret} to another server, so the request must contain {secret} too. "
            "Send both in one request (configs:alter takes several configs), or delete the secret in the same request.",
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
        message = (
            f"The local.* configs are incomplete; they replace all registered credentials of cluster "
            f"{link.destination.cluster_id}. {error.message} Set all of them with the prefix local., or none."
        )
        raise InvalidInputError(message, code=error.code, field=f"{LOCAL}sasl.jaas.config") from error


def _check_use(cluster: Cluster | None, by: Actor, *, advice: str) -> None:
    try:
        check_permission(by, Permission.USE_CREDENTIALS, cluster=cluster)
    except DeniedError as error:
        raise DeniedError(f"{error.message} {advice}", code=error.code) from error
