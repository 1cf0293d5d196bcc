"""The compiled step of a scan: called once a trip, so that what a call costs counts.

The compiler is called by itself: dynamo would look at its guards in every trip, which costs as much as the step's own arithmetic; a scan
looks at the shapes once for all trips. On a CPU a product with what stays the same from trip to trip is oneDNN's, with the weights packed
once for all trips: a fifth to two fifths faster than a plain product with a batch that is small beside the width."""
from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch._inductor
from torch import Tensor, fx, nn

from plait.compiler.lowering import segments
from plait.compiler.prims import Loop

OWN = 2                          # shapes of a step that get code of their own; further ones (other batches) share one with free sizes


def _nothing(operands: tuple[Tensor, ...]) -> list[Tensor]: return []


@dataclass(frozen=True, eq=False)
class Run:
    """step: takes the operands of a trip, then what `pack` makes of those of the first. shared: for any shapes."""
    step: Callable
    pack: Callable[[tuple[Tensor, ...]], list[Tensor]] = _nothing
    shared: bool = False


def compiled(step: fx.GraphModule, op: Loop, operands: tuple[Tensor, ...]) -> Run:
    """For operands of these shapes."""
    if segments.BACKEND != "inductor": return Run(torch.compile(fresh(step), fullgraph=True, backend=segments.BACKEND, dynamic=False))
    end = len(op.body.ins)
    if _packs(operands[:end]):
        graph = _from_places(step.graph)
        fixed = [n for n in graph.nodes if n.op == "placeholder"][op.carried + op.sliced:end]
        products = _packable(graph, set(fixed))
        if products: return Run(_cut(graph, products), _packing(graph, products))
    return Run(torch._inductor.compile(fresh(step), list(operands)))


def fresh(module: fx.GraphModule) -> fx.GraphModule:
    return fx.GraphModule(nn.Module(), module.graph)


def _packs(operands: tuple[Tensor, ...]) -> bool:
    """Has oneDNN a packed product for them?"""
    plain = all(x.dtype == torch.float32 for x in operands if x.is_floating_point()) and not torch.is_autocast_enabled("cpu")
    return plain and operands[0].device.type == "cpu" and torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


def _packable(graph: fx.Graph, fixed: set[fx.Node]) -> list[fx.Node]:
    """The products whose right factor is the same in every trip."""
    known = set(fixed)
    for n in graph.nodes:
        if n.op == "call_function" and n.all_input_nodes and all(m in known for m in n.all_input_nodes): known.add(n)
    return [n for n in graph.nodes if n.target is torch.mm and n.args[1] in known and n.args[0] not in known]


def _packing(graph: fx.Graph, products: list[fx.Node]) -> Callable[[tuple[Tensor, ...]], list[Tensor]]:
    """From a trip's operands to the packed right factors."""
    made = fx.Graph()
    at: dict[fx.Node, fx.Node] = {}
    for n in graph.nodes:
        if n.op not in ("call_method", "output") and all(m in at for m in n.all_input_nodes): at[n] = made.node_copy(n, lambda m: at[m])
    made.output([at[n.args[1]] for n in products])                                                # type: ignore[index]
    made.eliminate_dead_code()
    factors = fx.GraphModule(nn.Module(), made)

    def pack(operands: tuple[Tensor, ...]) -> list[Tensor]:
        return [torch.ops.mkldnn._reorder_linear_weight(w.t().contiguous(), len(operands[0])) for w in factors(*operands)]
    return pack


def _product(x: Tensor, packed: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def _cut(graph: fx.Graph, products: list[fx.Node]) -> Callable:
    """The step as pieces between its products, each compiled when it is first called; takes the packed factors last."""
    outer = fx.Graph()
    at: dict[fx.Node, fx.Node] = {}
    places = [n for n in graph.nodes if n.op == "placeholder"]
    for n in places: at[n] = outer.node_copy(n)
    packed = [outer.placeholder(f"packed_{k}") for k in range(len(products))]
    rest = [n for n in graph.nodes if n.op not in ("placeholder", "output")]
    at_least: dict[fx.Node, int] = {}                         # how many products stand before a node
    for n in rest: at_least[n] = max((at_least.get(m, 0) + (m in products) for m in n.all_input_nodes), default=0)
    number: dict[fx.Node, int] = {}                           # of its piece: the last in which it can stand
    for n in reversed(rest): number[n] = at_least[n] if n in products or not n.users else min(number[u] for u in n.users)
    for k in range(max(number.values(), default=0) + 1):
        mine = [n for n in rest if number[n] == k]
        _piece([n for n in mine if n not in products and n.target != "view"], outer, at)
        for n in mine:
            if n in products: at[n] = outer.call_function(_product, (at[n.args[0]], packed[products.index(n)]))
            elif n.target == "view": at[n] = outer.node_copy(n, lambda m: at[m])
    outer.output(())
    return fx.GraphModule(nn.Module(), outer).forward


def _from_places(graph: fx.Graph) -> fx.Graph:
    """What a product takes and the step writes to a place is read there: it need not be made twice."""
    made = fx.Graph()
    made.graph_copy(graph, {})
    made.output(())
    written = {n.args[1]: n for n in made.nodes if n.target == "copy_"}                            # it gives the place
    for n in made.nodes:
        x = n.args[0] if n.target is torch.mm else None
        if not isinstance(x, fx.Node) or x.target is not torch.reshape or x.args[0] not in written: continue
        columns = x.args[1][-1]                                                                    # type: ignore[index]
        if not isinstance(columns, int): continue
        if list(made.nodes).index(written[x.args[0]]) > list(made.nodes).index(n): n.prepend(written[x.args[0]])
        with made.inserting_before(n): n.args = (made.call_method("view", (written[x.args[0]], -1, columns)), n.args[1])
    made.eliminate_dead_code(lambda n: n.op in ("placeholder", "output") or n.target == "copy_")
    return made


def _piece(nodes: list[fx.Node], outer: fx.Graph, at: dict[fx.Node, fx.Node]) -> None:
    """Emits nodes as one call of a compiled graph; those that only look or copy as they are."""
    if all(n.target in segments.VIEWS or n.target == "copy_" for n in nodes):
        for n in nodes: at[n] = outer.node_copy(n, lambda m: at[m])
        return
    members = set(nodes)
    needed = list(dict.fromkeys(m for n in nodes for m in n.all_input_nodes if m not in members))
    made = [n for n in nodes if any(u not in members for u in n.users) and n.op == "call_function"]
    inner = fx.Graph()
    within = {m: inner.placeholder(m.name) for m in needed}
    for n in nodes: within[n] = inner.node_copy(n, lambda m: within[m])                     # the writes, too, which nothing reads
    inner.output(tuple(within[n] for n in made))
    at.update({n: at[n.args[0]] for n in nodes if n.target == "copy_"})                                   # type: ignore[index]
    call = outer.call_function(_lazily(fx.GraphModule(nn.Module(), inner)), tuple(at[m] for m in needed))
    for k, n in enumerate(made): at[n] = outer.call_function(operator.getitem, (call, k))


def _lazily(graph: fx.GraphModule) -> Callable:
    """Compiled for the operands of the first call."""
    made: list[Callable] = []

    def piece(*operands):
        if not made: made.append(torch._inductor.compile(graph, list(operands)))
        return made[0](*operands)
    return piece
