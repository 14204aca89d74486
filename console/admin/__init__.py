"""Django's administration pages: users, groups, roles, API keys, places and the audit, for staff. Filled below."""
