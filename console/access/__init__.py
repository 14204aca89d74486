"""Who may do what: roles granted on the tree organization > environment > cluster > resource. Answers, never changes."""

from console.access.policies import can, check_permission, role_needed
from console.access.roles import ROLE_DESCRIPTIONS, ROLE_PERMISSIONS, Permission
from console.access.visibility import visible_clusters, visible_environments, visible_links, visible_mirrors

__all__ = [
    "ROLE_DESCRIPTIONS",
    "ROLE_PERMISSIONS",
    "Permission",
    "can",
    "check_permission",
    "role_needed",
    "visible_clusters",
    "visible_environments",
    "visible_links",
    "visible_mirrors",
]
