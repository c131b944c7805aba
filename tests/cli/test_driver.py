"""The verbs on a machine whose driver, bindings or names are not as they should be."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Trackside = Callable[..., subprocess.CompletedProcess[str]]
Bindings = Callable[[str], str]

FAKE_NVML = Path(__file__).parent.parent / "machine" / "conftest.py"
ONE_H200 = (
    "import importlib.util\n"
    f"spec = importlib.util.spec_from_file_location('fake_nvml', {str(FAKE_NVML)!r})\n"
    "module = importlib.util.module_from_spec(spec)\n"
    "spec.loader.exec_module(module)\n"
    "fake = module.FakePynvml()\n"
    "def __getattr__(name):\n"
    "    return getattr(fake, name)\n"
)
VERBS = (("machine",), ("doctor", "--family", "gpu-state"), ("gpus",))


@pytest.fixture
def bindings(tmp_path: Path) -> Bindings:
    """Writes a module pynvml; returns the folder for PYTHONPATH."""

    def write(source: str) -> str:
        folder = tmp_path / "bindings"
        folder.mkdir(exist_ok=True)
        (folder / "pynvml.py").write_text(source)
        return str(folder)

    return write


def reasons(document: dict[str, Any]) -> str:
    """All that a document says of what it could not read."""
    return json.dumps([document.get("unknown"), [check["found"] for check in document.get("checks", ())]])


def test_a_driver_that_hangs_is_said_to_and_no_verb_waits_for_it(bindings: Bindings, home: Path) -> None:
    hanging = "import threading\nfake.nvmlDeviceGetName = lambda *arguments: threading.Event().wait()\n"
    environment = os.environ | {"PYTHONPATH": bindings(ONE_H200 + hanging), "TRACKSIDE_HOME": str(home)}
    # All at once: each waits for five seconds.
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "trackside", *verb, "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for verb in VERBS
    ]
    for process in started:
        try:
            out, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        assert (process.returncode in (0, 1), errors) == (True, "")
        assert "NVML did not answer within 5 s: the driver hangs" in reasons(json.loads(out))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise OSError('libnvidia-ml.so.1: invalid ELF header')", "invalid ELF header"),
        ("raise RuntimeError('another package')", "another package"),
        ("raise ImportError('cannot import name X')", "cannot import name X"),
        ("def broken(:", "invalid syntax"),
    ],
)
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_bindings_that_cannot_be_imported_are_named_with_the_words(
    trackside: Trackside, bindings: Bindings, verb: tuple[str, ...], source: str, words: str
) -> None:
    done = trackside(*verb, "--json", PYTHONPATH=bindings(source))
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    assert words in reasons(json.loads(done.stdout))


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_gpu_whose_name_is_no_text_breaks_no_verb(
    trackside: Trackside, bindings: Bindings, verb: tuple[str, ...], form: list[str]
) -> None:
    odd = bindings(ONE_H200 + "fake.nvmlDeviceGetName = lambda handle: 'NVIDIA \\udcff'\n")
    done = trackside(*verb, *form, PYTHONPATH=odd)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    if verb[0] != "doctor":
        shown = json.dumps(json.loads(done.stdout)) if form else done.stdout
        assert "NVIDIA \\udcff".encode("unicode_escape" if form else "utf-8").decode() in shown


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_an_environment_that_is_no_text_breaks_no_verb(trackside: Trackside, form: list[str]) -> None:
    odd = os.fsdecode(b"/tmp/caf\xe9")
    names = ("HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "OMP_NUM_THREADS")
    done = trackside("doctor", "--all", *form, **dict.fromkeys(names, odd))
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    assert "caf\\" in done.stdout


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_script_whose_name_is_no_text_is_read(
    trackside: Trackside, tmp_path: Path, form: list[str]
) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    (tmp_path / name).write_text("import torch\ntorch.cuda.empty_cache()\n")
    done = trackside("doctor", name, "--family", "training", *form)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    if form:
        assert json.loads(done.stdout)["script"] == "caf\\udce9.py"
        assert json.loads(trackside("runs", "show", "last", "--json").stdout)["script"] == "caf\\udce9.py"
