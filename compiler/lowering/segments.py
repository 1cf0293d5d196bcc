"""Compiling by region: a lowered graph is cut into runs of traceable nodes, each compiled once, whatever calls it.

What cannot be traced (loops, opaque kernels) runs between them, called from an outer graph in the same order."""
from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import Tensor, fx, nn
from torch._functorch import config as functorch
from torch.compiler import config as caches

from plait.compiler.lowering import tensors

KEPT = "saved tensors stay"                    # in the key of torch's cache of generated code
BACKEND = "inductor"                           # torch.compile's; tests of the cutting itself take a quicker one

# Nodes that cost nothing worth compiling: a run of only these is left in the outer graph.
LIGHT = {operator.getitem, operator.add, operator.mul, operator.sub, operator.floordiv, torch.permute, torch.unsqueeze, torch.Tensor.expand,
         torch.reshape, torch.narrow, torch.select, torch.unflatten, torch.flatten, torch.transpose, tensors.size, tensors.positions,
         tensors.number, tensors.filled}
VIEWS = LIGHT - {operator.add, operator.mul, operator.sub, operator.floordiv}


class Segment(nn.Module):
    """A compiled run of nodes. `dims`: for every input, the dimensions whose size is free beyond the batch."""

    def __init__(self, graph: fx.GraphModule, dims: list[list[int]]):
        super().__init__()
        self.graph, self.dims = (graph,), dims                         # in a tuple: it has no state of ours
        self.runs: dict[tuple, Callable] = {}
        self.marked = any(dims)

    def compiled(self, *operands) -> Callable:
        """One code object for each way to be called: with or without gradients, of what, under autocast or not. So what is left to
        recompile for is sizes, and the limit is far. The number of ways does not grow with calls."""
        device = next((x.device.type for x in operands if isinstance(x, Tensor)), "cpu")
        grad = torch.is_grad_enabled()
        way = (grad, torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
               tuple(x.requires_grad for x in operands if isinstance(x, Tensor)) if grad else ())
        if way not in self.runs:
            fresh = fx.GraphModule(nn.Module(), self.graph[0].graph)
            self.runs[way] = torch.compile(fresh, fullgraph=True, backend=BACKEND)
        return self.runs[way]

    def forward(self, *operands):
        if self.marked:
            for x, dims in zip(operands, self.dims):
                if isinstance(x, Tensor):
                    for d in dims: torch._dynamo.maybe_mark_dynamic(x, d)
        return self.compiled(*operands)(*operands)


def segmented(module: fx.GraphModule, loose: frozenset[str]) -> fx.GraphModule:
    """The same module with its runs of traceable nodes compiled. loose: names of dims without a value."""
    _settle()
    runs = _runs(module.graph)
    outer, root = fx.Graph(), nn.Module()
    at: dict[fx.Node, fx.Node] = {}
    for name, child in module.named_children(): root.add_module(name, child)
    free = loose - {"b"}

    def copy(n: fx.Node) -> None: at[n] = outer.node_copy(n, lambda m: at[m])

    first = {run[0]: run for run in runs}
    inside = {n for run in runs for n in run}
    for n in module.graph.nodes:
        if n in first: _call(first[n], outer, root, at, free)
        elif n not in inside: copy(n)
    return fx.GraphModule(root, outer)


def _settle() -> None:
    """torch's settings for what is compiled here."""
    # Past the limit torch would run eagerly and say so in a log line only. Free sizes need a few more graphs than its 8 allow: torch
    # makes own ones for a size of 1, for an offset of 0, for sizes that happen to be equal.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.config.recompile_limit = max(32, torch._dynamo.config.recompile_limit)
    # Generated code may else write into what forward saved, and then refuses a second backward under `retain_graph`. Code that torch kept
    # from a process with the other choice would write there still, and say nothing: its key leaves the choice out.
    functorch.donated_buffer = False
    if KEPT not in caches.cache_key_tag: caches.cache_key_tag += KEPT


def _runs(graph: fx.Graph) -> list[list[fx.Node]]:
    """Maximal runs between opaque nodes, those left out that would do next to nothing."""
    runs: list[list[fx.Node]] = [[]]
    for n in graph.nodes:
        if n.op in ("placeholder", "output"): continue
        if n.meta.get("opaque"): runs.append([])
        else: runs[-1].append(n)
    return [run for run in map(_trimmed, runs) if any(_heavy(n) for n in run)]


def _heavy(n: fx.Node) -> bool:
    return not (n.target in VIEWS or n.meta.get("scalar") or n.meta.get("number") or n.meta.get("whole"))


def _trimmed(run: list[fx.Node]) -> list[fx.Node]:
    """Without what takes results out of the tuple of an opaque node before it: tuples stay outside."""
    return [n for n in run if not (n.target is operator.getitem and n.args[0] not in run)]


def _call(run: list[fx.Node], outer: fx.Graph, root: nn.Module, at: dict, free: frozenset[str]) -> None:
    """Emits the run as one call of a compiled graph, and the getitems of its results."""
    members = set(run)
    needed = list(dict.fromkeys(m for n in run for m in n.all_input_nodes if m not in members))
    made = [n for n in run if any(u not in members for u in n.users)]
    inner, within = fx.Graph(), {}
    shown = {e: (m, k) for m in reversed(needed) for k, e in enumerate(m.meta.get("axes", ()))}
    sizes = {m: shown[m.meta["symbol"]] for m in needed if m.meta.get("symbol") in shown}
    needed = [m for m in needed if m not in sizes]
    for m in needed: within[m] = inner.placeholder(m.name)
    for m, (x, k) in sizes.items(): within[m] = inner.call_function(tensors.size, (within[x], k))      # a size read off a tensor at hand
    for n in run: within[n] = inner.node_copy(n, lambda m: within[m])
    inner.output(tuple(within[n] for n in made))
    name = f"segment{sum(1 for k, _ in root.named_children() if k.startswith('segment'))}"
    dims = [[k for k, e in enumerate(m.meta.get("axes", ())) if e in free] for m in needed]
    root.add_module(name, Segment(fx.GraphModule(nn.Module(), inner), dims))
    call = outer.call_module(name, tuple(at[m] for m in needed))
    for k, n in enumerate(made): at[n] = outer.call_function(operator.getitem, (call, k))
