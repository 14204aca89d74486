"""REST API: the cluster linking paths of Confluent's Kafka REST v3, and additions of this product below ``/api/v1``.

A view authenticates the actor, calls one query or action, and renders the result. This package contains no rules about links or
mirrors and connects to no Kafka cluster.
"""
