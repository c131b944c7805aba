"""Starts a program as the command line does, and ends as it ends: python driver.py TOLD TARGET [ARGUMENT …].

TOLD is a JSON object: `sources`, where to find us; `report`, the file for how it ended; `module`; and what
else `launch` takes. It is no variable of the environment, since the program would see that.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    told = json.loads(sys.argv[1])
    sys.path.insert(0, told.pop("sources"))
    from trackside.profiling.launch import end_as, launch
    from trackside.profiling.program import Program

    report = Path(told.pop("report"))
    program = Program(sys.argv[2], told.pop("module", False), tuple(sys.argv[3:]))
    messages: list[dict[str, Any]] = []
    ended = launch(
        program,
        f"trackside.profiling.{told.pop('capture')}:around",
        told.pop("configuration", {}),
        report.parent,
        on_message=messages.append,
        **told,
    )
    # Not getrusage, which counts what the process was before exec.
    peak_kb = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    said = {
        **dataclasses.asdict(ended),
        "messages": messages,
        "open": len(os.listdir("/proc/self/fd")),
        "peak_kb": peak_kb,
    }
    report.write_text(json.dumps(said))
    return end_as(ended)


if __name__ == "__main__":
    sys.exit(main())
