"""Clusters: environments, registered clusters, live queries and changes, the topic browser, namespaces and the search."""
