"""What the codes of modules, data, training and runs mean (E06), that of a mistake of plait itself, and those of the warnings (W04).

Where a spec cannot show the mistake, commands or lines of Python do; `model` is a module there, and `text` a tensor."""
from __future__ import annotations

from plait.dsl.explained_language import Entry, file

DEMO = "plait train specs/demo.plait"


def trained(layers: str = "gru(d)", also: str = "", every: str = "", **settings: str) -> str:
    """A small language model and its train block, with these settings in place of the usual ones; an empty one is left out.
    every: what is done every so often, in full; also: a block after it."""
    usual = {"data": 'text("book.txt")', "loss": "cross_entropy(logits, next(text))", "batch": "8 sequences", "lr": "1e-3",
             "stop": "100 steps"}
    block = "\n".join(f"  {key} = {value}" for key, value in {**usual, **settings}.items() if value) + (f"\n  {every}" if every else "")
    return file(
        "dims { V <= 256; n = 64; d = 32 }",
        f"model m {{\n  input text: tokens[n] of V\n  logits = text {{ embed(V, width = d); {layers}; unembed(V) }}\n"
        "  output logits: [n, V]\n}",
        *([f"train m {{\n{block}\n}}"] + ([also] if also else [])))


def layered(layer: str, n: str) -> str:
    """One layer on a stream of n vectors."""
    return file(f"dims {{ n = {n}; d = 64 }}", f"model m {{\n  input x: stream[n, d]\n  y = x {{ {layer} }}\n  output y: [n, d]\n}}")


def unread(out: str) -> str:
    """Two streams in a row, and one of them an output."""
    return file("dims { n = 16; d = 32 }", "model m {\n  input x: stream[n, d]\n  y = x { gru(d) }\n  z = y { linear(d) }\n"
                f"  output {out}: [n, d]\n}}")


RUNS: dict[str, Entry] = {
    "E0601": (
        "The loss of a module is the one that the train block of its model names. Without a train block a module gives outputs only; give "
        "the model a block, or compute the loss from the outputs.",
        'model = plait.compile("specs/table1.plait", "recurrent")\nmodel.loss(x)\n',
        'model = plait.compile("specs/shakespeare.plait")\nmodel.loss(text)\n'),
    "E0602": (
        "A module takes the inputs of its model: in their order, or by their names, each once. A padded input may come with its mask, "
        "`NAME_mask`. The loss also takes inputs that only serve as targets.",
        "model(text, text)\n", "model(text=text)\n"),
    "E0603": (
        "Symbols are integers, streams are floating-point numbers, masks are truth values, and all of them are tensors on the device of "
        "the model. Nothing is converted silently where it would hide a mistake.",
        "model(torch.rand(1, 64))\n", "model(torch.randint(65, (1, 64)))\n"),
    "E0604": (
        "`tokens[n] of V` holds symbols from 0 to V - 1. Count V over all the data, or leave it free: training then takes it from its "
        "text. Negative symbols are known to the loss and to padded inputs only.",
        "model(torch.full((1, 64), 65))          # V = 65\n", "model(torch.full((1, 64), 64))\n"),
    "E0605": (
        "The batch comes first, then the axes that the input declares. A dim with a value has just that size; a free one takes its size "
        "from the first input that has it, and the others must agree.",
        "model(torch.randint(65, (64,)))\n", "model(torch.randint(65, (1, 64)))\n"),
    "E0606": (
        "Costs are derived with free dims, but a parameter needs a size to be made, and a module must fit the memory of its device. Give "
        "the dim a value, or choose smaller ones.",
        'plait.compile("specs/demo.plait")\n', 'plait.compile("specs/demo.plait", set={"V": 65})\n'),
    "E0607": (
        "`--memory` cuts the loss into pieces, then recomputes statements, then whole repeats, until the derived peak of a step fits: "
        "parameters, gradients, what Adam remembers, activations. The message says what the least is. A smaller batch "
        "or a shorter n needs less, a reversible stack keeps nothing that grows with its depth.",
        f"{DEMO} --memory 1MiB\n", f"{DEMO} --memory 64MiB\n"),
    "E0608": (
        "Kernels of plait's own, recurrences, recomputed and reversible parts bring their own backward, which cannot be differentiated "
        "again. A gradient penalty needs a model without them: bodies instead of kernels, no chunked or reversible part.",
        "torch.autograd.grad(model(x).sum(), x, create_graph=True)\n", "torch.autograd.grad(model(x).sum(), x)\n"),
    "E0610": (
        "The file that `data` names is not there, is a folder, or may not be read. Nothing is downloaded. A path starts at the folder of "
        "the spec; one given by `--set` is looked for in the current folder too.",
        f"{DEMO} --set 'train.data=text(\"boook.txt\")'\n", f"{DEMO} --set 'train.data=text(\"book.txt\")'\n"),
    "E0611": (
        "Training and validation each need at least one window of n symbols, and one more where the next symbol is predicted. Take a "
        "longer text, a smaller n, or a larger share for the part that is too short.",
        f"{DEMO} --set 'train.data=text(\"note.txt\")'        # 400 characters\n",
        f"{DEMO} --set 'train.data=text(\"note.txt\")' --set n=8\n"),
    "E0612": (
        "`text` reads UTF-8, and unpacks `.gz` and `.bz2`; this file is another encoding, or its packing is damaged. Convert it, or read "
        "it as it is with `bytes`, or with `tokens = bytes`. Other sources ask for a form: files of a pair have equally many lines, images "
        "are of one size, numbers are whole, JSON and arrays are complete.",
        f"{DEMO} --set 'train.data=text(\"latin1.txt\")'\n", f"{DEMO} --set 'train.data=bytes(\"latin1.txt\")'\n"),
    "E0613": (
        "Every symbol of the data and of a prompt needs a place in the model's vocabulary. A trained model keeps the vocabulary of its "
        "run; a new one may leave it free, `V <= 256`, to be bound by the data.",
        "plait train specs/shakespeare.plait --set 'train.data=text(\"book.txt\")'        # 96 characters, V = 65\n",
        "plait train specs/shakespeare.plait --set 'train.data=text(\"book.txt\")' --set V=96\n"),
    "E0614": (
        "The data fills the inputs of the model, in order: texts and tasks give one row of tokens, sentence pairs two, labelled images and "
        "lists a row and a class. Examples are as long as the model reads. A run is resumed on the data that it began with.",
        "plait train specs/duplication.plait --model lsh --set 'train.data=duplicate(length = 128)'        # n = 64\n",
        "plait train specs/duplication.plait --model lsh --set 'train.data=duplicate(length = n)'\n"),
    "E0615": (
        "plait runs on the CPU and on NVIDIA GPUs that torch sees; `auto` takes the GPU where there is one.",
        f"{DEMO} --device tpu\n", f"{DEMO} --device cpu\n"),
    "E0620": (
        "A run folder belongs to one run and one process at a time, and its files are needed to go on from it. Go on with `plait resume`, "
        "or start a new run with another `--out`.",
        f"{DEMO} --out runs/demo\n{DEMO} --out runs/demo\n", f"{DEMO} --out runs/demo\nplait resume runs/demo\n"),
    "E0621": (
        "The run has no checkpoint that is whole and made by its own spec. A spec of a run is not to be edited: what has other parameters "
        "is another model, and starts as a new run.",
        "rm -r runs/demo/checkpoints\nplait resume runs/demo\n", f"{DEMO} --out runs/again\n"),
    "E0622": (
        "The training has diverged: a loss, a gradient or a weight is infinite or not a number, and steps from there on would be lost. "
        "The message names the layer where it began. A smaller rate, a longer warm-up or a bound on the gradient helps; `plait resume` "
        "starts again from the last sound checkpoint.",
        f"{DEMO} --set train.lr=1e6\n", f"{DEMO} --set train.lr=3e-4 --set train.clip=1\n"),
    "E0623": (
        "The disk is full, or the folder may not be written. The checkpoints before this one are whole: make room, then `plait resume` "
        "goes on from the last of them.",
        "plait resume runs/demo        # a full disk\n", "rm -r runs/old\nplait resume runs/demo\n"),
    "E0625": (
        "Text is continued symbol by symbol, so the model takes one input of `tokens` and its first output is a row of scores for each "
        "position, [n, V]. Other models are trained and evaluated, but not sampled from. The length and top-k are at least 1, and the "
        "temperature at least 0.",
        "plait sample runs/translation        # a model of two inputs\n", "plait evaluate runs/translation\n"),
    "E0626": (
        "A training on several processes meets by what its launcher puts into the environment: RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT. It needs all of them to the end: where one dies, or does not answer for ten minutes, the others stop, "
        "each with this message, and the last checkpoint stands. The process that ended first says why.",
        "WORLD_SIZE=2 plait train translation.plait        # and nothing else\n",
        "torchrun --nproc-per-node 2 -m plait train translation.plait\n"),
    "E0631": (
        "A train block has a fixed set of keys, each given once; `data`, `loss`, `batch`, `lr` and `stop` have no sensible default and "
        "are always given.",
        trained(lr="", learning_rate="1e-3"), trained()),
    "E0632": (
        "Data sources, optimisers, the actions of `every` and the metrics of `evaluate` are known by name. The help gives near ones, or "
        "all of them.",
        trained(optimizer="adma"), trained(optimizer="adam")),
    "E0633": (
        "Every setting has a kind and a range: `clip` is above 0, the shares of a `split` are above 0 and add up to at most 1, the batch "
        "is a whole number of microbatches. The message gives the rule.",
        trained(clip="0"), trained(clip="1")),
    "E0634": (
        "An amount says what it counts, so that 32 sequences and 32 tokens are not confused. Batches are counted in sequences or tokens, "
        "`stop` in steps, epochs, tokens or minutes, `every` in steps; other numbers have no unit.",
        trained(batch="8"), trained(batch="8 sequences")),
    "E0635": (
        "The learning rate is a number, or a formula in `step` (1 at the first update), and is never negative. The dims and lets that "
        "have a value, `pi` and the functions of the language may stand in it, and `cosine(peak, floor, warmup)` alone is a schedule.",
        trained(lr="1e-3 - step * 1e-4"), trained(lr="max(1e-3 - step * 1e-4, 0)")),
    "E0636": (
        "The language has a word for this, and this version of plait cannot run it. It is checked with the rest of the spec; the help "
        "says what works today.",
        "plait evaluate runs/demo --metric bleu\n", "plait evaluate runs/demo --metric accuracy\n"),
    "E0637": (
        "One train block is followed for a model: the one that names it, else the one that names none. A command on a file of several "
        "models needs `--model`; a model to be trained needs a block.",
        trained(also='train m {\n  data = bytes("other.bin")\n}'), trained()),
    "E0638": (
        "A free dim stands for any size in costs, but data is cut and parameters are made in fixed sizes. Give it a value in the file or "
        "by `--set`. Only the vocabulary of a text may stay free; the data binds it.",
        "plait train m.plait              # dims { V <= 256; n; d = 64 }\n", "plait train m.plait --set n=128\n"),
    "E0640": (
        "Plots and pictures are drawn by matplotlib, which comes with the extra `plot`, into a file whose ending says its form. A report "
        "is one `.html` file; the times that it shows are the JSON of a benchmark.",
        "plait plot specs/table1.plait --x n --out plot.txt\n", "plait plot specs/table1.plait --x n --out plot.svg\n"),
    "E0641": (
        "An audit executes the model, forward and backward, several times. Small sizes show the same: the expressions do not change.",
        "plait audit specs/reformer.plait\n", "plait audit specs/reformer.plait --set n=512 --set g=16 --set d=64 --set V=32\n"),
    "E0642": (
        "A comparison trains several models of a spec on one budget, with the same data, and holds their validation losses side by side. "
        "Its keys are models, fit, seeds, budget, lr and patience, each once; the train block must evaluate the loss.",
        trained(every="every 50 steps { evaluate(loss) }", also="compare sizes {\n  seed = 3\n}"),
        trained(every="every 50 steps { evaluate(loss) }", also="compare sizes {\n  seeds = [1, 2, 3]\n}")),
    "E0660": (
        "torch.export and ONNX write a program without loops of their own: what repeats is unrolled, for one length, and every operator "
        "must have a form there. The message names what has none. The weights and the spec can always be exported.",
        "plait export runs/free --to onnx              # a recurrence over a free n\n", "plait export runs/free --to onnx --set n=64\n"),
    "E0661": (
        "An exported file holds the weights and, in its metadata, the spec they belong to. Files of other programs hold weights only.",
        'model = plait.from_safetensors("other/model.safetensors")\n',
        'model = plait.from_safetensors("model.safetensors")    # of plait export RUN --to safetensors\n'),
    "E0662": (
        "`plait import` reads checkpoints of Hugging Face's Reformer. Each option of theirs becomes a part of a spec that computes the "
        "same; one that has no such part is refused by name, so that nothing is imported that would give other numbers.",
        "plait import checkpoints/bert\n", "plait import checkpoints/reformer\n"),
    "E0670": (
        "A time is predicted from rates that were measured on this machine, with as many threads as torch takes now and with this version "
        "of it. `plait calibrate` measures them in about a minute and keeps them. The numbers of another machine are given by "
        "`--machine FILE`.",
        "plait predict lm.plait\n", "plait calibrate\nplait predict lm.plait\n"),
    "E0671": (
        "A machine's numbers are JSON: `rate` in multiply-adds a second, `bandwidth` in bytes a second, `latency` in seconds, each more "
        "than 0, and where they are known those of kinds of calls. What `plait calibrate --json` prints is such a file.",
        "echo '{\"plait_machine\": 1, \"rate\": 0}' > card.json\nplait predict lm.plait --machine card.json\n",
        "echo '{\"plait_machine\": 1, \"rate\": 5e13, \"bandwidth\": 2e12, \"latency\": 5e-6}' > card.json\n"
        "plait predict lm.plait --machine card.json\n"),
    "E0672": (
        "The same kernel took a much longer time in one round than in another, so that something else runs on the machine. Numbers that "
        "were measured so would predict nothing; none are kept.",
        "make test & plait calibrate\n", "plait calibrate\n"),
    "E0999": (
        "Not your mistake: a check that plait makes of its own work has failed, and it has left everything as it was. Please report it, "
        "with the file that shows it.",
        "", ""),
    "W0401": (
        "The loss asks for a symbol that the model has already read at that place, so it learns to copy and is worth nothing on new text. "
        "Make the layers causal; or start with `shift_right` where the loss takes the input itself and not `next` of it. The message "
        "shows the way from the symbol to the loss.",
        trained("attention(heads = 4)"), trained("attention(heads = 4, causal = true)")),
    "W0402": (
        "A stream that is no output and that no other one reads does no work, but its parameters are counted, and never trained. Often "
        "its name is missing further down. Use it, make it an output, or take it away.",
        unread("y"), unread("z")),
    "W0403": (
        "What stands farther back than the stack reaches has no influence on an output, whatever is learned. A stack of causal "
        "convolutions of width k reaches k − 1 positions a layer; where the dilation grows as k^i, k times as far with each.",
        trained("conv(d, kernel = 3, causal = true)"),
        trained("repeat 6 as i { residual { conv(d, kernel = 2, dilation = 2^i, causal = true) } }")),
    "W0404": (
        "Attention that holds its scores whole needs a number for every pair of positions, every head and every sequence of the batch. "
        "The fused kernels never hold them, but they take no dropout, and `kernel = body` asks for the definition.",
        layered("attention(heads = 4, kernel = body)", "1Mi"), layered("attention(heads = 4)", "1Mi")),
    "W0405": (
        "Hashing, and a window for every round, cost more than all pairs while the sequence is short. The message says at which length "
        "it turns; `plait solve` finds the first one.",
        layered("lsh_attention(heads = 4, chunk = 64, rounds = 16)", "1Ki"),
        layered("lsh_attention(heads = 4, chunk = 64, rounds = 16)", "16Ki")),
    "W0406": (
        "The product with random rotations grows with the number of buckets. With a bucket for every chunk, hashing is quadratic in the "
        "length again; a pair of factors is one digit each, and costs their sum and not their product.",
        layered("lsh_attention(heads = 4, chunk = 64)", "64Ki"),
        layered("lsh_attention(heads = 4, chunk = 64, buckets = (32, 64))", "64Ki")),
    "W0614": (
        "The figures are those of the data that is there today, read by the vocabulary of the run. They say nothing of what the run "
        "was trained on.",
        "plait evaluate runs/lm               # the text has grown since\n",
        "plait evaluate runs/lm --set 'train.data=text(\"new.txt\")'    # meant so: no warning\n"),
}
