"""Imports run one way. Read from the source by ast, so that imports inside functions count too."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trackside

# Top to bottom; a package may import those after it. A new package must be given its place here.
ORDER = (
    "cli",
    "mcp_server",
    "report",
    "suite",
    "comparison",
    "diagnose",
    "profiling",
    "trace",
    "machine",
    "handbook",
    "workload",
    "store",
    "stats",
    "records",
)
RANK = {package: place for place, package in enumerate(ORDER)}

# Two faces of the same functions; what both need belongs below them.
STRANGERS = {frozenset({"cli", "mcp_server"})}
# But for the verb that starts the server; it parses and calls.
DOORS = {("cli/mcp.py", "mcp_server")}


def violations(root: Path) -> list[str]:
    """Every import below root (the folder of the package `trackside`) that does not point downward."""
    found = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if len(relative.parts) == 1:
            continue  # __init__ and __main__ stand above every package
        importer = relative.parts[0]
        if importer not in RANK:
            found.append(f"{relative}: package {importer!r} has no place in the order")
            continue
        for line, imported in _imported_packages(path, relative):
            if imported == importer or (relative.as_posix(), imported) in DOORS:
                continue
            if imported not in RANK:
                found.append(f"{relative}:{line}: imports {imported!r}, which has no place in the order")
            elif RANK[imported] < RANK[importer] or frozenset({importer, imported}) in STRANGERS:
                found.append(f"{relative}:{line}: {importer} imports {imported}")
    return found


def _imported_packages(path: Path, relative: Path) -> Iterator[tuple[int, str]]:
    own = ["trackside", *relative.parent.parts]
    packages = {
        child.name for child in path.parents[len(relative.parts) - 1].iterdir() if child.is_dir()
    } | set(RANK)
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = own[: len(own) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from trackside import records` names a package, `from trackside import __version__` does not.
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "trackside" else [module]
        elif isinstance(node, ast.Call) and node.args and _is_import_module(node.func):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                names = [first.value]
        for name in names:
            parts = name.split(".")
            if parts[0] == "trackside" and len(parts) > 1 and parts[1] in packages:
                yield node.lineno, parts[1]


def _is_import_module(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return name in ("import_module", "__import__")


def test_imports_run_downward() -> None:
    assert violations(Path(trackside.__file__).parent) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("records/x.py", "from trackside.store.runs import RunStore"),
        ("records/x.py", "from trackside import store"),
        ("records/x.py", "import trackside.store.runs"),
        ("records/x.py", "from ..store import runs"),
        ("records/x.py", "from .. import store"),
        ("records/deep/x.py", "from ...store import runs"),
        ("records/x.py", "def f():\n    from trackside.cli import main"),
        ("records/x.py", "import importlib\nimportlib.import_module('trackside.cli.main')"),
        ("store/x.py", "from trackside.workload import tree"),
        ("cli/x.py", "import trackside.mcp_server"),
        ("cli/deep/mcp.py", "import trackside.mcp_server"),
        ("mcp_server/x.py", "import trackside.cli"),
        ("mcp_server/mcp.py", "import trackside.cli.mcp"),
        ("novelty/x.py", "import os"),
        ("novelty/x.py", "from trackside import records"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str) -> None:
    _plant(tmp_path, file, source)
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("store/x.py", "from trackside.records.errors import TracksideError"),
        ("store/x.py", "from . import runs\nfrom .lock import DeviceLock\nfrom trackside.store import files"),
        ("store/x.py", "from trackside import __version__\nimport trackside"),
        ("store/x.py", "import cli, tracksidecar.cli"),
        ("__main__.py", "from trackside.cli.main import main"),
        ("cli/mcp.py", "from trackside.mcp_server.scope import open_scope"),
    ],
)
def test_a_legal_import_passes(tmp_path: Path, file: str, source: str) -> None:
    _plant(tmp_path, file, source)
    assert violations(tmp_path) == []


def _plant(root: Path, file: str, source: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
