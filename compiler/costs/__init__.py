"""One file a cost. Each is a fold over a graph: an exhaustive match over the alphabet, no rule for any layer."""
