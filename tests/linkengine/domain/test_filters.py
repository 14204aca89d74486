import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.names import FilterType, NameFilter, PatternType, chooses, filters_to_json, known_filters, parse_filters

ALL = NameFilter(name="*")
FOO = NameFilter(name="foo", pattern_type=PatternType.PREFIXED)
NO_FOO_BAR = NameFilter(name="foo.bar", pattern_type=PatternType.PREFIXED, filter_type=FilterType.EXCLUDE)
rows = st.builds(
    NameFilter,
    name=st.text("abf.", min_size=1, max_size=4) | st.just("x"),
    pattern_type=st.sampled_from(PatternType),
    filter_type=st.sampled_from(FilterType),
)


def test_an_empty_list_includes_nothing() -> None:
    assert not chooses([], "orders")


def test_a_star_includes_everything() -> None:
    assert chooses([ALL], "orders")


def test_a_literal_name_includes_only_itself() -> None:
    assert chooses([NameFilter(name="foo")], "foo")
    assert not chooses([NameFilter(name="foo")], "football")


def test_a_prefix_includes_every_name_that_begins_with_it() -> None:
    assert [chooses([FOO], name) for name in ("foo", "football", "foo.fighters", "a.foo")] == [True, True, True, False]


def test_exclude_takes_precedence_over_include_in_any_order() -> None:
    for order in permutations([ALL, FOO, NO_FOO_BAR]):
        assert chooses(order, "foo.fighters")
        assert not chooses(order, "foo.bar.fighters")


def test_an_exclude_alone_includes_nothing() -> None:
    assert not chooses([NO_FOO_BAR], "orders")


@given(st.lists(rows), st.text("abf.x", max_size=5), st.randoms())
def test_the_order_of_filters_does_not_matter(filters: list[NameFilter], name: str, random: object) -> None:
    shuffled = list(filters)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert chooses(shuffled, name) == chooses(filters, name)


@given(st.lists(rows))
def test_filters_survive_conversion_to_json(filters: list[NameFilter]) -> None:
    assert parse_filters(filters_to_json(filters)) == tuple(filters)


def test_the_documented_example_is_parsed() -> None:
    text = """{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"},
                                {"name": "secret", "patternType": "prefixed", "filterType": "exclude"}]}"""

    filters = parse_filters(text)

    assert [name for name in ("a", "secret-1") if chooses(filters, name)] == ["a"]


def test_group_filters_have_their_own_key() -> None:
    text = json.dumps({"groupFilters": [{"name": "g", "patternType": "LITERAL", "filterType": "INCLUDE"}]})

    assert parse_filters(text, key="groupFilters") == (NameFilter(name="g"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        pytest.param("[" * 100_000, "nested too deeply", id="deep"),
        ("[]", '"topicFilters"'),
        ("{}", '"topicFilters"'),
        ('{"topicFilters": {}}', '"topicFilters"'),
        ('{"topicFilters": [1]}', "row 1 is not an object"),
        ('{"topicFilters": [{"patternType": "LITERAL", "filterType": "INCLUDE"}]}', 'row 1 needs a "name"'),
        ('{"topicFilters": [{"name": "", "patternType": "LITERAL", "filterType": "INCLUDE"}]}', 'row 1 needs a "name"'),
        ('{"topicFilters": [{"name": "a", "filterType": "INCLUDE"}]}', '"patternType"'),
        (
            '{"topicFilters": [{"name": "a", "patternType": "REGEX", "filterType": "INCLUDE"}]}',
            "LITERAL, PREFIXED, not 'REGEX'",
        ),
        ('{"topicFilters": [{"name": "a", "patternType": "LITERAL", "filterType": 1}]}', '"filterType"'),
        ('{"topicFilters": [{"name": "*", "patternType": "PREFIXED", "filterType": "INCLUDE"}]}', "LITERAL"),
        ('{"topicFilters": [{"name": "a", "pattern": "LITERAL"}]}', "unknown fields: pattern"),
    ],
)
def test_an_invalid_filter_document_is_refused_with_row_and_field(text: str, words: str) -> None:
    with pytest.raises(LinkEngineError) as refused:
        parse_filters(text)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert words in refused.value.message


@pytest.mark.parametrize("text", ["", "[]", "{", '{"topicFilters": [{}]}'])
def test_an_invalid_stored_document_is_shown_as_no_filters(text: str) -> None:
    assert known_filters(text) == ()
    assert known_filters(filters_to_json([FOO])) == (FOO,)
