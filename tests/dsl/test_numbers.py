"""Numbers: exact values, and the two readings of a doubtful suffix."""
from fractions import Fraction

import pytest

from plait.dsl.numerals import BadNumber, read
from plait.dsl.parser import parse_expression
from plait.dsl.spec import Bytes, Number

VALUES = {
    "512": 512,
    "007": 7,
    "37k": 37_000,                           # decimal: 37 · 10³
    "64k": 64_000,
    "64Ki": 65_536,                          # binary: 64 · 2¹⁰
    "2M": 2_000_000,
    "2Mi": 2_097_152,                        # 2 · 2²⁰
    "3G": 3_000_000_000,
    "1Gi": 1_073_741_824,                    # 2³⁰
    "1.5k": 1500,
    "1.5Ki": 1536,                           # 1.5 · 1024
    "1.0": 1,
    "1e3": 1000,
    "1E3": 1000,
    "1e+3": 1000,
    "0.1": Fraction(1, 10),
    "1e-3": Fraction(1, 1000),
    "3e-4": Fraction(3, 10_000),
    "1.0005k": Fraction(2001, 2),            # 1000.5
}


@pytest.mark.parametrize("text, value", VALUES.items())
def test_values_are_exact(text, value):
    assert read(text) == (value, False)
    assert type(read(text)[0]) is type(value)
    node = parse_expression(text)
    assert isinstance(node, Number) and (node.value, node.text) == (value, text)


@pytest.mark.parametrize("text, value", {"1KiB": 1024, "1.5KiB": 1536, "512MiB": 512 * 2**20, "16GiB": 16 * 2**30}.items())
def test_bytes(text, value):
    assert read(text) == (value, True)
    node = parse_expression(text)
    assert isinstance(node, Bytes) and node.value == value


@pytest.mark.parametrize("text, help", {
    "64K": "`64Ki` (65,536) or `64k` (64,000)",
    "1.5K": "`1.5Ki` (1,536) or `1.5k` (1,500)",
    "64KB": "`64KiB`",
    "64kb": "`64KiB`",
    "16GB": "`16GiB`",
    "16gib": "",
    "1_000": "`1000`",
    "3d": "a product is written `3 * d`",
    "0x10": "`16`",
    "1.": "`1` or `1.0`",
    "1.2.3": "",
    "5m": "`5Mi` (5,242,880) or `5M` (5,000,000), or the product `5 * m`",
    "1e999999999": "numbers go up to 1e60",
    "9" * 90_000: "numbers go up to 1e60",
    "0.3KiB": "",                            # 307.2 bytes
}.items(), ids=lambda text: text[:12])
def test_what_is_no_number(text, help):
    with pytest.raises(BadNumber) as caught:
        read(text)
    assert not help or caught.value.help == help
    assert len(caught.value.message) < 120


def test_a_minus_behind_a_suffix_is_a_minus():
    assert parse_expression("64Ki-1") == parse_expression("64Ki - 1")
    assert parse_expression("1e-3") != parse_expression("1 - 3")
