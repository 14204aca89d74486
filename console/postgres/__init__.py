"""Django's database backend for PostgreSQL with connections that outlive a request or task."""
