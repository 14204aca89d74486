"""Local Kafka clusters, Redis and Spark Connect for the demo and the tests.

Plain Python around real programs; knows nothing of the engine or of the console.
"""
