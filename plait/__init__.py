"""plait: a compiler for sequence models. A text file becomes a derived cost table and a trained PyTorch model.

    import plait
    spec = plait.load("specs/table1.plait")
    print(spec.table())                                   # derived, without torch
    model = plait.compile("specs/shakespeare.plait")      # a torch.nn.Module
    model = plait.load_run("runs/demo")                   # the same with trained weights
    plait.report("specs/table1.plait", out="report.html") # a page about it
"""
from __future__ import annotations

from plait.api import Spec, calibrate, compile, load, predict, train
from plait.dsl.errors import PlaitError
from plait.laboratory import bench, compare, evaluate
from plait.loading import from_safetensors, load_run
from plait.render import Table
from plait.reporting import report

__all__ = ["PlaitError", "Spec", "Table", "bench", "calibrate", "compare", "compile", "evaluate", "from_safetensors", "load", "load_run",
           "predict", "report", "train"]
__version__ = "0.1.0"
