"""What rules read from a file: loops, what they carry from turn to turn, and diffs."""

import ast
from pathlib import Path

import pytest

from trackside.diagnose.source import Change, Source, read_source


def source(folder: Path, text: str) -> Source:
    (folder / "x.py").write_text(text)
    found = read_source(str(folder / "x.py"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("body", "carries"),
    [
        ("out[i] = x[i] * 2", False),
        ("out[i] = out[i - 1] + x[i]", True),
        ("h = f(x[i], h)", True),
        ("total = total + x[i].sum()", False),
        ("total += x[i].sum()", False),
        ("total = total + x[i]\n    y = total * 2", True),
        ("y = x[i]\n    z = y + 1", False),
        ("seen.append(x[i])", False),
    ],
)
def test_a_loop_carries_what_its_next_turn_needs(body: str, carries: bool, tmp_path: Path) -> None:
    found = source(tmp_path, f"for i in range(9):\n    {body}\n")
    (loop,) = found.loops(2)
    assert found.carries(loop) is carries


def test_loops_of_a_line_leave_out_the_loop_of_steps_and_other_functions(tmp_path: Path) -> None:
    found = source(
        tmp_path,
        "for step in range(9):\n"  # 1
        "    for i in range(3):\n"  # 2
        "        x = [y(j) for j in range(2)]\n"  # 3
        "    optimizer.step()\n"  # 4
        "    def inner():\n"  # 5
        "        return 1\n",  # 6
    )
    assert [type(loop) for loop in found.loops(3, beside=4)] == [ast.ListComp, ast.For]
    assert [loop.lineno for loop in found.loops(3)] == [3, 2, 1]
    assert found.loops(6, beside=4) == []
    assert found.loops(2, beside=4) == []


def test_calls_are_known_by_what_was_imported_and_built_ins_by_not_being_replaced(tmp_path: Path) -> None:
    found = source(
        tmp_path, "import torch as t\nfrom torch import arange as r\nx = t.tensor(r(3)); y = sum(x)\n"
    )
    assert [call.name for call in found.torch_calls_on(3, "tensor", "arange")] == [
        "torch.tensor",
        "torch.arange",
    ]
    assert len(found.built_ins_on(3, "sum")) == 1
    replaced = source(tmp_path, "def sum(x): return x\ny = sum(3)\n")
    assert replaced.built_ins_on(2, "sum") == []


def test_a_diff_changes_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    found = source(tmp_path, "import torch\nö = torch.optim.Adam(p, lr=1e-3)  # keep\nz = 1\n")
    (call,) = found.script.exactly("torch.optim.Adam")
    text = found.diff([found.with_argument(call, "fused", "True")])
    assert text is not None
    assert "-ö = torch.optim.Adam(p, lr=1e-3)  # keep\n" in text
    assert "+ö = torch.optim.Adam(p, lr=1e-3, fused=True)  # keep\n" in text
    assert found.diff([Change(call.node, found.script_text(call.node))]) is None


def test_lines_are_those_that_python_counts(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes("# coding: latin-1\nx = 'ä'\x0c\ny = 2\n".encode("latin-1"))
    found = read_source(str(tmp_path / "x.py"))
    assert found is not None
    assert [found.text(line) for line in (2, 3)] == ["x = 'ä'", "y = 2"]


def test_a_file_that_is_no_python_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def")
    assert read_source(str(tmp_path / "x.py")) is None
    assert read_source("x.py", ["def"]) is None
    assert read_source(str(tmp_path / "none.py")) is None


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("y = [row @ w for row in x]", True),
        ("y = [row @ model.w for row in x]", True),
        ("y = [x[i] @ w[i] for i in range(9)]", False),
        ("y = [torch.mm(part, w) for part in x]", True),
        ("y = [torch.matmul(a, b) for a, b in pairs]", False),
        ("y = [f(row) for row in x]", False),
        ("y = [row @ row.diag() for row in x]", False),
    ],
)
def test_a_loop_of_products_keeps_the_matrix_behind_them(text: str, keeps: bool, tmp_path: Path) -> None:
    found = source(tmp_path, f"import torch\n{text}\n")
    (loop,) = found.loops(2)
    assert found.keeps_second_factor(loop, 2) is keeps


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("y = [row @ model.w for row in x]", "x @ model.w"),
        ("y = [row @ (w + v) for row in self.x]", "self.x @ (w + v)"),
        ("y = [x[i] @ w[i] for i in range(9)]", "x[:9] @ w[:9]"),
        ("y = [torch.matmul(x[i], w) for i in range(x.size(0))]", "torch.matmul(x, w)"),
        ("y = [torch.mm(x[i], w) for i in range(len(x))]", "torch.matmul(x, w)"),
        ("y = [x[i] @ w for i in range(2, 9)]", None),
        ("y = [x[i + 1] @ w for i in range(9)]", None),
        ("y = [row @ w for row in x if row.any()]", None),
        ("y = [row @ w for row in x.unbind(1)]", None),
        ("y = [a @ b for a, b in zip(x, w)]", None),
        ("y = [row @ w @ v for row in x]", None),
        ("y = [row @ row.diag() for row in x]", None),
        ("y = [other @ w for row in x]", None),
    ],
)
def test_a_product_at_once_is_typed_where_the_loop_is_over_rows(
    text: str, typed: str | None, tmp_path: Path
) -> None:
    found = source(tmp_path, f"import torch\n{text}\n")
    (loop,) = found.loops(2)
    assert found.product_at_once(loop, 2) == typed


def test_a_call_that_is_a_statement_is_left_out_with_its_line(tmp_path: Path) -> None:
    found = source(
        tmp_path,
        "import gc\nfor x in range(3):\n    gc.collect()  # now\n    y = x\n"
        "if y:\n    gc.collect()\nz = gc.collect()\n",
    )
    first, only, part = sorted(found.script.exactly("gc.collect"), key=lambda call: call.node.lineno)
    gone = found.without_call(first)
    assert gone is not None
    assert found.diff([gone]) == (
        "--- a/x.py\n+++ b/x.py\n@@ -1,6 +1,5 @@\n import gc\n for x in range(3):\n-    gc.collect()  # now\n"
        "     y = x\n if y:\n     gc.collect()\n"
    )
    gone = found.without_call(only)
    assert gone is not None
    assert "-    gc.collect()\n+    pass\n" in (found.diff([gone]) or "")
    assert found.without_call(part) is None


def test_a_statement_comes_behind_the_imports_under_the_name_that_the_file_has(tmp_path: Path) -> None:
    found = source(
        tmp_path,
        '"""x"""\n\nimport torch as t\nfrom os import path\n\n\n@t.no_grad()\ndef f():\n    pass\n',
    )
    assert found.named("torch") == "t"
    assert found.named("numpy") is None
    change = found.behind_imports("t.f()")
    assert change is not None
    lines = (found.diff([change]) or "").splitlines()[3:]
    assert [line for line in lines if line.startswith("-")] == []
    assert lines.index(" from os import path") < lines.index("+t.f()") < lines.index(" @t.no_grad()")
    assert source(tmp_path, "x = 1\n").behind_imports("y") is None


def test_an_argument_takes_the_place_of_one_that_forbids_it(tmp_path: Path) -> None:
    found = source(tmp_path, "import torch\nx = torch.optim.Adam(p, lr=1e-3, foreach=True)\n")
    (call,) = found.script.exactly("torch.optim.Adam")
    text = found.diff([found.with_argument(call, "fused", "True", "foreach")])
    assert "+x = torch.optim.Adam(p, lr=1e-3, fused=True)\n" in (text or "")


def test_what_was_in_parentheses_stays_there(tmp_path: Path) -> None:
    found = source(tmp_path, "y = (a + b).contiguous() @ w\n")
    (call,) = found.methods_on(1, "contiguous")
    assert isinstance(call.node.func, ast.Attribute)
    assert found.operand_text(call.node.func.value) == "(a + b)"
    assert found.operand_text(call.node) == "(a + b).contiguous()"
