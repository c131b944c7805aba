"""`trackside report`, as the real program: one document on stdout, whatever the browser does."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.report import profile_records

from trackside.store.runs import RunStore

Trackside = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def page(home: Path) -> Path:
    store = RunStore(home)
    run = store.new_run("profile")
    store.write_record(run, profile_records.nothing().to_dict())
    return run.folder / "report.html"


def test_without_a_browser_the_one_document_says_that_the_page_was_not_opened(
    trackside: Trackside, page: Path
) -> None:
    done = trackside("report", "--open", "--json", PATH="", BROWSER="")
    document = json.loads(done.stdout)
    assert (done.returncode, document["opened"], document["path"]) == (0, False, str(page))
    assert "no browser" in document["reason"]
    assert page.exists()
    told = trackside("report", "--open", PATH="", BROWSER="")
    assert (told.returncode, told.stdout) == (3, f"{page}\n")
    assert "no browser" in told.stderr


def test_a_page_that_was_opened_or_need_not_be_has_no_reason(trackside: Trackside, page: Path) -> None:
    for words, opened in ((["--open"], True), ([], False)):
        document = json.loads(trackside("report", *words, "--json", BROWSER="true").stdout)
        assert (document["opened"], document["reason"]) == (opened, None)
