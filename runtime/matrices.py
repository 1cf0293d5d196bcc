"""Which parameters of a model are matrices between hidden layers, by the names of their axes. Knows no torch."""
from __future__ import annotations

from plait.compiler.graph import Value
from plait.compiler.program import Program

APART = ("gate", "g")                            # axes that tell matrices of one parameter apart: gates of a recurrence, groups
ROWS = {"d'": 1, "u": 1, "o": 1, "h": 2}         # the first axis of a matrix → how many of its axes are what the layer makes


def hidden(program: Program) -> dict[Value, tuple[int, int]]:
    """Parameter → (axes that tell matrices apart, axes that are rows): not embeddings, positions, filters of single features, norms and
    biases, nor a layer that makes scores of the vocabulary."""
    found: dict[Value, tuple[int, int]] = {}
    for v in program.graph.ins:
        axes = [a for a in v.axes if a.role != "copies"]
        if v.kind != "param" or "bias" in v.name.rpartition("/")[2]: continue
        apart = next((k for k, a in enumerate(axes) if a.name not in APART), 0)
        rows = ROWS.get(axes[apart].name, 0)
        scores = any(i.classes is not None and axes[apart].size == i.classes for i in program.inputs)
        if rows and not scores and len(axes) > apart + rows: found[v] = apart, rows
    return found
