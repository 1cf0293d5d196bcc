"""Speed and memory beside the best peers, measured in one run: `python -m benchmarks` (or `make bench`)."""
