"""Text to Spec: grammar, syntax tree, errors, printer. Knows no torch, no sympy and no file system."""
