"""What the doctor would change, as a shell script to read before it is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from trackside.machine.doctor.probe import Finding

__all__ = ["HEAD", "fix_script"]

HEAD = """#!/bin/sh
# What `trackside doctor` would change on this machine. It has changed nothing.
# Read every line. As it is, this script only prints what it would do; `APPLY=1 sh FILE` does it.
set -u
step() {
    printf '+ %s\\n' "$1"
    if [ "${APPLY:-}" = 1 ]; then sh -c "$1" || echo "  failed, going on" >&2; fi
}
"""

# Changes that begin so are commands for a shell; all others (code, settings of a file) are for a person. So
# are variables and limits: a script's own shell, which ends, cannot set them for the job.
_COMMAND = re.compile(
    r"(sudo|echo|nvidia-smi|sysctl|cpupower|tuned-adm|modprobe|mount|systemctl|grubby|"
    r"update-grub|numactl|docker|kubectl|swapoff|fstrim|rsync|ethtool|ip|setpci|nvidia-ctk|pip|apt|dnf|rmmod)\s"
)


def fix_script(findings: Iterable[Finding]) -> str:
    """One block for each finding that is not as it should be."""
    blocks = [HEAD]
    for finding in findings:
        if finding.outcome.status not in ("fail", "warn"):
            continue
        outcome = finding.outcome
        lines = [
            f"# {finding.item.id}: {finding.item.title}",
            f"# found: {_one_line(outcome.found)}",
            f"# wanted: {_one_line(outcome.wanted)}",
        ]
        for change in finding.fix:
            for line in change.splitlines():
                command, _, remark = line.partition("    #")
                if _COMMAND.match(command.strip()) and not _has_placeholder(command):
                    lines.append(f"step {shlex.quote(command.strip())}" + (f"  #{remark}" if remark else ""))
                else:
                    lines.append(f"#   by hand: {line}")
        blocks.append("\n".join(lines) + "\n")
    if len(blocks) == 1:
        blocks.append("# Nothing is to be changed.\n")
    return "\n".join(blocks)


def _has_placeholder(command: str) -> bool:
    """Whether something is to be filled in: `DATADIR`, `<device>`, `…`."""
    return bool(re.search(r"<[a-z][^>]*>|…|\.\.\.|\b[A-Z]{4,}(?![\w=/.])", command))


def _one_line(text: str) -> str:
    return " ".join(text.split())
