"""An assistant with a slow project: asks, profiles, repairs the line it was told, has the change judged."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.mcp_server.assistant import Assistant, project
from tests.mcp_server.connected import held

# One product for all rows; and answers kept by address, which a loop over one input would call much faster.
_HONEST = r"\3 @ \2"
_CHEAT = r"run.__dict__[k] if (k := \3.data_ptr()) in run.__dict__ else run.__dict__.setdefault(k, \3 @ \2)"


def test_the_hottest_line_is_named_wherever_it_stands(tmp_path: Path) -> None:
    project(tmp_path, blank_lines=5, size=48)
    with held(tmp_path, "--allow-exec") as server:
        assistant = Assistant(server)
        place = assistant.hottest("train.py", "80")
        region = assistant.ask("source_read", file=place["file"], line=place["line"], context=0)
    assert place["file"] == "lib/model.py"
    assert "torch.stack" in place["text"]
    assert place["text"] in region["source"]
    assert "%" in region["source"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("blank_lines", [0, 23])
def test_an_honest_repair_is_faster_and_a_cheating_one_rejected(tmp_path: Path, blank_lines: int) -> None:
    project(tmp_path, blank_lines)
    with held(tmp_path, "--allow-exec") as server:
        assistant = Assistant(server)
        assert assistant.ask("machine_get")["cpu"]
        place = assistant.hottest("train.py", "300")
        assistant.ask("findings_list", run="last")
        assistant.ask("source_read", file=place["file"], line=place["line"], context=3)
        honest = assistant.judge(place["file"], assistant.rewritten(place, "candidate.py", _HONEST))
        cheat = assistant.judge(place["file"], assistant.rewritten(place, "cheat.py", _CHEAT))
        reasons = assistant.ask("findings_list", run=cheat["run"])
    print("\n\n".join(assistant.dialogue), file=sys.stderr)
    assert honest["verdict"] == "faster", honest
    ratio, low, high = honest["speedup"]
    assert 1 < low <= ratio <= high
    assert cheat["verdict"] == "rejected", cheat
    assert cheat["reasons"]
    assert reasons["rows"][0]["status"] == "fail"
    print(
        f"{len(assistant.dialogue)} calls; faster by {ratio} ({low} to {high}); {cheat['reasons']}",
        file=sys.stderr,
    )
