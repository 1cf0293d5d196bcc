"""Arguments that follow the file and not an override, written out: so that a resolved spec means what the original meant."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from plait.dsl.spec import Apply, Argument, Number, Spec


def pinned(spec: Spec, pins: Mapping[tuple[int, int], tuple[str, int]]) -> Spec:
    """The spec with `argument = value` added to the statements that stand at these spans (start, end) and do not have it."""
    return spec if not pins else replace(spec, items=tuple(_pinned(i, pins) for i in spec.items))


def _pinned(node: Any, pins) -> Any:
    if isinstance(node, tuple): return tuple(_pinned(n, pins) for n in node)
    if not is_dataclass(node) or isinstance(node, type): return node
    if isinstance(node, Apply) and (node.span.start, node.span.end) in pins:
        name, value = pins[node.span.start, node.span.end]
        if all(a.name != name for a in node.arguments):
            extra = Argument(name, Number(value, str(value), node.span), node.span)
            node = replace(node, arguments=(*node.arguments, extra), called=True)
    inner = [f.name for f in fields(node) if f.name in ("items", "members", "body", "statements", "parts")]
    return replace(node, **{name: _pinned(getattr(node, name), pins) for name in inner})
