"""Every tool through the official client over stdio: its default arguments, wrong ones, and what it tells."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.mcp_server.calls import DEFAULTS, JOBS, REFUSED
from tests.mcp_server.connected import Held, held, told
from tests.mcp_server.stores import SOURCE, filled, keep, rejected
from tests.report.profile_records import cpu_program

from trackside.machine.ceilings import KEPT
from trackside.mcp_server.job_tools import JobTools
from trackside.mcp_server.scope import open_scope
from trackside.records.compare import CompareRecord
from trackside.records.errors import TracksideError
from trackside.store.runs import process_mark

MOST_TOOLS, MOST_BYTES = 14, 16_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("project")
    return {"folder": str(folder), **filled(folder)}


@pytest.fixture(scope="module")
def server(runs: dict[str, str]) -> Iterator[Held]:
    with held(Path(runs["folder"])) as one:
        yield one


def test_the_list_of_tools_is_short_and_says_when_to_use_each(server: Held) -> None:
    tools = server.portal.call(server.client.list_tools).tools
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    size = len(json.dumps({"tools": listed}, separators=(",", ":"), ensure_ascii=False).encode())
    print(f"tools/list: {len(tools)} tools, {size} bytes, about {size // 4} tokens", file=sys.stderr)
    assert len(tools) <= MOST_TOOLS
    assert size < MOST_BYTES
    for tool in tools:
        assert len(tool.name.split("_")) == 2
        assert tool.description is not None
        assert "Use it" in tool.description, tool.name
        assert tool.input_schema["type"] == "object"
        assert tool.output_schema is not None
        assert tool.output_schema["properties"], tool.name
        hints = tool.annotations
        assert hints is not None
        assert None not in (
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        )


def test_every_tool_is_in_the_tables_of_this_file(server: Held) -> None:
    tools = {tool.name for tool in server.portal.call(server.client.list_tools).tools}
    assert tools == DEFAULTS.keys() | REFUSED.keys() | JOBS.keys()


@pytest.mark.parametrize("tool", DEFAULTS)
def test_a_reading_tool_answers_with_its_default_arguments(
    server: Held, runs: dict[str, str], tool: str
) -> None:
    arguments = {name: runs["gpu"] if value == "GPU" else value for name, value in DEFAULTS[tool].items()}
    result = server.call(tool, **arguments | ({"after": runs["cpu"]} if tool == "runs_diff" else {}))
    assert not result.is_error, told(result)
    # The same in both forms: some clients show one, some the other.
    assert json.loads(told(result)) == result.structured_content
    assert len(told(result)) <= 6_000


@pytest.mark.parametrize("tool", REFUSED)
def test_what_starts_or_ends_programs_is_refused_and_says_how_to_allow_it(server: Held, tool: str) -> None:
    assert "trackside mcp --allow-exec" in server.refused(tool, **REFUSED[tool])


@pytest.mark.parametrize("tool", JOBS)
def test_without_jobs_there_is_none_to_ask_for(server: Held, tool: str) -> None:
    assert "not-found: " in server.refused(tool, **JOBS[tool])


@pytest.mark.parametrize("tool", [*DEFAULTS, *REFUSED, *JOBS])
@pytest.mark.parametrize(
    "wrong", [{"nonsense": 1}, {"detail": "chatty", "limit": "many", "job": 3, "args": 5}]
)
def test_wrong_arguments_are_named(server: Held, tool: str, wrong: dict[str, Any]) -> None:
    complaint = server.refused(tool, **{**DEFAULTS, **REFUSED, **JOBS}[tool] | wrong)
    assert complaint.startswith(f"Error executing tool {tool}: usage: found ")
    assert any(f"`{name}`" in complaint for name in wrong)
    # Those of pydantic: its own words for a class of ours, and an address on the web.
    assert "validation error" not in complaint
    assert "http" not in complaint


def test_a_wrong_argument_is_quoted_as_visible_text_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_TOKEN", "canary-4711-canary")
    with held(tmp_path) as server:
        for wrong in (
            {"\u202eevil\x1b[31m": 1},
            {"limit": "\x1b[2J\u202e canary-4711-canary"},
            {"limit": 10**30},
        ):
            complaint = server.refused("runs_list", **wrong)
            assert "canary" not in complaint
            assert complaint.isprintable()
            assert "verb, limit, detail" in complaint


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("hotspots_list", {"run": "p-19990101-000000-abcd"}, "no run"),
        ("hotspots_list", {"run": "REJECTED"}, "is of compare; needed: one of profile"),
        ("runs_diff", {"before": "GPU", "after": "DOCTOR"}, "is of doctor"),
        ("source_read", {"file": "loop.py", "line": 999}, "the file has 8"),
        ("source_read", {"file": "absent.py"}, "found no file"),
        ("hotspots_list", {"run": "CPU", "file": "absent.py"}, "its lines are in loop.py"),
        ("kernels_list", {"run": "CPU", "line": "loop.py"}, "found `line` = loop.py; needed: file:line"),
        ("handbook_search", {"query": "?!"}, "no letter or digit"),
        ("runs_list", {"limit": 0}, "greater than or equal"),
        ("runs_list", {"verb": "nonsense"}, "found `verb` = 'nonsense'; needed: "),
        ("doctor_run", {"family": "nonsense"}, "no family"),
        ("doctor_run", {"family": "os\0"}, "found `family` = 'os"),
        ("profile_start", {}, "found no `script`"),
        ("doctor_run", {"family": "--fix"}, "no family"),
        ("kernels_list", {"run": ""}, None),
    ],
)
def test_a_call_that_cannot_be_answered_says_why(
    server: Held, runs: dict[str, str], tool: str, arguments: dict[str, Any], complaint: str | None
) -> None:
    given = {name: runs.get(str(value).lower(), value) for name, value in arguments.items()}
    if complaint is None:
        server.ask(tool, **given)
    else:
        assert complaint in server.refused(tool, **given)


def test_an_unknown_tool_is_an_error(server: Held) -> None:
    assert "Unknown tool" in server.refused("shell_run", command="ls")


def test_hot_lines_cite_run_place_and_kernels(server: Held, runs: dict[str, str]) -> None:
    found = server.ask("hotspots_list", run=runs["cpu"])
    assert found["run"] == runs["cpu"]
    first = found["rows"][0]
    assert (first["file"], first["line"], first["text"]) == ("loop.py", 8, SOURCE[7].strip())
    assert first["kernels"] == ["k1", "k2"]
    assert found["shown"] == "3 of 3 lines"
    assert found["links"] == [f"runs://{runs['cpu']}"]


def test_without_a_run_the_newest_of_its_kind_is_meant(server: Held, runs: dict[str, str]) -> None:
    assert server.ask("hotspots_list")["run"] == runs["cpu"]
    # Or a later one: another test of this file calls the doctor.
    assert server.ask("findings_list")["run"] >= runs["doctor"][:17]


def test_kernels_have_counters_and_can_be_asked_for_by_line(server: Held, runs: dict[str, str]) -> None:
    found = server.ask("kernels_list", run=runs["gpu"], detail="full", limit=500)
    assert any(row.get("counters") for row in found["rows"])
    asked = server.ask("kernels_list", run=runs["cpu"], line="./loop.py:8")
    assert [row["name"] for row in asked["rows"]] == ["aten::mv", "aten::tanh"]
    none = server.ask("kernels_list", run=runs["cpu"], line="loop.py:7")
    assert none["rows"] == []
    assert none["next"].startswith("no kernel of this profile is started there")


def test_findings_say_what_to_change_where_and_how_sure_it_is(server: Held, runs: dict[str, str]) -> None:
    row = server.ask("findings_list", run=runs["cpu"])["rows"][0]
    assert (row["file"], row["line"], row["gain"]) == ("loop.py", 8, [0.55, 0.62, 0.68])
    assert row["evidence"]
    assert row["item"] == "handbook://vectorise"


def test_findings_of_a_comparison_are_its_reasons_and_failed_checks(
    server: Held, runs: dict[str, str]
) -> None:
    found = server.ask("findings_list", run=runs["rejected"])
    assert found["verdict"] == "rejected, not certified; 1 of 3 checks that apply passed"
    assert [row["id"] for row in found["rows"]] == ["output-matches-oracle"]
    # The same sentence is not told twice.
    assert "reasons" not in found
    full = server.ask("findings_list", run=runs["rejected"], detail="full")
    assert [row["status"] for row in full["rows"]] == ["fail", "unknown", "pass"]


def test_a_list_does_not_pass_a_quick_look_for_a_proof(server: Held) -> None:
    # As `--quick` leaves it.
    record = CompareRecord.from_dict(
        rejected().to_dict() | {"verdict": "faster", "certified": False, "reasons": [], "checks": []}
    )
    run = keep(server.folder / ".trackside", "compare", record)
    try:
        (row,) = [row for row in server.ask("runs_list")["rows"] if row["id"] == run]
        assert row["verdict"] == "faster, not certified"
    finally:
        shutil.rmtree(server.folder / ".trackside" / "runs" / run)


def test_an_assistant_is_told_once_that_the_index_was_damaged(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / ".trackside/index.sqlite3").write_bytes(b"no database" * 500)
    with held(tmp_path) as server:
        first = server.ask("runs_list")
        assert first["rows"]
        assert "the index was damaged" in first["note"]
        assert "no run is lost" in first["note"]
        assert "note" not in server.ask("runs_list")


def test_a_comparisons_ratio_comes_with_the_times_behind_it(server: Held, tmp_path: Path) -> None:
    arm = {"n": 174, "p50_us": 10974.7, "p99_us": 14807.9, "spread": 0.0212}
    record = CompareRecord.from_dict(
        rejected().to_dict()
        | {
            "verdict": "faster",
            "certified": True,
            "speedup": {
                "ratio": 9.32,
                "low": 9.05,
                "high": 9.6,
                "confidence": 0.95,
                "metric": "device",
                "bounded": 9.3,
            },
            "timings": {"baseline": {"device": arm}, "candidate": {"device": arm | {"p50_us": 1205.8}}},
            "checks": [
                {"id": "a", "status": "pass", "detail": ""},
                {"id": "b", "status": "not_applicable", "detail": "no GPU"},
            ],
            "reasons": [],
        }
    )
    run = keep(server.folder / ".trackside", "compare", record)
    try:
        assert server.ask("findings_list", run=run)["verdict"] == (
            "faster, 9.32× (9.05 to 9.6); device time a call 10.97 ms (spread 2.1%, n 174) → "
            "1.206 ms (spread 2.1%, n 174); 1 of 1 checks that apply passed"
        )
    finally:
        shutil.rmtree(server.folder / ".trackside" / "runs" / run)


def test_checks_that_say_the_same_are_one_row(server: Held) -> None:
    unseen = [
        {"id": name, "status": "unknown", "detail": "not reached: the verdict was known before"}
        for name in ("late-writes", "above-floor")
    ]
    record = CompareRecord.from_dict(rejected().to_dict() | {"checks": unseen})
    run = keep(server.folder / ".trackside", "compare", record)
    try:
        (row,) = server.ask("findings_list", run=run, detail="full")["rows"]
        assert row["id"] == "late-writes, above-floor"
    finally:
        shutil.rmtree(server.folder / ".trackside" / "runs" / run)


@pytest.mark.parametrize(
    "broken",
    [
        {"schema": "trackside.compare/1", "checks": [{"id": 1}]},
        {"schema": "trackside.check/1", "items": [{}], "verdict": "x", "counts": []},
        {"schema": "trackside.doctor/1", "checks": [{"status": "fail"}]},
        {"schema": "trackside.profile/1", "findings": 7},
    ],
)
def test_a_record_that_is_not_whole_is_said_to_be_none(tmp_path: Path, broken: dict[str, Any]) -> None:
    folder = tmp_path / ".trackside" / "runs" / "x-20261118-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(broken))
    with held(tmp_path) as server:
        complaint = server.refused("findings_list", run=folder.name)
    assert f"store: the record of run {folder.name} is not whole; remedy: run it again" in complaint


def test_the_doctors_findings_are_what_is_not_well(server: Held, runs: dict[str, str]) -> None:
    rows = server.ask("findings_list", run=runs["doctor"])["rows"]
    assert [(row["id"], row["status"], row["fix"]) for row in rows] == [
        ("os.nofile", "fail", "ulimit -n 65536")
    ]


def test_findings_of_a_check_are_its_failed_items_with_their_reasons(
    server: Held, runs: dict[str, str]
) -> None:
    assert [row["id"] for row in server.ask("runs_list", verb="check")["rows"]] == [runs["check"]]
    found = server.ask("findings_list", run=runs["check"])
    assert found["verdict"] == "failed: 1 failed, 1 holds"
    (row,) = found["rows"]
    assert (row["id"], row["status"]) == ("softmax", "failed")
    assert row["evidence"] == [
        "not-slower on cpu: slower, 0.8× (0.78 to 0.82)",
        "it is slower than the claim allows",
        "run c-1",
    ]
    full = server.ask("findings_list", run=runs["check"], detail="full")
    assert [row["status"] for row in full["rows"]] == ["failed", "holds"]


def test_a_watch_shows_its_status(server: Held) -> None:
    with pytest.raises(MCPError, match="no watch"):
        server.read("watch://status")
    path = server.folder / ".trackside" / "watch" / "status.json"
    path.parent.mkdir()
    status = {"schema": "trackside.watch/1", "state": "ended", "line": "\x1b[31mred"}
    path.write_text(json.dumps(status))
    try:
        assert json.loads(server.read("watch://status")) == status | {"line": "red"}
        path.write_text(json.dumps({"private_key": "canary"}))
        with pytest.raises(MCPError, match="no status"):
            server.read("watch://status")
        path.rename(server.folder / "status.json")
        path.symlink_to(server.folder / "status.json")
        with pytest.raises(MCPError):
            server.read("watch://status")
    finally:
        path.unlink()
        path.parent.rmdir()
    assert "findings_list(run='watch')" in (server.client.instructions or "")


def _watching(folder: Path, **more: Any) -> Path:
    """A status as a watch writes it, of this process."""
    path = folder / ".trackside" / "watch" / "status.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    asked = {"name": "softmax", "candidate": str(folder / "fused.py"), "digest": "now", "timing": None}
    wrong = {"verdict": "rejected", "reasons": ["output-matches-oracle: out[3]"], "digest": "now"}
    document = {
        "schema": "trackside.watch/1",
        "state": "watching",
        "pid": os.getpid(),
        "process": process_mark(os.getpid()),
        "updated": "2026-11-18T04:45:36+00:00",
        "error": None,
        "items": [
            asked | {"name": "chain", "state": "right", "line": "chain.py: right", "correctness": None},
            asked | {"state": "rejected", "line": "fused.py: rejected, row 3", "correctness": wrong},
        ],
    }
    path.write_text(json.dumps(document | more))
    return path


def test_an_assistant_asks_a_watch_for_what_is_not_well(tmp_path: Path) -> None:
    """By a tool: some clients show an assistant no resources."""
    with held(tmp_path) as server:
        assert "no watch has run here" in server.refused("findings_list", run="watch")
        _watching(tmp_path)
        found = server.ask("findings_list", run="watch")
        assert found["verdict"] == "watching; 1 rejected, 1 right"
        (row,) = found["rows"]
        assert row == {
            "id": "softmax",
            "status": "rejected",
            "file": "fused.py",
            "evidence": ["fused.py: rejected, row 3"],
        }
        full = server.ask("findings_list", run="watch", detail="full")
        assert [row["id"] for row in full["rows"]] == ["softmax", "chain"]
        assert "output-matches-oracle: out[3]" in full["rows"][0]["evidence"]


@pytest.mark.parametrize("gone", [{"pid": 2**22 + 1}, {"process": "another since"}, {"pid": "none"}])
def test_a_watch_that_was_killed_is_not_said_to_watch(tmp_path: Path, gone: dict[str, Any]) -> None:
    with held(tmp_path) as server:
        _watching(tmp_path, **gone)
        assert json.loads(server.read("watch://status"))["state"] == "gone"
        found = server.ask("findings_list", run="watch")
        assert found["verdict"].startswith("killed after 2026-11-18T04:45:36+00:00: what follows is old")
        assert "trackside watch" in found["next"]
        _watching(tmp_path, items=[{}])
        assert "is not whole" in server.refused("findings_list", run="watch")


def test_a_diff_begins_with_the_step(server: Held, runs: dict[str, str]) -> None:
    found = server.ask("runs_diff", before=runs["gpu"], after=runs["cpu"])
    assert (found["before"], found["run"]) == (runs["gpu"], runs["cpu"])
    assert found["rows"][0]["kind"] == "step"
    assert found["doubts"]


def test_a_diff_is_of_the_two_newest_profiles_unless_others_are_named(
    server: Held, runs: dict[str, str]
) -> None:
    """Though newer runs are of other verbs."""
    for arguments in ({}, {"after": "last"}, {"before": runs["gpu"]}, {"after": runs["cpu"]}):
        found = server.ask("runs_diff", **arguments)
        assert (found["before"], found["run"]) == (runs["gpu"], runs["cpu"])
    assert server.ask("hotspots_list", run="last")["run"] == runs["cpu"]
    assert "no finished profile before" in server.refused("runs_diff", after=runs["hostile"])


@pytest.mark.parametrize("budget", [0.5, 4.9])
def test_a_budget_that_compare_refuses_is_refused_in_the_call(tmp_path: Path, budget: float) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("def run(): pass\n")
    tools = JobTools(open_scope([tmp_path], allow_exec=True))
    with pytest.raises(TracksideError, match="at least 5"):
        tools.compare_start("one.py", "two.py", budget=budget)
    tools.close()


@pytest.mark.parametrize("state", ["failed", "cancelled", "interrupted"])
def test_after_a_job_without_a_result_its_log_is_next(tmp_path: Path, state: str) -> None:
    """Lists without a run would tell of an older one."""
    folder = tmp_path / ".trackside" / "jobs" / "j-20261118-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"verb": "profile", "argv": ["profile", "x.py"]}))
    (folder / "end.json").write_text(json.dumps({"state": state, "exit_code": 1}))
    with held(tmp_path) as server:
        assert server.ask("job_get")["next"] == f"job_get with job={folder.name} and detail=full"


def _ended(folder: Path, verb: str, end: dict[str, Any], answer: dict[str, Any] | None = None) -> str:
    job = folder / ".trackside" / "jobs" / "j-20261118-000000-abcd"
    job.mkdir(parents=True)
    (job / "job.json").write_text(json.dumps({"verb": verb, "argv": [verb, "x.py"]}))
    (job / "end.json").write_text(json.dumps(end))
    (job / "note.json").write_text(json.dumps({"runs": [["p-20261118-000000-abcd", verb]]}))
    (job / "stdout.json").write_text(json.dumps(answer or {}))
    (job / "log").write_text("Traceback …\nKeyError: 'weights'\n")
    return job.name


def test_a_failed_jobs_reason_says_what_helps(tmp_path: Path) -> None:
    error = {"kind": "device", "message": "found no GPU here", "remedy": "use `--device cpu`"}
    end = {"state": "failed", "exit_code": 3, "reason": "found no GPU here"}
    _ended(tmp_path, "compare", end, {"error": error})
    with held(tmp_path) as server:
        assert server.ask("job_get")["reason"] == "found no GPU here; remedy: use `--device cpu`"


def test_of_a_profiled_program_that_failed_the_log_is_told(tmp_path: Path) -> None:
    """Its profile is done, and has no hot lines to read."""
    job = _ended(tmp_path, "profile", {"state": "done", "exit_code": 1})
    with held(tmp_path) as server:
        found = server.ask("job_get")
    assert found["log"].endswith("KeyError: 'weights'")
    assert found["next"] == f"job_get with job={job} and detail=full"


def test_a_done_jobs_last_word_on_its_progress_is_not_told(tmp_path: Path) -> None:
    _ended(tmp_path, "profile", {"state": "done", "exit_code": 0})
    with held(tmp_path) as server:
        assert "progress" not in server.ask("job_get")


def test_source_has_the_costs_of_its_lines(server: Held, runs: dict[str, str]) -> None:
    found = server.ask("source_read", file="loop.py", line=8, context=1)
    assert found["source"].splitlines() == [
        f"7   4.3% | {SOURCE[6]}",
        f"8  86.2% | {SOURCE[7]}",
    ]
    assert found["run"] == runs["cpu"]


def test_the_last_run_of_source_is_the_newest_profile_as_everywhere(
    server: Held, runs: dict[str, str]
) -> None:
    """The doctor, or a comparison, may have been the very last."""
    assert server.ask("source_read", file="loop.py", run="last")["run"] == runs["cpu"]
    assert server.ask("hotspots_list", run="last")["run"] == runs["cpu"]


def test_source_is_read_whatever_became_of_a_profile_of_it(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text("\n".join(SOURCE) + "\n")
    with held(tmp_path) as server:
        assert "no finished run of profile" in server.refused("source_read", file="loop.py", run="last")
        good = keep(tmp_path / ".trackside", "profile", cpu_program())
        broken = keep(tmp_path / ".trackside", "profile", cpu_program())
        record = tmp_path / ".trackside" / "runs" / broken / "record.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"lines": [{"line": 8}, 7]}))
        found = server.ask("source_read", file="loop.py", line=8, context=0)
        complaint = server.refused("source_read", file="loop.py", run=broken)
    assert found["run"] == good
    assert "86.2%" in found["source"]
    assert f"store: the record of run {broken} is not whole; remedy: run it again" in complaint


@pytest.mark.parametrize("detail", ["concise", "full"])
def test_a_region_that_is_too_long_is_cut_by_whole_lines_and_says_so(server: Held, detail: str) -> None:
    (server.folder / "long.py").write_text("\n".join(f"value_{n} = {'x' * 300!r}" for n in range(400)))
    found = server.ask("source_read", file="long.py", line=150, context=200, detail=detail)
    shown = found["source"].splitlines()
    assert [int(text.split()[0]) for text in shown] == list(range(found["first"], found["last"] + 1))
    assert found["first"] <= 150 <= found["last"]
    assert found["lines"] == 400
    assert "cut" not in found["source"]


def test_costs_of_lines_that_read_otherwise_now_are_left_out(server: Held) -> None:
    changed = server.folder / "loop.py"
    changed.write_text("\n".join([*SOURCE[:7], "        y = torch.tanh(x @ weights.T)"]))
    try:
        found = server.ask("source_read", file="loop.py", line=8, context=0)
    finally:
        changed.write_text("\n".join(SOURCE) + "\n")
    assert "%" not in found["source"]
    assert "profile again" in found["note"]


def test_the_machine_says_what_it_is_and_that_nothing_was_measured(server: Held) -> None:
    found = server.ask("machine_get")
    assert found["fingerprint"]
    assert "ceilings_start" in found["next"]


def test_the_machine_is_told_without_importing_numpy(tmp_path: Path) -> None:
    """Half of what the first call took."""
    program = (
        "import sys; from pathlib import Path\n"
        "from trackside.mcp_server.machine_tools import MachineTools\n"
        "from trackside.mcp_server.scope import open_scope\n"
        "assert MachineTools(open_scope([Path(sys.argv[1])])).machine_get().fingerprint\n"
        "slow = [name for name in ('numpy', 'torch') if name in sys.modules]\n"
        "assert not slow, slow"
    )
    subprocess.run([sys.executable, "-P", "-c", program, str(tmp_path)], check=True)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_kept_ceilings_that_are_a_pipe_or_a_link_hold_nobody_up(tmp_path: Path, kind: str) -> None:
    """The store may have come with a download."""
    with held(tmp_path) as server:
        fingerprint = server.ask("machine_get")["fingerprint"]
        path = tmp_path / ".trackside" / "machine" / f"{KEPT}{fingerprint}-cpu.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            row = {"place": "cpu", "name": "x", "value": 1.0, "unit": "GB/s", "n": 3, "spread": 0.1}
            (tmp_path / "elsewhere").write_text(json.dumps({"ceilings": [row], "measured_at": "2026"}))
            path.symlink_to(tmp_path / "elsewhere")
        assert server.ask("machine_get")["rows"] == []


def test_the_handbook_links_to_its_items(server: Held) -> None:
    found = server.ask("handbook_search", query="pinned memory", detail="full")
    uri = next(link for link in found["links"] if link.startswith("handbook://"))
    item = json.loads(server.read(uri))
    assert item["id"] == uri.removeprefix("handbook://")
    assert found["rows"][0]["do"]


def test_resources_are_runs_and_their_parts(server: Held, runs: dict[str, str]) -> None:
    record = json.loads(server.read(f"runs://{runs['gpu']}"))
    assert record["schema"] == "trackside.profile/1"
    assert "sources" not in record
    assert record["timeline"] == f"see runs://{runs['gpu']}/timeline"
    assert json.loads(server.read(f"runs://{runs['cpu']}/kernels"))["kernels"][0]["name"] == "aten::mv"


@pytest.mark.parametrize(
    "uri", ["runs://p-1999", "runs://GPU/sources", "runs://GPU/nonsense", "handbook://no"]
)
def test_a_resource_that_is_not_there_is_an_error(server: Held, runs: dict[str, str], uri: str) -> None:
    with pytest.raises(MCPError):
        server.read(uri.replace("GPU", runs["gpu"]))


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("speed_up_file", {}, "found no `file`; remedy: its arguments are file"),
        ("explain_run", {"x\u202e": "1"}, "found the unknown argument `x`; remedy: its arguments are run"),
        ("nonsense", {}, "found no prompt nonsense; needed: one of speed_up_file, "),
    ],
)
def test_a_wrong_prompt_is_answered_with_what_is_needed(
    server: Held, name: str, arguments: dict[str, str], complaint: str
) -> None:
    with pytest.raises(MCPError, match=re.escape(complaint)):
        server.portal.call(server.client.get_prompt, name, arguments)


def test_prompts_name_the_tools_in_their_order(server: Held) -> None:
    prompts = server.portal.call(server.client.list_prompts).prompts
    assert {prompt.name for prompt in prompts} == {"speed_up_file", "explain_run", "check_machine"}

    async def get() -> Any:
        return await server.client.get_prompt("speed_up_file", {"file": "train\x1b[31m.py"})

    text = server.portal.call(get).messages[0].content.text
    assert "train.py" in text
    places = [text.index(name) for name in ("machine_get", "profile_start", "hotspots_list", "compare_start")]
    assert places == sorted(places)


def test_what_adds_a_run_with_every_call_does_not_say_that_a_second_call_changes_nothing(
    server: Held,
) -> None:
    tools = {tool.name: tool for tool in server.portal.call(server.client.list_tools).tools}
    for name in ("doctor_run", "ceilings_start", "profile_start", "compare_start"):
        hints = tools[name].annotations
        assert hints is not None
        assert hints.idempotent_hint is False, name
