"""Database queries for pages and REST, one module per subject. Functions take keyword arguments; ``by`` limits what is visible.

Only ``brokers`` queries clusters, through a worker. The number of SQL queries of a function does not depend on the number of
rows. A row that does not exist and a row that the actor may not see raise the same NotFoundError.
"""
