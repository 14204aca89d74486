"""Additions of this product below /api/v1: verification runs, gaps, transitions, drills, namespaces and more."""
