"""Leaves that must be equal: what counts as a tie, and what does not."""

from __future__ import annotations

import torch

from trackside.comparison import matching


def _rows(count: int, width: int, levels: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, levels, (count, width), generator=g) * 0.25


def test_another_order_of_tied_keys_will_do_though_the_baseline_s_own_order_is_not_stable() -> None:
    x = _rows(8, 200, 16, 1)
    wanted = torch.argsort(x, dim=-1, stable=True)
    # Ties the other way round, as an unstable sort may leave them.
    base = (x.shape[-1] - 1 - torch.argsort(x.flip(-1), dim=-1, stable=True)).contiguous()
    found = torch.argsort(x + torch.linspace(0, 0.1, 200).flip(0), dim=-1)
    assert bool(matching.acceptable(found, base, [base], [x]).all())
    assert bool(matching.acceptable(found, wanted, [wanted], [x]).all())


def test_an_index_of_another_key_will_not_do() -> None:
    x = _rows(8, 200, 16, 2)
    wanted = torch.argsort(x, dim=-1, stable=True)
    found = wanted.clone()
    found[3, 0], found[3, -1] = wanted[3, -1], wanted[3, 0]
    accepted = matching.acceptable(found, wanted, [wanted], [x])
    assert (~accepted).nonzero().tolist() == [[3, 0], [3, 199]]


def test_a_permutation_may_not_repeat_an_index_however_equal_the_keys_and_whoever_else_chose_it() -> None:
    x = _rows(4, 64, 2, 3)
    wanted = torch.argsort(x, dim=-1, stable=True)
    found = wanted.clone()
    found[1, 1] = found[1, 0]
    # Even a moved oracle that happens to hold that index in that place does not excuse it.
    accepted = matching.acceptable(found, wanted, [wanted, found.clone()], [x])
    assert (~accepted).nonzero().tolist() == [[1, 1]]


def test_a_mask_beside_the_scores_excuses_no_index() -> None:
    g = torch.Generator().manual_seed(4)
    scores = torch.randn(32, 256, generator=g)
    mask = torch.where(torch.arange(256)[None, :] < 200, 0.0, -1e9).expand(32, 256).contiguous()
    wanted = (scores + mask).argmax(dim=-1)
    found = (scores[:, :50] + mask[:, :50]).argmax(dim=-1)
    accepted = matching.acceptable(found, wanted, [wanted], [mask])
    assert torch.equal(accepted, found == wanted)
    assert int((~accepted).sum()) > 0


def test_the_largest_of_tied_scores_may_stand_anywhere_among_them() -> None:
    x = _rows(16, 300, 20, 5)
    wanted = x.argmax(dim=-1)
    last = x.shape[-1] - 1 - x.flip(-1).argmax(dim=-1)
    assert not torch.equal(wanted, last)
    assert bool(matching.acceptable(last, wanted, [wanted], [x]).all())


def test_the_first_difference_is_named_with_what_was_expected_there() -> None:
    wanted = torch.arange(12).reshape(3, 4)
    found = wanted.clone()
    found[1, 2], found[2, 0] = 99, 98
    row = matching.compare(found, wanted)
    assert (row["mismatches"], row["at"], row["expected"], row["found"]) == (2, [1, 2], "6", "99")
    assert matching.compare(wanted, wanted)["mismatches"] == 0


def test_other_shapes_types_and_values_differ() -> None:
    assert matching.compare(torch.zeros(3), torch.zeros(4))["dtype"] == "shape"
    assert matching.compare(3, 4)["mismatches"] == 1
    assert matching.compare("a", "a")["mismatches"] == 0
    assert not matching.same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    assert not matching.same_bits(1, 1.0)
    assert matching.compare(0.5, 0.25)["bins"]
