"""Dropout."""
from plait.compiler.builder import Builder
from plait.compiler.graph import Value
from plait.compiler.layer import Probability, layer


@layer
def dropout(b: Builder, x: Value, p: Probability) -> Value:
    """Zeroes each element with probability p while training and scales the others by 1/(1 − p). Srivastava et al. 2014."""
    if p == 0: return x
    return dropped(b, x, b.key(), p)


def dropped(b: Builder, x: Value, key: Value, p) -> Value:
    """The region itself, for layers that drop out inside."""
    def body(b, x, key):
        keep = b.map("le", p, b.random("uniform", key, *x.axes))
        return b.div(b.where(keep, x, 0), 1 - p)
    return b.region("dropout", body, x, key, p=p)
