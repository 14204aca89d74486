"""Access: accounts, groups, roles, approvals, API keys and sign-in.

The names below, of ``console.access.permissions``, check what an actor may do and see. They change nothing.
"""

from console.access.permissions import (
    ROLE_DESCRIPTIONS,
    ROLE_PERMISSIONS,
    Permission,
    can,
    check_anywhere,
    check_permission,
    role_needed,
)
from console.access.visibility import (
    cluster_names,
    known_links,
    link_words,
    links_with_sight,
    sight_of,
    visible_clusters,
    visible_environments,
    visible_links,
    visible_mirrors,
    visible_operations,
    visible_reports,
    visible_topics,
    whole_cluster_names,
    whole_links,
    words_for_link,
)

__all__ = [
    "ROLE_DESCRIPTIONS",
    "ROLE_PERMISSIONS",
    "Permission",
    "can",
    "check_anywhere",
    "check_permission",
    "cluster_names",
    "known_links",
    "link_words",
    "links_with_sight",
    "role_needed",
    "sight_of",
    "visible_clusters",
    "visible_environments",
    "visible_links",
    "visible_mirrors",
    "visible_operations",
    "visible_reports",
    "visible_topics",
    "whole_cluster_names",
    "whole_links",
    "words_for_link",
]
