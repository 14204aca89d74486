"""Resuming a mirror at its log end: reads it, decides which appends arrived, and compares its last records with the source."""
