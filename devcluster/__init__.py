"""Local Kafka clusters, Redis and Spark Connect for the demo and the tests.

Plain Python that runs real programs; must not know the engine or the console.
"""
