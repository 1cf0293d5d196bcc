"""The graph of a model as an SVG: statements as boxes, what has a body as frames around them, streams side by side.

What is drawn is `plait.drawing.layers`, the layers of the expanded graph; the layout is a column a stream, from top to bottom in the
order of the schedule. A stream that stands in another one's way goes around at the right."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from plait.compiler.graph import Graph
from plait.compiler.prims import Loop, Map, Region
from plait.compiler.program import Program
from plait.drawing import layers
from plait.pretty import pretty

if TYPE_CHECKING:
    import networkx

WIDE, HIGH, LINE = 168, 30, 15                               # of a box, and of each further line in it
GAP, SIDE, HEAD, FOOT = 24, 14, 24, 12                       # between boxes; beside, above and below what a frame holds
LANE, BETWEEN = 11, 56                                       # between streams that go around; between columns
MOST_NAMED = 3                                               # regions that a box names


@dataclass
class Box:
    """A vertex. kind: in, out, or statement; lines: what stands below its name."""
    vertex: str
    label: str
    kind: str
    at: str = ""
    lines: tuple[str, ...] = ()
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> float:
        return HIGH + LINE * len(self.lines)


@dataclass
class Frame:
    """A place with a body: a repeat, a residual, a branch of a reversible, a block. held: boxes and frames in order."""
    at: str
    label: str
    held: list[Box | Frame] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    left: float = 0.0                                        # of the line on which all boxes of a column stand
    right: float = 0.0
    height: float = 0.0
    lanes: int = 0                                           # streams that go around in it

    @property
    def width(self) -> float:
        return self.left + self.right

    def boxes(self) -> Iterator[Box]:
        for h in self.held:
            if isinstance(h, Box): yield h
            else: yield from h.boxes()

    def frames(self) -> Iterator[Frame]:
        for h in self.held:
            if isinstance(h, Frame):
                yield h
                yield from h.frames()


@dataclass(frozen=True)
class Edge:
    source: Box
    target: Box


# ---- what is drawn -----------------------------------------------------------------------------------------------------------------
def columns(program: Program, g: networkx.DiGraph) -> list[Frame]:
    """A frame without a border for each stream, with its inputs on top and its outputs below."""
    found: dict[str, Frame] = {}
    regions = _regions(program.graph)
    for v, facts in g.nodes.items():
        if "at" not in facts: continue
        parts = facts["at"].split("/")
        home = found.setdefault(parts[1], Frame(f"{parts[0]}/{parts[1]}", parts[1]))
        for k in range(3, len(parts) + 1):
            place = "/".join(parts[:k])
            if k == len(parts) and not _holds(program, place): break
            if not (home.held and isinstance(last := home.held[-1], Frame) and last.at == place):
                home.held.append(Frame(place, _framed(program, place)))
            inner = home.held[-1]
            assert isinstance(inner, Frame)
            home = inner
        named = tuple(dict.fromkeys(name for n in facts["nodes"] for name in regions.get(id(n), ())))
        home.held.append(Box(v, _name(program, g, v), "statement", facts["at"], tuple(f"region {name}" for name in named[:MOST_NAMED])))
    if not found: found[""] = Frame(f"{program.model}/", "")             # an input that is an output as it is
    _ends(program, g, found)
    return _stacked(program, g, list(found.values()))


def _holds(program: Program, place: str) -> bool:
    return any(p.startswith(place + "/") for p in program.places)


def _framed(program: Program, place: str) -> str:
    """`repeat × L`, `attend`: a frame's name, with the number of its copies or pieces."""
    name = program.places.get(place, place.rsplit("/", 1)[-1])
    loops = [n.op for n in program.graph.walk() if isinstance(n.op, Loop) and n.at == place and n.op.axis.role in ("copies", "chunk")]
    return name + (f" × {pretty(loops[0].axis.size)}" if loops else "")


def _name(program: Program, g: networkx.DiGraph, v: str) -> str:
    """What stands in a box. Of a place with a body these are the nodes of its own: a norm, a sum, what cuts and what joins."""
    facts = g.nodes[v]
    if facts["at"] not in program.places: return "layout"
    if not _holds(program, facts["at"]): return facts["label"]
    done = {n.op.fn for n in facts["nodes"] if isinstance(n.op, Map)}
    streams = sum(not mask for _, _, mask in g.in_edges(v, data="mask"))
    said = (["+"] if streams > 1 and "add" in done else []) + (["norm"] if "rsqrt" in done else [])
    if said: return " ".join(said)
    if program.places[facts["at"]] == "chunked": return "cut" if v.endswith(" 0") else "join"
    return "·"


def _regions(graph: Graph, around: tuple[tuple[str, str], ...] = ()) -> dict[int, tuple[str, ...]]:
    """The regions that a node stands in, outermost first, as far as they come from the node's own place: what a kernel may claim.
    around: place and name of each."""
    found: dict[int, tuple[str, ...]] = {}
    for n in graph.nodes:
        found[id(n)] = tuple(name for at, name in around if at == n.at)
        if n.body is not None: found |= _regions(n.body, (*around, (n.at, n.op.name)) if isinstance(n.op, Region) else around)
    return found


def _ends(program: Program, g: networkx.DiGraph, found: dict[str, Frame]) -> None:
    """Inputs stand above the stream that reads them first, outputs below the one that they are."""
    for v in reversed([v for v in g if v.startswith("in ")]):
        readers = [g.nodes[u].get("at", "").split("/") for u in g if g.has_edge(v, u)]
        home = next((found[p[1]] for p in readers if len(p) > 1), next(iter(found.values())))
        home.held.insert(0, Box(v, g.nodes[v]["label"], "in"))
    for v in (v for v in g if v.startswith("out ")):
        makers = [g.nodes[u].get("at", "").split("/") for u in g if g.has_edge(u, v)]
        home = next((found[p[1]] for p in makers if len(p) > 1), next(iter(found.values())))
        home.held.append(Box(v, g.nodes[v]["label"], "out"))


def _stacked(program: Program, g: networkx.DiGraph, found: list[Frame]) -> list[Frame]:
    """A stream that starts from the end of another one, and from no input, stands below it."""
    out: list[Frame] = []
    for column in found:
        mine = {b.vertex for b in column.boxes()}
        outside = [u for v in mine for u, _, mask in g.in_edges(v, data="mask") if u not in mine and not mask]
        above = next((c for c in out if outside and {b.vertex for b in c.boxes()} >= set(outside)), None)
        if above is not None and any(b.kind == "in" for b in column.boxes()): above = None
        if above is not None: above.held += column.held
        else: out.append(column)
    return out


# ---- where it stands -----------------------------------------------------------------------------------------------------------------
def placed(found: list[Frame], edges: list[Edge]) -> tuple[float, float]:
    """Gives every box and frame its place; the width and the height of all."""
    x = 12.0
    for column in found:
        _lanes(column, edges)
        _sized(column)
        _set(column, x + column.left, 8.0)
        x += column.width + BETWEEN
    return x - BETWEEN + 12, max((c.height for c in found), default=0.0) + 16


def _lanes(frame: Frame, edges: list[Edge]) -> None:
    """How many streams go around side by side in a frame."""
    for inner in frame.frames(): inner.lanes = 0
    order = {id(b): k for k, b in enumerate(frame.boxes())}
    around = [(order[id(e.source)], order[id(e.target)]) for e in edges if id(e.source) in order and id(e.target) in order]
    around = [(i, j) for i, j in around if j != i + 1]
    frame.lanes = max((sum(i <= k < j for i, j in around) for k in range(len(order))), default=0)
    for inner in (h for h in frame.held if isinstance(h, Frame)): _lanes(inner, edges)


def _sized(frame: Frame) -> None:
    side, ends = (SIDE, HEAD + FOOT) if _bordered(frame) else (0, 0)
    for h in frame.held:
        if isinstance(h, Frame): _sized(h)
    frame.left = max((WIDE / 2 if isinstance(h, Box) else h.left for h in frame.held), default=WIDE / 2) + side
    frame.right = max((WIDE / 2 if isinstance(h, Box) else h.right for h in frame.held), default=WIDE / 2) + side
    if frame.lanes: frame.right += LANE * (frame.lanes + 1)
    frame.height = sum(h.height for h in frame.held) + GAP * (len(frame.held) - 1) + ends


def _bordered(frame: Frame) -> bool:
    """All but the stream itself."""
    return frame.at.count("/") > 1


def _set(frame: Frame, middle: float, y: float) -> None:
    frame.x, frame.y = middle - frame.left, y
    if _bordered(frame): y += HEAD
    for h in frame.held:
        if isinstance(h, Frame): _set(h, middle, y)
        else: h.x, h.y = middle - WIDE / 2, y
        y += h.height + GAP


# ---- as SVG ------------------------------------------------------------------------------------------------------------------------------
def svg(program: Program) -> str:
    """The drawing of a model. Every statement and frame carries `data-at`, its place in the spec."""
    g = layers(program)
    found = columns(program, g)
    boxes = {b.vertex: b for c in found for b in c.boxes()}
    edges = [Edge(boxes[u], boxes[v]) for u in g for v in g if g.has_edge(u, v) and not g.edges[u, v].get("mask")]
    width, height = placed(found, edges)
    marker = f"arrow-{program.model}"
    out = [f'<svg class="graph" data-model="{escape(program.model)}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
           f'height="{height:.0f}" role="group" aria-label="graph of {escape(program.model)}">',
           f'<defs><marker id="{escape(marker)}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
           '<path d="M0,0.5 L8,4 L0,7.5 z" class="tip"/></marker></defs>']
    for c in found: out += [_frame(f) for f in c.frames()]
    out += _paths(found, edges, marker)
    out += [_box(b) for c in found for b in c.boxes()]
    return "\n".join([*out, "</svg>"])


def _frame(f: Frame) -> str:
    return (f'<g class="part frame" data-at="{escape(f.at)}" data-label="{escape(f.label)}" tabindex="0" role="button" '
            f'aria-label="{escape(f.label)}, {escape(f.at)}">'
            f'<rect x="{f.x:.1f}" y="{f.y:.1f}" width="{f.width:.1f}" height="{f.height:.1f}" rx="8"/>'
            f'<text x="{f.x + 10:.1f}" y="{f.y + 16:.1f}">{escape(f.label)}</text></g>')


def _box(b: Box) -> str:
    x = f'x="{b.x + WIDE / 2:.1f}" text-anchor="middle"'
    lines = "".join(f'<text class="line" {x} y="{b.y + HIGH + LINE * k + 6:.1f}">{escape(t)}</text>' for k, t in enumerate(b.lines))
    rect = f'x="{b.x:.1f}" y="{b.y:.1f}" width="{WIDE}" height="{b.height:.1f}" rx="{15 if b.kind != "statement" else 5}"'
    name = f'<text {x} y="{b.y + 19:.1f}">{escape(b.label)}</text>'
    if b.kind != "statement": return f'<g class="end {b.kind}"><rect {rect}/>{name}</g>'
    share = f'<rect class="share" x="{b.x:.1f}" y="{b.y + b.height - 4:.1f}" width="0" height="4" data-width="{WIDE}"/>'
    return (f'<g class="part box" data-at="{escape(b.at)}" data-label="{escape(b.label)}" tabindex="0" role="button" '
            f'aria-label="{escape(b.label)}, {escape(b.at)}"><rect {rect}/>{share}{name}{lines}</g>')


def _paths(found: list[Frame], edges: list[Edge], marker: str) -> list[str]:
    out = []
    for c in found:
        order = {id(b): k for k, b in enumerate(c.boxes())}
        mine = sorted((e for e in edges if id(e.source) in order and id(e.target) in order),
                      key=lambda e: order[id(e.target)] - order[id(e.source)])
        taken: list[tuple[int, int, float]] = []
        for e in mine:
            i, j = order[id(e.source)], order[id(e.target)]
            if j == i + 1: out.append(_straight(e)); continue
            x = _beside(c, i, j)
            while any(a < j and i < b and abs(x - lane) < LANE - 1 for a, b, lane in taken): x += LANE
            taken.append((i, j, x))
            out.append(_around(e, x))
        inside = {id(b) for b in c.boxes()}
        out += [_across(e, c.x) for e in edges if id(e.target) in inside and id(e.source) not in inside]
    return [f'<path class="edge" d="{d}" marker-end="url(#{escape(marker)})"/>' for d in out]


def _beside(column: Frame, i: int, j: int) -> float:
    """The nearest place right of all that stands between two boxes, frames that are whole between them too."""
    boxes = list(column.boxes())
    between = {id(b) for b in boxes[i + 1:j]}
    right = [b.x + WIDE for b in boxes[i:j + 1]]
    right += [f.x + f.width for f in column.frames() if {id(b) for b in f.boxes()} <= between]
    return max(right) + LANE


def _straight(e: Edge) -> str:
    a, b = e.source, e.target
    x, y = a.x + WIDE / 2, a.y + a.height
    v = b.y
    return f"M{x:.1f},{y:.1f} V{v - 1:.1f}"


def _around(e: Edge, x: float) -> str:
    """From the right side of one to the right side of the other."""
    a, b = e.source, e.target
    start, y, v = a.x + WIDE, a.y + a.height - 8, b.y + 10
    end, r = b.x + WIDE, 6
    return (f"M{start:.1f},{y:.1f} H{x - r:.1f} Q{x:.1f},{y:.1f} {x:.1f},{y + r:.1f} V{v - r:.1f} Q{x:.1f},{v:.1f} {x - r:.1f},{v:.1f} "
            f"H{end + 1:.1f}")


def _across(e: Edge, edge: float) -> str:
    """From one column to another, through the gap in front of it."""
    a, b = e.source, e.target
    left_to_right = a.x < b.x
    x = edge - BETWEEN / 2
    y, v = a.y + a.height / 2, b.y + b.height / 2
    start, end = (a.x + WIDE, b.x - 1) if left_to_right else (a.x, b.x + WIDE + 1)
    if abs(v - y) < 12: return f"M{start:.1f},{v:.1f} H{end:.1f}"
    r = 6 if v > y else -6
    return (f"M{start:.1f},{y:.1f} H{x - 6:.1f} Q{x:.1f},{y:.1f} {x:.1f},{y + r:.1f} V{v - r:.1f} Q{x:.1f},{v:.1f} {x + 6:.1f},{v:.1f} "
            f"H{end:.1f}")


