"""The pytest plugin: the fixture `trackside_compare`. Loaded in every run of pytest, so it imports little.

A comparison is a child process: neither pytest's own process nor its plugins are part of what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Comparison", "trackside_compare"]

_MARKER = "trackside(device=, budget=, claim=, …): options of the `trackside_compare` fixture in this test"
_OPTIONS = (
    "device",
    "metric",
    "claim",
    "budget",
    "delta",
    "quick",
    "seed",
    "pairs",
    "threads",
    "build_timeout",
)
_ON_INCONCLUSIVE = ("fail", "skip")
# What a child may need to put its workers away after an interrupt.
_FAREWELL_S = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("trackside_device", "device of trackside_compare: cpu, cuda or cuda:N", default="")
    parser.addini("trackside_budget", "seconds of each trackside_compare", default="")
    parser.addini(
        "trackside_inconclusive", "what an undecided trackside_compare does: fail or skip", default="fail"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


class Comparison:
    """The fixture's value: call it with a baseline and a candidate.

    Args:
        options: what the ini file and the marker give; a call's own come first.
        inconclusive: `fail` or `skip`.
    """

    def __init__(self, folder: Path, options: dict[str, Any], inconclusive: str) -> None:
        self._folder, self._defaults, self._inconclusive = folder, options, inconclusive

    def __call__(
        self, baseline: str | os.PathLike[str], candidate: str | os.PathLike[str], **options: Any
    ) -> dict[str, Any]:
        """Compare, and fail the test unless the claim holds; paths are relative to the test's file.

        Returns:
            The compare record, when the claim holds.
        """
        __tracebackhide__ = True
        chosen = self._defaults | options
        unknown = sorted(set(chosen) - set(_OPTIONS))
        if unknown:
            raise TypeError(f"trackside_compare has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
        files = [str(self._folder / path) for path in (baseline, candidate)]
        record = _run(files, chosen)
        error = record.get("error")
        if error is not None:
            from trackside.suite.not_here import not_here

            # This machine cannot: a skip, as for any other missing requirement.
            if not_here(str(error.get("kind")), str(chosen.get("device") or "cpu")):
                pytest.skip(f"trackside: {error.get('message')}")
            pytest.fail(f"trackside: {error.get('message')}\nremedy: {error.get('remedy')}", pytrace=False)
        if record["holds"]:
            return record
        message = _message(record, files)
        if record["verdict"] == "not-comparable":
            pytest.skip(message)
        if record["verdict"] == "inconclusive" and self._inconclusive == "skip":
            pytest.skip(message)
        raise AssertionError(message)


@pytest.fixture
def trackside_compare(request: pytest.FixtureRequest) -> Comparison:
    """Is the candidate faster, and still right? `trackside_compare("base.py", "new.py")`."""
    config = request.config
    options: dict[str, Any] = {}
    for name in ("device", "budget"):
        given = config.getini(f"trackside_{name}")
        if given:
            options[name] = given
    # From the outside in: a test's own marker comes after its class's and its module's.
    for marker in reversed(list(request.node.iter_markers("trackside"))):
        if marker.args:
            raise pytest.UsageError(f"the marker trackside has named options only, found {marker.args[0]!r}")
        options |= marker.kwargs
    inconclusive = config.getini("trackside_inconclusive")
    if inconclusive not in _ON_INCONCLUSIVE:
        raise pytest.UsageError(f"found trackside_inconclusive = {inconclusive}; needed: fail or skip")
    return Comparison(request.path.parent, options, inconclusive)


def _run(files: list[str], options: dict[str, Any]) -> dict[str, Any]:
    words: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else []
        elif value is not None:
            words += [flag, str(value)]
    from trackside.workload.sandbox import die_with_parent

    command = [sys.executable, "-P", "-m", "trackside", "compare", "--json", *words, "--", *files]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C reaches it once, through us.
        process_group=0,
        preexec_fn=die_with_parent,
    ) as child:
        try:
            out, err = child.communicate()
        except BaseException:
            # Ctrl-C, or a time limit of another plugin: its workers end with it.
            child.terminate()
            try:
                child.wait(_FAREWELL_S)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
    try:
        found = json.loads(out)
    except ValueError:
        found = None
    if isinstance(found, dict) and ("verdict" in found or "error" in found):
        return found
    last = err.decode(errors="replace")[-500:]
    message = f"compare ended with {child.returncode} and no result; its output ends: {last}"
    return {"error": {"kind": "internal", "message": message, "remedy": "run the same by hand"}}


def _message(record: dict[str, Any], files: list[str]) -> str:
    from trackside.records.errors import printable

    speed = record["speedup"]
    lines = [f"trackside: {record['verdict']}, and `{record['claim']}` was claimed"]
    if speed is not None and record["verdict"] not in ("rejected", "not-comparable"):
        lines.append(
            f"  speedup {speed['ratio']:.3f}× [{speed['low']:.3f}, {speed['high']:.3f}], "
            f"{speed['confidence']:.0%}, {speed['metric']} time"
        )
    lines += [f"  {reason}" for reason in record["reasons"]]
    lines.append(f"  baseline {files[0]}, candidate {files[1]}")
    lines.append(f"  trackside runs show {record['run_id']}")
    return printable("\n".join(lines))
