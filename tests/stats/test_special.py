"""The hand-written special functions against SciPy's."""

import pytest
from scipy import special
from scipy import stats as reference

from trackside.stats.special import betainc, betaincinv, t_quantile

SHAPES = [0.3, 0.5, 1.0, 2.5, 5.0, 40.0, 500.0]


@pytest.mark.parametrize("a", SHAPES)
@pytest.mark.parametrize("b", SHAPES)
def test_betainc_agrees_with_scipy(a: float, b: float) -> None:
    for x in (0.0, 1e-9, 0.01, 0.2, 0.5, 0.77, 0.999, 1.0):
        assert betainc(a, b, x) == pytest.approx(float(special.betainc(a, b, x)), rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("a", SHAPES)
@pytest.mark.parametrize("b", [0.5, 1.0, 7.0, 500.0])
def test_betaincinv_agrees_with_scipy(a: float, b: float) -> None:
    for p in (0.0, 1e-4, 0.025, 0.5, 0.975):
        assert betaincinv(a, b, p) == pytest.approx(float(special.betaincinv(a, b, p)), rel=1e-9)


@pytest.mark.parametrize("df", [0.7, 1, 2, 3, 5, 9, 29.5, 200, 1e4, 1e6])
def test_t_quantile_agrees_with_scipy(df: float) -> None:
    for p in (1e-6, 0.005, 0.025, 0.3, 0.4999, 0.5, 0.6, 0.975, 0.9995):
        assert t_quantile(p, df) == pytest.approx(float(reference.t.ppf(p, df)), rel=1e-7, abs=1e-12)


def test_t_quantile_is_exact_where_a_closed_form_exists() -> None:
    assert t_quantile(0.75, 1) == pytest.approx(1.0, rel=1e-13)
    assert t_quantile(0.975, 5) == pytest.approx(2.5705818356363, rel=1e-12)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, float("nan")])
def test_t_quantile_refuses_a_probability_outside_the_open_unit_interval(p: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        t_quantile(p, 5)


@pytest.mark.parametrize("df", [0.0, -1.0, float("inf"), float("nan")])
def test_t_quantile_refuses_impossible_degrees_of_freedom(df: float) -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_quantile(0.9, df)


def test_the_beta_functions_refuse_arguments_outside_their_domain() -> None:
    with pytest.raises(ValueError, match=r"x must lie in \[0, 1\]"):
        betainc(1, 1, 1.1)
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\]"):
        betaincinv(1, 1, -0.1)
    with pytest.raises(ValueError, match="positive and finite"):
        betainc(0, 1, 0.5)
    with pytest.raises(ValueError, match="positive and finite"):
        betaincinv(1, float("inf"), 0.5)
