"""The syntax tree of a `.plait` file: frozen, and every node knows its span. It says what was written, not what it means."""
from __future__ import annotations

from dataclasses import dataclass, field

from plait.dsl.errors import Source, Span


# ---- expressions -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Number:
    """`512`, `1e-3`, `64Ki`, `2M`. `value` is exact (int where it is whole, else Fraction); `text` is as written."""
    value: object
    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Bytes:
    """`16GiB`: occurs only in memory limits. `value` in bytes."""
    value: int
    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Quantity:
    """`8 sequences`, `100k steps`: an expression with a unit of UNITS behind it."""
    amount: Expr
    unit: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Text:
    """A string in double quotes."""
    value: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Name:
    """A dim, a keyword value (`true`, `causal`, `pre`), a stream, a metric: its place decides."""
    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Unary:
    op: str                                  # -
    operand: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Binary:
    """Arithmetic `+ - * / % ^`, comparisons `== != < <= > >=`, and the logic words `and or`."""
    op: str
    left: Expr
    right: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Tuple:
    """`(f1, f2)`: two or more items. A parenthesised single expression is that expression."""
    items: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class List:
    """`[a, b]`."""
    items: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Argument:
    """`8` (name is None) or `heads = 8`."""
    name: str | None
    value: Expr
    span: Span = field(compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    """`sqrt(d)`, `next(text)`, `bytes("enwik8", split = (0.9, 0.1))`, `embedding(V, d)`."""
    name: str
    arguments: tuple[Argument, ...]
    span: Span = field(compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


Expr = Number | Bytes | Quantity | Text | Name | Unary | Binary | Tuple | List | Call
UNITS = ("steps", "tokens", "sequences", "epochs", "minutes")


# ---- statements of a body ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Apply:
    """One line of a chain: a layer, a user's block, or a construct.

    `layer_norm` · `attention(heads = h)` · `residual(norm = post) { … }` (body) · `reversible(repeat = L) { one: {…}; two: {…} }`
    (parts) · `parallel(merge = add) { a: {…} b: {…} }` (parts) · `chunked(over = n, pieces = P) { … }` (body).
    `called` says whether parentheses were written. At most one of body and parts is not None."""
    name: str
    arguments: tuple[Argument, ...]
    body: Body | None
    parts: tuple[Part, ...] | None
    called: bool
    span: Span = field(compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Part:
    """`attend: { … }` inside reversible or parallel."""
    name: str
    body: Body
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Repeat:
    """`repeat L as i shared { … }`; `index` is None without `as`."""
    count: Expr
    index: str | None
    shared: bool
    body: Body
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Body:
    """A chain: each statement transforms the current stream."""
    statements: tuple[Apply | Repeat, ...]
    span: Span = field(compare=False, repr=False)


# ---- items -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dim:
    """`d = 512` (relation `=`), `n <= 512` (relation `<=`, free, bounded), a bare `n` (relation and value None, free)."""
    name: str
    relation: str | None
    value: Expr | None
    span: Span = field(compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Require:
    """`require n % c == 0`."""
    condition: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Dims:
    """`dims { … }`, in a file or in a model."""
    entries: tuple[Dim | Require, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Let:
    """`let p = 0.1`: a number that is not a size."""
    name: str
    value: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Share:
    """`share tok = embedding(V, d)`."""
    name: str
    value: Call
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class TokensType:
    """`tokens[n] of V`. `shape` are the sizes in brackets."""
    shape: tuple[Expr, ...]
    of: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class StreamType:
    """`stream[n, d]`: numbers."""
    shape: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class ClassType:
    """`class of C`: one label a sequence."""
    of: Expr
    span: Span = field(compare=False, repr=False)


Type = TokensType | StreamType | ClassType


@dataclass(frozen=True)
class Parameter:
    """A parameter of a block: `width`, `width = 4 * d` (sizes), `memory: stream[m, d]` (a stream)."""
    name: str
    type: StreamType | None
    default: Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Block:
    """`block encoder_layer(memory: stream[m, d], p = 0.1) { … }`."""
    name: str
    parameters: tuple[Parameter, ...]
    body: Body
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Use:
    """`use "file.plait"`: imports blocks, shares, lets and dims."""
    path: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Input:
    """`input text: tokens[n] of V padded`."""
    name: str
    type: Type
    padded: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Flow:
    """`logits = text { … }`: a named stream, made from another."""
    name: str
    source: str
    body: Body
    span: Span = field(compare=False, repr=False)
    source_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Output:
    """`output logits: [n, V]`."""
    name: str
    shape: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Model:
    """`model m { … }`; members keep their order."""
    name: str
    members: tuple[Dims | Let | Share | Input | Flow | Output, ...]
    span: Span = field(compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Setting:
    """`lr = 3e-4` in a train or compare block."""
    name: str
    value: Expr
    span: Span = field(compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Every:
    """`every 500 steps { evaluate(loss); checkpoint(keep = 2) }`. `period` is a Quantity."""
    period: Expr
    actions: tuple[Call, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Train:
    """`train a, b { … }`; `models` is empty where none is named: all."""
    models: tuple[Name, ...]
    entries: tuple[Setting | Every, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Compare:
    """`compare NAME { models = [...]; … }`."""
    name: str
    entries: tuple[Setting, ...]
    span: Span = field(compare=False, repr=False)


Item = Dims | Let | Share | Block | Use | Model | Train | Compare


@dataclass(frozen=True)
class Spec:
    """A file. `version` is 1."""
    version: int
    items: tuple[Item, ...]
    source: Source = field(compare=False, repr=False)


@dataclass(frozen=True)
class Override:
    """`--set d=256` (path ("d",)), `--set train.lr=3e-4` (path ("train", "lr")), `--set 'n=1Ki,4Ki'` (two values: a sweep)."""
    path: tuple[str, ...]
    values: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)
