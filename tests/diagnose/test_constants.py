"""What a function computes from numbers and sizes alone."""

from pathlib import Path

import pytest

from trackside.diagnose.constants import table_of
from trackside.diagnose.source import Source
from trackside.machine.doctor.script import parse_script
from trackside.profiling.line_stacks import Line


def is_table(body: str, arguments: str = "x") -> bool:
    lines = [
        "import math",
        "import torch",
        f"def run({arguments}):",
        *(f"    {one}" for one in body.split("\n")),
    ]
    path = Path("program.py")
    return (
        table_of(Source(parse_script(path, "\n".join(lines)), tuple(lines)), Line(str(path), 4)) is not None
    )


@pytest.mark.parametrize(
    "body",
    [
        "table = torch.arange(96) / 96",
        "table = torch.sin(torch.arange(x.shape[1], device=x.device)[:, None] * math.pi)",
        "table = (torch.linspace(0, 1, 8).view(2, 4) ** 2).exp()",
        "table = torch.cat([torch.sin(steps), torch.cos(steps)], dim=1)\n"
        "steps = torch.arange(512)[:, None] / 10000 ** (torch.arange(128, device=x.device) / 128)",
        "table = torch.outer(steps, rates)\nsteps = torch.arange(600)\nrates = 10000 ** (steps / 600)",
    ],
)
def test_ranges_and_what_is_computed_from_them_are_tables(body: str) -> None:
    assert is_table(body)


@pytest.mark.parametrize(
    "body",
    [
        "table = torch.arange(96) / scale",
        "table = x + torch.arange(96)",
        "table = torch.arange(96) + torch.rand(96)",
        "table = torch.arange(96) * self.rate",
        "table = torch.sin(x)",
        "table = 2 * math.pi",
        "table = lookup(torch.arange(96))",
        "table = steps.sin()\nsteps = torch.arange(96)\nsteps[0] = x[0]",
        "table = steps.sin()\nsteps = torch.arange(96)\nsteps.add_(x)",
        "table = steps.sin()\nsteps = torch.arange(96)\nsteps = steps + x",
        "table = steps.sin()\nfor steps in torch.arange(96): pass",
        "table = torch.arange(96)\ntable[0] = x[0]",
        "table = torch.arange(96)\ntable.add_(x)",
        "table = torch.arange(96)\ntable += x",
        "table = torch.arange(96) * self.pi",
        "table = one + torch.arange(96)\none = other + 1\nother = one + 1",
    ],
)
def test_what_hangs_on_anything_else_or_is_written_to_is_none(body: str) -> None:
    assert not is_table(body, "x, scale")
