"""Read the ACLs of a cluster; change those of a destination."""

from __future__ import annotations

from collections.abc import Sequence

from linkengine.domain.aclfilters import Acl
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync import acls

__all__ = ["change_acls", "read_acls", "read_acls_of_every_broker"]


def read_acls(address: ClusterAddress) -> set[Acl]:
    """Return every ACL of a cluster; needs DESCRIBE on it. Raises SECURITY_DISABLED_ERROR if it has no authorizer."""
    return acls.read_acls(ClusterAdmin(address))


def read_acls_of_every_broker(address: ClusterAddress) -> set[Acl]:
    """Return every ACL that any broker shows: the others are deleted. Raises TIMEOUT_ERROR if a broker is silent."""
    return ClusterAdmin(address).acls_of_every_broker()


def change_acls(
    destination: ClusterAddress, *, create: Sequence[Acl] = (), delete: Sequence[Acl] = ()
) -> dict[Acl, LinkEngineError]:
    """Create and delete ACLs, and return the refused ones; needs ALTER on the cluster. Safe to repeat."""
    return acls.change_acls(ClusterAdmin(destination), create=create, delete=delete)
