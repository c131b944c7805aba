"""The accelerator data sheet: figures sourced and possible, names found, bounds by hand, GPUs known again."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from trackside.machine import ceilings
from trackside.machine.accelerators.bounds import (
    BYTES,
    Model,
    decode_rate,
    devices_needed,
    prefill_seconds,
    ridge,
)
from trackside.machine.accelerators.here import Present, present
from trackside.machine.accelerators.sheet import (
    DTYPES,
    FOLDER,
    Accelerator,
    accelerators,
    find,
    read_vendor,
    variants,
)
from trackside.machine.accelerators.survey import survey
from trackside.machine.ceilings import FloorCeilings, floor_ceilings
from trackside.machine.facts import facts
from trackside.records.errors import TracksideError

VENDOR = """
vendor = "Maker"

[sources]
page = { url = "https://example.org/chip", seen = 2026-11-16 }

[[accelerator]]
name = "Chip"
aliases = ["c1"]
device_names = ["Maker Chip"]
architecture = "First"
memory_type = "HBM"
memory = { value = 80, unit = "GB", source = "page" }
bandwidth = { value = 2, unit = "TB/s", source = "page" }
power = { value = 400, unit = "W", source = "page" }
[accelerator.dense]
bf16 = { value = 300, unit = "TFLOP/s", source = "page" }
fp8 = { value = 600, unit = "TFLOP/s", source = "page" }
"""

EIGHT_BILLION = Model(8e9, 16e9, "bf16")


def vendor(tmp_path: Path, old: str = "", new: str = "") -> tuple[Accelerator, ...]:
    assert old in VENDOR
    path = tmp_path / "maker.toml"
    path.write_text(VENDOR.replace(old, new, 1))
    return read_vendor(path)


def test_every_figure_has_a_source_a_day_and_a_value_above_zero() -> None:
    figures = [figure for row in accelerators() for figure in row.figures().values()]
    assert len(figures) >= 250
    for figure in figures:
        assert figure.value > 0
        assert re.fullmatch(r"https://\S+", figure.source)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", figure.seen)


def test_the_accelerators_that_people_choose_between_are_there() -> None:
    names = {row.name for row in accelerators()}
    assert {"A100 80GB SXM", "H100 SXM", "H200 SXM", "B200", "L40S", "RTX 4090", "MI300X", "TPU v5p"} <= names
    assert {row.vendor for row in accelerators()} >= {"NVIDIA", "AMD", "Google", "AWS", "Intel"}
    assert {path.stem for path in FOLDER.glob("*.toml")} == {row.vendor.lower() for row in accelerators()}


@pytest.mark.parametrize(
    ("name", "dtype", "dense"),
    [
        ("A100 80GB SXM", "bf16", 312e12),
        ("H100 SXM", "fp8", 1978.9e12),
        ("H200 SXM", "bf16", 989e12),
        ("B200", "fp4", 9e15),
        ("L4", "int8", 242.5e12),
        ("MI355X", "fp8", 5e15),
    ],
)
def test_stored_figures_are_dense_where_sheets_quote_sparse_ones(name: str, dtype: str, dense: float) -> None:
    assert find(name).dense[dtype].value == pytest.approx(dense)


def test_a_figure_that_was_halved_says_so() -> None:
    assert "halved from 485" in find("L4").dense["fp8"].note


def test_units_are_read_as_the_source_has_them(tmp_path: Path) -> None:
    (row,) = vendor(tmp_path, 'value = 80, unit = "GB"', 'value = 96, unit = "GiB"')
    assert row.memory is not None
    assert (row.memory.value, row.memory.unit) == (96 * 2**30, "B")
    assert row.bandwidth is not None
    assert (row.bandwidth.value, row.bandwidth.unit) == (2e12, "B/s")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (', source = "page" }', "}", "missing or unknown: source"),
        ('source = "page" }', 'source = "pgae" }', "no source 'pgae'"),
        ('"https://example.org/chip"', '"http://example.org/chip"', "no https address"),
        ('"https://example.org/chip"', '"a leaflet"', "no https address"),
        ("seen = 2026-11-16", 'seen = "yesterday"', "is no day"),
        (", seen = 2026-11-16", "", "missing or unknown: seen"),
        ("value = 80", "value = -80", "-8e\\+10 B, needed"),
        ("value = 80", "value = 80_000", "8e\\+13 B, needed"),
        ("value = 80", "value = nan", "is no number"),
        ("value = 80", "value = true", "is no number"),
        ('unit = "TB/s"', 'unit = "GB"', "unit 'GB', needed"),
        ('unit = "TFLOP/s"', 'unit = "TOP/s"', "unit 'TOP/s', needed"),
        ("fp8 = { value = 600", "fp8 = { value = 1200", "fp8 is 4.0 times bf16.*sparse"),
        ("bf16 = { value = 300", "bf16 = { value = 1200", "FLOP/s a watt.*sparse"),
        ("bf16 =", "bf15 =", "missing or unknown: bf15"),
        ('memory_type = "HBM"', "", "missing or unknown: memory_type"),
        ("[sources]", '[sources]\nother = { url = "https://e.org/", seen = 2026-11-16 }', "no figure uses"),
    ],
)
def test_a_slip_in_a_file_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert len(vendor(tmp_path)) == 1
    with pytest.raises(ValueError, match=complaint):
        vendor(tmp_path, old, new)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("h200", "H200 SXM"),
        ("H200-SXM", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("4090", "RTX 4090"),
        ("nvidia geforce rtx 4090", "RTX 4090"),
        ("l4", "L4"),
        ("A100", "A100 80GB SXM"),
        ("mi300x", "MI300X"),
        ("Trillium", "TPU v6e"),
        ("ironwood", "TPU7x"),
        ("trn2", "Trainium2"),
        ("gaudi3", "Gaudi 3"),
    ],
)
def test_names_and_aliases_are_found_however_they_are_written(given: str, name: str) -> None:
    assert find(given).name == name


@pytest.mark.parametrize(
    ("given", "near"),
    [("h2000", "H200 SXM"), ("mi350x", "MI355X"), ("rtx4091", "RTX 4090"), ("v5", "TPU v5p")],
)
def test_an_unknown_name_is_answered_with_the_nearest_ones(given: str, near: str) -> None:
    with pytest.raises(TracksideError, match=repr(given)) as caught:
        find(given)
    assert caught.value.kind == "not-found"
    assert near in caught.value.remedy


def test_a_name_like_no_other_is_answered_with_the_way_to_the_list() -> None:
    with pytest.raises(TracksideError) as caught:
        find("???")
    assert caught.value.remedy == "`trackside gpus` lists them all"


def test_a_short_name_says_what_else_it_could_mean() -> None:
    assert variants("h100", find("h100")) == ("H100 PCIe", "H100 NVL")
    assert variants("H100 SXM", find("H100 SXM")) == ()
    assert variants("L4", find("L4")) == ()


def test_bounds_are_what_the_formulas_give(tmp_path: Path) -> None:
    (row,) = vendor(tmp_path)
    assert ridge(row, "bf16") == pytest.approx(150)
    assert decode_rate(row, EIGHT_BILLION) == pytest.approx(125)
    assert prefill_seconds(row, EIGHT_BILLION, 1000) == pytest.approx(16e12 / 300e12)
    assert devices_needed(row, EIGHT_BILLION) == 1
    assert devices_needed(row, replace(EIGHT_BILLION, weight_bytes=161e9)) == 3


def test_what_the_sheet_lacks_bounds_nothing(tmp_path: Path) -> None:
    (row,) = vendor(tmp_path)
    assert ridge(row, "fp4") is None
    assert prefill_seconds(row, replace(EIGHT_BILLION, dtype="fp4"), 1000) is None


def test_every_dtype_has_a_size() -> None:
    assert tuple(BYTES) == DTYPES


def names(document: dict[str, object]) -> list[str]:
    entries = document["accelerators"]
    assert isinstance(entries, list)
    return [entry["name"] for entry in entries]


def test_decode_is_sorted_by_bandwidth_and_prefill_by_dense_flops() -> None:
    rows = [find(name) for name in ("H100 PCIe", "H200", "MI300X", "Gaudi 3")]
    assert names(survey(rows, purpose="decode")) == ["MI300X", "H200 SXM", "Gaudi 3", "H100 PCIe"]
    assert names(survey(rows, purpose="prefill")) == ["Gaudi 3", "MI300X", "H200 SXM", "H100 PCIe"]


def test_what_holds_the_weights_comes_before_what_is_faster() -> None:
    rows = [find(name) for name in ("WSE-3", "H200", "L40S")]
    small = survey(rows, model=EIGHT_BILLION)
    assert names(small) == ["WSE-3", "H200 SXM", "L40S"]
    large = survey(rows, model=replace(EIGHT_BILLION, params=70e9, weight_bytes=140e9))
    assert names(large) == ["H200 SXM", "WSE-3", "L40S"]
    assert [entry["bounds"]["devices_needed"] for entry in large["accelerators"]] == [1, 4, 3]


def test_what_lacks_the_figure_comes_last() -> None:
    rows = [find(name) for name in ("A100", "L4")]
    document = survey(rows, purpose="prefill", dtype="fp8", model=replace(EIGHT_BILLION, dtype="fp8"))
    assert names(document) == ["L4", "A100 80GB SXM"]
    assert document["accelerators"][1]["bounds"]["prefill_s"] is None


def stored(device: str, gpu: str) -> FloorCeilings:
    return FloorCeilings(
        device, 4.2e12, 4.1e12, 9e12, 8e12, 60 << 20, 7, 0.01, gpu, "2026-11-16T08:00:00+00:00"
    )


def test_a_gpu_of_this_machine_is_known_again(pynvml: object, tmp_path: Path) -> None:
    (gpu,) = present(facts(), tmp_path)
    assert gpu == Present("cuda:0", "NVIDIA H200", "H200 SXM", ())


def test_stored_ceilings_stand_beside_the_sheet(
    pynvml: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "_measure_cuda", lambda device, index: stored(device, "H200"))
    floor_ceilings("cuda:0", tmp_path)
    document = survey([find("h200"), find("a100")], here=present(facts(), tmp_path))
    first, second = document["accelerators"]
    assert second["here"] == []
    read = first["here"][0]["measured"][0]
    assert (read["name"], read["value"], read["unit"], read["n"]) == ("gpu.memory.read", 4.2e12, "B/s", 7)
    assert read["share_of_sheet"] == pytest.approx(4.2 / 4.8)


def test_a_hidden_gpu_is_present_without_a_device(
    pynvml: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (gpu,) = present(facts(), tmp_path)
    assert (gpu.device, gpu.accelerator) == (None, "H200 SXM")


def test_a_gpu_that_the_sheet_lacks_is_listed_without_a_row(
    pynvml: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: "NVIDIA Tomorrow")
    (gpu,) = present(facts(), tmp_path)
    assert (gpu.name, gpu.accelerator) == ("NVIDIA Tomorrow", None)
