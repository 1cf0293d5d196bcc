"""The commands, in the order in which `plait --help` shows them."""
# ruff: noqa: I001
from plait.commands import specs, costs, predict, report, runs, listing, laboratory, exchange

__all__ = ["specs", "costs", "predict", "report", "runs", "listing", "laboratory", "exchange"]
