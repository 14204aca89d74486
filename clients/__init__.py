"""Confluent's own clients, unmodified, against this product: its Go SDK and its Terraform provider. Run by ``make clients``.

Not part of the test suite: it needs Go, Terraform (or OpenTofu) and their package registries.
"""
