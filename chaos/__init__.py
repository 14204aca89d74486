"""Crash tests with a judge: a writer with known history, the real product, a storm of faults, and a judge of what is left.

`python -m chaos` (or `make chaos MINUTES=n SEED=s`) runs the whole product between two clusters of three brokers each;
the suite runs a short form around the copy loop alone. The seed decides which faults come when. The product
contains no code for it: faults are signals, cut connections and lost data; mutations run in a process of this package.
"""
