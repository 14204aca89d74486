"""The same workloads through this engine and through MirrorMaker 2, in turn, on a pair of brokers.

`python -m bench` (or `make bench`) writes docs/benchmarks.md and var/benchmarks.json at its end, and a page in var/bench after
each row. Both engines are measured from outside by the same code: a copy's progress by the destination's log end offsets, CPU
time by the operating system's process tree.

`make bench ARGS="fifty links"` runs the rows whose name contains these words; `make bench ARGS=names` lists them. A row that
fails is noted as not measured, and the next one runs. `make bench ARGS="for minutes" MINUTES=10` measures the latency of 100
records/s for so long; without MINUTES it is not measured.
"""
