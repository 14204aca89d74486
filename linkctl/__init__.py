"""linkctl: the command line of cluster linking. It uses the REST API only and imports neither the console nor the engine.

``client`` reads the settings and sends HTTP requests, ``output`` writes tables or JSON, ``links``, ``mirrors``, ``topics``,
``offsets``, ``inspection``, ``checks``, ``drills``, ``restores``, ``namespaces`` and ``access`` contain the commands, and
``cli`` combines them.
"""

__version__ = "0.1.0"  # of the whole distribution; pyproject.toml and console/settings.py read it
