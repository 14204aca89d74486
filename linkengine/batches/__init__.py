"""Record batches in Kafka's on-disk formats: bytes to bytes. Independent of sockets, clocks, topics and links."""
