"""The incremental step of a causal model, derived from its graph: `decode`."""
from plait.compiler.decode.derivation import decode
from plait.compiler.decode.items import ALL, NEW, PAST, Decoded, NoRule, NotCausal, State

__all__ = ["ALL", "NEW", "PAST", "Decoded", "NoRule", "NotCausal", "State", "decode"]
