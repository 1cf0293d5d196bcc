"""Optimisers that torch has not, or has with other rules: Adafactor by a formula's rate, Muon for matrices with more than two axes."""
from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)        # the quintic of Jordan et al. 2024, and its five iterations
ITERATIONS = 5
LIKE_ADAM = 0.2                                  # the root mean square of an update of Adam: Liu et al. 2025, section 2.2


class Adafactor(Optimizer):
    """Shazeer & Stern 2018, algorithms 4 and 5: second moments of matrices by their row and column means, β₂ = 1 − t^−0.8, updates
    clipped at a root mean square of `clip`, and scaled by that of the parameter, at least ε₂. The rate is the caller's, in place of
    their min(10⁻², 1/√t). Of parameters with more than two axes the last two are factored. Decay is decoupled.

    torch's own is another: it bounds the rate by 1/√t."""

    def __init__(self, groups: Iterable[dict], lr: float = 0.0, clip: float = 1.0, eps: tuple[float, float] = (1e-30, 1e-3)):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "clip": clip, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None) -> None:                                                  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None: self._move(p, p.grad, self.state[p], group)

    def _move(self, p: Tensor, g: Tensor, state: dict, group: dict) -> None:
        if not state: state.update(step=torch.zeros(()), **self._fresh(p))
        state["step"] += 1
        small, least = group["eps"]
        toward = float(state["step"]) ** -0.8                                              # 1 − β₂
        square = g.square().add_(small)
        if p.dim() < 2: u = g * state["square"].lerp_(square, toward).rsqrt()
        else:
            rows = state["rows"].lerp_(square.mean(-1, keepdim=True), toward)
            columns = state["columns"].lerp_(square.mean(-2, keepdim=True), toward)
            u = g * (rows / rows.mean(-2, keepdim=True)).rsqrt() * columns.rsqrt()         # their product may be less than a float holds
        u /= (_size(u) / group["clip"]).clamp_(min=1)
        rate = _size(p).clamp_(min=least) * group["lr"]
        if group["weight_decay"]: p.mul_(1 - group["lr"] * group["weight_decay"])
        p.sub_(u * rate)

    @staticmethod
    def _fresh(p: Tensor) -> dict[str, Tensor]:
        if p.dim() < 2: return {"square": torch.zeros_like(p)}
        return {"rows": torch.zeros_like(p[..., :1]), "columns": torch.zeros_like(p[..., :1, :])}


def _size(x: Tensor) -> Tensor:
    """The root mean square, a scalar."""
    return x.square().mean().sqrt_()


class Muon(Optimizer):
    """Momentum whose direction is made orthogonal: Jordan et al. 2024; with the scale of Liu et al. 2025, 0.2·√max(rows, columns), so that
    Adam's rates and decay suit it. Decay is decoupled.

    A group has `apart` and `rows`: how many leading axes tell matrices apart (the gates of a recurrence), and how many behind them
    are rows; the others are columns."""

    def __init__(self, groups: Iterable[dict], lr: float = 0.0, momentum: float = 0.95, nesterov: bool = True):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "momentum": momentum, "nesterov": nesterov, "apart": 0, "rows": 1})

    @torch.no_grad()
    def step(self, closure=None) -> None:                                                  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None: self._move(p, p.grad, self.state[p], group)

    def _move(self, p: Tensor, g: Tensor, state: dict, group: dict) -> None:
        if not state: state["momentum"] = torch.zeros_like(p)
        m, momentum = state["momentum"], group["momentum"]
        m.lerp_(g, 1 - momentum)
        u = g.lerp(m, momentum) if group["nesterov"] else m
        apart, rows = group["apart"], group["rows"]
        matrix = u.flatten(apart + rows).flatten(apart, apart + rows - 1)
        scale = LIKE_ADAM * max(matrix.shape[-2:]) ** 0.5
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(orthogonal(matrix).view_as(p), alpha=-group["lr"] * scale)


def orthogonal(x: Tensor, eps: float = 1e-7) -> Tensor:
    """Nearly U·Vᵀ of x = U·S·Vᵀ, in bfloat16: singular values come to about 1. x: [..., rows, columns]."""
    a, b, c = NEWTON_SCHULZ
    y = x.bfloat16().reshape(-1, *x.shape[-2:])
    wide = y.shape[-2] <= y.shape[-1]
    if not wide: y = y.mT
    y = y / y.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(ITERATIONS):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return (y if wide else y.mT).to(x.dtype).view_as(x)


class MuonAndAdam(Optimizer):
    """Muon for matrices of hidden layers and AdamW for the rest, behind one face: one list of groups, one state."""

    def __init__(self, muon: Muon, adam: AdamW):
        self.parts = [o for o in (muon, adam) if o.param_groups[0]["params"]]
        super().__init__([p for o in self.parts for g in o.param_groups for p in g["params"]], {})
        self.param_groups = [g for o in self.parts for g in o.param_groups]
        for o in self.parts: o.state = self.state

    def step(self, closure=None) -> None:                                                  # type: ignore[override]
        for o in self.parts: o.step()
