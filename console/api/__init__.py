"""REST: the Kafka v3 paths of cluster linking that existing clients call, and our own additions below ``/api/v1``.

Views are thin: who asks, one query or action, the answer's words. Nothing here decides about links or mirrors, and nothing
here talks to Kafka, Redis or Spark.
"""
