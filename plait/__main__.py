"""`python -m plait`, for launchers that start modules: `torchrun --nproc-per-node 2 -m plait train SPEC`."""
from plait.cli import main

main()
