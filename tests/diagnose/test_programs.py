"""Real programs: what is planted is found on its line, what is repaired or clean is not blamed."""

import ast
import builtins
import keyword
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.diagnose.conftest import PROGRAMS, problems

from trackside.diagnose.diagnosis import LEAST_GAIN, Diagnosis, all_rules, diagnose
from trackside.diagnose.evidence import Evidence
from trackside.diagnose.expressions import _softmax
from trackside.diagnose.host import python_loop
from trackside.diagnose.patterns import short_names
from trackside.handbook.items import items
from trackside.trace.edits import ShrinkGaps

BROKEN = sorted(PROGRAMS.glob("*_broken.py"))
CLEAN = sorted(PROGRAMS.glob("clean_*.py"))
# All of them run with `make test-slow`: they take minutes, and want a quiet machine.
ALWAYS = ("loops_broken", "clean_mlp")


def each(programs: list[Path]) -> list[Any]:
    return [
        pytest.param(one, id=one.stem, marks=[] if one.stem in ALWAYS else pytest.mark.slow)
        for one in programs
    ]


Gathered = Callable[[Path], Evidence]

pytestmark = pytest.mark.timeout(120)


def every_finding(evidence: Evidence) -> Diagnosis:
    """However small its gain: how large it is depends on what else the machine does."""
    found = diagnose(evidence, least=0.0)
    assert found.failed == []
    return found


@pytest.mark.parametrize("program", each(BROKEN))
def test_planted_problems_are_found_on_their_lines(program: Path, evidence_of: Gathered) -> None:
    found = every_finding(evidence_of(program))
    places = {(one.id, one.line) for one in found.findings}
    assert problems(program) <= places
    for one in found.findings:
        assert one.file == str(program) or one.file is None
        assert 0 <= one.gain.low <= one.gain.mid <= one.gain.high <= 1
        assert one.gain.high - one.gain.low <= max(0.05, one.gain.mid) + 1e-9
        assert one.evidence
        assert all(any(sign.isdigit() for sign in text) for text in one.evidence)
        assert one.fix
        assert one.prove is not None
        assert program.name in one.prove
    gains = [one.gain.mid for one in found.findings]
    assert gains == sorted(gains, reverse=True)
    assert found.together is not None
    # Through the critical path, never added up.
    assert max(gains) - 1e-6 <= found.together.mid <= min(1.0, sum(gains)) + 1e-6


@pytest.mark.parametrize("program", each(BROKEN))
def test_the_repaired_twin_has_none_of_them(program: Path, evidence_of: Gathered) -> None:
    twin = program.with_name(program.name.replace("_broken", "_repaired"))
    planted = {rule for rule, _ in problems(program)}
    found = diagnose(evidence_of(twin))
    assert not {one.id for one in found.findings if one.gain.mid >= LEAST_GAIN} & planted


@pytest.mark.parametrize("program", each(CLEAN))
def test_clean_programs_are_not_blamed(program: Path, evidence_of: Gathered) -> None:
    blamed = [
        (one.id, one.line, one.gain)
        for one in diagnose(evidence_of(program)).findings
        if one.gain.low >= 0.02
    ]
    assert blamed == []


@pytest.mark.parametrize(
    "name",
    [
        "loops_broken",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("training_broken", "idioms_broken")),
    ],
)
def test_names_do_not_matter(name: str, evidence_of: Gathered, tmp_path: Path) -> None:
    renamed = tmp_path / "other.py"
    tree = _Renamed().visit(ast.parse((PROGRAMS / f"{name}.py").read_text()))
    renamed.write_text(ast.unparse(tree))
    there = {one.id for one in every_finding(evidence_of(renamed)).findings}
    assert {rule for rule, _ in problems(PROGRAMS / f"{name}.py")} <= there


class _Renamed(ast.NodeTransformer):
    """Every name of the program's own becomes a meaningless one; imports, attributes and Python's own "
    "stay."""

    def __init__(self) -> None:
        self._kept = {*dir(builtins), *keyword.kwlist}
        self._names: dict[str, str] = {}

    def _new(self, name: str) -> str:
        return name if name in self._kept else self._names.setdefault(name, f"v{len(self._names)}")

    def visit_Import(self, node: ast.Import) -> ast.Import:
        self._kept |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        self._kept |= {alias.asname or alias.name for alias in node.names}
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self._new(node.id), node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(self._new(node.arg)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._new(node.name)
        # What torch calls by its name keeps it.
        self._kept |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        return self.generic_visit(node)


TURNS = """
import torch
scale = torch.nn.Parameter(torch.ones(64))
optimizer = torch.optim.SGD([scale], lr=0.01)
frames = torch.randn(48, 32, 64)
for _ in range(22):
    optimizer.zero_grad()
    loss = torch.stack([torch.tanh(frame * scale) for frame in frames]).sum()
    loss.backward()
    optimizer.step()
"""


def test_a_loop_done_at_once_leaves_autograd_less_to_go_through(
    evidence_of: Gathered, tmp_path: Path
) -> None:
    (tmp_path / "turns.py").write_text(TURNS)
    evidence = evidence_of(tmp_path / "turns.py")
    # A derivative begins when autograd has come to it from the one before.
    shorter = [
        int(evidence.traced.row[task])
        for draft in python_loop(evidence)
        for edit in draft.edits
        if isinstance(edit, ShrinkGaps)
        for task in edit.tasks
    ]
    assert any(evidence.in_backward[row] for row in shorter)


@pytest.mark.slow
def test_what_a_written_out_softmax_does_before_its_exponential_counts(evidence_of: Gathered) -> None:
    evidence = evidence_of(PROGRAMS / "idioms_broken.py")
    (line,) = {
        line for rule, line in problems(PROGRAMS / "idioms_broken.py") if rule == "hand-written-softmax"
    }
    rows = evidence.forward_ops
    found = [match for place in range(len(rows)) if (match := _softmax(evidence, rows, place)) is not None]
    whole = [match.rows for match in found if "max" in match.old]
    assert [short_names(evidence, match) for match in whole] == [["max", "sub", "exp", "sum", "div"]] * len(
        evidence.steps
    )
    assert {evidence.places.line(match[-1]).line for match in whole} == {line}


@pytest.mark.slow
def test_turns_are_counted_where_an_operator_runs_twice_in_each(
    evidence_of: Gathered, tmp_path: Path
) -> None:
    program = tmp_path / "rows.py"
    program.write_text(
        "import torch\n"
        "net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.01, fused=True)\n"
        "batch = torch.randn(60, 8)\n"
        "for _ in range(22):\n"
        "    loss = 0.0\n"
        "    for row in batch:\n"
        "        loss = loss + net(row.unsqueeze(0)).square().sum()\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    (found,) = (one for one in every_finding(evidence_of(program)).findings if one.id == "python-loop")
    assert (found.line, found.title) == (8, "A loop in Python runs 60 turns of small operators")


@pytest.mark.slow
def test_a_chain_of_products_comes_with_its_diff(evidence_of: Gathered) -> None:
    found = every_finding(evidence_of(PROGRAMS / "products_broken.py"))
    (chain,) = (one for one in found.findings if one.id == "chain-order")
    assert chain.diff is not None
    assert "-    column = first @ second @ vector  # problem: chain-order\n" in chain.diff
    assert "+    column = first @ (second @ vector)  # problem: chain-order\n" in chain.diff


def test_every_rule_names_an_item_that_exists() -> None:
    known = items()
    for rule in all_rules().values():
        assert rule.item in known, rule.id
        assert rule.about, rule.id


# Tested without a program of their own: what they need cannot be had on every machine.
ELSEWHERE = {
    "threads": "test_rules.py",
    "exposed-collectives": "test_device.py",
    "small-messages": "test_device.py",
    "straggler": "test_straggler.py",
}


def test_every_rule_that_speaks_of_host_programs_has_one_with_its_problem() -> None:
    planted = {rule for program in BROKEN for rule, _ in problems(program)}
    spoken = {rule.id for rule in all_rules().values() if rule.on in ("host", "both")}
    assert spoken - planted == set(ELSEWHERE)
    assert planted <= spoken
    for file in ELSEWHERE.values():
        assert (Path(__file__).parent / file).exists()


def test_lines_of_one_loop_that_read_numbers_are_one_finding(tmp_path: Path, evidence_of: Gathered) -> None:
    text = (PROGRAMS / "loops_broken.py").read_text()
    line = "        largest = max(largest, rows[i, 0].item())"
    program = tmp_path / "two_reads.py"
    assert line in text
    program.write_text(text.replace(line, f"{line}\n        largest = min(largest, rows[i, 1].item())", 1))
    (found,) = [one for one in diagnose(evidence_of(program)).findings if one.id == "scalar-reads"]
    assert found.evidence[0].startswith("A loop reads 500 single numbers from tensors in a step, on 2 lines")
