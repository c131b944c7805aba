"""Leaves that must be equal: what counts as a tie, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    assert bool(matching.acceptable(found, base, base, [x]).all())
    assert bool(matching.acceptable(found, wanted, wanted, [x]).all())


def test_an_index_of_another_key_will_not_do() -> None:
    x = _rows(8, 200, 16, 2)
    wanted = torch.argsort(x, dim=-1, stable=True)
    found = wanted.clone()
    found[3, 0], found[3, -1] = wanted[3, -1], wanted[3, 0]
    accepted = matching.acceptable(found, wanted, wanted, [x])
    assert (~accepted).nonzero().tolist() == [[3, 0], [3, 199]]


def test_a_permutation_may_not_repeat_an_index_however_equal_the_keys() -> None:
    x = _rows(4, 64, 2, 3)
    wanted = torch.argsort(x, dim=-1, stable=True)
    found = wanted.clone()
    found[1, 1] = found[1, 0]
    accepted = matching.acceptable(found, wanted, wanted, [x])
    assert (~accepted).nonzero().tolist() == [[1, 1]]


def test_a_mask_beside_the_scores_excuses_no_index() -> None:
    g = torch.Generator().manual_seed(4)
    scores = torch.randn(32, 256, generator=g)
    mask = torch.where(torch.arange(256)[None, :] < 200, 0.0, -1e9).expand(32, 256).contiguous()
    wanted = (scores + mask).argmax(dim=-1)
    found = (scores[:, :50] + mask[:, :50]).argmax(dim=-1)
    accepted = matching.acceptable(found, wanted, wanted, [mask])
    assert torch.equal(accepted, found == wanted)
    assert int((~accepted).sum()) > 0


def test_the_largest_of_tied_scores_may_stand_anywhere_among_them() -> None:
    x = _rows(16, 300, 20, 5)
    wanted = x.argmax(dim=-1)
    last = x.shape[-1] - 1 - x.flip(-1).argmax(dim=-1)
    assert not torch.equal(wanted, last)
    assert bool(matching.acceptable(last, wanted, wanted, [x]).all())


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


# -- near ties -----------------------------------------------------------------------------------------

ULP = 2.0**-23


def _no_place(x: torch.Tensor, place: int, largest: bool) -> int:
    return -1


def _beside(values: torch.Tensor, leaf: Callable[[torch.Tensor], Any], **changes: Any) -> matching.Beside:
    """As if `values` were what float32 arithmetic compares: an ulp moves each by up to 2**-23."""
    g = torch.Generator().manual_seed(11)

    def moved(by: float) -> Any:
        return leaf(values + by * (2 * torch.rand(values.shape, generator=g, dtype=torch.float64) - 1))

    made: dict[str, Any] = {
        "hardly": lambda: moved(2.0**-40),
        "moved": lambda ulps: moved(ulps * ULP),
        "ulps": (1.0, 4.0, 16.0),
        "at_extreme": _no_place,
        "widest": 2.0**16,
        "late": lambda: False,
    }
    return matching.Beside(**{**made, **changes})


def _positive(values: torch.Tensor) -> torch.Tensor:
    return values > 0


def _count(values: torch.Tensor) -> int:
    return int((values > 0).sum())


def _values(*near: float) -> torch.Tensor:
    """A thousand values far from zero, and then those near it."""
    far = torch.linspace(-1, 1, 1000, dtype=torch.float64)
    return torch.cat([far, torch.tensor(near, dtype=torch.float64)])


def _wrong(
    values: torch.Tensor, found: torch.Tensor, base: torch.Tensor, seen: int = 0, **changes: Any
) -> list[int]:
    beside = _beside(values, _positive, **changes)
    wrong = matching.unexcused(found, _positive(values), base, [], beside, matching.Tally(elements=seen))
    return [int(i) for i in wrong.nonzero().reshape(-1)]


def _turned(values: torch.Tensor, *at: int) -> torch.Tensor:
    found = _positive(values)
    found[list(at)] ^= True
    return found


def test_what_a_few_ulps_turn_is_excused_and_what_they_cannot_is_not() -> None:
    v = _values(ULP, -5 * ULP, 1e-4)
    right = _positive(v)
    assert _wrong(v, _turned(v, 1000, 1001), right) == []
    assert _wrong(v, _turned(v, 1000, 1001, 1002), right) == [1002]
    assert _wrong(v, _turned(v, 0), right) == [0]


def test_more_near_ties_than_rounding_turns_are_not_excused() -> None:
    v = _values(*[5 * ULP] * 60)
    right = _positive(v)
    assert _wrong(v, _turned(v, *range(1000, 1006)), right) == []
    assert _wrong(v, _turned(v, *range(1000, 1060)), right) == list(range(1000, 1060))


def test_an_exact_tie_is_excused_only_where_the_baseline_is_off_at_one_too() -> None:
    v = _values(0.0, 0.0, ULP)
    right = _positive(v)
    assert _wrong(v, _turned(v, 1000), right) == [1000]
    assert _wrong(v, _turned(v, 1000), _turned(v, 1001)) == []
    assert _wrong(v, _turned(v, 1000), _turned(v, 1002)) == [1000]


def test_exact_ties_are_chance_where_they_are_rare_over_all_calls() -> None:
    v = _values(0.0)
    right, tally = _positive(v), matching.Tally(elements=2 << 17)

    def wrong(values: torch.Tensor, *at: int) -> int:
        beside = _beside(values, _positive)
        found = _turned(values, *at)
        return int(matching.unexcused(found, _positive(values), _positive(values), [], beside, tally).sum())

    assert _wrong(v, _turned(v, 1000), right, seen=1 << 16) == [1000]
    assert [wrong(v, 1000) for _ in range(3)] == [0, 0, 1]
    tally.elements = 1 << 30
    assert wrong(v, 1000) == 0
    assert wrong(_values(0.0, 0.0), 1000) == 1, "two in a thousand are a grid"
    assert wrong(v, 1000, 0) == 1, "far from a tie chance excuses nothing"


def test_one_exact_tie_of_what_is_computed_from_integers_is_chance_and_two_are_not() -> None:
    v = _values(0.0, 0.0)
    still = {"hardly": lambda: _positive(v), "moved": lambda ulps: _positive(v)}

    def wrong(tally: matching.Tally, *at: int) -> int:
        beside = _beside(v, _positive, **still, as_run=lambda: _turned(v, 1000, 1001))
        found = _turned(v, *at)
        return int(matching.unexcused(found, _positive(v), _positive(v), [], beside, tally).sum())

    tally = matching.Tally(elements=1002)
    assert wrong(tally, 1000) == 0
    assert wrong(tally, 1001) == 1, "the second of a small task"
    assert wrong(matching.Tally(elements=1002), 1000, 1001) == 2
    assert wrong(matching.Tally(elements=1002), 0) == 1, "far from a tie chance excuses nothing"


def test_a_count_may_be_off_by_chance_where_it_counts_very_many() -> None:
    v = _values(0.0, ULP)
    right, beside = _count(v), _beside(v, _count)
    assert matching.number_excused(right + 1, right, right, [torch.empty(1 << 17)], beside)
    assert not matching.number_excused(right + 1, right, right, [torch.empty(1 << 16)], beside)
    one = _values(0.0)[1000:]
    told = _beside(one, lambda w: bool((w > 0).any()))
    assert not matching.number_excused(True, False, False, [torch.empty(1 << 20)], told)


def test_a_baseline_that_is_narrower_than_its_inputs_lets_the_candidate_be_so_too() -> None:
    v = _values(*torch.linspace(-1e-3, 1e-3, 1000).tolist())
    narrow, other = (
        v + 2e-4 * torch.randn(v.shape, generator=torch.Generator().manual_seed(i)) for i in (1, 2)
    )
    assert int((_positive(narrow) != _positive(v)).sum()) > 40
    assert _wrong(v, _positive(other), _positive(narrow)) == []
    assert _wrong(v, _positive(other), _positive(v)) != []
    narrower = v + 2e-2 * torch.randn(v.shape, generator=torch.Generator().manual_seed(3))
    assert len(_wrong(v, _positive(narrower), _positive(narrow))) > 10


def test_a_mask_that_rounding_alone_decides_excuses_no_constant() -> None:
    v = 1e-8 * torch.randn(1000, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    zeros = torch.zeros(1000, dtype=torch.bool)
    assert len(_wrong(v, zeros, _positive(v))) > 400


def test_the_oracle_runs_no_further_time_where_all_is_right() -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("drawn")

    v = _values(ULP)
    assert _wrong(v, _positive(v), _positive(v), hardly=refuse, moved=refuse) == []
    assert _wrong(v, _turned(v, 1000), _turned(v, 1000), hardly=refuse, moved=refuse) == []


def test_where_the_oracle_fails_beside_the_inputs_nothing_is_excused() -> None:
    v = _values(ULP)
    nothing: dict[str, Any] = {"hardly": lambda: None, "moved": lambda ulps: None}
    assert _wrong(v, _turned(v, 1000), _positive(v), **nothing) == [1000]
    assert not matching.number_excused(3, 4, 4, [], _beside(v, _count, **nothing))


def test_an_index_that_is_repeated_is_not_excused_by_the_oracle_s_neighbours() -> None:
    wanted = torch.arange(6).reshape(1, 6)
    found = torch.tensor([[0, 0, 2, 3, 4, 5]])
    beside = matching.Beside(lambda: wanted, lambda ulps: found, (1.0,), _no_place, 1.0, lambda: False)
    assert matching.unexcused(found, wanted, wanted, [], beside, matching.Tally()).nonzero().tolist() == [
        [0, 1]
    ]
    swapped = torch.tensor([[1, 0, 2, 3, 4, 5]])
    beside = matching.Beside(lambda: wanted, lambda ulps: swapped, (1.0,), _no_place, 1.0, lambda: False)
    assert not bool(matching.unexcused(swapped, wanted, wanted, [], beside, matching.Tally()).any())


def test_a_count_may_be_off_by_as_many_as_rounding_turns() -> None:
    v = _values(ULP, -ULP)
    right, beside = _count(v), _beside(v, _count)
    assert [
        n for n in range(right - 5, right + 6) if matching.number_excused(n, right, right, [], beside)
    ] == [
        right - 1,
        right,
        right + 1,
    ]
    # As a tensor without dimensions it is a count all the same.
    found, wanted = torch.tensor(right + 1), torch.tensor(right)
    assert not bool(matching.unexcused(found, wanted, wanted, [], beside, matching.Tally()))
    assert bool(matching.unexcused(found + 1, wanted, wanted, [], beside, matching.Tally()))
    # Every number between those that were drawn will do.
    beside = matching.Beside(lambda: wanted, lambda ulps: wanted + 4, (1.0,), _no_place, 1.0, lambda: False)
    assert not bool(matching.unexcused(wanted + 2, wanted, wanted, [], beside, matching.Tally()))


def test_a_count_may_be_the_baseline_s_or_between() -> None:
    v = _values(0.5)
    right, beside = _count(v), _beside(v, _count)
    assert matching.number_excused(right + 1, right, right + 2, [], beside)
    assert not matching.number_excused(right + 3, right, right + 2, [], beside)


def test_a_count_of_exact_ties_is_not_excused() -> None:
    v = _values(0.0, ULP)
    right = _count(v)
    assert not matching.number_excused(right + 1, right, right, [], _beside(v, _count))


def test_only_whole_numbers_are_excused_as_such() -> None:
    v = _values(ULP)
    beside = _beside(v, _count)
    assert not matching.number_excused("a", "b", "b", [], beside)
    assert not matching.number_excused(0.5, 1, 1, [], beside)
    assert not matching.number_excused(1, None, 1, [], beside)
    assert matching.number_excused(
        True, False, False, [], _beside(_values(ULP)[1000:], lambda w: bool((w < 0).any()))
    )


def test_a_place_without_dimensions_is_no_count_between_two_others() -> None:
    x = torch.tensor([3.0, 1.0, 7.0, 7.0, 2.0])
    nothing = _beside(
        torch.zeros(3, dtype=torch.float64),
        _count,
        hardly=lambda: 2,
        moved=lambda ulps: 2,
        at_extreme=lambda x, place, largest: place,
    )
    assert matching.number_excused(3, 2, 2, [x], nothing)
    assert not matching.number_excused(1, 2, 2, [x], nothing)
    assert not matching.number_excused(1, 0, 4, [torch.tensor([9.0, 1.0, 7.0, 5.0, 2.0])], nothing)


def test_places_in_floats_of_one_byte_are_compared_too() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 0.5]]).to(torch.float8_e4m3fn)
    assert bool(matching.acceptable(*(torch.tensor([[i]]) for i in (2, 1, 1)), [x]).all())


def test_a_count_that_happens_to_point_at_a_smallest_value_is_no_place() -> None:
    x = torch.relu(torch.randn(1000, generator=torch.Generator().manual_seed(6)) - 1)
    right = int((x > 0).sum())
    other = next(i for i in range(right + 20, 1000) if x[i] == 0)
    assert x[right] == 0, "else nothing points at anything"
    drawn = {"hardly": lambda: right, "moved": lambda ulps: right}
    count = _beside(torch.zeros(3, dtype=torch.float64), _count, **drawn)
    assert not matching.number_excused(other, right, right, [x], count)
    place = _beside(
        torch.zeros(3, dtype=torch.float64), _count, at_extreme=lambda x, place, largest: place, **drawn
    )
    assert matching.number_excused(other, right, right, [x], place)


def test_a_quantity_may_be_off_where_noise_does_not_reach_by_as_much_and_as_often_as_the_baseline() -> None:
    wanted = torch.arange(1000, dtype=torch.int32) % 200
    base, found = wanted.clone(), wanted.clone()
    base[:3] += 1
    found[500:520] -= 1
    still = _beside(
        torch.zeros(3, dtype=torch.float64), _count, hardly=lambda: wanted, moved=lambda ulps: wanted
    )
    assert not bool(matching.unexcused(found, wanted, base, [], still, matching.Tally()).any())
    assert int(matching.unexcused(found, wanted, wanted, [], still, matching.Tally()).sum()) == 20
    found[500] -= 1
    assert matching.unexcused(found, wanted, base, [], still, matching.Tally()).nonzero().tolist() == [[500]]
    far = base.clone()
    far[0] += 50
    assert int(matching.unexcused(found, wanted, far, [], still, matching.Tally()).sum()) == 20
    found[:] = wanted - 1
    assert int(matching.unexcused(found, wanted, base, [], still, matching.Tally()).sum()) == 1000
    places = [v.long() for v in (wanted - (wanted == 7).int(), wanted, base)]
    assert bool(matching.unexcused(*places, [], still, matching.Tally()).any())


def test_a_mask_of_a_narrow_product_is_within_reach_also_where_each_element_is_seldom_turned() -> None:
    # What bfloat16 turned: forty scores at the edge of what it is off, so that a draw in six turns each.
    g = torch.Generator().manual_seed(3)
    for _ in range(20):
        values = 2.0**-7 * (2 * torch.rand(40, generator=g, dtype=torch.float64) / 3 - 1)
        wanted = values > 0

        def moved(ulps: float, values: torch.Tensor = values) -> torch.Tensor:
            return values + ulps * ULP * (2 * torch.rand(40, generator=g, dtype=torch.float64) - 1) > 0

        beside = matching.Beside(None, moved, (1.0, 4.0, 16.0), _no_place, 2.0**16, lambda: False)
        assert not matching.out_of_reach(~wanted, wanted, beside)


def test_a_mask_of_what_a_narrow_type_cannot_hold_is_out_of_reach_however_often_is_drawn() -> None:
    values = torch.full((40,), 1e5, dtype=torch.float64)
    beside = matching.Beside(
        lambda: values.isinf(),
        lambda ulps: (values * 1.01).isinf(),
        (1.0,),
        _no_place,
        2.0**16,
        lambda: False,
    )
    assert matching.out_of_reach(values.half().isinf(), values.isinf(), beside)
