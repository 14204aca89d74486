"""HTTP outside of pages and REST: middleware, health, metrics, malformed requests, database outages."""
