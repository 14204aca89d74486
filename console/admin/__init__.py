"""Pages of Django's admin site, for superusers: users, organizations, environments, clusters, roles, API keys, audit.

Clusters, roles and API keys are changed through the actions of ``console.clusters`` and ``console.access``, which check
permissions and write the audit log. ``admin.clusters`` records changes of organizations and environments there.
"""

from console.admin import access, clusters, identities, users

__all__ = ["access", "audit", "clusters", "identities", "users"]
