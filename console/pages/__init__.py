"""The pages of the web console: function views that read with ``queries``, write with ``actions`` and render templates.

A page and its htmx fragments share a view, a template and a permission check. Pages never connect to Kafka, Spark or Redis.
"""
