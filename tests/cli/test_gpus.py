"""`trackside gpus`, as the real program; without a GPU a stand-in for pynvml plays one H200."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trackside.machine.accelerators.sheet import accelerators

Trackside = Callable[..., subprocess.CompletedProcess[str]]

TOTAL = len(accelerators())
FAKE_NVML = Path(__file__).parent.parent / "machine" / "conftest.py"


@pytest.fixture
def one_h200(tmp_path: Path) -> str:
    """A folder for PYTHONPATH whose pynvml answers as one H200 does."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "pynvml.py").write_text(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('fake_nvml', {str(FAKE_NVML)!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "fake = module.FakePynvml()\n"
        "def __getattr__(name):\n"
        "    return getattr(fake, name)\n"
    )
    return str(folder)


def test_the_table_lists_all_and_fits_80_columns(trackside: Trackside) -> None:
    done = trackside("gpus", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in done.stdout
    row = next(line for line in lines if line.split()[:2] == ["H200", "SXM"])
    assert row.split()[2:6] == ["141", "4.8", "989", "1,979"]
    assert f"{TOTAL} of {TOTAL} accelerators, sorted by bandwidth; - means no source found" in lines


@pytest.mark.parametrize("purpose", ["decode", "prefill"])
def test_the_table_with_bounds_fits_80_columns(trackside: Trackside, purpose: str) -> None:
    done = trackside("gpus", "--for", purpose, "--params", "70e9", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    assert "do not hold the weights" in done.stdout


def test_one_accelerator_is_shown_with_the_source_of_every_figure(trackside: Trackside) -> None:
    done = trackside("gpus", "4090")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("RTX 4090  NVIDIA, Ada Lovelace\n")
    figures = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert len(figures) == 11
    assert all("[" in line for line in figures)
    assert "(seen 2026-11-16)" in done.stdout
    assert "sums in fp32; 330.3 with sums in fp16" in done.stdout


def test_a_short_name_says_what_else_it_fits(trackside: Trackside) -> None:
    assert "this name also fits: H200 NVL" in trackside("gpus", "h200").stdout
    assert "also fits" not in trackside("gpus", "H200-SXM").stdout


def test_several_names_are_compared_in_the_order_of_the_purpose(trackside: Trackside) -> None:
    done = trackside("gpus", "h100", "mi300x", "H100 SXM", "--for", "decode")
    rows = [line.split()[0] for line in done.stdout.splitlines()[1:3]]
    assert rows == ["MI300X", "H100"]
    assert f"2 of {TOTAL} accelerators" in done.stdout


def test_bounds_for_a_model_are_shown(trackside: Trackside) -> None:
    done = trackside("gpus", "h200", "--params", "8B")
    assert "for 8 billion parameters, 16 GB in bf16, at best:" in done.stdout
    assert "decode   300 tokens/s at batch 1" in done.stdout
    assert "prefill  16.2 ms for 1,000 tokens" in done.stdout


def test_a_model_that_does_not_fit_is_said_to(trackside: Trackside) -> None:
    done = trackside("gpus", "l4", "--model-gb", "140")
    assert "it does not fit into memory: the weights alone need 6 devices" in done.stdout


def test_a_dtype_that_the_sheet_lacks_leaves_prefill_unknown(trackside: Trackside) -> None:
    done = trackside("gpus", "a100", "--params", "8e9", "--dtype", "fp8")
    assert "prefill  unknown: the sheet has no dense fp8 FLOP/s" in done.stdout


def test_json_is_one_document_with_sources(trackside: Trackside) -> None:
    done = trackside(
        "gpus", "h200", "b200", "--params", "8e9", "--tokens", "500", "--for", "prefill", "--json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["schema"], document["total"], document["shown"]) == ("trackside.gpus/1", TOTAL, 2)
    assert (document["purpose"], document["sorted_by"]) == ("prefill", "dense.bf16")
    assert document["model"] == {"params": 8e9, "weight_bytes": 16e9, "dtype": "bf16", "tokens": 500}
    b200, h200 = document["accelerators"]
    assert h200["bounds"] == {
        "fits": True,
        "devices_needed": 1,
        "decode_tokens_per_s": 300.0,
        "prefill_s": pytest.approx(8e12 / 989e12),
    }
    for entry in (b200, h200):
        for figure in entry["figures"].values():
            assert figure["source"].startswith("https://")
            assert figure["seen"]


def test_weights_alone_give_the_parameters_by_their_dtype(trackside: Trackside) -> None:
    done = trackside("gpus", "h200", "--model-gb", "16", "--dtype", "fp8", "--json")
    assert json.loads(done.stdout)["model"]["params"] == 16e9


def test_an_unknown_name_is_refused_with_the_nearest(trackside: Trackside) -> None:
    done = trackside("gpus", "h2000")
    assert (done.returncode, done.stdout) == (2, "")
    error, remedy = done.stderr.splitlines()
    assert error.startswith("error: found no accelerator named 'h2000'")
    assert remedy.startswith("remedy: nearest: H200 SXM")
    error = json.loads(trackside("gpus", "h2000", "--json").stdout)["error"]
    assert error["kind"] == "not-found"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--params", "many"],
        ["--params", "-8e9"],
        ["--params", "nan"],
        ["--params", ""],
        ["--model-gb", "0"],
        ["--model-gb", "inf"],
        ["--dtype", "fp3"],
        ["--for", "fun"],
        ["--tokens", "0"],
        ["--params", "1e308", "--dtype", "fp64"],
        ["--params", "1e-320"],
        ["h200", "--model-gb", "1e300"],
        ["h200", "--model-gb", "1e-300"],
        ["h200", "--params", "8B", "--tokens", "1" + 400 * "0"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_a_value_that_cannot_be_is_wrong_use(trackside: Trackside, arguments: list[str]) -> None:
    done = trackside("gpus", *arguments, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["kind"] == "usage"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--params", "1e18", "--dtype", "fp64", "--tokens", "1000000000000"],
        ["--params", "1", "--dtype", "fp4", "--tokens", "1"],
        ["--model-gb", "1e-9"],
        ["--model-gb", "8e9"],
    ],
    ids=" ".join,
)
def test_the_largest_and_smallest_values_give_finite_bounds(
    trackside: Trackside, arguments: list[str]
) -> None:
    done = trackside("gpus", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert not {"inf", "nan"} & set(done.stdout.split())


def test_this_machines_gpu_is_marked(trackside: Trackside, one_h200: str) -> None:
    done = trackside("gpus", PYTHONPATH=one_h200, COLUMNS="80")
    assert done.stderr == ""
    marked = [line for line in done.stdout.splitlines() if line.startswith("*")]
    assert marked[0].startswith("*H200 SXM ")
    assert marked[1] == "* H200 SXM is in this machine (NVIDIA H200, cuda:0)"
    assert "no measured ceilings are stored for it here" in done.stdout


def test_measured_ceilings_stand_beside_the_sheets(trackside: Trackside, one_h200: str, home: Path) -> None:
    # In a process of its own: what is stored is found again by the machine's fingerprint.
    program = (
        "from pathlib import Path\n"
        "from trackside.machine import ceilings\n"
        "from trackside.machine.ceilings import FloorCeilings\n"
        "ceilings._measure_cuda = lambda device, index: FloorCeilings(\n"
        "    device, 4.2e12, 4.1e12, 9e12, 8e12, 1 << 26, 7, 0.01, 'copies', '2026-11-16T08:00:00+00:00')\n"
        f"ceilings.floor_ceilings('cuda:0', Path({str(home / 'machine')!r}))\n"
    )
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": one_h200}, check=True)
    done = trackside("gpus", "h200", PYTHONPATH=one_h200)
    line = "measured gpu.memory.read 4.20 TB/s, 88% of the sheet's (n 7, spread 1.0%, 2026-11-16)"
    assert line in done.stdout
    document = json.loads(trackside("gpus", "h200", "--json", PYTHONPATH=one_h200).stdout)
    (gpu,) = document["accelerators"][0]["here"]
    assert [one["name"] for one in gpu["measured"]] == ["gpu.memory.read", "gpu.memory.write"]


def test_the_verb_does_without_torch() -> None:
    program = (
        "import sys; from trackside.cli.main import main; code = main(['gpus', 'h200'])\n"
        "print(code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 False\n")
