"""The ledger as text: all of it, or a reason why not."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.strategies import json_values

from gpusharing.core.errors import InvalidInput
from gpusharing.core.ledger import Claim, Ledger
from gpusharing.core.savedledger import decode, encode
from gpusharing.core.sealed import seal

NAMES = st.text(min_size=1, max_size=20)
CLAIMS = st.builds(
    Claim,
    st.sampled_from(["withdrawing", "reserved", "releasing"]),
    NAMES,
    st.lists(NAMES, max_size=3, unique=True).map(lambda names: tuple(sorted(names))),
)
LEDGERS = st.builds(
    Ledger,
    st.dictionaries(NAMES, CLAIMS, max_size=4),
    st.dictionaries(NAMES, NAMES, max_size=2),
    st.none() | st.integers(0, 2**40),
)
ONE = Ledger({"GPU-1": Claim("reserved", "team/p", ("a", "b"))}, {"c": "GPU-2"}, 7)


@settings(deadline=None)
@given(LEDGERS)
def test_what_is_saved_is_read(ledger: Ledger) -> None:
    assert decode(encode(ledger)) == ledger


@settings(deadline=None)
@given(st.data())
def test_one_that_is_cut_off_or_edited_is_refused(data: st.DataObject) -> None:
    text = encode(ONE)
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InvalidInput) as refused:
        decode(text[:cut])
    assert refused.value.hint
    at = text.index('"claims"') + data.draw(st.integers(0, 20))
    with pytest.raises(InvalidInput):
        decode(text[:at] + "%" + text[at + 1 :])


@settings(deadline=None, max_examples=50)
@given(json_values)
def test_any_body_is_read_or_refused(body: object) -> None:
    with pytest.raises(InvalidInput):
        decode(seal("ledger", 1, body))
    with pytest.raises(InvalidInput):
        decode(json.dumps(body))
