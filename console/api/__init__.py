"""Common parts of all REST endpoints: authentication, errors, the OpenAPI document, URLs, and requests and responses.

The endpoints are the cluster linking paths of Confluent's Kafka REST v3, and additions of this product below ``/api/v1``. The
views are in the ``rest`` modules of the subjects. A view authenticates the actor, calls a query or an action, and renders the
result; it contains no rules about links or mirrors and connects to no Kafka cluster.
"""
