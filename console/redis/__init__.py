"""Short-lived state of the console in Redis. Nothing here needs to survive a loss of Redis's data."""
