"""The only package with Kafka sockets: connections of the data path, small requests of the control path, administration.

Must not know mirrors, leases or Spark; callers pass topics, partitions and bytes.
"""
