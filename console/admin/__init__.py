"""Django's administration pages, for staff: users and groups (Django's own), places, roles, API keys, the audit.

What changes something goes through the same actions as pages and REST, so that it is checked and audited there.
"""

from django.contrib import admin

from console.admin import access, audit, places
from console.signin import AdminSignInForm

admin.site.login_form = AdminSignInForm

__all__ = ["access", "audit", "places"]
