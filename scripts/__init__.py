"""The scripts behind verbs of `make` such as setup, audit and sbom. Those that setup runs need only the standard library."""
