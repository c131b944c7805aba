"""Shared memory of outputs, told by elements."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from trackside.workload import tree
from trackside.workload.aliasing import Place, aliases, overlap, pieces, stretches


def place(path: str, tensor: torch.Tensor) -> Place:
    return Place.of(tree.facts_of(path, tensor), tree.address(tensor)[0])


def elements(tensor: torch.Tensor) -> set[int]:
    """Addresses of all elements, one by one."""
    start, size = tree.address(tensor)[0], tensor.element_size()
    indices = itertools.product(*(range(n) for n in tensor.shape))
    return {
        start + size * sum(i * s for i, s in zip(index, tensor.stride(), strict=True)) for index in indices
    }


def test_thirds_of_one_fused_result_do_not_overlap_and_a_shifted_window_does() -> None:
    fused = torch.zeros(8, 12)
    q, k, v = fused.chunk(3, dim=-1)
    places = [place(name, t) for name, t in (("out[0]", q), ("out[1]", k), ("out[2]", v))]
    assert aliases(places, []) == {}
    shifted = place("out[1]", fused[:, 3:7])
    assert aliases([places[0], shifted], []) == {"out[0]": "out[1]", "out[1]": "out[0]"}


def test_views_with_the_same_strides_overlap_exactly_where_they_have_an_element_in_common() -> None:
    rng = random.Random(5)
    seen = {True: 0, False: 0}
    for _ in range(400):
        base = torch.zeros(6, 7, 5)
        views = []
        for _ in range(2):
            begins = [rng.randrange(n) for n in base.shape]
            ends = [rng.randrange(b, n) + 1 for b, n in zip(begins, base.shape, strict=True)]
            views.append(base[tuple(slice(b, e) for b, e in zip(begins, ends, strict=True))])
        common = bool(elements(views[0]) & elements(views[1]))
        assert overlap(place("out[0]", views[0]), place("out[1]", views[1])) == common, views
        seen[common] += 1
    assert min(seen.values()) > 50


def test_views_whose_strides_differ_count_as_overlapping_where_their_ranges_meet() -> None:
    base = torch.zeros(8, 8)
    assert overlap(place("out[0]", base[:4]), place("out[1]", base.t()[:4]))
    assert not overlap(place("out[0]", base[:4]), place("out[1]", base[4:]))
    assert overlap(place("out[0]", base), place("out[1]", base.view(torch.int32)))


def test_an_owner_goes_before_other_outputs_and_the_order_of_outputs_does_not_matter() -> None:
    x, scratch = torch.zeros(10), torch.zeros(10)
    outputs = [place("out['y']", scratch), place("out['t']", scratch[2:]), place("out['x']", x[1:])]
    owners = [("in:0", *tree.storage_range(x)), ("state", *tree.storage_range(torch.zeros(3)))]
    wanted = {"out['y']": "out['t']", "out['t']": "out['y']", "out['x']": "in:0"}
    for order in itertools.permutations(outputs):
        assert aliases(order, owners) == wanted


@pytest.mark.parametrize("inside", [True, False])
def test_memory_of_the_state_is_named_only_where_it_is_used(inside: bool) -> None:
    table = torch.zeros(64)
    output = table[8:16] if inside else table[8:16].clone()
    found = aliases([place("out", output)], [("state", *tree.storage_range(table))])
    assert found == ({"out": "state"} if inside else {})


def test_dimensions_of_one_element_hide_no_overlap() -> None:
    column, rows = torch.zeros(8, 1), torch.zeros(6, 1, 5)
    assert overlap(place("out[0]", column[0:4]), place("out[1]", column[2:6]))
    assert overlap(place("out[0]", rows[0:3]), place("out[1]", rows[1:4]))
    assert not overlap(place("out[0]", rows[0:3]), place("out[1]", rows[3:6]))


def test_windows_whose_steps_overlap_are_told_apart_by_their_elements() -> None:
    base = torch.zeros(40)
    for start in range(12):
        windows = [base.as_strided((3, 4), (5, 2)), base.as_strided((3, 4), (5, 2), start)]
        common = bool(elements(windows[0]) & elements(windows[1]))
        assert overlap(place("out[0]", windows[0]), place("out[1]", windows[1])) == common, start


def test_views_of_different_rank_overlap_only_where_they_have_an_element_in_common() -> None:
    y = torch.zeros(100, 5)
    boxes, score = place("out[0]", y[:, :4]), place("out[1]", y[:, 4])
    assert not overlap(boxes, score)
    assert not overlap(score, boxes)
    assert overlap(boxes, place("out[1]", y[:, 3]))
    assert overlap(place("out[0]", y[:, 4:]), score)
    assert overlap(place("out[0]", y), place("out[1]", y.view(-1)))
    heads = torch.zeros(10, 24)
    assert not overlap(place("out[0]", heads[:, :8].view(10, 2, 4)), place("out[1]", heads[:, 8:16]))
    assert overlap(place("out[0]", heads[:, :9].view(10, 3, 3)), place("out[1]", heads[:, 8:16]))


def test_ranges_that_overlap_make_up_one_stretch() -> None:
    assert stretches([]) == []
    assert stretches([(0, 4), (8, 12)]) == [(0, 4), (8, 12)]
    assert stretches([(0, 4), (4, 8)]) == [(0, 4), (4, 8)]
    assert stretches([(6, 10), (20, 30), (0, 8), (9, 12)]) == [(0, 12), (20, 30), (0, 12), (0, 12)]
    assert stretches([(0, 10), (2, 3), (5, 6)]) == [(0, 10)] * 3


@pytest.mark.parametrize(
    "view",
    [
        torch.zeros(6, 4),
        torch.zeros(6, 4).T,
        torch.zeros(6, 4)[:, 1:3],
        torch.zeros(6, 4)[::2, ::2],
        torch.zeros(4).expand(3, 4),
        torch.zeros(2, 3, 5).transpose(0, 1)[:, :, 1:],
        torch.zeros(()),
    ],
    ids=["whole", "transposed", "columns", "grid", "expanded", "nested", "scalar"],
)
def test_pieces_of_a_view_are_its_elements_and_no_gap(view: torch.Tensor) -> None:
    found = {
        start + at for start, size in pieces(place("out", view)) for at in range(0, size, view.element_size())
    }
    assert found == elements(view)
