"""A model as a picture: its layers in the order in which they wait for each other. Layout and drawing are networkx's work."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plait.compiler.graph import Graph, Node, Value
from plait.compiler.prims import Loop, Map
from plait.compiler.program import Program
from plait.plot import pyplot

if TYPE_CHECKING:
    import networkx


def layers(program: Program) -> networkx.DiGraph:
    """A vertex an input, an output, and a statement of the spec (where one is passed twice, a vertex each time); an edge a stream.
    Vertices carry `label` and `copies`, those of statements their place `at` and the nodes that came from it; an edge where nothing but
    a mask passes carries `mask`."""
    import networkx
    g = networkx.DiGraph()
    made: dict[Value, str] = {}
    for i in program.inputs:
        g.add_node(f"in {i.name}", label=i.name, copies="")
        for v in (i.value, i.mask):
            if v is not None: made[v] = f"in {i.name}"
    _walk(g, program, program.graph, made, "")
    for name, v in zip(program.outputs, program.graph.outs):
        g.add_node(f"out {name}", label=name, copies="")
        if v in made: g.add_edge(made[v], f"out {name}")
    return g


def _walk(g: networkx.DiGraph, program: Program, graph: Graph, made: dict[Value, str], copies: str) -> None:
    for n in graph.nodes:
        read = {made[v] for v in n.ins if v in made}
        told = {made[v] for v in n.ins if v in made and v.kind != "mask"}
        if n.body is not None:
            inside = {i: made[v] for i, v in zip(n.body.ins, n.ins) if v in made}
            more = f"× {n.op.axis.size}" if isinstance(n.op, Loop) and n.op.axis.role == "copies" else ""
            _walk(g, program, n.body, inside, " ".join(t for t in (copies, more) if t))
            made |= {v: inside[o] for v, o in zip(n.outs, n.body.outs) if o in inside}
            continue
        if not read: continue                                 # made from parameters and numbers alone
        at = _vertex(g, program, n, read, copies)
        for r in read - {at}: g.add_edge(r, at, mask=r not in told and g.edges.get((r, at), {}).get("mask", True))
        g.nodes[at]["nodes"].append(n)
        made |= dict.fromkeys(n.outs, at)


def _vertex(g: networkx.DiGraph, program: Program, n: Node, read: set[str], copies: str) -> str:
    """The vertex of a node's statement; a further one where the node waits for what waits for that."""
    import networkx
    name = program.places.get(n.at, n.at.rsplit("/", 1)[-1])
    k = 0
    while (at := f"{n.at} {k}") in g and any(r != at and networkx.has_path(g, at, r) for r in read): k += 1
    if at not in g: g.add_node(at, label=_label(name, n, k), copies=copies, at=n.at, nodes=[])
    return at


def _label(name: str, n: Node, k: int) -> str:
    """A residual is two things: the norm before, and the sum behind."""
    return name if name != "residual" else "+" if k or n.op == Map("add") else "norm"


def placed(g: networkx.DiGraph) -> dict[str, tuple[float, float]]:
    """A row a level, inputs on top; in a row, whoever reads from the left stands left."""
    import networkx
    place: dict[str, tuple[float, float]] = {}
    for depth, level in enumerate(networkx.topological_generations(g)):
        def wanted(v: str) -> float:
            above = [place[u][0] for u in g.predecessors(v)]
            return sum(above) / len(above) if above else 0.0
        row = sorted(level, key=wanted)
        middle = sum(map(wanted, row)) / len(row)
        for k, v in enumerate(row): place[v] = (middle + k - (len(row) - 1) / 2, -float(depth))
    return place


def draw(program: Program, out: Path) -> None:
    """Writes the picture, beside and then renamed. An edge that passes a row bends around it."""
    import networkx
    plt = pyplot()
    g = layers(program)
    place = placed(g)
    wide = max(x for x, _ in place.values()) - min(x for x, _ in place.values())
    deep = -min(y for _, y in place.values())
    figure, panel = plt.subplots(figsize=(3.5 + 2.2 * wide, 1.5 + 0.7 * deep))
    try:
        labels = {v: f"{g.nodes[v]['label']} {g.nodes[v]['copies']}".strip() for v in g}
        for long in (False, True):
            edges = [(u, v) for u, v in g.edges if (place[u][1] - place[v][1] > 1) is long]
            networkx.draw_networkx_edges(g, place, edges, ax=panel, edge_color="0.55", arrowsize=10, min_source_margin=12,
                                         min_target_margin=12, connectionstyle=f"arc3,rad={0.35 if long else 0.0}")
        networkx.draw_networkx_labels(g, place, labels, ax=panel, font_size=8,
                                      bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "0.4"})
        panel.set_axis_off()
        panel.margins(0.25, 0.05)
        panel.set_title(program.model)
        figure.tight_layout()
        beside = out.with_name(f".{out.stem}.new{out.suffix}")
        figure.savefig(beside, metadata={"Date": None} if out.suffix == ".svg" else None)
        beside.replace(out)
    finally: plt.close(figure)
