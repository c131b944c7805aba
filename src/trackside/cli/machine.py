"""`trackside machine`: what this machine is."""

from __future__ import annotations

from trackside.cli.terminal import JsonOption, results, say_remarks, verb_app, write_json

__all__ = ["app"]

app = verb_app()


@app.command()
def machine(as_json: JsonOption = False) -> int:
    """What is this machine?

    Processor, memory, limits, disks, GPUs, software and profilers, read without root; what cannot be read is
    named with the reason. Nothing is measured: `trackside ceilings` does that.
    """
    from trackside.machine.inventory import take_inventory
    from trackside.store.runs import RunStore

    store = RunStore()
    record = take_inventory(store)
    say_remarks(store)
    if as_json:
        write_json(record.to_dict())
    else:
        from trackside.report.machine_text import render

        render(record.to_dict(), results())
    return 0
