"""Warnings about meaning: a language model that sees the symbol it predicts."""
from __future__ import annotations

import sympy as sp

from plait.compiler.costs import path as paths
from plait.compiler.expand import File, expand
from plait.compiler.losses import loss_call
from plait.compiler.program import Program
from plait.dsl import spec as ast
from plait.dsl.errors import Diagnostic


def leaks(file: File, model: str) -> list[Diagnostic]:
    """W0401, where the loss predicts a symbol of an input that the logits at that place may already have seen: with `next`,
    the logits at t − 1 see symbol t."""
    train = file.train(model)
    call = loss_call(train) if train else None
    if call is None or len(call.arguments) < 2: return []
    logits, target = call.arguments[0].value, call.arguments[1].value
    ahead = isinstance(target, ast.Call) and target.name == "next"
    name = target.arguments[0].value if isinstance(target, ast.Call) and target.arguments else target
    if not isinstance(name, ast.Name) or not isinstance(logits, ast.Name): return []
    program = expand(file, model)
    source = next((i.value for i in program.inputs if i.name == name.name and i.kind == "tokens"), None)
    if source is None or logits.name not in program.outputs: return []
    out = program.graph.outs[program.outputs.index(logits.name)]
    try: found = paths.reach(program.graph, source, program.sizes, out)
    except paths.Unreadable: return []
    if found is None: return []
    sees = paths.reads_ahead(found) if ahead else paths.reads_ahead(found) or _itself(found, program)
    if not sees: return []
    way = [name.name, *_layers(program, paths.leak(program.graph, source, program.sizes, out)), logits.name, "loss"]
    when = "the logits at t − 1 can see symbol t, which they predict" if ahead else "the logits at t can see symbol t, which they predict"
    cure = "attention(heads = h, causal = true), conv(…, causal = true)" if ahead else (
        f"cross_entropy({logits.name}, next({name.name})), or shift_right before embed; and causal layers")
    return [Diagnostic("W0401", f"{model} can see what it is to predict: {when}", call.span, numbers=" → ".join(way), help=cure)]


def _itself(found, program: Program) -> bool:
    """Does position t read input t? Its offset 0 is within the reach."""
    def at(bound): return program.sizes.value(sp.sympify(bound)) or 0

    low, high = found
    return (low is None or at(low) <= 0) and (high is None or at(high) >= 0)


def _layers(program: Program, places: tuple[str, ...]) -> list[str]:
    """The names of the layers at these places, each once in a row."""
    out: list[str] = []
    for at in places:
        name = program.places.get(at)
        if name and (not out or out[-1] != name): out.append(name)
    return out
