"""The only room with Kafka sockets: raw connections of the data path, small requests of the control path, administration.

Must not know mirrors, leases or Spark; it is told topics, partitions and bytes.
"""
