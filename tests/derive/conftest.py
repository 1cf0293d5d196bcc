"""One thread, and reals that are made from nothing in float64: differences are of formulas, not of rounding."""
import pytest
import torch


@pytest.fixture(autouse=True)
def exact():
    before = torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
