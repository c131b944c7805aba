"""The report of a profile in a real browser: what a reader sees, and what a hostile record cannot do."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report import profile_records
from tests.report.browser import Browser, browser_path

from trackside.records.durations import duration
from trackside.records.profile import ProfileRecord
from trackside.report import profile_html
from trackside.report.kernel_names import short_kernel
from trackside.report.profile_html import MOST_BYTES, write_report

HERE = browser_path()
needs_browser = pytest.mark.skipif(HERE is None, reason="needs a browser: apt-get install chromium")
ALL = ("gpu_training", "cpu_program", "nothing", "failed", "hostile", "large", "ranks")
Page = Callable[..., Browser]

TROUBLE = {
    "Runtime.exceptionThrown",
    "Log.entryAdded",
    "Runtime.consoleAPICalled",
    "Page.javascriptDialogOpening",
}
# Elements that a page of text nodes never has.
PLANTED = "img, iframe, object, embed, video, audio, link:not([rel=icon]), [onerror], [onload]"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each record's page, written once."""
    folder = tmp_path_factory.mktemp("reports")

    def page(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            write_report(getattr(profile_records, name)().to_dict(), path)
        return path

    return page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert HERE is not None
    with Browser(HERE, tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def opened(browser: Browser, written: Callable[[str], Path]) -> Page:
    """Opens a record's page in a window of the given size, without a theme chosen earlier."""

    def open_page(
        name: str, *, width: int = 1280, height: int = 800, scheme: str = "light", fragment: str = ""
    ) -> Browser:
        browser.size(width, height)
        browser.scheme(scheme)
        browser.open(written(name), fragment)
        return browser

    return open_page


def texts(browser: Browser, selector: str) -> list[str]:
    """Texts of all elements that match, as they are seen; a figure's unbreakable blank is a blank here."""
    found: list[str] = browser.value(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.innerText)"
    )
    return [text.replace("\u00a0", " ") for text in found]


def settled(browser: Browser) -> None:
    """Wait for two frames, so that what is drawn later is there."""
    browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@needs_browser
@pytest.mark.parametrize("name", ALL)
def test_a_page_opens_without_errors_and_asks_for_nothing(opened: Page, name: str) -> None:
    browser = opened(name)
    settled(browser)
    assert [event for event in browser.events if event["method"] in TROUBLE] == []
    asked = {
        event["params"]["request"]["url"].partition(":")[0]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {"file", "data"}
    assert texts(browser, "h1")[0]


@needs_browser
def test_the_first_screen_names_the_top_problem_its_line_and_its_gain(opened: Page) -> None:
    browser = opened("gpu_training")
    seen = browser.value(
        "[...document.querySelectorAll('h1, .waterfall tr, .card:first-child .title b,"
        " .card:first-child a.place, .card:first-child .saves')]"
        ".filter((node) => node.getBoundingClientRect().bottom < innerHeight)"
        ".map((node) => node.innerText.replace(/\\s+/g, ' ')).join(' | ')"
    )
    assert "fuse the attention in model.py:23 first" in seen
    assert "compute? 159 ms 75 %" in seen
    assert "Attention is computed step by step" in seen
    assert "model.py:23 |" in seen
    assert "saves 17 % of the step 13–20 %, about 36 ms" in seen


@needs_browser
def test_on_a_narrow_screen_the_sentence_keeps_its_line_and_gain(browser: Browser, tmp_path: Path) -> None:
    record = profile_records.gpu_training().to_dict()
    file = "research/experiments/language/long_context/variants/model.py"
    record["findings"][0]["file"] = file
    record["verdict"] = (
        "A step takes 4.33 ms, 54% of it on the host alone. First: 144 small products run one after the "
        f"other ({file}:23); a change saves about 88% of the step."
    )
    record["kernels"][0]["lines"] = [f"{file}:23"]
    record["kernels"][1]["lines"] = ["a/long_name_of_a_module.py:1234"]
    write_report(record, tmp_path / "report.html")
    browser.size(400, 800)
    browser.open(tmp_path / "report.html")
    assert "(model.py:23); a change saves about 88% of the step." in texts(browser, "h1")[0]
    assert browser.value(
        "(() => { const h = document.querySelector('h1'); return h.scrollHeight <= h.clientHeight + 1; })()"
    )
    assert file in browser.value("document.querySelector('h1').title")
    browser.size(1280, 800)
    settled(browser)
    assert texts(browser, "#kernel-rows .k-line")[:2] == ["model.py:23", "…a_module.py:1234"]
    assert browser.value(
        "[...document.querySelectorAll('#kernel-rows .k-line')].every((n) => n.scrollWidth <= n.clientWidth)"
    )


@needs_browser
def test_what_the_machine_did_is_told_in_units_that_can_be_read(browser: Browser, tmp_path: Path) -> None:
    record = profile_records.gpu_training().to_dict()
    bus = {
        "unit": "bytes/s",
        "n": 3,
        "min": 0.0,
        "median": 2e6,
        "mean": 2e6,
        "max": 8.9e9,
        "points": [0, 1, 2],
    }
    record["telemetry"] |= {"series": {"gpu.pcie_sent": bus}, "reasons": {"GpuIdle": 0.2}}
    write_report(record, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    (row,) = texts(browser, ".telemetry tbody tr")
    assert row.split("\t")[-3:] == ["0 B/s", "2.00 MB/s", "8.90 GB/s"]
    assert "held down" not in texts(browser, "#telemetry")[0]


@needs_browser
def test_durations_are_those_of_the_terminal(browser: Browser, tmp_path: Path) -> None:
    times_ms = [1234400, 1500, 999.7, 211.6, 31.416, 0.9996, 0.09996, 0.0042, 9.996e-4, 8.3e-4, 4e-7, 0]
    record = profile_records.gpu_training().to_dict()
    first = record["kernels"][0]
    record["kernels"] = [first | {"id": f"k{ms}", "total_ms": ms} for ms in times_ms]
    write_report(record, tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    assert texts(browser, "#kernel-rows .k-name + .figure") == [duration(1e6 * ms) for ms in times_ms]


@needs_browser
def test_ranks_stand_side_by_side_with_what_each_waits_for_the_others(opened: Page) -> None:
    browser = opened("ranks")
    rows = [" ".join(text.split()) for text in texts(browser, ".ranks tbody tr")]
    assert len(rows) == 8
    assert rows[0] == "0 node-0 212 ms 110 ms 70 ms 40.0 GB exit code 0"
    assert rows[3] == "3 node-0 212 ms 180 ms 0 ms 40.0 GB exit code 0"
    assert rows[7] == "7 node-1 – – – – not known"
    # The late one's bar is computing where the others' is communication.
    wide = browser.value(
        "[...document.querySelectorAll('.ranks .stack')].slice(0, 4)"
        ".map((node) => node.children[1].getBoundingClientRect().width / node.getBoundingClientRect().width)"
    )
    assert wide[0] == pytest.approx(102 / 212, abs=0.02)
    assert wide[3] == pytest.approx(32 / 212, abs=0.02)
    assert texts(opened("gpu_training"), "#ranks") == []


@needs_browser
def test_findings_are_ranked_by_gain_and_add_up_to_less_than_their_sum(opened: Page) -> None:
    browser = opened("gpu_training")
    gains = [int(text.split()[0]) for text in texts(browser, ".saves b")]
    assert gains == sorted(gains, reverse=True)
    assert len(gains) == 6
    (together,) = texts(browser, ".together p")
    assert "33 % of the step (25–39 %)" in together
    assert "212 ms → about 142 ms" in together
    assert "Their sum would be 42 %" in together


@needs_browser
def test_findings_that_gain_more_together_than_alone_are_not_said_to_save_the_same(
    browser: Browser, tmp_path: Path
) -> None:
    record = profile_records.gpu_training().to_dict()
    record["together"] = {"low": 0.4, "mid": 0.6, "high": 0.7}
    write_report(record, tmp_path / "report.html")
    browser.size(1280, 800)
    browser.open(tmp_path / "report.html")
    (together,) = texts(browser, ".together p")
    assert "Their sum would be 42 %: alone, each leaves the step waiting" in together
    assert "some save the same time" not in together


@needs_browser
def test_a_card_leads_to_its_line_in_the_source(opened: Page) -> None:
    browser = opened("gpu_training")
    assert texts(browser, ".file[aria-pressed=true] .name") == ["model.py"]
    browser.click(".card:nth-child(2) a.place")
    assert texts(browser, ".file[aria-pressed=true] .name") == ["train.py"]
    settled(browser)
    (row,) = texts(browser, "tr:focus")
    assert re.search(r"^30\s+<\s?0\.01\s+19\.70\b.*running = 0\.98 \* running", row, re.DOTALL), row
    assert browser.value("document.querySelector('tr:focus').getBoundingClientRect().top < innerHeight")


@needs_browser
def test_a_line_of_the_source_leads_back_to_its_finding(opened: Page) -> None:
    browser = opened("gpu_training")
    assert texts(browser, ".code a.tag")[0] == "saves 17 %"
    browser.click(".code tr:has(+ tr .tag .help) a.tag, .code tr:has(.tag .help) a.tag")
    assert browser.value("document.activeElement.innerText").startswith("3\nEight element-wise kernels")
    assert browser.value("document.activeElement.parentNode.open")


@needs_browser
def test_an_address_with_a_findings_id_opens_its_card(opened: Page) -> None:
    browser = opened("gpu_training", fragment="#no-workers")
    assert browser.value("document.activeElement.innerText").startswith("5\nBatches are prepared")


@needs_browser
def test_a_folded_line_is_unfolded_when_an_address_names_it(opened: Page) -> None:
    browser = opened("large", fragment="#package/module_07.py:1777")
    settled(browser)
    assert texts(browser, ".file[aria-pressed=true] .name") == ["package/module_07.py"]
    (row,) = texts(browser, "tr:focus")
    assert row.split()[0] == "1777"


@needs_browser
def test_an_address_with_a_kernels_id_opens_its_row(opened: Page) -> None:
    browser = opened("gpu_training", fragment="#k3")
    settled(browser)
    assert browser.value("document.querySelector('tr[data-kernel=k3] + tr.details') !== null")
    (details,) = texts(browser, "tr.details")
    assert "softmax_warp_forward" in details
    assert "43.0 GB in a step, 3.39 TB/s" in details
    assert "132 × 8 × 1" in details


@needs_browser
def test_the_filter_narrows_the_kernels_and_says_how_many(opened: Page) -> None:
    browser = opened("large")
    assert texts(browser, "#kernel-count") == ["3,000 of 3,000 kernels, 165 ms"]
    assert len(texts(browser, "#kernel-rows tr")) == 60
    browser.press("/")
    assert browser.value("document.activeElement.id") == "filter"
    for letter in "kernel_0123":
        browser.press(letter)
    assert texts(browser, "#kernel-rows .open") == ["k124"]
    assert texts(browser, "#kernel-count")[0].startswith("1 of 3,000 kernels")
    browser.press("Escape")
    assert texts(browser, "#kernel-count")[0].startswith("3,000 of")
    assert browser.value("document.activeElement.id") != "filter"


@needs_browser
def test_a_click_on_a_heading_sorts_and_a_second_one_turns_it(opened: Page) -> None:
    browser = opened("gpu_training")

    def ids() -> list[str]:
        return texts(browser, "#kernel-rows .open")

    assert ids()[:3] == ["k1", "k2", "k3"]
    browser.click(".sort[data-key=calls]")
    assert ids()[0] == "k5"
    assert browser.value("document.querySelector('th[data-key=calls]').ariaSort") == "descending"
    browser.click(".sort[data-key=calls]")
    assert ids()[-1] == "k5"
    browser.click(".sort[data-key=roof_share]")
    assert ids()[-1] == "k8", "what is unknown comes last"
    browser.click(".sort[data-key=roof_share]")
    assert ids()[-1] == "k8", "whichever way"


@needs_browser
def test_a_large_record_draws_only_what_can_be_read(opened: Page) -> None:
    """Elements make a page slow; 3,000 kernels and 40,000 lines would be hundreds of thousands."""
    browser = opened("large")
    settled(browser)
    assert browser.value("document.querySelectorAll('*').length") < 6000
    for letter in "/functor_1":
        browser.press(letter)
    assert len(texts(browser, "#kernel-rows tr")) == 60
    assert not browser.value("document.getElementById('more-kernels').hidden")
    browser.click("#more-kernels")
    assert len(texts(browser, "#kernel-rows tr")) == 260


@needs_browser
def test_keys_open_help_and_close_it_and_go_through_findings(opened: Page) -> None:
    browser = opened("gpu_training")
    browser.press("?")
    assert browser.value("document.getElementById('help-dialog').open")
    assert "critical path" in texts(browser, "#help-dialog")[0]
    browser.press("Escape")
    assert not browser.value("document.getElementById('help-dialog').open")
    browser.press("j")
    browser.press("j")
    assert browser.value("document.activeElement.innerText").startswith("2\nloss.item()")
    assert browser.value("document.activeElement.parentNode.open")
    browser.press("k")
    assert browser.value("document.activeElement.innerText").startswith("1\n")


@needs_browser
def test_a_question_mark_explains_its_word_and_escape_closes_it(opened: Page) -> None:
    browser = opened("gpu_training")
    browser.click("#step .waterfall tr:nth-child(4) .help")
    assert texts(browser, "#explanation")[0].startswith("host The device had nothing to do")
    browser.press("Escape")
    assert browser.value("document.getElementById('explanation').hidden")
    assert browser.value("document.activeElement.className") == "help"


@needs_browser
def test_tab_reaches_the_contents_first_and_focus_is_visible(opened: Page) -> None:
    browser = opened("gpu_training")
    reached = []
    for _ in range(4):
        browser.press("Tab")
        reached.append(browser.value("document.activeElement.innerText"))
    assert reached == ["Skip to the verdict", "trackside", "Step", "Findings"]
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@needs_browser
def test_the_timeline_zooms_and_moves_with_keys_and_wheel(opened: Page) -> None:
    browser = opened("gpu_training")

    def view() -> str:
        settled(browser)
        return texts(browser, "#timeline-view")[0]

    whole = view()
    assert whole.startswith("0 ms to 211 ms")
    browser.click("#timeline-canvas")
    browser.press("ArrowUp")
    near = view()
    assert near != whole
    browser.press("ArrowRight")
    assert view() != near
    browser.press("Home")
    assert view() == whole
    x, y = browser.value(
        "(() => { const r = document.getElementById('timeline-canvas').getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + 60]; })()"
    )
    browser.command("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-200)
    assert view() != whole
    browser.press("Escape")
    assert view() == whole
    browser.press(".")
    settled(browser)
    assert "cudaStreamSynchronize: 81.6 ms" in texts(browser, "#timeline-picked")[0]


@needs_browser
def test_something_is_drawn_on_the_timeline(opened: Page) -> None:
    browser = opened("gpu_training")
    settled(browser)
    colours = browser.value(
        "(() => { const c = document.getElementById('timeline-canvas');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = new Set();"
        " for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 180) seen.add(d.slice(i, i + 3).join());"
        " return seen.size; })()"
    )
    assert colours > 5


@needs_browser
def test_the_icicle_is_walked_with_arrows_and_leads_to_a_kernel(opened: Page) -> None:
    browser = opened("gpu_training")
    settled(browser)
    browser.value("document.querySelector('.icicle button[tabindex=\"0\"]').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown"):
        browser.press(key)
    assert browser.value("document.activeElement.getAttribute('aria-label')").startswith("k2")
    browser.press("Enter")
    assert browser.value("document.querySelector('tr[data-kernel=k2] + tr.details') !== null")


@needs_browser
def test_dark_follows_the_system_until_the_reader_chooses(opened: Page) -> None:
    def brightness(browser: Browser) -> float:
        numbers = re.findall(r"\d+", browser.value("getComputedStyle(document.body).backgroundColor"))
        return sum(int(number) for number in numbers[:3]) / 3

    assert brightness(opened("gpu_training", scheme="light")) > 200
    browser = opened("gpu_training", scheme="dark")
    assert brightness(browser) < 60
    browser.click("#theme")
    assert brightness(browser) > 200
    browser.press("t")
    assert brightness(browser) < 60
    browser.value("localStorage.clear()")


@needs_browser
@pytest.mark.parametrize("name", ALL)
def test_a_narrow_screen_never_scrolls_sideways(opened: Page, name: str) -> None:
    browser = opened(name, width=360, height=740)
    settled(browser)
    browser.value("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    browser.value(
        "document.querySelectorAll('button.open').forEach((node, i) => { if (i < 12) node.click(); })"
    )
    assert browser.value("document.documentElement.scrollWidth") <= 360


@needs_browser
def test_letters_keep_their_contrast_in_both_themes(opened: Page) -> None:
    """Of text on its background, 4.5 to 1 at least (WCAG AA)."""
    measure = """(() => {
      const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
      const light = (rgb) => rgb.map((v) => linear(v / 255))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n; };
      const back = (node) => {
        for (let at = node; at; at = at.parentElement) {
          const c = parse(getComputedStyle(at).backgroundColor);
          if (c.length === 3 || c[3] > 0.99) return c.slice(0, 3);
        }
        return [255, 255, 255];
      };
      const poor = [];
      const read = "h1, h2, p, th, td, summary b, summary span, a, .file, .help, code, dt, dd, li";
      for (const node of document.querySelectorAll(read)) {
        if (!node.innerText.trim() || node.closest(".icicle, td.heat")) continue;
        const colour = getComputedStyle(node).color;
        if (!colour.startsWith("rgb")) continue;
        const [a, b] = [light(parse(colour).slice(0, 3)), light(back(node))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push(`${node.className} ${node.innerText.slice(0, 30)} ${ratio.toFixed(2)}`);
      }
      return poor;
    })()"""
    for scheme in ("light", "dark"):
        assert opened("gpu_training", scheme=scheme).value(measure) == []


@needs_browser
def test_a_hostile_record_stays_text(opened: Page) -> None:
    browser = opened("hostile")
    settled(browser)
    browser.value("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    browser.value("document.querySelectorAll('button.open, .file, .help').forEach((node) => node.click())")
    settled(browser)
    assert browser.value("document.title").startswith("Profile of ")
    assert "alert(1)" in browser.value("document.title")
    assert browser.value(f"document.querySelectorAll({json.dumps(PLANTED)}).length") == 0
    assert browser.value("document.scripts.length") == 2
    assert browser.value("[...document.links].filter((a) => a.protocol !== 'file:').length") == 0
    assert [event for event in browser.events if event["method"] in TROUBLE] == []
    body = browser.value("document.body.innerText")
    assert "<img src=x onerror=alert(2)>" in body
    assert "⟨U+202E⟩gnp.exe" in body
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u0007\u001b]", body)
    assert browser.value("document.documentElement.scrollWidth") <= 1280


@needs_browser
def test_a_name_of_ten_thousand_letters_takes_no_more_room_than_others(opened: Page) -> None:
    browser = opened("hostile")
    heights = browser.value(
        "[...document.querySelectorAll('#kernel-rows tr')].map((row) => row.getBoundingClientRect().height)"
    )
    assert max(heights) <= 2 * min(heights)
    assert browser.value("document.querySelector('h1').getBoundingClientRect().height") < 300


@needs_browser
def test_a_program_on_the_cpu_reads_of_operators_and_of_no_device(opened: Page) -> None:
    browser = opened("cpu_program")
    browser.press("?")
    body = browser.value("document.body.innerText")
    assert not re.search(r"\bGPU|[Cc]ounters|\bkernel", body), re.findall(r".*(?:GPU|ounters|kernel).*", body)
    assert "device, ms" not in body
    assert "Operators" in body
    assert "8.10" in texts(browser, "tr.hot:last-child")[0]


@needs_browser
def test_without_a_step_the_page_says_so_once_and_leaves_the_rest_out(opened: Page) -> None:
    browser = opened("nothing")
    assert [title.rstrip("?") for title in texts(browser, "main h2")] == [
        "Where a step\u2019s time goes",
        "Where this was measured",
    ]
    assert "No step was seen" in texts(browser, ".missing")[0]
    assert texts(browser, ".alert") == []


@needs_browser
def test_a_program_that_was_killed_is_told_first(opened: Page) -> None:
    browser = opened("failed")
    assert texts(browser, ".alert") == [
        "The program was ended by SIGKILL after 12 s. No step was seen before that."
    ]


@needs_browser
def test_memory_is_drawn_over_the_steps_and_told_by_line(opened: Page) -> None:
    browser = opened("gpu_training")
    settled(browser)
    (told, segments) = texts(browser, "#memory .memory > p")
    assert told == ("cuda:0: peak 38.4 GB, 26 % of 150 GB, 51.0 GB reserved? and 25 % of that not in use.")
    assert "3 times in these steps, 62.9 MB together" in segments
    rows = [row.split() for row in texts(browser, "#memory tbody tr")]
    assert [row[0] for row in rows] == [
        "model.py:23",
        "model.py:46",
        "train.py:13",
        "optimizer",
        "parameters",
        "before",
    ]
    assert "scores.softmax(dim=-1)" in rows[0]
    assert rows[0][-6:] == ["2.10", "GB", "12.9", "GB", "34", "%"]
    # One step ends inside the chart, the other with it.
    assert browser.value("document.querySelectorAll('#memory .stepend').length") == 1
    assert browser.value("document.querySelector('#memory .curve').getBoundingClientRect().height") > 100
    browser.click("#memory tbody a")
    assert browser.value("document.querySelector('tr.arrived')?.innerText.includes('softmax') ?? false")


@needs_browser
def test_growth_and_the_process_are_told_on_a_cpu(opened: Page) -> None:
    told = " ".join(texts(opened("cpu_program"), "#memory .memory > p"))
    assert "Tensors of the host: peak 9.20 MB." in told
    assert "Every step leaves 200 kB more than the one before, taken by loop.py:6 (200 kB)" in told
    assert "The whole process: peak 571 MB, 2.3 % of 25.3 GB." in told


@needs_browser
def test_no_counters_says_how_to_get_them(opened: Page) -> None:
    browser = opened("large")
    assert "trackside profile --counters" in texts(browser, "#counters .missing")[0]


@needs_browser
def test_a_fix_is_copied_with_its_button(opened: Page) -> None:
    browser = opened("gpu_training")
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    browser.click(".card:first-child .copy")
    for _ in range(50):
        if texts(browser, ".card:first-child .copy")[0] != "Copy":
            break
        settled(browser)
    assert texts(browser, ".card:first-child .copy")[0] == "Copied"
    assert texts(browser, "#said") == ["Copied the fix."]
    assert browser.value("navigator.clipboard.readText()").startswith("Replace lines 21–24 by torch.nn")


@needs_browser
def test_printed_it_is_light_and_every_card_is_open(opened: Page) -> None:
    browser = opened("gpu_training", scheme="dark")
    browser.scheme("dark", "print")
    browser.value("dispatchEvent(new Event('beforeprint'))")
    assert browser.value("[...document.querySelectorAll('.card details')].every((node) => node.open)")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"


@needs_browser
def test_what_does_not_fit_is_told_in_the_page(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_html, "MOST_BYTES", 150_000)
    write_report(profile_records.gpu_training().to_dict(), tmp_path / "short.html")
    browser.open(tmp_path / "short.html")
    (note,) = [text for text in texts(browser, "#trust .note") if text.startswith("Timeline")]
    assert re.match(r"Timeline: [\d,]+ of the shortest spans are not in this page\.", note)
    assert "trackside runs show 20261116-142205-profile-7f3a --json" in note


# ---- the file itself, without a browser --------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_page_stays_under_five_megabytes(written: Callable[[str], Path], name: str) -> None:
    assert written(name).stat().st_size < MOST_BYTES


def test_the_policy_allows_the_pages_own_script_and_nothing_else(written: Callable[[str], Path]) -> None:
    text = written("gpu_training").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert policy is not None
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    allowed = policy[1].replace("&#x27;", "'")
    assert f"script-src 'sha256-{digest}';" in allowed
    assert allowed.startswith("default-src 'none';")
    assert "unsafe" not in allowed
    assert "http" not in allowed


def test_nothing_in_a_page_leads_to_another_place(written: Callable[[str], Path]) -> None:
    text = written("gpu_training").read_text(encoding="utf-8")
    frame = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert set(re.findall(r"https?://[^\s\"']+", frame)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in frame
    assert "url(" not in frame


def test_hostile_text_is_escaped_where_it_is_embedded(written: Callable[[str], Path]) -> None:
    text = written("hostile").read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="record">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert not set("<>&\u2028\u2029\u202e") & set(data[1])
    assert json.loads(data[1])["device"] == profile_records.HOSTILE[1]
    assert text.count("<script") == 2
    assert "<img" not in text


def embedded(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    found = re.search(r'id="record">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_record_that_fits_is_in_the_page_whole(written: Callable[[str], Path]) -> None:
    data = embedded(written("gpu_training"))
    record = profile_records.gpu_training().to_dict()
    assert data["page_notes"] == []
    assert data["sources"] == {file: [[1, lines]] for file, lines in record["sources"].items()}
    assert [len(lane["start"]) for lane in data["timeline"]] == [
        len(lane["spans"]) for lane in record["timeline"]
    ]
    lane = data["timeline"][0]
    assert lane["texts"][lane["text"][0]] == "enumerate(DataLoader)#_SingleProcess.__next__"
    for kept, whole in zip(data["kernels"], record["kernels"], strict=True):
        assert kept.pop("short", whole["name"]) == short_kernel(whole["name"])
        assert kept == whole | {
            name: pytest.approx(whole[name], rel=1e-5) for name in ("share", "median_us", "counters")
        }


def test_a_record_that_does_not_fit_loses_the_least_and_says_what(tmp_path: Path) -> None:
    record = profile_records.large(kernels=20_000, files=40, spans=80_000).to_dict()
    write_report(record, tmp_path / "big.html")
    assert (tmp_path / "big.html").stat().st_size < MOST_BYTES
    data = embedded(tmp_path / "big.html")
    assert data["kernels_left_out"] == 17 + 20_000 - len(data["kernels"])
    assert f"Kernels: only the first {len(data['kernels']):,} are in this page." in data["page_notes"]
    dropped = 80_000 - sum(len(lane["start"]) for lane in data["timeline"])
    assert sum(lane["left_out"] for lane in data["timeline"]) == dropped
    shortest = min(min(lane["length"]) for lane in data["timeline"])
    assert shortest > 1, "the longest spans are kept"
    hot = {(line["file"], line["line"]) for line in record["lines"]}
    kept = {
        (file, first + i)
        for file, stretches in data["sources"].items()
        for first, texts_ in stretches
        for i in range(len(texts_))
    }
    assert hot <= kept, "lines with time are never left out"


def test_even_absurd_records_stay_under_five_megabytes(tmp_path: Path) -> None:
    record = profile_records.gpu_training().to_dict()
    record["environment"] = {f"name {i}": "x" * 1900 for i in range(3000)}
    record["trust"] = [{"what": "y" * 1900, "effect": "z" * 1900, "remedy": None} for _ in range(3000)]
    write_report(ProfileRecord.from_dict(record).to_dict(), tmp_path / "absurd.html")
    assert (tmp_path / "absurd.html").stat().st_size < MOST_BYTES
    data = embedded(tmp_path / "absurd.html")
    assert data["findings"]
    assert len(data["page_notes"]) >= 1


def test_a_new_report_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "report.html"
    write_report(profile_records.nothing().to_dict(), path)
    write_report(profile_records.failed().to_dict(), path)
    assert "SIGKILL" in path.read_text(encoding="utf-8")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_text_that_is_no_unicode_does_not_stop_the_report(tmp_path: Path) -> None:
    record = profile_records.nothing().to_dict() | {"command": ["python", "\ud800.py"], "verdict": "\udfff"}
    write_report(record, tmp_path / "odd.html")
    assert embedded(tmp_path / "odd.html")["command"] == ["python", "\ud800.py"]
