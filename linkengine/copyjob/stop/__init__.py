"""Stopping a mirror: fences stale copy workers, finds the mirrored end, and takes over a topic after a reversal."""
