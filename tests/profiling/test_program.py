"""The command line that a program is started with, and the options that it inherits."""

import sys

import pytest

from trackside.profiling.program import Program, interpreter_options
from trackside.records.errors import TracksideError


def test_a_script_is_started_as_one_would_type_it() -> None:
    program = Program("train.py", arguments=("--lr", "0.1", "-m", "--"))
    assert program.command() == [sys.executable, "train.py", "--lr", "0.1", "-m", "--"]
    assert program.command(["-u", "-X", "dev"])[1:5] == ["-u", "-X", "dev", "train.py"]


def test_a_module_is_started_as_one_would_type_it() -> None:
    program = Program("package.module", module=True, arguments=("a",))
    assert program.command() == [sys.executable, "-m", "package.module", "a"]


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("python -m trackside profile train.py", ()),
        ("python -u -m trackside profile -m other -X dev", ("-u",)),
        ("python -um trackside profile train.py", ("-u",)),
        ("python -umtrackside profile train.py", ("-u",)),
        ("python -X dev -W error -Wignore -OO -m trackside", ("-X", "dev", "-W", "error", "-Wignore", "-OO")),
        ("python -uX dev -m trackside", ("-uX", "dev")),
        ("python -Xm -m trackside", ("-Xm",)),
        ("python --check-hash-based-pycs always -m trackside", ("--check-hash-based-pycs", "always")),
        # An installed `trackside`: what its first line says is not the user's.
        ("python -sP /usr/bin/trackside profile -m train", ()),
        ("python -c code -m trackside", ()),
        ("python - -m trackside", ()),
        ("python", ()),
    ],
)
def test_the_program_inherits_the_options_before_our_own_name(line: str, options: tuple[str, ...]) -> None:
    assert interpreter_options(line.split()) == options


def test_the_options_of_a_real_command_line_are_read_as_python_reads_them() -> None:
    # sys.orig_argv is this process's; whatever started the tests, it can be read.
    assert isinstance(interpreter_options(), tuple)


@pytest.mark.parametrize("options", [["-I"], ["-E"], ["-uS"], ["-X", "dev", "-Es"]], ids=" ".join)
def test_an_interpreter_that_keeps_us_out_is_refused_with_the_way_out(options: list[str]) -> None:
    with pytest.raises(TracksideError) as caught:
        Program("train.py").command(options)
    assert caught.value.kind == "unsupported"
    assert "leave out -" in caught.value.remedy


def test_values_of_options_are_not_taken_for_options() -> None:
    assert (
        Program("train.py").command(["-W", "IES", "-XIES", "--check-hash-based-pycs", "E"])[-1] == "train.py"
    )


@pytest.mark.parametrize("name", ["-c", "--help", "-train.py"])
def test_a_script_that_python_would_take_for_an_option_is_refused(name: str) -> None:
    with pytest.raises(TracksideError) as caught:
        Program(name).command()
    assert (caught.value.kind, caught.value.remedy) == ("usage", f"give it with its folder: ./{name}")
    assert Program("-").command() == [sys.executable, "-"]
