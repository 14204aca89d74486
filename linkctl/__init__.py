"""linkctl: the command line of cluster linking. It uses the REST API only and imports neither the console nor the engine.

``settings`` reads the address and the credentials, ``client`` sends HTTP requests, ``output`` writes tables or JSON, ``links``,
``mirrors``, ``topics``, ``offsets``, ``inspection``, ``checks``, ``drills``, ``restores`` and ``namespaces`` contain the
commands, and ``cli`` combines them.
"""

__version__ = "0.1.0"  # of the whole distribution; pyproject.toml and console/settings.py read it
