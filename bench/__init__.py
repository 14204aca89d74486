"""The same workloads through this engine and through MirrorMaker 2, in turn, on a pair of brokers.

`python -m bench` (or `make bench`) writes docs/benchmarks.md and var/benchmarks.json at its end, and a page in var/bench after
each row. Both engines are measured from outside by the same code: a copy's progress by the destination's log end offsets, CPU
time by the operating system's process tree.
"""
