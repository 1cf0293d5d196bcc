"""Reads a spec and its derived costs through the Python API, without torch.

    python examples/table_one.py

prints the table of specs/table1.plait, the exact work of each layer, and the length from which self-attention does more work
than a recurrence of the same width."""
from __future__ import annotations

from pathlib import Path

import sympy as sp

import plait

SPEC = Path(__file__).parent.parent / "specs" / "table1.plait"


def main() -> None:
    spec = plait.load(SPEC)
    print(spec.table())
    rows = {row.name: row for row in spec.table().rows}

    print()
    for name, row in rows.items(): print(f"{name}: {row.work['contraction']} multiply-adds, {row.params} parameters")

    # Costs are sympy expressions in the spec's dims, so a question about them is algebra. Where is 2·d·n² = 2·d²·n?
    attention, recurrence = rows["self_attention"].work["contraction"], rows["recurrent"].work["contraction"]
    n = next(s for s in attention.free_symbols if s.name == "n")
    print(f"\nself-attention does as much work as a recurrence at n = {sp.solve(attention - recurrence, n)[0]}, and more beyond")

    # An override is written as on the command line; `json()` gives the numbers.
    longer = plait.load(SPEC, set={"n": "4Ki"}).table(model="self_attention").json()
    print(f"at n = {longer['dims']['n']:,}: {longer['rows'][0]['work']['value']:,} multiply-adds")


if __name__ == "__main__": main()
