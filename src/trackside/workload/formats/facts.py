"""Which format a path is written in and what it declares, without running it: what the judge may know."""

import ast
import difflib
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trackside.records.errors import TracksideError
from trackside.workload.formats.source import (
    Binding,
    Source,
    accepts,
    local_files,
    positional_count,
    read_source,
)
from trackside.workload.formats.taskfile import TASK_FILE, Task, find_task_folder, helper_modules, read_task
from trackside.workload.formats.workload import (
    Format,
    OutputLifetime,
    Role,
    checked_domain,
    checked_lifetime,
    checked_shapes,
    checked_tolerance,
    fault,
)

__all__ = ["FileFacts", "describe", "detect"]

_FORMAT_NAMES: Final = {"native": "native", "kernelbench": "KernelBench", "gpumode": "GPU MODE"}
# The names whose presence says what a file is meant to be, even when it is not complete.
_MARKS: Final = ("run", "inputs", "Model", "ModelNew", "get_inputs", "get_init_inputs", "custom_kernel")


@dataclass(frozen=True)
class FileFacts:
    """What is known of a baseline or a candidate before any of it runs."""

    path: Path
    """The file, or the task folder."""
    role: Role
    format: Format
    source: Path
    """The Python file that holds the entry."""
    entry: str
    """`run`, `Model`, `ModelNew`, `custom_kernel` or `ref_kernel`."""
    entry_parameters: int | None
    """Positional parameters of the entry, where they are plain to see."""
    entry_required: int | None
    """Those of them without a default."""
    entry_first: str | None
    """The name of the first."""
    functions: tuple[str, ...]
    classes: tuple[str, ...]
    imports: tuple[str, ...]
    sha256: str
    """Of the file; for a folder, of `files` taken together."""
    files: dict[str, str]
    """Resolved path to SHA-256: the file, task.yml, and the modules beside it that are imported."""
    has_setup: bool
    has_reference: bool
    has_work: bool
    declares_shapes: bool
    shape_count: int | None
    """How many shapes, where they can be counted."""
    declares_tolerance: bool
    declares_domain: bool
    outputs: OutputLifetime
    names_cuda: bool
    """The source asks for CUDA by name, whatever device is chosen."""

    def as_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: str(value) if isinstance(value, Path) else value for name, value in shown.items()}


def detect(path: Path) -> Format:
    """The format that `path` is written in.

    Raises:
        TracksideError: not-found or workload, when it is none of them.
    """
    path = Path(path)
    if _as_folder(path) is not None or path.is_dir():
        read_task(_as_folder(path) or path)
        return "gpumode"
    return _format_of(read_source(path))


def describe(path: Path, role: Role, baseline_format: Format | None = None) -> FileFacts:
    """What `path` declares in its role; a candidate must be written in the baseline's format.

    Raises:
        TracksideError: not-found or workload, saying what is missing or wrong and where.
    """
    path = Path(path)
    if role == "candidate" and baseline_format is not None:
        format_: Format = baseline_format
    else:
        format_ = detect(path)
    if format_ == "gpumode":
        return _describe_gpumode(path, role)
    if path.is_dir():
        raise _mismatch(path, "a folder", format_)
    source = read_source(path)
    if role == "candidate" and not source.star_import:
        _check_same_format(source, format_)
    return (_describe_kernelbench if format_ == "kernelbench" else _describe_native)(source, role)


# -- which format -----------------------------------------------------------------------------------


def _as_folder(path: Path) -> Path | None:
    """The task folder, when `path` names its task.yml or its reference.py."""
    try:
        if path.is_dir():
            return path if (path / TASK_FILE).is_file() else None
        if path.name in (TASK_FILE, "reference.py") and (path.parent / TASK_FILE).is_file():
            return path.parent
    except OSError:
        return None  # reading it tells why
    return None


def _format_of(source: Source) -> Format:
    has = source.has
    if has("run") and has("inputs"):
        return "native"
    if has("ModelNew") or (has("Model") and (has("get_inputs") or not has("run"))):
        return "kernelbench"
    if has("custom_kernel"):
        return "gpumode"
    if has("run") or has("inputs"):
        return "native"
    if has("get_inputs") or has("get_init_inputs"):
        return "kernelbench"
    if source.star_import:
        # Its names cannot be seen from here; loading says what is missing.
        return "native"
    names = source.of_kind("function") + source.of_kind("class")
    found = f"{source.path.name} with {_listed(names)}" if names else f"{source.path.name} with no function"
    raise fault(
        "workload",
        found,
        "`run` (native), `Model` or `ModelNew` (KernelBench) or `custom_kernel` (GPU MODE)",
        _rename(source, "run"),
    )


def _check_same_format(source: Source, wanted: Format) -> None:
    entries = {"native": ("run",), "kernelbench": ("ModelNew", "Model"), "gpumode": ("custom_kernel",)}
    if any(source.has(name) for name in entries[wanted]):
        return
    marks = [name for name in _MARKS if source.has(name)]
    raise _mismatch(source.path, f"`{marks[0]}`" if marks else "none of the known entries", wanted, source)


def _mismatch(path: Path, found: str, wanted: Format, source: Source | None = None) -> TracksideError:
    entry = {"native": "run", "kernelbench": "ModelNew", "gpumode": "custom_kernel"}[wanted]
    return fault(
        "workload",
        f"{found} in the candidate {path}",
        f"`{entry}`, since the baseline is a {_FORMAT_NAMES[wanted]} workload",
        _rename(source, entry) if source is not None else f"name a file that defines `{entry}`",
    )


# -- native -----------------------------------------------------------------------------------------


def _describe_native(source: Source, role: Role) -> FileFacts:
    _need(source, "run", "run(*args)", "the code under test")
    shapes = source.has("shapes")
    if role == "baseline":
        wanted = "inputs(seed, device, shape)" if shapes else "inputs(seed, device)"
        _need(source, "inputs", wanted, "fresh inputs for any seed")
        because = ", since `shapes` is declared" if shapes else ""
        _arity(source, "inputs", 3 if shapes else 2, wanted, because)
        _need_callable(source, ("reference", "work"))
        for name, check in (
            ("tolerance", checked_tolerance),
            ("domain", checked_domain),
            ("shapes", checked_shapes),
        ):
            known, value = source.literal(name)
            if known:
                check(value, str(source.path))
    if source.has("setup"):
        _arity(source, "setup", 2, "setup(seed, device)", "")
    known, value = source.literal("outputs")
    lifetime = checked_lifetime(value, str(source.path)) if known and role == "baseline" else "fresh"
    known, listed = source.literal("shapes")
    return _facts(
        source,
        role,
        "native",
        "run",
        shape_count=len(listed) if known and isinstance(listed, list | tuple) else None,
        outputs=lifetime,
    )


# -- KernelBench ------------------------------------------------------------------------------------


def _describe_kernelbench(source: Source, role: Role) -> FileFacts:
    order = ("Model", "ModelNew") if role == "baseline" else ("ModelNew", "Model")
    entry = next((name for name in order if source.has(name)), order[0])
    _need(source, entry, f"class {entry}", "the module under test")
    if role == "baseline":
        _need(source, "get_inputs", "get_inputs()", "the arguments of one call")
        _arity(source, "get_inputs", 0, "get_inputs()", "")
    if source.has("get_init_inputs"):
        _arity(source, "get_init_inputs", 0, "get_init_inputs()", "")
    return _facts(source, role, "kernelbench", entry, has_setup=True)


# -- GPU MODE ---------------------------------------------------------------------------------------


def _describe_gpumode(path: Path, role: Role) -> FileFacts:
    folder = _as_folder(path)
    if role == "baseline":
        home = folder or (path if path.is_dir() else find_task_folder(path))
        if home is None:
            raise fault(
                "workload",
                f"`custom_kernel` in {path}, outside any task folder",
                f"a baseline that makes inputs: the folder with {TASK_FILE} and reference.py",
                f"name the task's folder as the baseline, or put {path.name} into it",
            )
        task = read_task(home)
        reference = _reference_of(task)
        if folder is not None or path.is_dir():
            return _facts(reference, role, "gpumode", "ref_kernel", task=task, path=home)
        submission = read_source(path)
        _need(submission, "custom_kernel", "custom_kernel(data)", "the code under test")
        _arity(submission, "custom_kernel", 1, "custom_kernel(data)", "")
        return _facts(submission, role, "gpumode", "custom_kernel", task=task)
    if path.is_dir():
        submission_path = path / "submission.py"
        if not submission_path.is_file():
            raise fault(
                "workload",
                f"the folder {path} without submission.py",
                "a candidate file",
                "name the candidate's .py file",
            )
        path = submission_path
    source = read_source(path)
    if not source.star_import:
        _check_same_format(source, "gpumode")
    _arity(source, "custom_kernel", 1, "custom_kernel(data)", "")
    home = find_task_folder(path)
    return _facts(source, role, "gpumode", "custom_kernel", task=_task_or_none(home))


def _task_or_none(home: Path | None) -> Task | None:
    # A candidate's task.yml only helps to find `task` and `utils`; a bad one is no fault of the candidate.
    try:
        return read_task(home) if home is not None else None
    except TracksideError:
        return None


def _reference_of(task: Task) -> Source:
    if not task.reference.is_file():
        raise fault(
            "workload",
            f"{task.folder} without reference.py",
            "generate_input and ref_kernel",
            "copy the whole task folder",
        )
    source = read_source(task.reference)
    for name, signature in (
        ("generate_input", "generate_input(..., seed)"),
        ("ref_kernel", "ref_kernel(data)"),
    ):
        if not source.has(name) and not source.star_import:
            raise fault(
                "workload",
                f"{source.path} without `{name}` (a task with an evaluator of its own)",
                f"`{signature}`",
                "add it, or write the task as a native workload with `inputs` and `run`",
            )
    _arity(source, "ref_kernel", 1, "ref_kernel(data)", "")
    return source


# -- shared -----------------------------------------------------------------------------------------


def _facts(
    source: Source,
    role: Role,
    format_: Format,
    entry: str,
    *,
    has_setup: bool | None = None,
    shape_count: int | None = None,
    outputs: OutputLifetime = "fresh",
    task: Task | None = None,
    path: Path | None = None,
) -> FileFacts:
    beside = source.path.resolve().parent
    files = local_files(source, [beside])
    used = set(source.imports)
    if task is not None and role == "baseline":
        reference = read_source(task.reference)
        used |= set(reference.imports)
        files.update(local_files(reference, [task.folder.resolve()]))
        description = (task.folder / TASK_FILE).resolve()
        files[str(description)] = hashlib.sha256(description.read_bytes()).hexdigest()
    if format_ == "gpumode":
        for name, helper in helper_modules(task, beside).items():
            if name in used:
                files.update(local_files(read_source(helper), [helper.resolve().parent]))
    is_baseline_native = format_ == "native" and role == "baseline"
    parameters = source.bindings[entry].parameters if source.has(entry) else None
    return FileFacts(
        path=path or source.path,
        role=role,
        format=format_,
        source=source.path,
        entry=entry,
        entry_parameters=positional_count(parameters)[1] if parameters is not None else None,
        entry_required=positional_count(parameters)[0] if parameters is not None else None,
        entry_first=_first_name(parameters),
        functions=source.of_kind("function"),
        classes=source.of_kind("class"),
        imports=source.imports,
        sha256=source.sha256 if path is None else _together(files),
        files=dict(sorted(files.items())),
        has_setup=has_setup if has_setup is not None else format_ == "native" and source.has("setup"),
        has_reference=(is_baseline_native and source.has("reference"))
        or (format_ == "gpumode" and role == "baseline" and entry == "custom_kernel"),
        has_work=is_baseline_native and source.has("work"),
        declares_shapes=bool(task and task.shapes)
        if role == "baseline" and task
        else is_baseline_native and source.has("shapes"),
        shape_count=len(task.shapes) if task is not None and role == "baseline" else shape_count,
        declares_tolerance=is_baseline_native and source.has("tolerance"),
        declares_domain=is_baseline_native and source.has("domain"),
        outputs=outputs,
        names_cuda=source.names_cuda,
    )


def _first_name(parameters: ast.arguments | None) -> str | None:
    named = [*parameters.posonlyargs, *parameters.args] if parameters is not None else []
    return named[0].arg if named else None


def _together(files: dict[str, str]) -> str:
    # Digests alone, sorted: the same task in another folder has the same digest.
    return hashlib.sha256("\n".join(sorted(files.values())).encode()).hexdigest()


def _need(source: Source, name: str, signature: str, purpose: str) -> None:
    if source.has(name) or source.star_import:
        return
    names = source.of_kind("function") + source.of_kind("class")
    raise fault(
        "workload",
        f"{source.path} without `{name}` (it defines {_listed(names)})",
        f"`{signature}`: {purpose}",
        _rename(source, name),
    )


def _need_callable(source: Source, names: Iterable[str]) -> None:
    for name in names:
        known, value = source.literal(name)
        if known and value is not None:
            raise fault(
                "workload",
                f"`{name} = {value!r}` in {source.path}",
                "a function",
                f"define `{name}` with def, or remove it",
            )


def _arity(source: Source, name: str, count: int, signature: str, because: str) -> None:
    binding: Binding | None = source.bindings.get(name)
    if binding is None or binding.parameters is None or accepts(binding.parameters, count):
        return
    import ast

    raise fault(
        "workload",
        f"`{name}({ast.unparse(binding.parameters)})` in {source.path}:{binding.line}",
        f"`{signature}`{because}",
        f"change the parameters of `{name}` at {source.path}:{binding.line}",
    )


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:5]) or "no function"
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _rename(source: Source | None, wanted: str) -> str:
    """A remedy that names the definition which was probably meant."""
    if source is not None:
        kind = "class" if wanted.startswith("Model") else "function"
        names = [
            name
            for name in source.of_kind(kind)
            if name not in _MARKS and name not in ("setup", "reference", "work")
        ]
        close = difflib.get_close_matches(wanted, names, n=1) or (names if len(names) == 1 else [])
        if close:
            return f"rename `{close[0]}` to `{wanted}` in {source.path}, or add `{wanted} = {close[0]}`"
        return f"define `{wanted}` in {source.path}"
    return f"define `{wanted}`"
