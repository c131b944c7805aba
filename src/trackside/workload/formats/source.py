"""What a Python file defines, read from its syntax tree: the judge looks, and never runs it."""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from trackside.workload.formats.workload import fault

__all__ = ["Binding", "Source", "accepts", "local_files", "positional_count", "read_source"]

# A workload is a page of code; a file above this is something else (a data file, a checkpoint).
_MAX_BYTES: Final = 16 << 20
# Enough for any package of helpers beside a workload; keeps a workload in $HOME from hashing a tree.
_MAX_LOCAL_FILES: Final = 400


@dataclass(frozen=True)
class Binding:
    """A name at a file's top level."""

    kind: Literal["function", "class", "value", "import"]
    line: int
    parameters: ast.arguments | None = None
    """Only for a plain function or lambda bound once: a decorator or a second definition may change them."""
    value: ast.expr | None = None


@dataclass(frozen=True)
class Source:
    """A Python file that was read and parsed, not run."""

    path: Path
    data: bytes
    bindings: Mapping[str, Binding]
    star_import: bool
    """`from x import *` at top level: names may exist that cannot be seen here."""
    imports: tuple[str, ...]
    """Root names of all imports, at any depth."""
    names_cuda: bool
    """Holds a "cuda" device string or a `.cuda()` call."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def has(self, name: str) -> bool:
        return name in self.bindings

    def of_kind(self, kind: str) -> tuple[str, ...]:
        return tuple(name for name, binding in self.bindings.items() if binding.kind == kind)

    def literal(self, name: str) -> tuple[bool, Any]:
        """Whether `name` is assigned a literal, and its value."""
        binding = self.bindings.get(name)
        if binding is None or binding.value is None:
            return False, None
        try:
            return True, ast.literal_eval(binding.value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return False, None


def read_source(path: Path) -> Source:
    """Read and parse `path`.

    Raises:
        TracksideError: not-found, or workload for what is not Python.
    """
    try:
        there = path.exists()
    except OSError:
        there = True  # so reading it tells why
    if not there:
        remedy = (
            f"check the path; the working directory is {Path.cwd()}"
            if not path.is_absolute()
            else "check the path"
        )
        raise fault("not-found", f"no file at {path}", "a Python file or a GPU MODE task folder", remedy)
    if path.suffix != ".py":
        raise fault(
            "workload",
            f"{path.name}, which is not a .py file",
            "a Python file or a GPU MODE task folder",
            "put the code to run into a .py file; it may compile and load other languages from there",
        )
    if not path.is_file():
        raise fault("workload", f"{path}, which is no ordinary file", "a source file", "check the path")
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise fault("workload", f"{size >> 20} MiB in {path}", "a source file", "check the path")
        data = path.read_bytes()
    except OSError as error:
        raise fault(
            "workload",
            f"{path}, which cannot be read ({error.strerror})",
            "a readable file",
            "check its permissions",
        ) from error
    return _parse(path, data)


def _parse(path: Path, data: bytes) -> Source:
    try:
        tree = ast.parse(data, filename=str(path))
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        shown = f" at `{error.text.strip()}`" if error.text and error.text.strip() else ""
        raise fault(
            "workload",
            f"a syntax error in {path}{line}: {error.msg}{shown}",
            "valid Python",
            f"correct {path}{line}",
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise fault(
            "workload", f"{path}, which Python cannot parse ({error})", "valid Python", f"correct {path}"
        ) from error
    scan = _Scan()
    scan.statements(tree.body, conditional=False)
    return Source(path, data, scan.bindings, scan.star_import, tuple(_import_roots(tree)), _names_cuda(tree))


@dataclass
class _Scan:
    bindings: dict[str, Binding] = field(default_factory=dict)
    star_import: bool = False

    def statements(self, body: Iterable[ast.stmt], conditional: bool) -> None:
        for statement in body:
            self._statement(statement, conditional)

    def _statement(self, node: ast.stmt, conditional: bool) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
                self._bind(
                    node.name, Binding("function", node.lineno, node.args if plain else None), conditional
                )
            case ast.ClassDef():
                self._bind(node.name, Binding("class", node.lineno), conditional)
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value, conditional)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, node.value, conditional)
            case ast.Import():
                for alias in node.names:
                    self._bind(
                        alias.asname or alias.name.split(".")[0], Binding("import", node.lineno), conditional
                    )
            case ast.ImportFrom():
                for alias in node.names:
                    if alias.name == "*":
                        self.star_import = True
                    else:
                        self._bind(alias.asname or alias.name, Binding("import", node.lineno), conditional)
            case ast.If():
                # What stands under the main guard does not exist when the file is imported.
                if not _is_guard(node.test):
                    self.statements(node.body, conditional=True)
                self.statements(node.orelse, conditional=True)
            case ast.Try() | ast.TryStar():
                self.statements(node.body, conditional=True)
                for handler in node.handlers:
                    self.statements(handler.body, conditional=True)
                self.statements(node.orelse, conditional=True)
                self.statements(node.finalbody, conditional)
            case ast.For() | ast.While():
                self.statements(node.body, conditional=True)
                self.statements(node.orelse, conditional=True)
            case ast.With():
                self.statements(node.body, conditional)
            case ast.Match():
                for branch in node.cases:
                    self.statements(branch.body, conditional=True)
            case _:
                pass

    def _assign(self, target: ast.expr, value: ast.expr, conditional: bool) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            paired = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            items = (
                value.elts
                if paired and isinstance(value, ast.Tuple | ast.List)
                else [None] * len(target.elts)
            )
            for part, item in zip(target.elts, items, strict=True):
                if isinstance(part, ast.Name):
                    self._bind(part.id, Binding("value", part.lineno, value=item), conditional)
        elif isinstance(target, ast.Name):
            if isinstance(value, ast.Lambda):
                binding = Binding("function", target.lineno, value.args)
            else:
                binding = Binding("value", target.lineno, value=value)
            self._bind(target.id, binding, conditional)

    def _bind(self, name: str, binding: Binding, conditional: bool) -> None:
        if conditional and name in self.bindings:
            binding = Binding(binding.kind, binding.line)
        self.bindings[name] = binding


def _is_guard(test: ast.expr) -> bool:
    """`__name__ == "__main__"` or `TYPE_CHECKING`."""
    if isinstance(test, ast.Compare):
        names = [ast.unparse(part) for part in (test.left, *test.comparators)]
        return (
            len(names) == 2 and isinstance(test.ops[0], ast.Eq) and set(names) == {"__name__", "'__main__'"}
        )
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _import_roots(tree: ast.AST) -> Iterator[str]:
    seen: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            seen.update((alias.name.split(".")[0], None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            seen[node.module.split(".")[0]] = None
    yield from seen


def _names_cuda(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value == "cuda" or node.value.startswith("cuda:"):
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            return True
    return False


def positional_count(parameters: ast.arguments) -> tuple[int, int | None]:
    """Fewest and most positional arguments; None means no upper limit."""
    positional = len(parameters.posonlyargs) + len(parameters.args)
    most = None if parameters.vararg is not None else positional
    return positional - len(parameters.defaults), most


def accepts(parameters: ast.arguments, count: int) -> bool:
    """Whether a call with `count` positional arguments, and no others, binds."""
    if any(default is None for default in parameters.kw_defaults):
        return False
    fewest, most = positional_count(parameters)
    return fewest <= count and (most is None or count <= most)


def local_files(source: Source, folders: Iterable[Path]) -> dict[str, str]:
    """Digests of the file and of the modules beside it that it imports, directly or not.

    Imports made by name at run time are not seen.
    """
    folders = tuple(folders)
    found: dict[str, str] = {}
    queue: list[Source] = [source]
    while queue and len(found) < _MAX_LOCAL_FILES:
        current = queue.pop()
        key = str(current.path.resolve())
        if key in found:
            continue
        found[key] = current.sha256
        for root in current.imports:
            for path in _module_files(root, folders):
                try:
                    queue.append(_parse(path, path.read_bytes()))
                except Exception:
                    # A helper that cannot be read fails at import, with its own error; here it has no digest.
                    continue
    return found


def _module_files(root: str, folders: Iterable[Path]) -> list[Path]:
    for folder in folders:
        if (folder / f"{root}.py").is_file():
            return [folder / f"{root}.py"]
        # With or without an __init__.py: a folder of modules is imported as well.
        if (folder / root).is_dir():
            return sorted((folder / root).rglob("*.py"))[:_MAX_LOCAL_FILES]
    return []
