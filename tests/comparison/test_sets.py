"""Input sets: drawn, mixed from draws, and bent into probes that keep their structure."""

import types
from typing import Any

import pytest
import torch

from trackside.comparison.probe_kinds import PROBES
from trackside.comparison.sets import Feeder, InputSet, alike, structure_of


def feeder(inputs: Any, domain: Any = None) -> Feeder:
    workload = types.SimpleNamespace(inputs=lambda seed, device, shape: inputs(seed), domain=domain)
    made = Feeder(workload, "cpu")
    made.study(made.draw(1, None), made.draw(2, None))
    return made


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _suited(values: torch.Tensor, kind: str) -> torch.Tensor:
    """Values of which that kind of probe can be made."""
    if kind == "peaked":
        return torch.nn.functional.normalize(values, dim=-1)
    # What is drawn on both sides of zero needs no negative value.
    return values.abs() if kind == "one-negative" else values


def symmetric(seed: int) -> torch.Tensor:
    x = normal(seed, 16, 16)
    return x + x.T


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: normal(0, 8, 8), []),
        (lambda: torch.ones(9), ["constant"]),
        (lambda: torch.relu(normal(0, 50)), ["zeros"]),
        (lambda: torch.cat([normal(0, 5), torch.tensor([float("inf")])]), ["nonfinite"]),
        (lambda: symmetric(0), ["symmetric"]),
        (lambda: normal(0, 40).sort().values, ["sorted"]),
        (lambda: torch.nn.functional.normalize(normal(0, 6, 9), dim=-1), ["unit rows"]),
        (lambda: torch.softmax(normal(0, 6, 9), -1), ["row sums"]),
        (lambda: (normal(0, 50) > 0) * 2.0 - 1, ["discrete"]),
        (lambda: (normal(0, 50) > 0) / 0.9, ["discrete", "zeros"]),
        (lambda: (9 * normal(0, 50)).round() + 0.5, []),
        (lambda: (9 * normal(0, 50)).round() + 100, ["discrete"]),
    ],
)
def test_structure_in_a_tensor_is_seen(make: Any, wanted: list[str]) -> None:
    assert structure_of(make()) == wanted


@pytest.mark.parametrize("kind", PROBES)
def test_labels_masks_and_places_are_only_drawn_though_they_are_floats(kind: str) -> None:
    made = feeder(lambda seed: (_suited(normal(seed, 8, 8), kind), (normal(seed + 9, 64) > 0).float()))
    base = made.draw(9, None)
    bent = made.probe(kind, base, 4)
    assert bent is not None
    assert not torch.equal(bent.tensors[0], base.tensors[0])
    assert torch.equal(bent.tensors[1], base.tensors[1])


def test_leaves_that_never_vary_are_known() -> None:
    made = feeder(lambda seed: (normal(seed, 4), torch.arange(4.0)))
    assert made.varies == [True, False]


def test_a_mask_of_infinities_or_nan_that_every_draw_shares_never_varies() -> None:
    mask = torch.tensor([0.0, float("-inf"), float("nan")])
    made = feeder(lambda seed: (normal(seed, 4), mask.clone(), torch.zeros(0)))
    assert made.varies == [True, False, False]
    assert list(made.shared) == [1]


def test_a_later_draw_shows_that_a_small_number_varies_after_all() -> None:
    made = feeder(lambda seed: (normal(seed, 4), torch.tensor(seed // 3)))
    assert made.varies == [True, False]
    assert made.moved(made.draw(2, None)) == []
    assert made.moved(made.draw(3, None)) == [1]


@pytest.mark.parametrize("kind", PROBES)
def test_no_probe_moves_zeros(kind: str) -> None:
    made = feeder(lambda seed: (_suited(normal(seed, 4, 16), kind), torch.zeros(16)))
    bent = made.probe(kind, made.draw(9, None), 4)
    assert bent is not None
    assert made.moved(bent) == []


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), True),
        (torch.tensor([1.0, float("nan")]), torch.tensor([float("nan"), 1.0]), False),
        (torch.tensor([0.0]), torch.tensor([-0.0]), True),
        (torch.tensor([1.5]).half(), torch.tensor([1.5]).double(), True),
        (torch.tensor([2**60]), torch.tensor([2**60 + 1]), False),
        (torch.zeros(2), torch.zeros(2, 1), False),
    ],
)
def test_tensors_are_alike_where_their_values_are(
    one: torch.Tensor, other: torch.Tensor, wanted: bool
) -> None:
    assert alike(one, other) is wanted


def test_a_derived_set_mixes_two_draws_and_is_new_each_time() -> None:
    made = feeder(lambda seed: (normal(seed, 1000),))
    bases = [base.tensors[0] for base in made._bases]
    first, second = made.derive(7).tensors[0], made.derive(8).tensors[0]
    apart = (bases[0] - bases[1]).abs()
    near = [(first - base).abs() < 0.07 * apart for base in bases]
    assert bool((near[0] | near[1]).all())
    assert all(0.2 < float(one.float().mean()) < 0.8 for one in near)
    assert not torch.equal(first, second)


def test_no_value_of_a_derived_set_returns_at_its_place_in_another() -> None:
    made = feeder(lambda seed: (normal(seed, 1000).half(),))
    seen = [base.tensors[0] for base in made._bases] + [made.derive(n).tensors[0] for n in range(6)]
    for i, one in enumerate(seen):
        for other in seen[:i]:
            assert float((one == other).float().mean()) < 0.1


def test_derived_values_stay_in_the_range_that_the_draws_keep_to() -> None:
    made = feeder(lambda seed: (1 + normal(seed, 1000).abs().clamp(max=1),))
    (x,) = made.derive(5).tensors
    assert float(x.min()) >= 1
    assert float(x.max()) <= 2


@pytest.mark.parametrize(
    ("inputs", "domain"),
    [(lambda seed: (normal(seed, 500).mul(40).round(),), None), (lambda seed: (normal(seed, 500),), "fixed")],
    ids=["whole numbers", "fixed"],
)
def test_values_that_only_inputs_can_make_are_mixed_and_not_changed(inputs: Any, domain: Any) -> None:
    made = feeder(inputs, domain)
    (x,), bases = made.derive(3).tensors, [base.tensors[0] for base in made._bases]
    assert bool(((x == bases[0]) | (x == bases[1])).all())


def test_leaves_of_one_shape_share_the_mask_so_that_relations_between_them_survive() -> None:
    def inputs(seed: int) -> Any:
        x = normal(seed, 500)
        return x, 2 * x

    x, twice = feeder(inputs).derive(3).tensors
    assert torch.equal(twice, 2 * x)


def test_derived_sets_keep_strides_and_gradients() -> None:
    made = feeder(lambda seed: (normal(seed, 6, 4).t().requires_grad_(),))
    (x,) = made.derive(1).tensors
    assert (x.shape, x.stride(), x.requires_grad) == ((4, 6), (1, 4), True)


@pytest.mark.parametrize("kind", PROBES)
def test_a_probe_changes_unstructured_floats_and_leaves_integers(kind: str) -> None:
    made = feeder(lambda seed: (_suited(normal(seed, 16, 16), kind), torch.arange(5)))
    base = made.draw(9, None)
    bent = made.probe(kind, base, 4)
    assert bent is not None
    assert not torch.equal(bent.tensors[0], base.tensors[0])
    assert torch.equal(bent.tensors[1], base.tensors[1])


def test_one_element_is_one_large_element_of_each_sign_that_there_is() -> None:
    for make, signs in ((normal, [-1.0, 1.0]), (lambda *a: normal(*a).abs(), [1.0])):
        made = feeder(lambda seed, make=make: (make(seed, 16, 16),))
        base = made.draw(9, None)
        bent = made.probe("one-element", base, 4)
        assert bent is not None
        changed = bent.tensors[0] != base.tensors[0]
        grown = bent.tensors[0][changed]
        assert sorted(grown.sign().tolist()) == signs
        assert torch.allclose(grown.abs() / base.tensors[0][changed].abs(), torch.tensor(1024.0))


def test_one_element_is_no_small_one_and_in_neither_the_first_line_nor_the_last() -> None:
    made = feeder(lambda seed: (normal(seed, 4, 64),))
    base = made.draw(9, None)
    for seed in range(40):
        bent = made.probe("one-element", base, seed)
        assert bent is not None
        at = torch.nonzero(bent.tensors[0] != base.tensors[0])
        assert set(at[:, 0].tolist()) <= {1, 2}
        assert bool((bent.tensors[0][tuple(at.T)].abs() > 1024 * 0.4).all())


def test_of_few_values_among_zeros_one_is_found() -> None:
    def inputs(seed: int) -> tuple[torch.Tensor]:
        x = torch.zeros(1 << 16)
        x[[5, 1 << 12]] = normal(seed, 2)
        return (x,)

    made = feeder(inputs)
    base = made.draw(9, None)
    bent = made.probe("one-element", base, 4)
    assert bent is not None
    assert 1 <= int((bent.tensors[0] != base.tensors[0]).sum()) <= 2


def test_one_negative_element_is_for_inputs_that_have_none() -> None:
    made = feeder(lambda seed: (normal(seed, 16, 16).abs(), normal(seed, 16)))
    base = made.draw(9, None)
    bent = made.probe("one-negative", base, 4)
    assert bent is not None
    assert int((bent.tensors[0] < 0).sum()) == 1
    assert torch.equal(bent.tensors[1], base.tensors[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_ends_hold_the_largest_and_the_smallest_value(dtype: torch.dtype) -> None:
    made = feeder(lambda seed: (normal(seed, 7, 9).to(dtype),))
    bent = made.probe("ends", made.draw(9, None), 4)
    assert bent is not None
    flat = bent.tensors[0].reshape(-1)
    assert bool(torch.isfinite(flat).all())
    assert (int(flat.argmax()), int(flat.argmin())) == (62, 61)
    assert int(flat[:-2].argmax()) == 0


def test_ends_of_a_padded_input_are_where_its_values_end() -> None:
    made = feeder(lambda seed: (torch.cat([normal(seed, 20), torch.zeros(4)]),))
    bent = made.probe("ends", made.draw(9, None), 4)
    assert bent is not None
    assert int(bent.tensors[0].argmax()) == 19
    assert not bool(bent.tensors[0][20:].any())


def test_zeros_are_a_row_and_a_column() -> None:
    made = feeder(lambda seed: (normal(seed, 6, 8),))
    bent = made.probe("zeros", made.draw(9, None), 4)
    assert bent is not None
    zero = bent.tensors[0] == 0
    assert int(zero.all(1).sum()) == int(zero.all(0).sum()) == 1
    assert int(zero.sum()) == 6 + 8 - 1


def test_in_order_is_one_line_of_each_dimension_the_same_in_tensors_of_one_shape() -> None:
    made = feeder(
        lambda seed: (normal(seed, 40, 50), normal(seed, 40, 50) + 3 + normal(seed + 1, 40, 50).abs())
    )
    base = made.draw(9, None)
    bent = made.probe("in-order", base, 4)
    assert bent is not None
    for before, after in zip(base.tensors, bent.tensors, strict=True):
        assert torch.equal(before.reshape(-1).sort().values, after.reshape(-1).sort().values)
        # The row is sorted after the column that crosses it, so it is in order as a whole.
        steps = after.diff(dim=-1)
        assert int((steps >= 0).all(-1).sum() + (steps <= 0).all(-1).sum()) == 1
        assert int((before != after).sum()) <= 40 + 50
    assert bool((bent.tensors[0] <= bent.tensors[1]).all())


@pytest.mark.parametrize(
    "inputs",
    [
        symmetric,
        lambda seed: torch.stack([symmetric(seed), symmetric(seed + 1), symmetric(seed + 2)]),
        lambda seed: torch.relu(normal(seed, 16, 16)),
        lambda seed: normal(seed, 16, 16).sort(-1).values,
        lambda seed: torch.nn.functional.normalize(normal(seed, 16, 16), dim=-1),
        lambda seed: torch.softmax(normal(seed, 16, 16), -1),
    ],
    ids=["symmetric", "batch-of-symmetric", "zeros", "sorted", "unit-rows", "row-sums"],
)
@pytest.mark.parametrize("kind", PROBES)
def test_a_probe_keeps_the_structure_that_it_found(inputs: Any, kind: str) -> None:
    made = feeder(lambda seed: (inputs(seed),))
    base = made.draw(9, None)
    bent = made.probe(kind, base, 4)
    if bent is None:
        return
    before, after = base.tensors[0], bent.tensors[0]
    assert set(structure_of(before)) <= set(structure_of(after))
    assert torch.equal(before == 0, after == 0)
    if "unit rows" in structure_of(before):
        assert torch.allclose(before.norm(dim=-1), after.norm(dim=-1))
    if "row sums" in structure_of(before):
        assert torch.allclose(before.sum(dim=-1), after.sum(dim=-1))


def test_a_batch_of_covariances_keeps_its_eigenvalues_under_other_signs() -> None:
    made = feeder(lambda seed: ((half := normal(seed, 5, 8, 8)) @ half.mT,))
    base = made.draw(9, None)
    bent = made.probe("signs", base, 4)
    assert bent is not None
    before, after = base.tensors[0], bent.tensors[0]
    assert not torch.equal(before, after)
    assert torch.equal(after, after.mT)
    assert torch.allclose(torch.linalg.eigvalsh(before), torch.linalg.eigvalsh(after), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("inputs", [lambda x: torch.softmax(x, -1), torch.nn.functional.normalize])
def test_peaked_rows_have_few_values_that_take_nearly_all(inputs: Any) -> None:
    made = feeder(lambda seed: (inputs(normal(seed, 32, 64)),))
    base = made.draw(9, None)
    bent = made.probe("peaked", base, 4)
    assert bent is not None
    before, after = (one.tensors[0].abs() for one in (base, bent))
    shares = [x.amax(-1) / x.sum(-1) for x in (before, after)]
    assert bool((shares[1] > 2 * shares[0]).all())
    assert torch.equal(before.argmax(-1), after.argmax(-1))


def test_a_chain_of_peaked_moves_remembers_for_dozens_of_steps() -> None:
    for seed in range(20):
        made = feeder(lambda seed: (torch.softmax(normal(seed, 32, 32), -1),))
        bent = made.probe("peaked", made.draw(seed, None), seed)
        assert bent is not None
        rates = torch.linalg.eigvals(bent.tensors[0].double()).abs().sort(descending=True).values
        # After 30 steps what is left of the beginning is more than rounding.
        assert float(rates[1]) > 0.7


def test_aligned_lines_lie_beside_one_of_their_own_and_of_the_next_tensor_at_the_same_place() -> None:
    made = feeder(lambda seed: tuple(normal(seed + n, 2, 32, 24) for n in range(3)))
    base = made.draw(9, None)
    bent = made.probe("aligned", base, 4)
    assert bent is not None
    changed = [(a != b).any(-1).nonzero() for a, b in zip(base.tensors, bent.tensors, strict=True)]
    assert [len(places) for places in changed] == [2, 3, 3]
    lines = [x[tuple(places.T)] for x, places in zip(bent.tensors, changed, strict=True)]
    source = torch.nn.functional.normalize(base.tensors[0].reshape(-1, 24), dim=-1)
    for line in lines:
        cosines = torch.nn.functional.normalize(line, dim=-1) @ source.T
        nearest = cosines.abs().argmax(-1)
        assert len(set(nearest.tolist())) == 1
        assert float(cosines.abs().amax(-1).min()) > 0.9
        assert {float(c.sign()) for c in cosines[:, nearest[0]]} == {1.0, -1.0}
    # Nobody's norm is another one, so that what is kept to a length stays.
    for a, b in zip(base.tensors, bent.tensors, strict=True):
        assert torch.allclose(a.norm(dim=-1), b.norm(dim=-1))


@pytest.mark.parametrize("kind", ["signs", "large", "huge", "one-element", "mixed-scales", "in-order"])
def test_complex_numbers_are_bent_and_stay_complex(kind: str) -> None:
    made = feeder(lambda seed: (torch.complex(normal(seed, 8, 8), normal(seed + 5, 8, 8)),))
    base = made.draw(9, None)
    bent = made.probe(kind, base, 4)
    assert bent is not None
    assert bent.tensors[0].dtype == torch.complex64
    assert not torch.equal(bent.tensors[0], base.tensors[0])
    assert bent.bent == [0]


def test_phases_keep_their_modulus_and_hermitian_matrices_stay_so() -> None:
    phases = feeder(lambda seed: (torch.polar(torch.ones(9, 9), normal(seed, 9, 9)),))
    base = phases.draw(9, None)
    for kind in PROBES:
        bent = phases.probe(kind, base, 4)
        assert bent is None or torch.allclose(bent.tensors[0].abs(), torch.ones(9, 9)), kind
    hermitian = feeder(
        lambda seed: ((z := torch.complex(normal(seed, 9, 9), normal(seed + 5, 9, 9))) + z.mH,)
    )
    base = hermitian.draw(9, None)
    made = {kind: hermitian.probe(kind, base, 4) for kind in PROBES}
    assert made["huge"] is not None
    assert all(one is None or torch.equal(one.tensors[0], one.tensors[0].mH) for one in made.values())


def test_masks_and_missing_values_stay_where_they_are_and_the_rest_is_bent() -> None:
    holes = {float("-inf"): normal(1, 8, 8) > 1, float("nan"): normal(2, 8, 8) > 1}

    def inputs(seed: int) -> tuple[torch.Tensor]:
        x = normal(seed, 8, 8)
        for value, places in holes.items():
            x[places] = value
        return (x,)

    made = feeder(inputs)
    base = made.draw(9, None)
    bent = {kind: made.probe(kind, base, 4) for kind in PROBES}
    assert bent["large"] is not None
    assert bent["in-order"] is None
    before = base.tensors[0]
    for kind, one in bent.items():
        if one is not None:
            after = one.tensors[0]
            assert torch.equal(after[~before.isfinite()].isnan(), before[~before.isfinite()].isnan()), kind
            assert torch.equal(after.isfinite(), before.isfinite()), kind
            assert not torch.equal(after.nan_to_num(), before.nan_to_num()), kind


def test_inputs_of_numbers_that_no_probe_bent_are_known() -> None:
    made = feeder(
        lambda seed: (normal(seed, 8), normal(seed, 8).sort().values, (normal(seed, 9) > 0).float())
    )
    assert made.unbent([0]) == [1]
    assert made.unbent([0, 1]) == []


@pytest.mark.parametrize(
    ("domain", "kept"),
    [
        ("positive", lambda x: bool((x > 0).all())),
        ("nonnegative", lambda x: bool((x >= 0).all())),
        ("unit", lambda x: bool(((x >= 0) & (x <= 1)).all())),
    ],
)
def test_a_probe_stays_inside_the_declared_domain(domain: str, kept: Any) -> None:
    made = feeder(lambda seed: (torch.sigmoid(normal(seed, 32)),), domain)
    for kind in PROBES:
        bent = made.probe(kind, made.draw(9, None), 4)
        assert bent is None or kept(bent.tensors[0]), kind


def test_a_domain_can_be_given_per_input() -> None:
    made = feeder(lambda seed: (normal(seed, 8), normal(seed, 8)), {0: "fixed"})
    base = made.draw(9, None)
    bent = made.probe("signs", base, 4)
    assert bent is not None
    assert torch.equal(bent.tensors[0], base.tensors[0])
    assert not torch.equal(bent.tensors[1], base.tensors[1])


def test_inputs_without_floats_have_no_probe() -> None:
    made = feeder(lambda seed: (torch.randint(0, 9, (5,), generator=torch.Generator().manual_seed(seed)),))
    assert all(made.probe(kind, made.draw(9, None), 4) is None for kind in PROBES)


def test_a_specification_places_leaves_apart_and_aligned() -> None:
    made = InputSet((torch.zeros(3), {"x": torch.zeros(100, dtype=torch.int64)}, 2.5))
    spec = made.specification("cpu")
    first, second = spec["leaves"]
    assert first["offset"] + first["span"] <= second["offset"]
    assert second["offset"] % 256 == 0
    assert spec["bytes"] >= second["offset"] + 800
    assert made.rebuilt()[2] == 2.5


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
# Rows of so few bits have no common norm.
@pytest.mark.parametrize("kind", [kind for kind in PROBES if kind != "peaked"])
def test_floats_of_one_byte_are_bent_too(kind: str, dtype: torch.dtype) -> None:
    made = feeder(lambda seed: (_suited(normal(seed, 16, 16), kind).to(dtype),))
    base = made.draw(9, None)
    bent = made.probe(kind, base, 4)
    assert bent is not None
    assert bent.tensors[0].dtype == dtype
    assert not torch.equal(bent.tensors[0].float(), base.tensors[0].float())


def test_an_input_of_one_byte_that_every_draw_shares_is_seen_to_be_constant() -> None:
    shared = normal(0, 16, 16).to(torch.float8_e4m3fn)
    assert feeder(lambda seed: (shared, normal(seed, 4))).varies == [False, True]


@pytest.mark.parametrize(
    "view", [lambda x: x.mH, lambda x: x.conj(), lambda x: x.conj().imag], ids=["mH", "conj", "negated"]
)
def test_what_torch_conjugates_or_negates_when_it_reads_is_in_memory_as_it_reads(view: Any) -> None:
    x = view(torch.randn(4, 6, dtype=torch.complex64))
    (held,) = InputSet((x,)).tensors
    assert (held.is_conj(), held.is_neg()) == (False, False)
    assert torch.equal(held, x)
    raw = torch.empty(0, dtype=held.dtype).set_(held.untyped_storage(), 0, held.shape, held.stride())
    assert torch.equal(raw, x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(3).to_sparse_csr(), "input 1 is a tensor with layout torch.sparse_csr"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "input 1 is a nested tensor"),
        (lambda: torch.ones(2, device="meta"), "input 1 is a tensor on the meta device"),
        (lambda: torch.ones(2).as_subclass(_Kind), "input 1 is a .*_Kind"),
        (lambda: torch.ones(2, dtype=torch.uint8).view(torch.bits8), "input 1 is a tensor of bits8"),
    ],
    ids=["sparse", "nested", "meta", "subclass", "bits"],
)
@pytest.mark.filterwarnings("ignore:.*(nested tensors|Sparse CSR)")
def test_an_input_that_cannot_be_handed_over_as_bytes_is_named_and_a_way_out(make: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words + ".*needed: ordinary strided tensors.*make it in `run`"):
        InputSet((torch.ones(1), make())).specification("cpu")


class _Kind(torch.Tensor):
    pass


def test_a_sparse_input_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="sparse"):
        InputSet((torch.eye(3).to_sparse(),)).specification("cpu")


def expanded(seed: int) -> tuple[torch.Tensor, ...]:
    return normal(seed, 6, 9), normal(seed + 1, 9).expand(6, 9), normal(seed + 2, 6, 1).expand(6, 9)


def test_expanded_inputs_are_mixed_and_bent_as_what_they_repeat() -> None:
    fed = feeder(expanded)
    mixed = fed.derive(7)
    probed = fed.probe("signs", fed.draw(1, None), 3)
    assert probed is not None
    for made in (mixed, probed):
        assert [t.stride() for t in made.tensors] == [(9, 1), (0, 1), (1, 0)]
        assert not torch.equal(made.tensors[1], expanded(1)[1])
