"""Django admin site, for staff: users (for superusers), organizations, environments, clusters, roles, API keys, audit.

Clusters, roles and API keys are changed through the actions of ``console.clusters`` and ``console.access``, which check
permissions and write the audit log. ``admin.clusters`` records changes of organizations and environments there.
"""

from django.contrib import admin

from console.access.credentials import AdminSignInForm
from console.admin import access, clusters, identities, users

admin.site.login_form = AdminSignInForm

__all__ = ["access", "audit", "clusters", "identities", "users"]
