"""A script's source as probes ask for it: calls with their arguments, names and lines. Nothing is run."""

from __future__ import annotations

import ast
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from trackside.records.errors import TracksideError

__all__ = ["Argument", "Call", "Function", "Loop", "Script", "parse_script", "read_script"]

_MOST_BYTES = 16 << 20
"""No script is longer; what is was not written by a person."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While


class Argument(Enum):
    """What an argument is when it has no value that can be read."""

    ABSENT = "not given"
    UNREADABLE = "decided elsewhere"
    """A variable, an expression, or perhaps among `*arguments` or `**options`."""


@dataclass(frozen=True)
class Call:
    """One call in the source."""

    name: str
    """With imports spelled out: `torch.utils.data.DataLoader`, however it was imported; of a method with what
    is written before it: `loss.item`, `batch[].to`, `torch.zeros().cuda`, `?.softmax`."""
    node: ast.Call
    loops: int
    """How many loops of its own function it stands in."""
    place: str
    """`file:line`."""

    @property
    def method(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def receiver(self) -> str:
        """What stands before the last part of the name."""
        return self.name.rpartition(".")[0]

    @property
    def root(self) -> str:
        """The variable, or the top package, that the name begins with."""
        return self.name.partition(".")[0].partition("[")[0].partition("(")[0]

    def has(self, argument: str) -> bool:
        """Whether a keyword argument is given; with `**options` it may be."""
        return any(k.arg in (argument, None) for k in self.node.keywords)

    def value(self, argument: str) -> object:
        """A keyword argument's literal value; None where it is not given, or no literal."""
        for keyword in self.node.keywords:
            if keyword.arg == argument:
                try:
                    return ast.literal_eval(keyword.value)
                except ValueError:
                    return None
        return None

    def expression(self, argument: str, position: int | None = None) -> ast.expr | Argument:
        """What is written for an argument, by its keyword or its position."""
        for keyword in self.node.keywords:
            if keyword.arg == argument:
                return keyword.value
        if position is not None:
            starred = any(isinstance(each, ast.Starred) for each in self.node.args[: position + 1])
            if starred:
                return Argument.UNREADABLE
            if position < len(self.node.args):
                return self.node.args[position]
        return Argument.UNREADABLE if self.has(argument) else Argument.ABSENT


@dataclass(frozen=True)
class Script:
    """One Python file, parsed."""

    path: Path
    tree: ast.Module

    def place(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}"

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Everything in the tree, outer before inner."""
        return tuple(ast.walk(self.tree))

    # -- names ---------------------------------------------------------------------------------------

    @cached_property
    def imported(self) -> dict[str, str]:
        """Names in the file and what they stand for: `F` → `torch.nn.functional`."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    found[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    @cached_property
    def packages(self) -> frozenset[str]:
        """Top packages that are imported anywhere in the file."""
        return frozenset(name.partition(".")[0] for name in self.imported.values())

    def name_of(self, node: ast.AST) -> str | None:
        """A dotted name with its imports spelled out; None for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call | ast.Subscript):
            inner = self.name_of(node.func if isinstance(node, ast.Call) else node.value)
            mark = "()" if isinstance(node, ast.Call) else "[]"
            return ".".join([f"{inner}{mark}", *reversed(parts)]) if inner else self._unnamed(parts)
        if not isinstance(node, ast.Name):
            return self._unnamed(parts)
        return ".".join([self.imported.get(node.id, node.id), *reversed(parts)])

    @staticmethod
    def _unnamed(parts: list[str]) -> str | None:
        return ".".join(["?", *reversed(parts)]) if parts else None

    # -- calls and assignments -----------------------------------------------------------------------

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """All calls in the order of the source."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Call):
                name = self.name_of(node.func)
                if name:
                    found.append(Call(name, node, len(self.loops_around(node)), self.place(node)))
        return tuple(sorted(found, key=lambda call: (call.node.lineno, call.node.col_offset)))

    def named(self, *names: str) -> list[Call]:
        """Calls whose name, or its last parts, is one of these: `DataLoader`, `data.DataLoader`."""
        return [c for c in self.calls if any(c.name == n or c.name.endswith(f".{n}") for n in names)]

    def exactly(self, *names: str) -> list[Call]:
        """Calls of just these names; also of `DataLoader` after `from torch.utils.data import *`."""
        stars = [name[:-1] for name in self.imported.values() if name.endswith(".*")]
        return [c for c in self.calls if c.name in names or any(star + c.name in names for star in stars)]

    @cached_property
    def assigned(self) -> tuple[tuple[str, ast.expr, str], ...]:
        """Assignments to dotted names, `torch.backends.cudnn.benchmark = True`: name, value, place."""
        found = []
        for node in self.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                name = self.name_of(target)
                if name and "." in name and isinstance(node, ast.Assign):
                    found.append((name, node.value, self.place(node)))
        return tuple(found)

    @cached_property
    def bound(self) -> dict[str, list[ast.expr | None]]:
        """What each name is given, anywhere in the file; None for what is no plain assignment.

        Scopes are not told apart: a name with one value here has no other.
        """
        found: dict[str, list[ast.expr | None]] = {}
        for node in self.nodes:
            for name, value in _given(node):
                found.setdefault(name, []).append(value)
        return found

    def only_value(self, node: ast.AST) -> ast.AST:
        """For a name or `self.name` with one value in the whole file that value, otherwise what was asked."""
        name = _plain(node)
        values = self.bound.get(name, []) if name else []
        only = values[0] if len(values) == 1 else None
        return node if only is None else only

    def read(self, node: ast.expr | Argument) -> object:
        """A literal's value, also through a variable that has no other; otherwise an `Argument`."""
        if isinstance(node, Argument):
            return node
        try:
            return ast.literal_eval(self.only_value(node))
        except (ValueError, TypeError):
            return Argument.UNREADABLE

    def names_of_result(self, node: ast.AST) -> list[str]:
        """Variables to which an expression's value is assigned: `loader`, `self.loader`."""
        parent = self.parents.get(node)
        if isinstance(parent, ast.Assign):
            return [name for target in parent.targets if (name := _plain(target))]
        if isinstance(parent, ast.AnnAssign | ast.NamedExpr):
            name = _plain(parent.target)
            return [name] if name else []
        if isinstance(parent, ast.Tuple) and isinstance(above := self.parents.get(parent), ast.Assign):
            place = parent.elts.index(node)  # type: ignore[arg-type]
            rows = [t.elts for t in above.targets if isinstance(t, ast.Tuple)]
            return [name for row in rows if place < len(row) and (name := _plain(row[place]))]
        return []

    # -- where something stands ----------------------------------------------------------------------

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: parent for parent in self.nodes for child in ast.iter_child_nodes(parent)}

    def above(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """From the inside out to the own function: what holds the node, and which part of it does."""
        part, parent = node, self.parents.get(node)
        while parent is not None:
            yield parent, part
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                return
            part, parent = parent, self.parents.get(parent)

    def loops_around(self, node: ast.AST) -> list[Loop]:
        """Loops of its own function in whose body it stands, innermost first."""
        return [
            parent
            for parent, part in self.above(node)
            if isinstance(parent, ast.For | ast.AsyncFor | ast.While)
            and (part in parent.body or (isinstance(parent, ast.While) and part is parent.test))
        ]

    def function_around(self, node: ast.AST) -> Function | None:
        for parent, part in self.above(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                return parent if part in parent.body else None
        return None

    def class_around(self, function: ast.AST) -> ast.ClassDef | None:
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def contexts(self, node: ast.AST) -> list[str]:
        """Names of the `with` blocks that it stands in, and of what decorates its function."""
        found: list[ast.expr] = []
        for parent, part in self.above(node):
            if isinstance(parent, ast.With | ast.AsyncWith) and part in parent.body:
                found += [item.context_expr for item in parent.items]
            elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                found += parent.decorator_list
        names = [self.name_of(one.func if isinstance(one, ast.Call) else one) for one in found]
        return [name for name in names if name]

    def is_under(self, node: ast.AST, *names: str) -> bool:
        """Whether it stands in a `with` of one of these, or in a function that they decorate."""
        return any(name in names for name in self.contexts(node))

    def is_conditional(self, node: ast.AST, until: ast.AST | None = None) -> bool:
        """Whether a condition decides, between it and what holds it, that it runs at all."""
        for parent, part in self.above(node):
            if _decides(parent, part):
                return True
            block = next((b for b in _blocks(parent) if part in b), [])
            place = next((i for i, statement in enumerate(block) if statement is part), 0)
            if any(_skips(earlier) for earlier in block[:place]):
                return True
            if parent is until:
                return False
        return False


def _plain(node: ast.AST) -> str | None:
    """`name`, or `self.name`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        yield from _pairs(node.target, node.value)
    elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension):
        yield from _pairs(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _pairs(node.optional_vars, None)
    elif isinstance(node, ast.arg):
        yield node.arg, None
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, None
    elif isinstance(node, ast.alias):
        yield node.asname or node.name, None
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
        yield node.name, None


def _pairs(target: ast.AST, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Tuple | ast.List):
        values: list[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            values = list(value.elts)
        for one, each in zip(target.elts, values, strict=True):
            yield from _pairs(one, each)
    elif isinstance(target, ast.Starred):
        yield from _pairs(target.value, None)
    elif name := _plain(target):
        yield name, value


def _decides(parent: ast.AST, part: ast.AST) -> bool:
    if isinstance(parent, ast.If):
        main = isinstance(parent.test, ast.Compare) and any(
            isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(parent.test)
        )
        return part is not parent.test and not main
    if isinstance(parent, ast.IfExp):
        return part is not parent.test
    if isinstance(parent, ast.BoolOp):
        return part is not parent.values[0]
    return isinstance(parent, ast.ExceptHandler | ast.match_case)


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    found = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [block for block in found if isinstance(block, list)]


def _skips(statement: ast.stmt) -> bool:
    """`if …: continue` or `if …: return`: what comes after it is not always reached."""
    if not isinstance(statement, ast.If):
        return False
    return any(isinstance(node, ast.Continue | ast.Return) for node in ast.walk(statement))


def read_script(path: Path) -> Script:
    """Parse a file.

    Raises:
        TracksideError: where it cannot be read, or is no Python.
    """
    try:
        kind = path.stat()
        if path.suffix == ".ipynb":
            raise TracksideError(
                "workload",
                f"{path} is a notebook; needed: a Python file",
                f"jupyter nbconvert --to script {shlex.quote(str(path))}, then look at the file it writes",
            )
        if not stat.S_ISREG(kind.st_mode) or kind.st_size > _MOST_BYTES:
            raise TracksideError(
                "usage",
                f"{path} is no file, or one of more than {_MOST_BYTES >> 20} MiB",
                "name a Python file",
            )
        return parse_script(path, path.read_bytes())
    except OSError as error:
        raise TracksideError(
            "not-found", f"cannot read {path}: {error.strerror}", "name a Python file that exists"
        ) from error


def parse_script(path: Path, text: str | bytes) -> Script:
    """What a file holds, or held, without a look at the disk.

    Raises:
        TracksideError: where it is no Python.
    """
    try:
        return Script(path, ast.parse(text, str(path)))
    # Python's parser says so where expressions are nested too deeply for it.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise TracksideError(
            "workload", f"{path}{where} is no Python that can be parsed: {error}", "repair the file"
        ) from error
