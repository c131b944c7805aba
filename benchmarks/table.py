"""README.md, generated: a table of bars from the newest results of each device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.context import RESULTS, ROOT, short_commit

__all__ = ["README", "text", "write"]

README = ROOT / "benchmarks" / "README.md"

HEAD = """# Benchmarks: Trackside measured by itself

`make bench` on a CPU, `make bench-gpu` on a CUDA device; `python -m benchmarks --help` for parts and limits.
This page is written by `python -m benchmarks --table`.
"""
# Said of results, so only where there are any.
WITH_RESULTS = """Raw quads of selfcheck's comparisons lie beside its results.
Nothing was tuned on the runs that are reported here.
"""
# Parts whose notes the page shows as well.
NOTED = ("side_by_side", "store", "trace")


def write() -> None:
    README.write_text(text(RESULTS))


def text(results: Path) -> str:
    sections = []
    for kind in ("cpu", "cuda"):
        folders = sorted(results.glob(f"*-{kind}"))
        parts = _parts(folders[-1]) if folders else []
        if parts:
            sections.append(_section(kind, parts, folders[-1].name))
    return "\n".join([HEAD, WITH_RESULTS, *sections] if sections else [HEAD, "No results yet.\n"])


def _parts(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [part for part in found if part.get("bars") is not None]


def _section(kind: str, parts: list[dict[str, Any]], name: str) -> str:
    machine, versions = parts[0]["machine"], parts[0]["versions"]
    # By what was measured: a CPU's figures may come from a machine that has a GPU as well.
    if kind == "cuda":
        title, device, driver = "GPU", ", ".join(machine["gpus"]), machine["driver"]
    else:
        title, device, driver = "CPU", machine["cpu"], None
    known = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    lines = [
        f"## {title}: {device or 'unknown'}, {machine['cpus']} CPUs",
        "",
        f"Results in `results/{name}`. {known}; kernel {machine['kernel']}"
        + (f"; driver {driver}." if driver else "."),
        "",
        "| part | bar | wanted | found | |",
        "|---|---|---|---|---|",
    ]
    words = {True: "pass", False: "**fail**", None: "open"}
    for part in parts:
        for bar in part["bars"]:
            cells = (part["part"], bar["name"], bar["wanted"], bar["found"], words[bar["passed"]])
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    for part in parts:
        state = "" if part["complete"] else ", stopped before its end"
        lines.append(f"\n{part['part']}: {part['date'][:10]}, commit {short_commit(part['commit'])}{state}.")
        lines += [f"- `{' '.join(note.split())}`" for note in part["notes"] if part["part"] in NOTED]
    return "\n".join(lines) + "\n"
