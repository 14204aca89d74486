"""Connects rows and the engine: observations become rows and events, and rows become plans, orders and assignments.

Called by ``console.workflows`` and ``console.tasks`` only, which pass in what the engine reported; nothing here connects to
Kafka, Spark or Redis. Each step may be repeated or lost: the next reconcile pass, a second later, starts from the rows again.
"""
