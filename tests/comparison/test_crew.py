"""What workers find imported when they start."""

from pathlib import Path

import pytest

from trackside.comparison.trial import Options, run_trial

WORKLOAD = """
import sys

import torch

# Its whole name would be a sign that the file needs it.
FOUND = "torch._dyna" + "mo" in sys.modules
OPTIMIZER = REMARK

def inputs(seed, device):
    return torch.randn(64, generator=torch.Generator(device).manual_seed(seed), device=device)

def run(x):
    return {"double": 2 * x, "found": int(FOUND)}
"""


@pytest.mark.parametrize(("remark", "found"), [("torch.optim.AdamW", 1), ("None", 0)])
def test_dynamo_is_there_before_the_fork_where_a_file_has_an_optimizer(
    tmp_path: Path, remark: str, found: int
) -> None:
    baseline, candidate = tmp_path / "baseline.py", tmp_path / "candidate.py"
    baseline.write_text(WORKLOAD.replace("REMARK", "None").replace("int(FOUND)", str(found)))
    candidate.write_text(WORKLOAD.replace("REMARK", remark))
    record = run_trial(Options(baseline, candidate, checks_only=True, store=tmp_path / "store"))
    assert not [check for check in record.checks if check.status == "fail"]


def test_temporary_files_are_a_worker_s_own_whatever_was_imported_before_the_fork(tmp_path: Path) -> None:
    """Dynamo asks for their folder when it is imported, and torch.compile makes some."""
    baseline, candidate = tmp_path / "baseline.py", tmp_path / "candidate.py"
    baseline.write_text(WORKLOAD.replace("REMARK", "None").replace("int(FOUND)", "1"))
    wanted = "import tempfile\n\ntempfile.TemporaryFile().close()\n"
    candidate.write_text(wanted + WORKLOAD.replace("REMARK", "torch.optim.AdamW"))
    record = run_trial(Options(baseline, candidate, checks_only=True, store=tmp_path / "store"))
    assert not [check for check in record.checks if check.status == "fail"]
