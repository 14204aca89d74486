"""The Kafka REST v3 paths of cluster linking: bodies, answers and views, in the words of Confluent's interface."""
