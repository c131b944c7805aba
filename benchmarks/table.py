"""README.md, generated: a table of bars from the newest results of each device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.context import RESULTS, ROOT

README = ROOT / "benchmarks" / "README.md"

HEAD = """# Benchmarks: Trackside measured by itself

`make bench` on a CPU, `make bench-gpu` on a CUDA device; `python -m benchmarks --help` for parts and limits.
Raw quads of every comparison lie beside the results. Nothing was tuned on the runs that are reported here.
This page is written by `python -m benchmarks --table`.
"""


def write() -> None:
    README.write_text(text(RESULTS))


def text(results: Path) -> str:
    sections = [HEAD]
    for kind, title in (("cpu", "CPU"), ("cuda", "GPU")):
        folders = sorted(results.glob(f"*-{kind}"))
        parts = _parts(folders[-1]) if folders else []
        if parts:
            sections.append(_section(title, parts, folders[-1].name))
    if len(sections) == 1:
        sections.append("No results yet.\n")
    return "\n".join(sections)


def _parts(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [part for part in found if part.get("bars") is not None]


def _section(title: str, parts: list[dict[str, Any]], name: str) -> str:
    machine, versions = parts[0]["machine"], parts[0]["versions"]
    device = ", ".join(machine["gpus"]) or machine["cpu"] or "unknown"
    known = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    lines = [
        f"## {title}: {device}, {machine['cpus']} CPUs",
        "",
        f"Results in `results/{name}`. {known}; kernel {machine['kernel']}"
        + (f"; driver {machine['driver']}." if machine["driver"] else "."),
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
        commit = (part["commit"] or "unknown")[:12]
        state = "" if part["complete"] else ", stopped before its end"
        lines.append(f"\n{part['part']}: {part['date'][:10]}, commit {commit}{state}.")
        lines += [f"- `{' '.join(note.split())}`" for note in part["notes"] if part["part"] == "side_by_side"]
    return "\n".join(lines) + "\n"
