"""Verification: runs, verified ranges, the migration gate, failover drills and failover reports."""
