"""The scripts behind verbs of `make` such as setup, audit and sbom. What setup runs needs the standard library only."""
