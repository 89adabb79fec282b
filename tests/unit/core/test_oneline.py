import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.core.oneline import few, one_line


@pytest.mark.fault("X12")
@settings(deadline=None)
@given(st.text(max_size=300), st.integers(min_value=1, max_value=80))
def test_any_text_becomes_one_printable_line_of_at_most_the_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


@pytest.mark.fault("X12")
@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a\n\r\tb  c", "a b c"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202egpj.exe", r"a\u202egpj.exe"),
        ("two\u2028lines", "two lines"),
        ("\ud800", r"\ud800"),
        ("Grüße, 世界", "Grüße, 世界"),
    ],
    ids=["white-space", "colour", "c1-escape", "right-to-left", "line-separator", "surrogate", "plain"],
)
def test_what_could_fool_a_terminal_is_spelled_out(text: str, want: str) -> None:
    assert one_line(text, 100) == want


def test_a_long_text_is_cut_with_an_ellipsis_and_not_read_to_its_end() -> None:
    assert one_line("x" * 5_000_000, 10) == "xxxxxxxxx…"
    assert one_line(" " * 30 + "late", 10) == "…"


def test_few_words_are_shown_and_the_others_counted() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few([str(n) for n in range(8)]) == "0, 1, 2, 3, 4 and 3 more"
