"""Record batches: bytes to bytes. Knows Kafka's on-disk formats; must not know sockets, clocks, topics or links."""
