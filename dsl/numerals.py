"""Numbers as people write them: `512`, `1e-3`, `64Ki`, `37k`, `16GiB`. Read loosely by the lexer, judged here."""

from __future__ import annotations

import re
from fractions import Fraction

DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LONGEST = 60  # characters of a number
STEEPEST = 60  # power of ten behind an `e`: beyond it lies no size and no rate

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:[eE]([+-]?[0-9]+))?([A-Za-z_]\w*)?", re.ASCII)


class BadNumber(ValueError):
    """Why a text is not a number, and what to write instead. `bytes` marks a size in bytes (a length never is one)."""

    def __init__(self, message: str, help: str = "", bytes: bool = False):
        super().__init__(message)
        self.message, self.help, self.bytes = message, help, bytes


def exact(value: Fraction) -> int | Fraction:
    """int where it is whole."""
    return value.numerator if value.denominator == 1 else value


def plain(value: int | Fraction) -> str:
    """`65,536`; a fraction in decimals."""
    return f"{value:,}" if isinstance(value, int) else f"{float(value):g}"


def both(mantissa: str, letter: str) -> str:
    """The two ways in which `64K` can be read: "`64Ki` (65,536) or `64k` (64,000)"."""
    amount = Fraction(mantissa)
    decimal = {"K": "k", "m": "M", "g": "G"}.get(letter, letter)
    binary = letter.upper() + "i"
    return (
        f"`{mantissa}{binary}` ({plain(exact(amount * BINARY[binary]))}) or "
        f"`{mantissa}{decimal}` ({plain(exact(amount * DECIMAL[decimal]))})"
    )


def read(text: str) -> tuple[int | Fraction, bool]:
    """The exact value, and whether it is in bytes. Raises BadNumber."""
    match = _NUMBER.fullmatch(text)
    if not match:
        raise BadNumber(f"`{_short(text)}` is not a number", _mend(text))
    mantissa, exponent, suffix = match.groups()
    if len(text) > LONGEST or (exponent and abs(int(exponent)) > STEEPEST):
        raise BadNumber(f"`{_short(text)}` is beyond any size or rate", f"numbers go up to 1e{STEEPEST}")
    value = Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
    if not suffix:
        return exact(value), False
    if suffix in BYTES:
        size = exact(value * BYTES[suffix])
        if not isinstance(size, int):
            raise BadNumber(f"`{text}` is not a whole number of bytes")
        return size, True
    factor = DECIMAL.get(suffix) or BINARY.get(suffix)
    if factor:
        return exact(value * factor), False
    raise _bad_suffix(text, mantissa if not exponent else text[: -len(suffix)], suffix)


def _bad_suffix(text: str, mantissa: str, suffix: str) -> BadNumber:
    if suffix == "K":
        return BadNumber(
            f"`{text}` is read both ways, as {plain(exact(Fraction(mantissa) * 1024))} and as "
            f"{plain(exact(Fraction(mantissa) * 1000))}",
            both(mantissa, suffix),
        )
    if re.fullmatch(r"[kKmMgG][bB]|[kmg]i[bB]|[KMG]ib", suffix):
        whole = f"{mantissa}{suffix[0].upper()}iB"
        return BadNumber(f"`{text}` is no size: bytes are counted in KiB, MiB and GiB", f"`{whole}`", bytes=True)
    if suffix in ("b", "B"):
        return BadNumber(f"`{text}` is no size: bytes are counted in KiB, MiB and GiB", "`1KiB` is 1,024 bytes", bytes=True)
    if suffix.lower() in ("t", "b", "bn", "mio", "mn"):
        return BadNumber(
            f"`{text}` has a suffix that plait does not know: `{suffix}`", "k, M and G are decimal; Ki, Mi and Gi are binary"
        )
    if suffix in ("m", "g", "ki", "mi", "gi"):
        return BadNumber(
            f"`{text}` has a suffix that plait does not know: `{suffix}`",
            both(mantissa, suffix[0].upper()) + (f", or the product `{mantissa} * {suffix}`" if len(suffix) == 1 else ""),
        )
    if mantissa == "0" and re.fullmatch(r"x[0-9a-fA-F]+|b[01]+|o[0-7]+", suffix):
        return BadNumber(f"`{_short(text)}` is not a number: numbers are decimal", f"`{int(text, 0)}`" if len(text) < 20 else "")
    if suffix.startswith("_"):
        return BadNumber(f"`{text}` is not a number", f"`{text.replace('_', '')}`")
    return BadNumber(
        f"`{_short(text)}` is not a number: `{_short(suffix)}` is no suffix", f"a product is written `{mantissa} * {_short(suffix)}`"
    )


def _mend(text: str) -> str:
    """A correct spelling of a text that only looks like a number, where one is plain to see."""
    joined = text.replace("_", "")
    if _NUMBER.fullmatch(joined):
        return f"`{joined}`"
    if re.fullmatch(r"[0-9]+\.", text):
        return f"`{text[:-1]}` or `{text}0`"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 24 else text[:23] + "…"
