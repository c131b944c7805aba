"""`trackside gpus`: what accelerators offer on paper, and what that allows for a model of a given size."""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trackside.cli.terminal import JsonOption, results, verb_app, write_json
from trackside.records.errors import TracksideError

if TYPE_CHECKING:
    from trackside.machine.accelerators.bounds import Model

__all__ = ["app"]

app = verb_app()

_SUFFIXES: Final = {"m": 1e6, "b": 1e9, "t": 1e12}

# A million times the largest models and prompts of today; what lies beyond is a slip of the finger.
_MOST_PARAMS: Final = 1e18
_MOST_TOKENS: Final = 10**12
# In GB: one byte, and the most parameters in fp64.
_LEAST_GB, _MOST_GB = 1e-9, 8e9


class _Purpose(StrEnum):
    decode = "decode"
    prefill = "prefill"


class _Dtype(StrEnum):
    fp64 = "fp64"
    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"
    fp8 = "fp8"
    int8 = "int8"
    fp4 = "fp4"


@app.command()
def gpus(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these; one alone with its sources.")
    ] = None,
    purpose: Annotated[
        _Purpose | None, typer.Option("--for", help="Sort by what counts for it; decode is the default.")
    ] = None,
    params: Annotated[str | None, typer.Option(help="Parameters of a model: 8e9 or 8B.")] = None,
    dtype: Annotated[_Dtype, typer.Option(help="Of the model's weights and arithmetic.")] = _Dtype.bf16,
    model_gb: Annotated[float | None, typer.Option(help="Size of the model's weights in GB (1e9).")] = None,
    tokens: Annotated[
        int, typer.Option(min=1, max=_MOST_TOKENS, help="Length of the prompt for prefill.")
    ] = 1000,
    as_json: JsonOption = False,
) -> None:
    """What do accelerators offer, and what does that allow?

    A data sheet: memory, bandwidth, dense FLOP/s, power and price, every figure with its public source. With
    the size of a model it adds upper bounds for one device: tokens a second at batch 1 (bandwidth ÷ weight
    bytes) and seconds of prefill (2 · parameters · tokens ÷ dense FLOP/s).

    Exit codes: 0, 2 for a name that is not in the sheet or a value that cannot be.
    """
    model = _model(params, model_gb, dtype.value)

    from trackside.machine.accelerators.here import present
    from trackside.machine.accelerators.sheet import accelerators, find, variants
    from trackside.machine.accelerators.survey import survey
    from trackside.machine.facts import facts
    from trackside.store.runs import RunStore

    # A row named twice is one row.
    chosen = list({row.name: row for row in (find(name) for name in names or [])}.values())
    machine = facts()
    document = survey(
        chosen or accelerators(),
        purpose=purpose.value if purpose else None,
        dtype=dtype.value,
        model=model,
        tokens=tokens,
        here=present(machine, RunStore().root / "machine"),
        unknown=[one for one in machine.unknown if "gpu" in one.what],
    )
    if as_json:
        write_json(document)
        return
    from trackside.report import gpus_text

    if len(chosen) == 1 and names:
        gpus_text.render_one(document, results(), variants(names[0], chosen[0]))
    else:
        gpus_text.render(document, results())


def _model(params: str | None, model_gb: float | None, dtype: str) -> "Model | None":
    from trackside.machine.accelerators.bounds import BYTES, Model

    if params is None and model_gb is None:
        return None
    if model_gb is not None and not _LEAST_GB <= model_gb <= _MOST_GB:
        needed = f"needed: a number from {_LEAST_GB:g} to {_MOST_GB:g}"
        raise TracksideError("usage", f"found --model-gb {model_gb}", needed)
    weight_bytes = None if model_gb is None else model_gb * 1e9
    count = _count(params) if params is not None else None
    if count is None:
        assert weight_bytes is not None
        count = weight_bytes / BYTES[dtype]
    return Model(count, weight_bytes if weight_bytes is not None else count * BYTES[dtype], dtype)


def _count(text: str) -> float:
    factor = _SUFFIXES.get(text[-1:].lower(), 1.0)
    try:
        count = float(text[:-1] if factor != 1.0 else text) * factor
    except ValueError:
        count = math.nan
    if not 1 <= count <= _MOST_PARAMS:
        needed = f"needed: a number from 1 to {_MOST_PARAMS:g}, as 8e9 or 8B"
        raise TracksideError("usage", f"found --params {text}", needed)
    return count
