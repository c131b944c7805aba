"""What README and docs say: generated parts are fresh, links lead somewhere, commands do what is shown."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from tests.test_examples import written

from trackside.cli import main as cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
_COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown_commands(page: Path) -> list[tuple[str, int]]:
    """Each `trackside` command of a page's sh blocks, and the exit code that the page gives it."""
    found = []
    for block in _COMMANDS.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            text, _, remark = line.partition("  # exit ")
            assert text.startswith("trackside "), f"{page.name}: {line}"
            found.append((text.removeprefix("trackside "), int(remark or 0)))
    return found


@pytest.mark.parametrize("part", ["checks", "options"])
def test_what_the_source_knows_is_up_to_date(part: str) -> None:
    path, text, wanted = generator().rewritten(part)
    assert text == wanted, f"{path}: run python docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target, heading in _LINK.findall(page.read_text(encoding="utf-8")):
        path = (page.parent / target) if target else page
        assert path.exists(), f"{page.name}: {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
            assert heading in anchors, f"{page.name}: {target}#{heading}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_every_command_shown_parses(page: Path) -> None:
    for text, _ in shown_commands(page):
        command, name, rest = cli._find(shlex.split(text))
        while hasattr(command, "commands"):
            name, command = f"{name} {rest[0]}", command.commands[rest[0]]
            rest = rest[1:]
        assert command.make_context(name, rest).command is command


@pytest.mark.timeout(300)
def test_the_commands_of_the_readme_run_in_their_order(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    written(tmp_path, "README.md")
    monkeypatch.chdir(tmp_path)
    # A lock of the test's own: elsewhere on this machine someone may be measuring.
    monkeypatch.setattr("trackside.store.lock._lock_folder", lambda: tmp_path)
    # Each template imports torch, which takes longer than the calls that are timed here.
    monkeypatch.setattr("trackside.comparison.trial._TEMPLATES", 1)
    for text, code in shown_commands(ROOT / "README.md"):
        words = shlex.split(text)
        compares = words[0] == "compare" and "--explain" not in words
        if compares:
            # A first look takes seconds; what two pairs of workers say about time on a busy machine is not
            # tested here, but what it says about outputs is.
            words += ["--quick", "--budget", "5"]
        returned = cli.main(words)
        output, narration = capsys.readouterr()
        assert output, narration
        if words[0] == "verify":
            assert "never certified" in output
            assert returned == 1
        elif compares and code == 0:
            assert not re.search(r"rejected|REJECTED", output), output
            assert returned != 2, output
        else:
            assert returned == code, output
