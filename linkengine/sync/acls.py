"""Read the ACLs of a cluster and change those of the destination. What to do is decided in ``linkengine.domain.acls``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from linkengine.domain.aclfilters import Acl
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin


def read_acls(admin: ClusterAdmin) -> set[Acl]:
    """Read every ACL; raise SECURITY_DISABLED_ERROR where none is enforced: no list is not an empty list."""
    if not admin.has_authorizer():
        raise LinkEngineError(
            ErrorCode.SECURITY_DISABLED_ERROR,
            f"The cluster at {admin.address.bootstrap_servers} enforces no ACLs, so none can be carried over. Set "
            "authorizer.class.name on its brokers, or switch acl.sync.enable off.",
        )
    return admin.acls()


def change_acls(
    destination: ClusterAdmin, *, create: Sequence[Acl] = (), delete: Sequence[Acl] = ()
) -> dict[Acl, LinkEngineError]:
    """Create and delete, and answer the refusals. Access is never wider in between: what denies comes first and goes last."""
    steps = (
        (destination.create_acls, [acl for acl in create if acl.permission == "DENY"]),
        (destination.delete_acls, [acl for acl in delete if acl.permission != "DENY"]),
        (destination.create_acls, [acl for acl in create if acl.permission != "DENY"]),
        (destination.delete_acls, [acl for acl in delete if acl.permission == "DENY"]),
    )
    return dict(chain.from_iterable(change(acls).items() for change, acls in steps))
