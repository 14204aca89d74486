"""The web console's pages: function views that ask ``queries``, call ``actions`` and hand plain values to templates.

A page and its fragments share one view, one template and one permission check. Nothing here talks to Kafka, Spark or Redis.
"""
