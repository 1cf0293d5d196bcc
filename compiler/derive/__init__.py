"""The gradient of a graph as a graph."""
from plait.compiler.derive.joint import Joint, derive

__all__ = ["Joint", "derive"]
