"""Management commands: the doors for people at a terminal."""
