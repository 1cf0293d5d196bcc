"""Dropout."""
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import Mistake, Number, layer


@layer
def dropout(b: Builder, x: Value, p: Number) -> Value:
    """Zeroes each element with probability p while training and scales the others by 1/(1 − p). Srivastava et al. 2014."""
    check_probability(p, "p")
    if p == 0: return x
    return dropped(b, x, b.key(), p)


def check_probability(p, argument: str = "dropout") -> None:
    """A layer that drops out all there is would give nothing."""
    if not 0 <= float(p) < 1: raise Mistake("E0503", f"the probability of dropout is at least 0 and below 1, here {float(p):g}", argument)


def dropped(b: Builder, x: Value, key: Value, p) -> Value:
    """The region itself, for layers that drop out inside."""
    def body(b, x, key):
        keep = b.map("le", p, b.random("uniform", key, *x.axes))
        return b.div(b.where(keep, x, 0), 1 - p)
    return b.region("dropout", body, x, key, p=p)
