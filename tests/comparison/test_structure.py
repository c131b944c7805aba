"""What outputs must look like: where each may lie."""

from trackside.comparison.structure import word


def test_state_may_lie_on_another_device_and_outputs_may_not() -> None:
    facts = [
        {"path": path, "kind": "tensor", "dtype": "float32", "shape": [], "device": device}
        for path in ("state:['step']", "out")
        for device in ("cpu", "cuda:0")
    ]
    here, there, out_here, out_there = map(word, facts)
    assert here == there
    assert out_here != out_there
