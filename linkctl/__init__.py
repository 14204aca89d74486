"""linkctl: the command line of cluster linking, a client of the REST API and of nothing else.

``settings`` finds out which service and who we are, ``client`` speaks HTTP, ``output`` writes tables or JSON, ``links``,
``mirrors``, ``topics``, ``offsets``, ``inspection``, ``checks``, ``drills``, ``restores`` and ``namespaces`` hold the commands,
``cli`` puts them together. Knows neither the console nor the engine.
"""

__version__ = "0.1.0"  # the version of the whole distribution; pyproject.toml and console/settings.py read it
