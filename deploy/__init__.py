"""Files of a deployment beside the product: start scripts, systemd units, health checks. Standard library and sh only."""
