"""Model lists of all sorts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.runners.served import served_models

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "id", "meta", "aliases"]), inner),
    max_leaves=10,
)


@given(JSON)
def test_any_json_is_survived(document: Any) -> None:
    found = served_models(document)
    assert found is None or all(isinstance(model.name, str) for model in found)


@pytest.mark.parametrize("document", [None, [], "x", {}, {"data": None}, {"data": {"id": "m"}}])
def test_what_is_no_list_is_none(document: Any) -> None:
    assert served_models(document) is None


def test_entries_without_a_name_are_left_out() -> None:
    found = served_models({"data": [{"id": 3}, "m", {"id": "m", "meta": {"n_vocab": 0, "n_params": True, "ftype": ""}}]})
    assert found is not None
    assert [model.name for model in found] == ["m"]
    assert found[0].settings() == {}
    assert found[0].vocab_size is None
    assert found[0].weights_type is None
