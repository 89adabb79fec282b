"""YAML with lines: what is read, where it stands, and what breaks it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.api.located import Document
from gpusharing.api.yamlscalars import resolve
from gpusharing.api.yamltext import MAX_DEPTH, MAX_DOCUMENTS, MAX_VALUES, read


def only(text: str) -> Document:
    [document] = read(text)
    return document


def problems_of(text: str) -> list[tuple[int, str, str, str]]:
    """Every problem of a text: line, severity, path, message."""
    return [
        (finding.line, finding.problem.severity, finding.problem.path, finding.problem.message)
        for document in read(text)
        for finding in document.findings
    ]


@pytest.mark.parametrize(
    ("plain", "want"),
    [
        ("4", 4),
        ("010", 8),
        ("0x10", 16),
        ("0b11", 3),
        ("0o17", 15),
        ("08", 8.0),
        ("1_000", 1000),
        ("-2", -2),
        ("2.0", 2.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        (".inf", float("inf")),
        ("yes", True),
        ("y", True),
        ("Off", False),
        ("~", None),
        ("", None),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("v1", "v1"),
        ("_1", "_1"),
        ("9" * 70, "9" * 70),
    ],
)
def test_a_plain_scalar_means_what_go_yaml_2_makes_of_it(plain: str, want: object) -> None:
    got = resolve(plain)
    assert (got, type(got)) == (want, type(want))


@pytest.mark.parametrize(
    ("written", "want"), [('"4"', "4"), ("'true'", "true"), ("!!str 4", "4"), ('!!int "4"', 4), ("!foo 4", "4")]
)
def test_quotes_and_tags_win_over_looks(written: str, want: object) -> None:
    assert only(f"a: {written}").data == {"a": want}


@pytest.mark.parametrize(("written", "want"), [("1", "1"), ("yes", "true"), ("1.5", "1.5"), ("a.b", "a.b")])
def test_keys_become_text(written: str, want: str) -> None:
    assert list(only(f"{written}: x").data) == [want]


LINES = """\
# a comment
version: v1

sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 4
    -
      name: x
a.b: {c.d: 1}
"""


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("version", 2),
        ("sharing.timeSlicing", 5),
        ("sharing.timeSlicing.resources[0].replicas", 8),
        ("sharing.timeSlicing.resources[1].name", 10),
        ("sharing.timeSlicing.resources[0].devices", 7),
        ("sharing.timeSlicing.resources[7]", 6),
        ("sharing.mps", 4),
        ("a.b.c.d", 11),
        ("nowhere", 1),
        ("", 1),
    ],
    ids=str,
)
def test_a_path_has_the_line_of_its_key_or_of_the_nearest_part_that_is_there(path: str, want: int) -> None:
    assert Document(only(LINES).data, 1).line_of(path) == want


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "mac"])
def test_line_ends_of_all_kinds_count_once(end: str) -> None:
    assert only(LINES.replace("\n", end)).line_of("sharing.timeSlicing.resources[0].replicas") == 8


def test_a_literal_block_knows_the_line_of_its_text() -> None:
    document = only("data:\n  any: |- # why not\n\n    version: v1\n  folded: >\n    a\n  quoted: 'b'\n")
    assert document.data["data"]["any"] == "\nversion: v1"
    assert (document.place_of("data.any").line, document.place_of("data.any").block) == (2, 3)
    assert document.place_of("data.folded").block is None
    assert document.place_of("data.quoted").block is None


def test_a_text_inside_another_counts_on_from_its_place() -> None:
    [document] = read("a: 1\nb: 2\n", first_line=10)
    assert document.line_of("b") == 11
    [folded] = read("a: 1\nb: 2\n", first_line=10, exact=False)
    assert folded.line_of("b") == 10


def test_one_broken_document_leaves_the_others_whole() -> None:
    first, broken, last = read("a: 1\n---\nb: [\n---\nc: 3\n")
    assert (first.data, broken.whole, last.data, last.line_of("c")) == ({"a": 1}, False, {"c": 3}, 5)


def test_directives_and_comments_belong_to_the_document_after_them() -> None:
    [document] = read("# a licence\n%YAML 1.1\n---\na: 1\n")
    assert (document.data, document.line_of("a")) == ({"a": 1}, 4)


def test_what_was_read_before_a_mistake_is_kept() -> None:
    document = only("version: v1\nsharing:\ntimeSlicing:\n   resources:\n   - name: a\n      replicas: 10\n")
    assert not document.whole
    assert document.data["version"] == "v1"
    assert document.data["timeSlicing"] == {"resources": [{"name": "a replicas"}]}
    [finding] = document.findings
    assert (finding.line, finding.problem.path) == (6, "timeSlicing.resources[0].replicas")


def test_the_last_of_two_equal_keys_wins_and_is_told() -> None:
    text = "a: {x: 1}\nb: 2\na: {x: 3}\n"
    assert only(text).data["a"] == {"x": 3}
    assert problems_of(text) == [(3, "warning", "a", "the key stands twice; the last one wins")]


def test_an_alias_stands_for_its_anchor_and_is_told_once() -> None:
    text = "a: &a {x: 1}\nb: *a\nc: *a\n"
    assert only(text).data == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}
    assert problems_of(text) == [(2, "hint", "b", "the alias *a stands for what is written at &a")]


def test_a_merge_key_applies_where_it_stands() -> None:
    before = only("base: &b {v: 3, w: 3}\nx:\n  <<: *b\n  v: 1\n").data
    after = only("base: &b {v: 3, w: 3}\nx:\n  v: 1\n  <<: *b\n").data
    assert (before["x"], after["x"]) == ({"v": 1, "w": 3}, {"v": 3, "w": 3})


@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        ("a:\n\tb: 1\n", 2, "a", "a tab as indentation"),
        ("a:\n  b: {{ X }}\n", 2, "a.b", "a mapping or a list used as a key"),
        ("? [a]\n: b\n", 1, "", "a mapping or a list used as a key"),
        ("a: 1\n~: 2\n", 2, "", "an empty key"),
        ("a: 1\nb: *x\n", 2, "b", "the alias *x has no anchor &x before it"),
        ("a: &a\n  b: *a\n", 2, "a.b", "the anchor &a contains itself"),
        ("a: &a [1]\n*a : 2\n", 2, "", "a mapping or a list used as a key"),
        ("a: 1\n<<: 5\n", 2, "<<", "<<: merges mappings only"),
        ("a: 1\nb: [1,\n", 2, "b[1]", "not valid YAML"),
        ("a: 1\nb: 'x\n", 2, "b", "not valid YAML"),
        ("a: \x01", 1, "", "not valid YAML"),
        ("a: \ud800", 1, "", "not valid YAML: a character that is not Unicode text"),
        (f"? {'k' * 2000}\n: 1\n", 1, "", "a key of 2000 characters"),
        ("[" * 60 + "{a: " * 10, 1, "[0]" * 60 + ".a.a.a.a", f"nested deeper than {MAX_DEPTH} levels"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_breaks_a_text_is_one_error_with_line_and_path(text: str, line: int, path: str, message: str) -> None:
    *others, (got_line, severity, got_path, got_message) = problems_of(text)
    assert all(other[1] != "error" for other in others)
    assert severity == "error"
    assert got_message.startswith(message)
    assert (got_line, got_path) == (line, path)


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, f"more than {MAX_VALUES} values once aliases are written out"),
        ("a" * (1024 * 1024 + 1), "1048577 bytes, more than 1048576"),
        ("é" * (1024 * 512 + 1), "1048578 bytes, more than 1048576"),
        ("- " * 200_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("".join(" " * n + "a:\n" for n in range(1000)), f"nested deeper than {MAX_DEPTH} levels"),
        ("---\na\n" * (MAX_DOCUMENTS + 1), f"more than {MAX_DOCUMENTS} documents"),
    ],
    ids=["billion laughs", "1 MiB and a byte", "1 MiB in two-byte letters", "lists", "mappings", "documents"],
)
def test_every_limit_is_an_error_that_names_it(text: str, message: str) -> None:
    assert problems_of(text)[-1][1::2] == ("error", message)


def test_a_text_of_exactly_1_mib_is_read() -> None:
    assert only("a" * (1024 * 1024)).whole


@given(st.text())
def test_any_text_is_read_without_a_crash(text: str) -> None:
    for document in read(text):
        assert document.line >= 1
        assert document.whole or document.findings


@given(st.text(alphabet="ab:-#&*!|>{}[],?'\"%\\<\t\n\r ~.0", max_size=80))
def test_any_text_of_yaml_signs_is_read_and_every_line_is_in_it(text: str) -> None:
    lines = len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    for document in read(text):
        assert all(1 <= finding.line <= lines for finding in document.findings), document
