"""One of several processes at work in one store at once: `python crowd.py ROOT ROUNDS SEED [REMARKS]`."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

from trackside.store.retention import named, remove
from trackside.store.runs import RunStore


def main() -> None:
    store, rounds, random_ = RunStore(Path(sys.argv[1])), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    own: dict[str, int] = {}
    done: Counter[str] = Counter()
    for number in range(rounds):
        run = store.new_run("lap")
        store.write_record(run, {"schema": "trackside.lap/1", "verdict": "faster", "number": number})
        own[run.id] = number
        listed = {one.id: one.state for one in store.list()}
        assert all(listed.get(run_id) == "done" for run_id in own), "a finished run is not listed"
        assert set(listed.values()) <= {"done", "running", "died"}, listed
        chosen = random_.choice(list(own))
        assert store.load(chosen)["number"] == own[chosen]
        done += Counter(("write", "list", "load"))
        if random_.random() < 0.5:
            assert len(remove(store, named(store, [chosen]))) == 1
            assert chosen not in {one.id for one in store.list()}
            del own[chosen]
            done += Counter(("remove", "list"))
    # With an index that someone breaks meanwhile, each of them is of that.
    expected = len(sys.argv) > 4 and all("index" in remark for remark in store.remarks)
    assert expected or store.remarks == [], store.remarks
    print(done.total(), len(own))


if __name__ == "__main__":
    main()
