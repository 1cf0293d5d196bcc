"""Hugging Face's Reformer: a checkpoint of theirs as a spec that computes the same, and its weights under the spec's names."""
from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from plait.dsl.errors import Diagnostic, PlaitError, error
from plait.dsl.lexer import KEYWORDS
from plait.dsl.printer import format as laid_out
from plait.runtime.codec import Numbers
from plait.runtime.foreign import weights
from plait.runtime.foreign.weights import Loaded

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu", "tanh": "tanh", "sigmoid": "sigmoid"}
DEFAULTS: dict[str, Any] = {                               # theirs, for what a config leaves out
    "attention_head_size": 64, "attn_layers": ["local", "lsh", "local", "lsh", "local", "lsh"], "axial_pos_embds": True,
    "axial_pos_shape": [64, 64], "axial_pos_embds_dim": [64, 192], "chunk_size_lm_head": 0, "chunk_size_feed_forward": 0,
    "feed_forward_size": 512, "hidden_act": "relu", "hidden_dropout_prob": 0.05, "hidden_size": 256, "is_decoder": False,
    "layer_norm_eps": 1e-12, "local_num_chunks_before": 1, "local_num_chunks_after": 0, "local_attention_probs_dropout_prob": 0.05,
    "local_attn_chunk_length": 64, "lsh_attn_chunk_length": 64, "lsh_attention_probs_dropout_prob": 0.0, "lsh_num_chunks_before": 1,
    "lsh_num_chunks_after": 0, "max_position_embeddings": 4096, "num_attention_heads": 12, "num_buckets": None, "num_hashes": 1,
    "vocab_size": 320, "tie_word_embeddings": False, "pruned_heads": {}}
FORM = "a Reformer of Hugging Face: a folder with config.json and model.safetensors or pytorch_model.bin"
HEAD = "lm_head.decoder.weight"


@dataclass(frozen=True)
class Imported:
    """model: its name in the spec; spec: the text; symbols: of its vocabulary; tensors: the weights under the spec's names."""
    model: str
    spec: str
    symbols: int
    tensors: Mapping[str, Tensor]


def read(folder: Path, name: str | None = None) -> Imported:
    """The checkpoint of a folder. Raises PlaitError for what is not one, and for each option that a spec has no form for."""
    config = _config(folder)
    tensors = {k.removeprefix("reformer."): t.float() for k, t in _tensors(folder).items()}
    odd = sorted({k.split(".")[0] for k in tensors} - {"embeddings", "encoder", "lm_head"})
    if odd: raise error("E0662", f"the checkpoint has a head `{odd[0]}`: plait imports the model, alone or with an LM head", help=FORM)
    model = name or _named(folder)
    if not re.fullmatch(r"[A-Za-z]\w*", model) or model in KEYWORDS:
        raise error("E0662", f"`{model}` cannot be the name of a model", help="--name reformer")
    made = Model(config, HEAD in tensors)
    spec = laid_out(made.spec(model), f"{model}.plait")
    return Imported(model, spec, made.c["vocab_size"], made.named(tensors))


def _named(folder: Path) -> str:
    """After the folder, as a name of the language."""
    word = re.sub(r"\W+", "_", folder.resolve().name.lower()).strip("_")
    return word if re.fullmatch(r"[a-z]\w*", word) and word not in KEYWORDS else f"reformer_{word}".rstrip("_")


def loaded(found: Imported) -> Loaded:
    """The module, with its weights."""
    made = weights._made(found.spec, f"{found.model}.plait", found.model, (), "cpu", False)
    made.load_state_dict(found.tensors, strict=True)
    return weights._ready(made, Numbers(found.symbols), found.spec, 0)


# ---- the files -------------------------------------------------------------------------------------------------------------------
def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir(): raise error("E0662", f"there is no folder `{folder}`", help=FORM)
    try: found = json.loads((folder / "config.json").read_bytes())
    except OSError as why: raise error("E0662", f"`{folder / 'config.json'}` cannot be read: {why.strerror}", help=FORM) from None
    except (ValueError, RecursionError): found = None
    if not isinstance(found, dict): raise error("E0662", f"`{folder / 'config.json'}` is no JSON object", help=FORM)
    if found.get("model_type") != "reformer":
        raise error("E0662", f"`model_type` is {found.get('model_type', 'not there')}: plait imports a reformer", help=FORM)
    return {**DEFAULTS, **found}


def _tensors(folder: Path) -> dict[str, Tensor]:
    """All weights, of one file or of several that an index names."""
    try:
        for index, one in (("model.safetensors.index.json", "model.safetensors"), ("pytorch_model.bin.index.json", "pytorch_model.bin")):
            if (folder / one).exists(): return _file(folder / one)
            if not (folder / index).exists(): continue
            names = sorted(set(json.loads((folder / index).read_bytes())["weight_map"].values()))
            return {k: t for n in names for k, t in _file(folder / Path(n).name).items()}
    except OSError as why: raise error("E0662", f"the weights cannot be read: {why}", help=FORM) from None
    except Exception as why:                               # whatever unpickling finds
        raise error("E0662", f"the weights cannot be read: {str(why).splitlines()[0][:200] if str(why) else type(why).__name__}",
                    help=FORM) from None
    raise error("E0662", f"`{folder}` holds no weights", help=FORM)


def _file(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try: return load_file(path)
        except SafetensorError as why: raise OSError(str(why)) from None
    found = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()): raise OSError(f"{path.name} holds no tensors")
    return found


# ---- the model -------------------------------------------------------------------------------------------------------------------
def _refuse(option: str, why: str) -> PlaitError:
    return error("E0662", f"the option `{option}` {why}", help="plait imports only what it computes to the same numbers")


class Model:
    """One checkpoint's options. c: the config; head: with the output layer of a language model."""

    def __init__(self, c: dict[str, Any], head: bool):
        self.c, self.head = c, head
        self._check()
        most = c["max_position_embeddings"]
        self.layers: list[str] = c["attn_layers"]
        self.n = min(most, math.prod(c["axial_pos_shape"])) if c["axial_pos_embds"] else most
        chunks = [c[f"{kind}_attn_chunk_length"] for kind in set(self.layers)]
        if self.n > min(chunks): self.n = self.n - self.n % math.lcm(*chunks) or self.n         # theirs pads to whole chunks
        self.period = next(p for p in range(1, len(self.layers) + 1)
                           if len(self.layers) % p == 0 and self.layers == self.layers[:p] * (len(self.layers) // p))
        for kind in set(self.layers): self._chunks(kind)

    def _check(self) -> None:
        """Refuses each option that has no form, all of them together."""
        c = self.c
        wrong: list[Diagnostic] = []
        def refuse(option: str, why: str) -> None: wrong.extend(_refuse(option, why).diagnostics)
        whole = [k for k, v in DEFAULTS.items() if isinstance(v, int) and not isinstance(v, bool) and k not in ("layer_norm_eps",)]
        for k in whole:
            if type(c[k]) is not int or c[k] < (0 if "num_chunks" in k or "chunk_size" in k else 1): refuse(k, f"is {c[k]!r}, no size")
        if wrong: raise PlaitError(*wrong)
        if c["hidden_act"] not in ACTIVATIONS: refuse("hidden_act", f"is {c['hidden_act']}: plait has {', '.join(ACTIVATIONS)}")
        if c["tie_word_embeddings"]: refuse("tie_word_embeddings", "ties two tables of different widths")
        if c["pruned_heads"]: refuse("pruned_heads", "leaves layers with different numbers of heads")
        kinds = c["attn_layers"]
        if not isinstance(kinds, list) or not kinds or set(kinds) - {"lsh", "local"}:
            refuse("attn_layers", f"is {kinds}: plait knows lists of lsh and local")
        if c["axial_pos_embds"] and not all(isinstance(x, list) and len(x) == 2 for x in (c["axial_pos_shape"], c["axial_pos_embds_dim"])):
            refuse("axial_pos_shape", "has another number of axes than two")
        buckets = c["num_buckets"]
        if isinstance(buckets, list) and len(buckets) > 2: refuse("num_buckets", f"has {len(buckets)} factors: plait hashes by one or two")
        if wrong: raise PlaitError(*wrong)

    def _chunks(self, kind: str) -> None:
        """Theirs looks around the ends of the sequence; where few chunks are, it sees some twice."""
        c = self.c
        beside, chunk = c[f"{kind}_num_chunks_before"] + c[f"{kind}_num_chunks_after"], c[f"{kind}_attn_chunk_length"]
        there = -(-self.n // chunk) * (c["num_hashes"] if kind == "lsh" else 1)
        if self.n > chunk and beside >= there and (kind == "lsh" or not c["is_decoder"]):
            raise _refuse(f"{kind}_num_chunks_before", f"and `…_after` look at {beside} chunks beside each of {there}, at some twice")

    # -- the spec ------------------------------------------------------------------------------------------------------------------
    def spec(self, name: str) -> str:
        """The text."""
        c = self.c
        width = "2 * d" if not self.head else "V"
        out = "logits" if self.head else "hidden"
        body = [line.replace("{ ", "{\n").replace("; ", "\n").replace(" }", "\n}") for line in self._stream()]
        return "\n".join([
            "plait 1", "", "## A Reformer of Hugging Face, with the options of its config.json.", "dims {",
            f"  V = {c['vocab_size']}", f"  n = {self.n}", f"  d = {c['hidden_size']}", f"  h = {c['num_attention_heads']}",
            f"  w = {c['attention_head_size']}", f"  f = {c['feed_forward_size']}", "}", "", f"model {name} {{",
            "  input text: tokens[n] of V", f"  {out} = text {{", *body, "  }", f"  output {out}: [n, {width}]", "}", ""])

    def _stream(self) -> list[str]:
        """The statements of the stream. Dropout of positions, which theirs has too, has no place here: it acts in training only."""
        drop = self._drop()
        lines = ["embed(V, width = d)", *drop, self._positions(),
                 f"reversible(repeat = {len(self.layers) // self.period}, merge = concat) {{"]
        for k, kind in enumerate(self.layers[:self.period]):
            lines += [f"  {self._part('attend', k)}: {{ {'; '.join([self._norm(), self._attention(kind), *drop])} }}",
                      f"  {self._part('feed', k)}: {{ {self._pieces('chunk_size_feed_forward', [self._norm(), *self._feed(), *drop])} }}"]
        lines += ["}", self._norm(), *drop]
        return [*lines, self._pieces("chunk_size_lm_head", ["unembed(V, bias = true)"])] if self.head else lines

    def _part(self, name: str, k: int) -> str: return name if self.period == 1 else f"{name}{k + 1}"

    def _drop(self) -> list[str]:
        p = self.c["hidden_dropout_prob"]
        return [f"dropout({_number(p)})"] if p else []

    def _norm(self) -> str:
        return f"layer_norm(eps = {_number(self.c['layer_norm_eps'])})"

    def _positions(self) -> str:
        c = self.c
        if not c["axial_pos_embds"]: return f"positions(learned, max = {c['max_position_embeddings']})"
        (rows, columns), (left, right) = c["axial_pos_shape"], c["axial_pos_embds_dim"]
        return f"positions(axial, grid = ({rows}, {columns}), widths = ({left}, {right}))"

    def _feed(self) -> list[str]:
        return ["linear(f)", *self._drop(), ACTIVATIONS[self.c["hidden_act"]], "linear(d)"]

    def _pieces(self, option: str, chain: list[str]) -> str:
        size = self.c[option]
        return "; ".join(chain) if size == 0 else f"chunked(over = n, pieces = ceil(n / {size})) {{ {'; '.join(chain)} }}"

    def _attention(self, kind: str) -> str:
        c = self.c
        chunk, drop = c[f"{kind}_attn_chunk_length"], c[f"{kind}_attention_probs_dropout_prob"]
        before, after = c[f"{kind}_num_chunks_before"], c[f"{kind}_num_chunks_after"]
        said = ["heads = h", "head_width = w", "bias = false", *(["causal = true"] if c["is_decoder"] else []),
                *([f"dropout = {_number(drop)}"] if drop else [])]
        whole, looks = self.n <= chunk, [f"chunk = {chunk}", f"look_back = {before}", f"look_ahead = {after}"]
        if kind == "local":
            around = ["wrap = true"] if before + after and not c["is_decoder"] else []
            return f"attention({', '.join(said)})" if whole else f"local_attention({', '.join([*said, *looks, *around])})"
        if whole: return f"attention({', '.join([*said, 'share_qk = true'])})"
        around = [] if not before + after else ["wrap = true" if c["num_hashes"] == 1 else "wrap = rounds"]
        return (f"lsh_attention({', '.join([*said, *looks, *around])}, rounds = {c['num_hashes']}, buckets = {self._buckets()}, "
                "within_bucket = false, dedup = false)")

    def _buckets(self) -> str:
        """Theirs, or what they choose on the first call: a power of two, in two factors where it is large."""
        found, chunk = self.c["num_buckets"], self.c["lsh_attn_chunk_length"]
        if found is None:
            power = (2 * (self.n // chunk)).bit_length() - 1
            most = 2 * max(int((self.c["max_position_embeddings"] // chunk) ** 0.5), chunk)
            found = 2**power if 2**power <= most else [2 ** (power // 2), 2 ** (power - power // 2)]
        return str(found) if isinstance(found, int) else str(found[0]) if len(found) == 1 else f"({found[0]}, {found[1]})"

    # -- the weights ---------------------------------------------------------------------------------------------------------------
    def named(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights under the names of the spec. Raises PlaitError where one is missing or of another shape."""
        found: dict[str, Tensor] = {}
        for ours, other, shape in self._names():
            if other not in theirs: raise error("E0662", f"the checkpoint has no weight `{other}`", help=FORM)
            if theirs[other].numel() != math.prod(shape):
                have = tuple(theirs[other].shape)
                raise error("E0662", f"the weight `{other}` has shape {have}, and config.json asks for {shape}", help=FORM)
            found[ours] = theirs[other].reshape(shape).contiguous()
        return found

    def _names(self):
        """Name here, name there, shape here."""
        c, at = self.c, len(self._drop())
        d, h, w, f, V = (c[k] for k in ("hidden_size", "num_attention_heads", "attention_head_size", "feed_forward_size", "vocab_size"))
        s = "logits" if self.head else "hidden"
        yield f"{s}.0.weight", "embeddings.word_embeddings.weight", (V, d)
        if c["axial_pos_embds"]:
            for k, name in enumerate(("row", "column")):
                yield (f"{s}.{at + 1}.{name}", f"embeddings.position_embeddings.weights.{k}",
                       (c["axial_pos_shape"][k], c["axial_pos_embds_dim"][k]))
        else: yield f"{s}.{at + 1}.weight", "embeddings.position_embeddings.embedding.weight", (c["max_position_embeddings"], d)
        for i in range(len(self.layers)):
            copy, k = divmod(i, self.period)
            place, other = f"{s}.{at + 2}.{copy}", f"encoder.layers.{i}"
            yield from self._attended(f"{place}.{self._part('attend', k)}", f"{other}.attention", self.layers[i], d, h, w)
            inner = f"{place}.{self._part('feed', k)}" + (".0" if c["chunk_size_feed_forward"] else "")
            yield from _normed(f"{inner}.0", f"{other}.feed_forward.layer_norm", d)
            for number, name, shape in ((1, "dense", (f, d)), (3 + at, "output", (d, f))):
                yield f"{inner}.{number}.weight", f"{other}.feed_forward.{name}.dense.weight", shape
                yield f"{inner}.{number}.bias", f"{other}.feed_forward.{name}.dense.bias", shape[:1]
        yield from _normed(f"{s}.{at + 3}", "encoder.layer_norm", 2 * d)
        if not self.head: return
        last = f"{s}.{2 * at + 4}" + (".0" if c["chunk_size_lm_head"] else "")
        yield f"{last}.weight", HEAD, (V, 2 * d)
        yield f"{last}.bias", "lm_head.bias", (V,)

    def _attended(self, place: str, other: str, kind: str, d: int, h: int, w: int):
        yield from _normed(f"{place}.0", f"{other}.layer_norm", d)
        pairs = (("query", "query_key"), ("value", "value")) if kind == "lsh" else (("query", "query"), ("key", "key"), ("value", "value"))
        for ours, theirs in pairs: yield f"{place}.1.{ours}", f"{other}.self_attention.{theirs}.weight", (h, w, d)
        yield f"{place}.1.out", f"{other}.output.dense.weight", (d, h, w)


def _normed(place: str, other: str, d: int):
    yield f"{place}.scale", f"{other}.weight", (d,)
    yield f"{place}.shift", f"{other}.bias", (d,)


def _number(x: float) -> str:
    """As the language writes it: 1e-12, 0.05."""
    return format(x, "g").replace("e-0", "e-")
