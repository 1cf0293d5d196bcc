"""What goes out to other libraries and comes in from them: weights, programs, checkpoints."""
