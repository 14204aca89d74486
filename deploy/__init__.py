"""What a deployment needs beside the product: start scripts, systemd units, health checks. Standard library and sh only."""
