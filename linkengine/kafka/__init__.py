"""The only package with Kafka sockets: connections of the data path, small requests of the control path, administration.

Independent of mirrors, leases and Spark; callers pass topics, partitions and bytes.
"""
