"""`make demo`: the whole product on this machine, with real data and a report.

Uses the console only from outside: its commands, its environment and its REST API.
"""
