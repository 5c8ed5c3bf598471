"""Objectives: patterns for SKUs that Prometheus and the controller read alike, within a bounded time."""

import pytest

from autoscaler.model.wait_objectives import (
    MAX_PATTERN_LENGTH,
    UnusableObjectiveError,
    WaitObjective,
    objective_of,
    parse_objective,
)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (".*", "gpu", ""),
        ("windows.*", "windows.g4dn.xlarge", "linux.windows"),
        (r"linux\.(arm64\.)?m7g?\.[0-9]+xlarge", "linux.arm64.m7g.4xlarge", "linux.m7g.xlarge"),
        ("(?i)GPU", "gpu", "cpu"),
        ("(?:linux|windows).*gpu|a.*b.*c.*", "windows.gpu", "gpu"),
        (r"a{2}\w{1,3}[^a-z.]\d{1,}?", "aabZ12", "abZ12"),
    ],
)
def test_usual_patterns_can_be_used(pattern: str, matching: str, other: str) -> None:
    objective = parse_objective(f"a={pattern}:300:0.9")
    assert objective == WaitObjective("a", pattern, 300, 0.9)
    assert objective_of((objective,), matching) == objective
    assert objective_of((objective,), other) == (objective if pattern == ".*" else None)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("x{99999999999999999999}", "cannot be used from '{9999"),
        ("(" * 90 + "x" + ")" * 90, "has more than 3 groups"),
        ("(" * 3000 + "x" + ")" * 3000, "has 6001 characters"),
        ("x" * (MAX_PATTERN_LENGTH + 1), "has 201 characters, and 200 are allowed"),
        ("(?=x).*", "cannot be used from '(?=x).*' on"),
        ("(?P<a>x)", "cannot be used"),
        ("(?s)x", "cannot be used"),
        ("a(?i)", "cannot be used"),
        (r"(a)\1", r"cannot be used from '\\1' on"),
        (r"a\Z", "cannot be used"),
        ("(a+)+b", "cannot be used from '+b' on"),
        ("(a|a)*b", "cannot be used from '*b' on"),
        ("(a?){9}b", "cannot be used from '{9}b' on"),
        ("a++", "cannot be used from '+' on"),
        ("*a", "cannot be used from '*a' on"),
        ("[[:alpha:]]", "cannot be used"),
        ("[z-a]", "is no regular expression"),
        ("a{3,1}", "is no regular expression"),
        ("a)", "is no regular expression"),
        ("(a", "is no regular expression"),
        ("a?a?a?a?a?aaaaa", "has more than 3 groups and * + ? {}"),
        ("(a|b.*.*)(c)?.*", "has more than 3 groups"),
        ("(a|a)" * 40 + "b", "has 201 characters"),
        ("(a|a)" * 5, "has more than 3 groups"),
        ("gpu ", "cannot be used from ' ' on"),
        ("|".join(["a?" * 3] * 3), "would take long to match"),
        ("|".join([".*.*z"] * 33), "would take long to match"),
    ],
)
def test_a_pattern_that_prometheus_or_python_cannot_match_is_refused(
    pattern: str, words: str
) -> None:
    with pytest.raises(UnusableObjectiveError) as caught:
        parse_objective(f"a={pattern}:300:0.9")
    assert words in str(caught.value)


def test_each_sku_is_matched_once() -> None:
    objectives = (WaitObjective("once", "once.*"),)
    before = objective_of.cache_info()
    assert [objective_of(objectives, "once.a") for _ in range(100)] == [objectives[0]] * 100
    after = objective_of.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 99)
