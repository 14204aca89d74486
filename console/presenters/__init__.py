"""View models: labels, icons, colour families and formatted numbers for templates. No HTTP requests, no database queries.

The label, icon and colour of each state are defined here once, for badges, the help page and the tests.
"""
