"""The ASGI application of the web process."""

import os

from django.core.asgi import get_asgi_application

from console.http.errors import only_known_charsets

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
application = only_known_charsets(get_asgi_application())
