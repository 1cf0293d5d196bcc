"""The house: imports point one way, torch stands in two rooms, every package is in the wheel."""
import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOORS = {"dsl": 0, "compiler": 1, "runtime": 2, "plait": 3}
# `plait check` reads train blocks, `plait runs` what they became, `plait table` asks what an optimiser remembers
TORCH_FREE = ("runtime/recipe.py", "runtime/formula.py", "runtime/arguments.py", "runtime/sources.py", "runtime/listing.py",
              "runtime/matrices.py", "runtime/folder.py")


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import): yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


def sources():
    return [(floor, f) for floor in FLOORS for f in sorted((ROOT / floor).rglob("*.py"))]


def floor_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FLOORS else "plait"


def test_imports_are_a_staircase():
    for floor, path in sources():
        for name in imports(path):
            if name.split(".")[0] == "plait": assert FLOORS[floor_of(name)] <= FLOORS[floor], f"{path} imports {name}"


def test_torch_stands_in_its_rooms():
    for _, path in sources():
        place = str(path.relative_to(ROOT))
        if any(name.split(".")[0] == "torch" for name in imports(path)):
            assert place == "compiler/lower.py" or place.startswith(("compiler/lowering/", "runtime/", "plait/")), place
            assert place not in TORCH_FREE


def test_every_package_is_listed():
    """An unlisted one works editable and is missing from the wheel."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {".".join(("plait", *f.parent.relative_to(ROOT).parts)).replace("plait.plait", "plait")
             for _, f in sources() if f.name == "__init__.py"}
    assert set(tool["packages"]) == set(tool["package-dir"]) == there
    assert all((ROOT / d / "__init__.py").exists() for d in tool["package-dir"].values())
