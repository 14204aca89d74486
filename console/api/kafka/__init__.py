"""The Kafka REST v3 paths: request bodies, responses and views, with the names of Confluent's interface."""
