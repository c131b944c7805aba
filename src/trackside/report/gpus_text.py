"""The accelerator data sheet on a terminal: a table for many, every figure with its source for one."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["render", "render_one"]

_HERE: Final = "*"

# Of a figure in its base unit: what it is divided by, and the unit then shown.
_SHOWN: Final = {
    "memory": (1e9, "GB"),
    "bandwidth": (1e12, "TB/s"),
    "interconnect": (1e9, "GB/s"),
    "power": (1.0, "W"),
    "price": (1.0, "USD/h"),
    "dense": (1e12, "TFLOP/s"),
}


def render(document: dict[str, Any], console: Console) -> None:
    """Print several accelerators of a `trackside.gpus/1` document, 80 columns wide at most."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("accelerator", no_wrap=True)
    columns = _columns(document)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in document["accelerators"]:
        style = "bold" if entry["here"] else ("dim" if _unfit(entry) else "")
        mark = _HERE if entry["here"] else " "
        table.add_row(f"{mark}{entry['name']}", *(_cell(entry, key) for key in columns.values()), style=style)
    console.print(table)
    for line in _legend(document):
        console.print(line, style="dim")
    for line in _here(document):
        console.print(Text(line))
    first = document["accelerators"][0]["name"]
    console.print(f'next: trackside gpus "{first}"  shows the source of every figure', soft_wrap=True)


def render_one(document: dict[str, Any], console: Console, variants: Sequence[str]) -> None:
    """Print the only accelerator of a document.

    Args:
        document: of schema `trackside.gpus/1`.
        console: where to.
        variants: others that the name could have meant.
    """
    (entry,) = document["accelerators"]
    sources: dict[tuple[str, str], int] = {}
    console.print(
        Text.assemble((entry["name"], "bold"), f"  {entry['vendor']}, {entry['architecture']}"),
        soft_wrap=True,
    )
    if entry["note"]:
        console.print(Padding(Text(entry["note"]), (0, 0, 0, 2)))
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    for justify in ("left", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right", overflow="fold")
    for name, figure in entry["figures"].items():
        number = sources.setdefault((figure["source"], figure["seen"]), len(sources) + 1)
        table.add_row(
            Text(f"  {name.replace('.', ' ')}"),
            Text(_shown(name, figure)),
            Text(f"[{number}]"),
            Text(_remark(entry, name, figure), style="dim"),
        )
    console.print(table)
    for line in _bounds(document, entry):
        console.print(Text(f"  {line}"))
    for line in _here(document):
        console.print(Text(line))
    for (address, seen), number in sources.items():
        console.print(Text(f"[{number}] {address} (seen {seen})"), soft_wrap=True)
    if variants:
        console.print(Text(f"this name also fits: {', '.join(variants)}"), soft_wrap=True)
    others = "trackside gpus --for decode --params 8e9"
    console.print(f"next: {others}  compares what they allow", soft_wrap=True)


def _columns(document: dict[str, Any]) -> dict[str, str]:
    dtype = document["dtype"]
    columns = {"GB": "memory", "TB/s": "bandwidth"}
    if document["model"] is None:
        second = "bf16" if dtype == "fp8" else "fp8"
        columns |= {dtype: f"dense.{dtype}", second: f"dense.{second}", "ridge": f"ridge.{dtype}"}
        if document["purpose"] is None:
            columns["link"] = "interconnect"
    else:
        decode, prefill = {"tok/s": "decode"}, {"prefill": "prefill"}
        columns |= prefill | decode if document["purpose"] == "prefill" else decode | prefill
    columns |= {"W": "power", "USD/h": "price"}
    return columns | ({"needs": "devices"} if document["model"] is not None else {})


def _cell(entry: dict[str, Any], key: str) -> str:
    bounds = entry["bounds"] or {}
    if key == "decode":
        return _number(bounds["decode_tokens_per_s"])
    if key == "prefill":
        seconds = bounds["prefill_s"]
        return _number(None if seconds is None else 1000 * seconds)
    if key == "devices":
        needed = bounds["devices_needed"]
        return "-" if needed is None else f"{needed:,}"
    if key.startswith("ridge."):
        return _number(entry["ridge_flop_per_byte"].get(key.removeprefix("ridge.")))
    figure = entry["figures"].get(key)
    return "-" if figure is None else _number(figure["value"] / _SHOWN[key.partition(".")[0]][0])


def _legend(document: dict[str, Any]) -> Iterator[str]:
    counted = document["sorted_by"].replace("dense.", "dense ")
    shown = f"{document['shown']} of {document['total']} accelerators"
    yield f"{shown}, sorted by {counted}; - means no source found"
    if document["model"] is None:
        yield f"dense TFLOP/s without sparsity; ridge: FLOP/byte at {document['dtype']}" + (
            "; link: GB/s" if document["purpose"] is None else ""
        )
        return
    model = document["model"]
    size = f"{model['weight_bytes'] / 1e9:,.6g} GB of weights in {model['dtype']}"
    yield f"bounds for one device and {size}; real rates are lower:"
    yield f"tok/s at batch 1; prefill: ms for {model['tokens']:,} tokens; needs: devices that hold them"
    unfit = sum(_unfit(entry) for entry in document["accelerators"])
    if unfit:
        yield f"{unfit} do not hold the weights and come after those that do"


def _bounds(document: dict[str, Any], entry: dict[str, Any]) -> Iterator[str]:
    model, bounds = document["model"], entry["bounds"]
    if model is None:
        return
    size = f"{model['weight_bytes'] / 1e9:,.6g} GB in {model['dtype']}"
    yield f"for {model['params'] / 1e9:,.4g} billion parameters, {size}, at best:"
    yield f"  decode   {_number(bounds['decode_tokens_per_s'])} tokens/s at batch 1"
    seconds = bounds["prefill_s"]
    if seconds is None:
        yield f"  prefill  unknown: the sheet has no dense {model['dtype']} FLOP/s"
    else:
        yield f"  prefill  {_number(1000 * seconds)} ms for {model['tokens']:,} tokens"
    if bounds["fits"] is False:
        yield f"  it does not fit into memory: the weights alone need {bounds['devices_needed']:,} devices"


def _here(document: dict[str, Any]) -> Iterator[str]:
    for entry in document["accelerators"]:
        for gpu in entry["here"]:
            where = gpu["device"] or "hidden by CUDA_VISIBLE_DEVICES"
            yield f"{_HERE} {entry['name']} is in this machine ({gpu['name']}, {where})"
            for one in gpu["measured"]:
                share = one["share_of_sheet"]
                yield (
                    f"  measured {one['name']} {one['value'] / 1e12:.2f} TB/s"
                    + (f", {share:.0%} of the sheet's" if share is not None else "")
                    + f" (n {one['n']}, spread {one['spread']:.1%}, {one['measured_at'][:10]})"
                )
            if not gpu["measured"] and gpu["device"]:
                yield "  no measured ceilings are stored for it here"
    lacking = {gpu["name"] for gpu in document["here"] if gpu["accelerator"] is None}
    for name in sorted(map(str, lacking)):
        yield f"this machine's {name} is not in the sheet"


def _remark(entry: dict[str, Any], name: str, figure: dict[str, Any]) -> str:
    parts = [entry["memory_type"]] if name == "memory" else []
    ridge = entry["ridge_flop_per_byte"].get(name.removeprefix("dense."))
    if name.startswith("dense.") and ridge is not None:
        parts.append(f"ridge {_number(ridge)} FLOP/byte")
    return "; ".join([*parts, *([figure["note"]] if figure["note"] else [])])


def _shown(name: str, figure: dict[str, Any]) -> str:
    divisor, unit = _SHOWN[name.partition(".")[0]]
    return f"{figure['value'] / divisor:,.6g} {'TOP/s' if figure['unit'] == 'OP/s' else unit}"


def _unfit(entry: dict[str, Any]) -> bool:
    return entry["bounds"] is not None and entry["bounds"]["fits"] is False


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"
