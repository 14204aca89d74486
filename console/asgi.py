"""The ASGI application of the web process."""

import gc
import os

from django.core.asgi import get_asgi_application
from django.urls import get_resolver

from console.http.errors import only_known_charsets

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
application = only_known_charsets(get_asgi_application())

# Load all modules now instead of at the first request, and exempt their objects from garbage collections. Full collections that
# scan them take a sixth of the time of a scrape with 10,000 partitions.
_url_patterns = get_resolver().url_patterns
gc.freeze()
# To judge 10,000 mirror topics, several hundred thousand objects are created, which stay. With a collection after every 700 new
# objects, as is the default, collections took 40 % of the processor time of that reading; with this number, 10 %.
gc.set_threshold(50_000)
