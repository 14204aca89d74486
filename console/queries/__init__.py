"""The read side: what pages and REST show. One module per noun; keywords only; ``by`` decides what can be seen.

Rows only, never Kafka. Each function issues the same number of SQL queries whatever the number of rows. What is not there and
what may not be seen are the same NotFoundError.
"""
