"""GPU MODE's `task.yml`: the sizes it lists and where the modules that its code imports lie. Runs no code."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trackside.workload.formats.workload import fault

__all__ = ["STAND_INS", "TASK_FILE", "Task", "find_task_folder", "helper_modules", "read_task"]

TASK_FILE: Final = "task.yml"
# 400 shapes of a few keys each fit many times over; YAML beyond this is not a task.
_MAX_BYTES: Final = 1 << 20
# Submissions are kept in the task's folder, or as in `solutions/correct/` two folders further down.
_LEVELS_UP: Final = 3
STAND_INS: Final = Path(__file__).parent / "standins"
"""What `task` and `utils` become when a task folder was copied without them."""


@dataclass(frozen=True)
class Task:
    """A task folder's contents."""

    folder: Path
    reference: Path
    shapes: tuple[dict[str, Any], ...]
    """The `benchmarks`, without their seeds; the `tests` where there are none."""
    probe_shapes: tuple[dict[str, Any], ...]
    """The `tests`, without their seeds."""
    declared: Mapping[str, Path]
    """Module name to the source that task.yml names, whether it exists or not."""


def find_task_folder(path: Path) -> Path | None:
    """The task folder that `path` is or lies in."""
    if path.is_dir():
        return path if (path / TASK_FILE).is_file() else None
    for folder in list(path.resolve().parents)[:_LEVELS_UP]:
        if (folder / TASK_FILE).is_file():
            return folder
    return None


def read_task(folder: Path) -> Task:
    """Read the folder's task.yml.

    Raises:
        TracksideError: workload for what cannot be used, unsupported for several GPUs or another language.
    """
    import yaml

    path = folder / TASK_FILE
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in folder.iterdir())[:6]) or "nothing"
        raise fault(
            "workload",
            f"the folder {folder} without {TASK_FILE} (it holds {there})",
            "a GPU MODE task folder or a Python file",
            f"name a .py file in it, or copy the task's {TASK_FILE} there",
        )
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise fault("workload", f"{path} above 1 MiB", "a task description", "check the path")
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise fault(
            "workload", f"{path}{line}, which is not YAML", "valid YAML", f"correct {path}{line}: {error}"
        ) from error
    if not isinstance(document, dict):
        raise fault(
            "workload",
            f"{path} with no keys",
            "GPU MODE's keys (files, tests, benchmarks)",
            f"correct {path}",
        )
    language = document.get("lang", "py")
    if language != "py":
        raise fault(
            "unsupported",
            f"a task in the language {language!r}",
            "a Python task (lang: py)",
            "use the task's _py variant",
        )
    tests, benchmarks = _specs(document, "tests", path), _specs(document, "benchmarks", path)
    ranks = [spec["world_size"] for spec in (*tests, *benchmarks) if "world_size" in spec]
    if document.get("multi_gpu") or ranks:
        count = f"{ranks[0]} ranks" if ranks else "several GPUs"
        raise fault(
            "unsupported",
            f"a distributed task ({count}) in {path}",
            "a task for one device",
            "compare its single-device part",
        )
    declared = _declared(document, folder)
    reference = declared.get("reference", folder / "reference.py")
    if not reference.is_file():
        reference = folder / "reference.py"
    return Task(folder, reference, _seedless(benchmarks) or _seedless(tests), _seedless(tests), declared)


def _specs(document: dict[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    specs = document.get(key) or []
    if not isinstance(specs, list) or not all(isinstance(spec, dict) for spec in specs):
        raise fault(
            "workload",
            f"`{key}` in {path} that is no list of mappings",
            "one mapping of arguments per line",
            f"correct {path}",
        )
    return [{str(name): value for name, value in spec.items()} for spec in specs]


def _seedless(specs: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The specs without seeds, each once: two that differ in their seed alone are one shape."""
    shapes: list[dict[str, Any]] = []
    for spec in specs:
        shape = {name: value for name, value in spec.items() if name != "seed"}
        if shape not in shapes:
            shapes.append(shape)
    return tuple(shapes)


def _declared(document: dict[str, Any], folder: Path) -> dict[str, Path]:
    declared = {}
    entries = document.get("files")
    for entry in entries if isinstance(entries, list) else []:
        name, source = (
            (str(entry.get(key, "")) for key in ("name", "source")) if isinstance(entry, dict) else ("", "")
        )
        # @SUBMISSION@ stands for the candidate; eval.py is the competition's harness, which is not used.
        if name.endswith(".py") and not source.startswith("@") and name != "eval.py":
            declared[name.removesuffix(".py")] = folder / source
    return declared


def helper_modules(task: Task | None, beside: Path) -> dict[str, Path]:
    """Where `task`, `utils` and the task's other modules come from, for a file in the folder `beside`.

    A module beside the file itself is left to Python. Then the source that task.yml names, the task's folder,
    the folders above it, and for `task` and `utils` a stand-in, since they are often left behind in a copy.
    """
    names = {"task", "utils"} | (set(task.declared) | {"reference"} if task else set())
    found: dict[str, Path] = {}
    for name in sorted(names - {"submission"}):
        if (beside / f"{name}.py").is_file() or (beside / name).is_dir():
            continue
        places = [task.declared[name]] if task and name in task.declared else []
        if task:
            places += [
                folder / f"{name}.py" for folder in (task.folder, *list(task.folder.resolve().parents)[:2])
            ]
        places.append(STAND_INS / f"{name}.py")
        path = next((place for place in places if place.is_file()), None)
        if path is not None:
            found[name] = path
    return found
