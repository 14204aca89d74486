"""The same workloads through this engine and through MirrorMaker 2, in turn, on one pair of brokers.

`python -m bench` (or `make bench`) writes docs/benchmarks.md and var/benchmarks.json. Both engines are measured from outside by
the same code: the destination's log ends tell how far a copy is, the operating system tells the CPU time of the process tree.
"""
