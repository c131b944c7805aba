"""What torch.compile made of which lines, noted while it compiles. Runs in the program's process.

Inductor's code names the nodes of its graph that each kernel computes, and the graph's nodes know the line
that they come from. Where a cache answers, nothing is compiled and nothing noted: `provenance` keeps what it
learnt.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trackside.profiling.on_import import when_imported

__all__ = ["CompiledCode"]

_MODULE, _FUNCTION = "torch._inductor.compile_fx", "_compile_fx_inner"
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_MOST_GRAPHS = 500


class CompiledCode:
    """The graphs that Inductor compiled.

    Args:
        is_users: whether a file is the program's own.
    """

    def __init__(self, is_users: Callable[[str], bool]) -> None:
        self._is_users = is_users
        self._module: ModuleType | None = None
        self._compile: Any = None
        self._noting: Any = None
        self._forget: Callable[[], None] = lambda: None
        self.graphs: list[dict[str, Any]] = []
        """`key` as traces name it, Inductor's `code`, and for each of its `nodes` [file, line, function]."""

    def watch(self) -> None:
        self._forget = when_imported(_MODULE, self._begin)

    def close(self) -> None:
        """What is compiled from now on is not noted."""
        self._forget()
        module, self._module = self._module, None
        # What the program has put in its place stays; ours may be below it, and then passes calls on.
        if module is not None and getattr(module, _FUNCTION, None) is self._noting:
            setattr(module, _FUNCTION, self._compile)

    @property
    def files(self) -> list[str]:
        """Those that the graphs come from."""
        return list({place[0]: None for graph in self.graphs for place in graph["nodes"].values()})

    def _begin(self, module: ModuleType) -> None:
        compile_ = getattr(module, _FUNCTION, None)
        if compile_ is None or self._module is not None:
            return

        @functools.wraps(compile_)
        def noting(*given: Any, **named: Any) -> Any:
            # Before: compiling changes the graph.
            nodes = self._nodes(given[0]) if given and self._module is not None else {}
            made = compile_(*given, **named)
            self._note(nodes, made)
            return made

        self._module, self._compile, self._noting = module, compile_, noting
        setattr(module, _FUNCTION, noting)

    def _nodes(self, graph: Any) -> dict[str, Any]:
        """By its own name, and by that of what it was made from, the line of each node."""
        found: dict[str, Any] = {}
        try:
            for node in graph.graph.nodes:
                place = self._place(node.meta.get("stack_trace"))
                if place is not None:
                    earlier = [one.name for one in node.meta.get("from_node") or ()]
                    for name in (node.name, *earlier):
                        found.setdefault(name, place)
        except Exception:
            # Of another version of torch. The program's compilation comes first.
            return {}
        return found

    def _place(self, stack: str | None) -> list[Any] | None:
        """The innermost frame of the program's own."""
        for file, line, function in reversed(_FRAME.findall(stack or "")):
            if self._is_users(file):
                return [file, int(line), function]
        return None

    def _note(self, nodes: dict[str, Any], made: Any) -> None:
        key, code = getattr(made, "_fx_graph_cache_key", None), getattr(made, "source_code", None)
        if key and code and nodes and len(self.graphs) < _MOST_GRAPHS:
            self.graphs.append({"key": key, "code": code, "nodes": nodes})
