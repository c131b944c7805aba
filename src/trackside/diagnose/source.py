"""One file of the program as rules ask for it: what stands on a line, which loops are around it, and diffs.

Names of the program's own are only followed, never read: what counts is what they were imported as and where
they are given a value.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from trackside.machine.doctor.script import Call, Script, parse_script, read_script
from trackside.profiling.sources import decoded_lines
from trackside.records.errors import TracksideError

__all__ = ["AnyLoop", "Change", "Source", "read_source"]

AnyLoop: TypeAlias = ast.For | ast.AsyncFor | ast.While | ast.ListComp | ast.GeneratorExp | ast.SetComp
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp)
_LOOSE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Await)
_IMPORTS = (ast.Import, ast.ImportFrom)
_BUILT_IN = frozenset({"print", "sum", "max", "min", "any", "all", "list", "float", "int", "zip", "range"})


class Change(NamedTuple):
    """Text in place of a node, or before it where `insert` is set; a line of which nothing is left goes."""

    node: ast.expr | ast.stmt
    text: str
    insert: bool = False


@dataclass(frozen=True, eq=False)
class Source:
    """A file, parsed, with its text."""

    script: Script
    lines: tuple[str, ...]

    def text(self, line: int) -> str:
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""

    def script_text(self, node: ast.expr) -> str:
        """What is written for an expression."""
        return ast.get_source_segment("\n".join(self.lines), node) or ast.unparse(node)

    def operand_text(self, node: ast.expr) -> str:
        """The same where it may stand beside any operator: parentheses are no part of what they enclose."""
        text = self.script_text(node)
        return f"({text})" if isinstance(node, _LOOSE) else text

    def nodes_on(self, line: int) -> Iterator[ast.AST]:
        """Expressions and statements that begin before a line's end and end after its beginning."""
        for node in self.script.nodes:
            first = getattr(node, "lineno", None)
            if first is not None and first <= line <= (getattr(node, "end_lineno", None) or first):
                yield node

    def calls_on(self, line: int) -> list[Call]:
        """Calls that are written on a line, or run over it."""
        return [
            call
            for call in self.script.calls
            if call.node.lineno <= line <= (call.node.end_lineno or call.node.lineno)
            and not isinstance(call.node.func, ast.Lambda)
        ]

    def torch_calls_on(self, line: int, *names: str) -> list[Call]:
        """Calls of these functions of torch (`tensor` for `torch.tensor`) on a line."""
        wanted = {f"torch.{name}" for name in names}
        return [call for call in self.calls_on(line) if call.name in wanted]

    def methods_on(self, line: int, *names: str) -> list[Call]:
        """Calls of a method of one of these names on a line."""
        return [call for call in self.calls_on(line) if "." in call.name and call.method in names]

    def built_ins_on(self, line: int, *names: str) -> list[Call]:
        """Calls of Python's own functions, where the file does not give their names to something else."""
        return [
            call
            for call in self.calls_on(line)
            if call.name in names and call.name in _BUILT_IN and call.name not in self.script.bound
        ]

    def statement(self, line: int) -> ast.stmt | None:
        """The innermost statement around a line."""
        found = [node for node in self.nodes_on(line) if isinstance(node, ast.stmt)]
        return max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)

    def loops(self, line: int, beside: int | None = None) -> list[AnyLoop]:
        """Loops in whose body a line stands, innermost first, without those around the line `beside` too."""
        found: list[AnyLoop] = []
        for node in self.nodes_on(line):
            if not isinstance(node, _LOOPS):
                continue
            if beside is not None and _spans(node, beside):
                continue
            body = node.body if isinstance(node, ast.For | ast.AsyncFor | ast.While) else [node]
            if any(_spans(part, line) for part in body):
                found.append(node)
        function = self._function(line)
        same = [loop for loop in found if function is None or _spans(function, loop.lineno)]
        return sorted(same, key=lambda node: (-node.lineno, -node.col_offset))

    def _function(self, line: int) -> ast.AST | None:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = [node for node in self.nodes_on(line) if isinstance(node, kinds)]
        return max(found, key=lambda node: node.lineno, default=None)

    def carries(self, loop: AnyLoop) -> bool:
        """Whether a turn of a loop uses what the turn before it computed, as far as names tell.

        A sum that only grows (`total = total + …`) does not count: it can be taken at once as well.
        """
        if not isinstance(loop, ast.For | ast.AsyncFor | ast.While):
            return False
        if _stores(loop) & _reads_by_index(loop):
            return True
        known = set() if isinstance(loop, ast.While) else _given(loop.target)
        given = set[str]().union(*(_given(statement) for statement in loop.body))
        sums = {name for statement in loop.body if (name := _grown(statement))}
        reads = Counter(name for statement in loop.body for name in _read(statement))
        sums = {name for name in sums if reads[name] == 1}
        for statement in loop.body:
            if any(name in given - known - sums for name in _read(statement)):
                return True
            known |= _given(statement)
        return False

    def changes_in(self, loop: AnyLoop) -> frozenset[str]:
        """Names that a loop gives a value."""
        return frozenset(
            node.id
            for node in ast.walk(loop)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )

    def keeps_second_factor(self, loop: AnyLoop, line: int) -> bool:
        """Whether the product on a line has one and the same matrix behind it in every turn of a loop."""
        changed = self.changes_in(loop)
        factors = [
            node.right
            for node in self.nodes_on(line)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        ]
        factors += [
            call.node.args[1] for call in self.torch_calls_on(line, "matmul", "mm") if len(call.node.args) > 1
        ]
        return bool(factors) and not any(
            isinstance(node, ast.Name) and node.id in changed
            for factor in factors
            for node in ast.walk(factor)
        )

    def product_at_once(self, loop: AnyLoop, line: int) -> str | None:
        """The product on a line for all turns of a loop, as it would be typed: `x @ w` for `row @ w`.

        None where the loop, or what it multiplies, is written in another way than rows of one tensor.
        """
        turn = _turn(loop)
        if turn is None:
            return None
        found: list[tuple[str, ast.expr, ast.expr]] = [
            ("{} @ {}", node.left, node.right)
            for node in self.nodes_on(line)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        ]
        for call in self.torch_calls_on(line, "matmul", "mm"):
            if len(call.node.args) == 2 and not call.node.keywords:
                name = self.script_text(call.node.func).replace("torch.mm", "torch.matmul")
                found.append((f"{name}({{}}, {{}})", *call.node.args))  # type: ignore[arg-type]
        # Of several on a line it is not known which.
        if len(found) != 1:
            return None
        form, left, right = found[0]
        changed = self.changes_in(loop)
        whole, behind = self._whole(left, *turn), self._whole(right, *turn)
        names = {node.id for node in ast.walk(right) if isinstance(node, ast.Name)}
        if behind is None and not names & changed:
            behind = self.operand_text(right)
        return form.format(whole, behind) if whole and behind else None

    def _whole(self, part: ast.expr, target: str, over: ast.expr) -> str | None:
        """What a part of a turn is a part of: `x` for `row` in `for row in x`, and for `x[i]`."""
        if not isinstance(over, ast.Call):
            # What goes over keys, pairs or numbered parts goes over no tensor.
            plain = isinstance(over, ast.Name | ast.Attribute | ast.Subscript)
            itself = isinstance(part, ast.Name) and part.id == target
            return self.operand_text(over) if plain and itself else None
        if self.script.name_of(over.func) != "range" or len(over.args) != 1:
            return None
        if not isinstance(part, ast.Subscript) or ast.unparse(part.slice) != target:
            return None
        base, end = self.operand_text(part.value), self.script_text(over.args[0])
        every = (f"len({base})", f"{base}.size(0)", f"{base}.shape[0]")
        return base if end in every else f"{base}[:{end}]"

    def diff(self, changes: Sequence[Change]) -> str | None:
        """The file with these changes, against the file, as `patch` reads it."""
        lines = [line + "\n" for line in self.lines]
        new = list(lines)
        # From the end on: places further up stay where they are.
        for node, text, insert in sorted(changes, key=lambda c: (-c.node.lineno, -c.node.col_offset)):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            if insert:
                indent = new[first][: len(new[first]) - len(new[first].lstrip())]
                new[first:first] = [f"{indent}{line}\n" for line in text.splitlines()]
                continue
            head = new[first].encode()[: node.col_offset].decode()
            tail = new[last].encode()[node.end_col_offset or 0 :].decode()
            alone = not (text or head.strip() or tail.partition("#")[0].strip())
            new[first : last + 1] = [] if alone else (head + text + tail).splitlines(keepends=True)
        name = self.script.path.name
        text = "".join(difflib.unified_diff(lines, new, f"a/{name}", f"b/{name}"))
        return text or None

    def without_call(self, call: Call) -> Change | None:
        """The file without a call that is a statement of its own; None where it is a part of one."""
        statement = self.script.parents.get(call.node)
        if not isinstance(statement, ast.Expr):
            return None
        above = self.script.parents.get(statement)
        blocks = [getattr(above, name, None) for name in ("body", "orelse", "finalbody")]
        alone = any(isinstance(block, list) and block == [statement] for block in blocks)
        return Change(statement, "pass" if alone else "")

    def behind_imports(self, text: str) -> Change | None:
        """The file with a statement behind the imports at its head, which it has to have some of."""
        body = self.script.tree.body
        last = max((place for place, one in enumerate(body) if isinstance(one, _IMPORTS)), default=-1)
        following = body[last + 1] if 0 <= last < len(body) - 1 else None
        if following is None:
            return None
        # A decorator stands above what it decorates.
        first = min([following, *getattr(following, "decorator_list", [])], key=lambda node: node.lineno)
        return Change(first, f"{text}\n\n", insert=True)

    def named(self, name: str) -> str | None:
        """What a file calls something that it imports: `t` where it says `import torch as t`."""
        return next((own for own, full in self.script.imported.items() if full == name), None)

    def with_argument(self, call: Call, argument: str, value: str, instead_of: str = "") -> Change:
        """The call with a keyword argument set, and without one that it takes the place of."""
        words = [*self._arguments(call, argument, instead_of), f"{argument}={value}"]
        return Change(call.node, f"{self.script_text(call.node.func)}({', '.join(words)})")

    def without_argument(self, call: Call, argument: str) -> Change:
        """The call without a keyword argument."""
        words = self._arguments(call, argument)
        return Change(call.node, f"{self.script_text(call.node.func)}({', '.join(words)})")

    def _arguments(self, call: Call, *left_out: str) -> list[str]:
        """All arguments as they are written, but for some keywords."""
        words = [self.script_text(one) for one in call.node.args]
        return words + [
            f"{one.arg}={self.script_text(one.value)}" if one.arg else f"**{self.script_text(one.value)}"
            for one in call.node.keywords
            if one.arg not in left_out
        ]


def read_source(file: str, lines: Sequence[str] | None = None) -> Source | None:
    """The file, where it can be read and parsed.

    Args:
        file: its name.
        lines: what it held while the program ran; what is on disk now, if left out.
    """
    path = Path(file)
    try:
        if lines is not None:
            return Source(parse_script(path, "\n".join(lines)), tuple(lines))
        return Source(read_script(path), tuple(decoded_lines(path.read_bytes())))
    except (TracksideError, OSError, SyntaxError, UnicodeDecodeError):
        return None


def _turn(loop: AnyLoop) -> tuple[str, ast.expr] | None:
    """The variable of a loop and what it goes over, where both are plain."""
    if isinstance(loop, ast.While):
        return None
    if isinstance(loop, ast.For | ast.AsyncFor):
        target, over = loop.target, loop.iter
    else:
        first = loop.generators[0]
        if len(loop.generators) > 1 or first.ifs:
            return None
        target, over = first.target, first.iter
    return (target.id, over) if isinstance(target, ast.Name) else None


def _spans(node: ast.AST, line: int) -> bool:
    first = getattr(node, "lineno", None)
    return first is not None and first <= line <= (getattr(node, "end_lineno", None) or first)


def _given(node: ast.AST) -> set[str]:
    """Plain names that get a value in it."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _read(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement reads, those that it adds to included."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _grown(statement: ast.stmt) -> str | None:
    """The name in `total += …` or `total = total + …`."""
    if isinstance(statement, ast.AugAssign):
        added = isinstance(statement.op, ast.Add) and isinstance(statement.target, ast.Name)
        return statement.target.id if added and isinstance(statement.target, ast.Name) else None
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
        return None
    target, left = statement.targets[0], statement.value.left
    same = isinstance(target, ast.Name) and isinstance(left, ast.Name) and target.id == left.id
    return (
        target.id
        if same and isinstance(target, ast.Name) and isinstance(statement.value.op, ast.Add)
        else None
    )


def _stores(loop: ast.AST) -> set[str]:
    """What is stored into by index, as written: `out` of `out[i] = …`."""
    return {
        ast.unparse(node.value)
        for node in ast.walk(loop)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    }


def _reads_by_index(loop: ast.AST) -> set[str]:
    return {
        ast.unparse(node.value)
        for node in ast.walk(loop)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
    }
