"""Brings rows and the engine together: observations become rows and events, rows become plans, orders and slices.

Called by ``console.tasks`` only, with what the engine reported passed in; nothing here touches Kafka, Spark or Redis. Every
step may be repeated and may be lost: the next round, a second later, starts from the rows again.
"""
