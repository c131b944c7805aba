"""Estimators, intervals and stopping rules for comparing two programs' times: pure functions over numbers.

Log ratios are ln(baseline time / candidate time) everywhere: above 0, the candidate is faster.
"""
