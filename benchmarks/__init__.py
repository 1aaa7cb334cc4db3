"""What measures Peerloom, and Peerloom against others.

`make bench` runs all of them, each against its rival in the same run (A B A B), and writes
benchmarks/results/NAME.json; `make bench-report` turns all results into docs/benchmarks.md. Where a goal is
missed, NAME.profile.txt beside the result shows where the time goes.
"""
