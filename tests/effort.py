"""How much the tests with random input try: less in each run of the suite, more on request.

``EFFORT=10 make test ARGS='...'`` multiplies the numbers of random walks, of runs with damaged
responses, and of the generated examples that take longest. From 2 on, axe checks all combinations of language, width and theme.
"""

import os

EFFORT = int(os.environ.get("EFFORT", "1"))


def tries(count: int) -> int:
    """Return how often to try in this run what a run of the suite tries ``count`` times."""
    return count * EFFORT
