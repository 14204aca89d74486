"""ACL sync: read the ACLs of a cluster and change those of the destination. ``linkengine.domain.acls`` decides what changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from linkengine.domain.aclfilters import Acl
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin


def read_acls(admin: ClusterAdmin) -> set[Acl]:
    """Return every ACL. Raise SECURITY_DISABLED_ERROR without an authorizer: an unknown list is not an empty list."""
    if not admin.has_authorizer():
        raise LinkEngineError(
            ErrorCode.SECURITY_DISABLED_ERROR,
            f"The cluster at {admin.address.bootstrap_servers} enforces no ACLs, so none can be synced. Set "
            "authorizer.class.name on its brokers, or set acl.sync.enable to false.",
        )
    return admin.acls()


def change_acls(
    destination: ClusterAdmin, *, create: Sequence[Acl] = (), delete: Sequence[Acl] = ()
) -> dict[Acl, LinkEngineError]:
    """Create and delete ACLs; return the refusals. DENY rules are created first and deleted last, so access never widens."""
    steps = (
        (destination.create_acls, [acl for acl in create if acl.permission == "DENY"]),
        (destination.delete_acls, [acl for acl in delete if acl.permission != "DENY"]),
        (destination.create_acls, [acl for acl in create if acl.permission != "DENY"]),
        (destination.delete_acls, [acl for acl in delete if acl.permission == "DENY"]),
    )
    return dict(chain.from_iterable(change(acls).items() for change, acls in steps))
