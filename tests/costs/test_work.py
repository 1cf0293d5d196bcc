"""Work and parameters against arithmetic: the worked values, and costs that public tools got wrong."""
import pytest
import sympy as sp

from plait.compiler.costs.params import params
from plait.compiler.costs.work import LEDGERS, macs, work

from .models import model, value


def counted(program):
    return value(macs(program.graph), program), value(params(program.graph), program)


CASES = {
    # T·b·4H(I+H) = 5·3·4·20·30 = 36,000 for a batch of 3; 4H(I+H) + 8H = 2,560 with PyTorch's two biases
    "lstm 10→20, T = 5": ("lstm(20)", "n = 5; d = 10", "[n, 20]", 12_000, 2_560),
    # 320 steps of 3H(I+H) = 98,304; parameters with two biases 98,304 + 768
    "gru 128→128, 320 steps": ("gru(128)", "n = 320; d = 128", "[n, d]", 31_457_280, 99_072),
    # 100·4·512·((300+512) + (512+512)): the weights times the steps, in both layers; 4H(I+H) + 8H each
    "lstm 300→512, two layers, T = 100": ("lstm(512, layers = 2)", "n = 100; d = 300", "[n, 512]", 376_012_800, 1_667_072 + 2_101_248),
    "linear 512→20 over 100 positions": ("linear(20)", "n = 100; d = 512", "[n, 20]", 1_024_000, 10_260),
    # 24·(10·40 + 40·10) = 19,200 a sequence of one; 153,600 for a batch of 8
    "24 layers of 10→40→10": ("repeat 24 { linear(40, bias = false); linear(10, bias = false) }", "n = 1; d = 10", "[n, d]",
                              19_200, 19_200),
    # two products of 64·64·768
    "attention 12 heads × 64, n = 64": ("attention(heads = 12, project = false)", "n = 64; d = 768", "[n, d]", 6_291_456, 0),
    # projections: query 16·32·32, key and value 16·32·8 each, out 16·32·32; the core 2·16²·8·4 = 16,384
    "grouped queries, 8 and 2 heads of 4, n = 16": ("attention(heads = 8, kv_heads = 2, bias = false)", "n = 16; d = 32", "[n, d]",
                                                   16_384 + 2 * 16 * 32 * 32 + 2 * 16 * 32 * 8, 2 * 32 * 32 + 2 * 32 * 8),
    # 4·1000·100² + 2·1000²·100; parameters 4·(100² + 100)
    "attention of width 100, one head, n = 1000": ("attention(heads = 1)", "n = 1000; d = 100", "[n, d]", 240_000_000, 40_400),
    "heads cancel: 4": ("attention(heads = 4)", "n = 300; d = 448", "[n, d]", 321_484_800, None),
    "heads cancel: 8": ("attention(heads = 8)", "n = 300; d = 448", "[n, d]", 321_484_800, None),
    # the n² term by 32·128 = 4,096 and not by 2,560: 2·4²·4096; projections 4·4·2560·4096
    "head width apart from d / heads": ("attention(heads = 32, head_width = 128)", "n = 4; d = 2560", "[n, d]",
                                        131_072 + 167_772_160, None),
    "transformer layer, n = 32": ("residual { attention(heads = 2) }; residual { feed_forward(128) }", "n = 32; d = 64", "[n, d]",
                                  1_179_648, None),
    "transformer layer, n = 64": ("residual { attention(heads = 2) }; residual { feed_forward(128) }", "n = 64; d = 64", "[n, d]",
                                  2_621_440, None),
    "conv 1000→1000, width 3, n = 512": ("conv(1000, kernel = 3)", "n = 512; d = 1000", "[n, d]", 1_536_000_000, 3_001_000),
    # every use is work, the one set of parameters is counted once
    "one linear in three places": ("repeat 3 shared { linear(100) }", "n = 1; d = 100", "[n, d]", 30_000, 10_100),
    # k·n·d + n·d·d: 3·10·8 + 10·8·8
    "separable convolution": ("separable_conv(8, kernel = 3, bias = false)", "n = 10; d = 8", "[n, d]", 240 + 640, 24 + 64),
    # groups divide: 3·10·8·8 / 4
    "grouped convolution": ("conv(8, kernel = 3, groups = 4, bias = false)", "n = 10; d = 8", "[n, d]", 480, 48),
    "both directions": ("lstm(20, direction = both)", "n = 5; d = 10", "[n, 40]", 24_000, 5_120),
}


@pytest.mark.parametrize("name", CASES)
def test_worked_value(name):
    body, dims, out, want_macs, want_params = CASES[name]
    got_macs, got_params = counted(model(body, dims, out=out))
    assert got_macs == want_macs
    assert want_params is None or got_params == want_params


def test_table_1():
    """Vaswani et al. 2017, Table 1, at n = 1000, d = 512, k = 3, r = 64."""
    n, d, k, r = (sp.Symbol(s, integer=True, positive=True) for s in "ndkr")
    dims = "n = 1000; d = 512; k = 3; r = 64"
    for body, want, number, count in (("attention(heads = 1, project = false)", 2 * d * n**2, 1_024_000_000, 0),
                                      ("rnn(d, bias = false)", 2 * d**2 * n, 524_288_000, 2 * d**2),
                                      ("conv(d, kernel = k, causal = true, bias = false)", d**2 * k * n, 786_432_000, d**2 * k),
                                      ("attention(heads = 1, window = r, causal = true, project = false)", 2 * d * n * r, 65_536_000, 0)):
        program = model(body, dims)
        assert macs(program.graph) == want and value(want, program) == number
        assert params(program.graph) == count


def test_eight_heads_hold_eight_million_scores():
    program = model("attention(heads = 8, project = false)", "n = 1000; d = 512")
    scores = next(n for n in program.graph.walk() if n.name == "scores").outs[0]
    assert program.sizes.bind(b=1).value(scores.size) == 8_000_000


def test_tied_embedding():
    """Parameters once; the output layer V·d a position; the lookup is movement."""
    program = model("embed(tok); unembed(tok)", "n = 6; d = 8; V = 11", "tokens[n] of V", "[n, V]", "share tok = embedding(V, d)")
    assert counted(program) == (6 * 8 * 11, 88)
    lookup = next(n for n in program.graph.walk() if n.name == "lookup")
    moved = work(program.graph, lambda n: n is lookup)
    assert value(moved["movement"], program) == 6 * 8 and moved["contraction"] == 0


def test_lsh_per_head():
    """Width 128, 8 heads, buckets = n / 64, 16 rounds, n = 1,024; per head, with w = 16: hashing 16·1024·16·8, scores and
    weighted sum 16·1024·128·16 each; full attention 2·1024²·16 = 33,554,432. LSH is dearer here."""
    program = model("lsh_attention(heads = 8, chunk = 64, rounds = 16, buckets = n / 64, causal = true, project = false)",
                    "n = 1024; d = 128; require n % 64 == 0")
    parts = {name: value(macs(program.graph, lambda node, name=name: node.name == name), program) / 8
             for name in ("hashing", "scores", "weighted sum")}
    assert parts == {"hashing": 2_097_152, "scores": 33_554_432, "weighted sum": 33_554_432}
    full = model("attention(heads = 8, causal = true, project = false)", "n = 1024; d = 128")
    assert value(macs(full.graph), full) / 8 == 33_554_432


@pytest.mark.parametrize("buckets, first", [("n / 64", 2_304), ("2 * n / 64", 2_432)])
def test_where_lsh_first_wins(buckets, first):
    """With projections, both sharing queries and keys, n a multiple of 128 (width 128, 8 heads, chunks of 64, 16 rounds)."""
    dims = "n; d = 128; require n % 128 == 0"
    lsh = model(f"lsh_attention(heads = 8, chunk = 64, rounds = 16, buckets = {buckets}, causal = true)", dims + "; require n % 64 == 0")
    full = model("attention(heads = 8, causal = true, share_qk = true)", dims)
    def work(p, n: int): return p.sizes.bind(n=n).value(macs(p.graph))

    cheaper = [m for m in range(128, 4096, 128) if work(lsh, m) < work(full, m)]
    assert cheaper[0] == first and cheaper == list(range(first, 4096, 128))


def test_lsh_against_full_at_1024():
    """costs: batch 10, with projections: 6,039,797,760 against 3,187,671,040."""
    lsh = model("lsh_attention(heads = 8, chunk = 64, rounds = 16, buckets = n / 64)", "n = 1024; d = 128; require n % 64 == 0")
    full = model("attention(heads = 8, share_qk = true)", "n = 1024; d = 128")
    assert 10 * value(macs(lsh.graph), lsh) == 6_039_797_760
    assert 10 * value(macs(full.graph), full) == 3_187_671_040


def test_hashing_is_quadratic_unless_factorised():
    """Buckets that grow with n make hashing quadratic; a pair (32, n / 32) adds its factors instead of multiplying them:
    d·n·(32 + n/32)/2 against d·n·n/2."""
    dims = "n; d = 64; require n % 64 == 0; require n % 32 == 0"
    whole = model("lsh_attention(heads = 1, chunk = 64, buckets = n, project = false)", dims)
    pair = model("lsh_attention(heads = 1, chunk = 64, buckets = (32, n / 32), project = false)", dims)
    cost = [p.sizes.bind(n=4096).value(macs(p.graph, lambda node: node.name == "hashing")) for p in (whole, pair)]
    assert cost == [64 * 4096 * 4096 / 2, 64 * 4096 * (32 + 128) / 2]


def test_chunked_feed_forward_does_the_same_work():
    plain = model("linear(32); gelu; linear(d)", "n = 12; d = 8")
    cut = model("chunked(over = n, pieces = 3) { linear(32); gelu; linear(d) }", "n = 12; d = 8; require n % 3 == 0")
    for ledger in ("contraction", "pointwise", "transcendental", "comparisons"):
        assert value(work(plain.graph)[ledger], plain) == value(work(cut.graph)[ledger], cut)


def test_ragged_pieces_pay_for_their_padding():
    """65 positions in 32 pieces are 32 pieces of 3: 96 rows."""
    cut = model("chunked(over = n, pieces = 32) { linear(d, bias = false) }", "n = 65; d = 8")
    assert value(macs(cut.graph), cut) == 96 * 64


def test_require_decides_between_quotient_and_ceiling():
    body = "lsh_attention(heads = 1, chunk = c, project = false)"
    assert not macs(model(body, "n = 128; c = 64; d = 8; require n % c == 0").graph).has(sp.ceiling)
    assert macs(model(body, "n = 128; c = 64; d = 8").graph).has(sp.ceiling)


def test_a_causal_mask_does_not_lower_dense_work():
    plain, causal = (model(f"attention(heads = 2{c})", "n = 6; d = 8") for c in ("", ", causal = true"))
    assert macs(plain.graph) == macs(causal.graph)


def test_ledgers_of_a_linear():
    """n·d·w multiply-adds, a bias add for each of n·w outputs."""
    program = model("linear(w)", "n = 5; d = 3; w = 7", out="[n, w]")
    got = {k: value(e, program) for k, e in work(program.graph).items()}
    assert set(got) == set(LEDGERS)
    assert got["contraction"] == 105 and got["pointwise"] == 35 and got["transcendental"] == 0 and got["comparisons"] == 0


def test_sort_is_n_log_n_comparisons():
    """1,024 keys: 1024·10 comparisons, and again to undo it."""
    program = model("lsh_attention(heads = 1, chunk = 64, buckets = 16, project = false)", "n = 1024; d = 8; require n % 64 == 0")
    sorts = work(program.graph, lambda n: type(n.op).__name__ == "Sort")["comparisons"]
    assert value(sorts, program) == 2 * 1024 * 10


@pytest.mark.parametrize("dims", ["n; d = 8", "n = 12; d", "n; d"])
def test_a_free_dim_stays_a_symbol_and_binding_substitutes(dims):
    body = "residual { attention(heads = 2, causal = true) }; residual { feed_forward(4 * d) }; lstm(d)"
    free, bound = model(body, dims), model(body, "n = 12; d = 8")
    for cost in (lambda p: macs(p.graph), lambda p: params(p.graph), lambda p: work(p.graph)["pointwise"]):
        assert free.sizes.bind(n=12, d=8).value(cost(free)) == value(cost(bound), bound)
