import pytest
import torch

from plait.dsl.errors import PlaitError
from plait.runtime import data
from plait.runtime.generate.sample import sample

from .conftest import Small, made, source


class Next(Small):
    """Says surely that the symbol after s is s + 1; keeps what it was given."""

    def __init__(self, n=8, ahead=True):
        super().__init__(5, n)
        given = self.program.inputs[0]
        self.program.inputs = (type(given)(**{**vars(given), "ahead": ahead}),)
        self.ahead, self.seen = ahead, []

    def forward(self, text):
        self.seen.append(text[0].tolist())
        last = text if self.ahead else torch.cat([text[:, :1] * 0, text[:, :-1]], 1)        # shift_right
        return 50 * torch.nn.functional.one_hot((last + 1) % 5, 5).float()


@pytest.fixture
def d(corpus):
    return data.open(made(source()).data, corpus, 8, 0)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("n", [8, None])
def test_it_continues_the_prompt(d, ahead, n):
    """Symbols 0 to 4 are a line end, a, b, c, d."""
    assert "".join(sample(Next(n, ahead), d.codec, "ab", length=12)) == "cd\nabcd\nabcd"


def test_the_window_slides_and_short_prompts_are_padded_on_the_right(d):
    module = Next()
    list(sample(module, d.codec, "abcd\nab", length=3))
    assert module.seen == [[1, 2, 3, 4, 0, 1, 2, 0], [1, 2, 3, 4, 0, 1, 2, 3], [2, 3, 4, 0, 1, 2, 3, 4]]


def test_an_empty_prompt_starts_from_a_line_end(d):
    assert "".join(sample(Next(), d.codec, length=4)) == "abcd"


def test_seeds_temperature_and_top_k(d):
    torch.manual_seed(1)
    module = Small(5, 8)
    def text(**more): return "".join(sample(module, d.codec, "a", length=40, **more))
    assert text(seed=1) == text(seed=1) != text(seed=2)
    assert text(temperature=0, seed=1) == text(temperature=0, seed=2) == text(top_k=1, seed=3)


def test_bytes_come_out_as_whole_characters(tmp_path):
    (tmp_path / "f").write_text("é" * 100)
    given = data.open(made(source(data='bytes("f")')).data, tmp_path, 8, 0)

    class Accents(Small):
        def forward(self, text): return 50 * torch.nn.functional.one_hot(torch.where(text == 0xC3, 0xA9, 0xC3), 256).float()

    assert list(sample(Accents(256, 8), given.codec, "é", length=4)) == ["é", "é"]


def test_refusals(d):
    with pytest.raises(PlaitError, match="which the model's vocabulary does not have"): sample(Next(), d.codec, "xyz")
    with pytest.raises(PlaitError, match="at least"): sample(Next(), d.codec, "a", length=0)
    module = Next()
    module.program.inputs *= 2
    with pytest.raises(PlaitError, match="one input of tokens"): sample(module, d.codec, "a")
    module = Next()
    module.forward = lambda text: torch.zeros(1, 5)
    with pytest.raises(PlaitError, match="gives no tokens"): list(sample(module, d.codec, "a"))
