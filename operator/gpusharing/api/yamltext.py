"""YAML with the line of every key: what Kubernetes' tools make of a text, and never a crash or a hang.

kubectl, Helm and NVIDIA's device plugin read YAML with go-yaml 2: merge keys apply where they stand, the last of two
equal keys wins, the first document is all of it. What breaks a text is a problem with a line; what was read before is
kept.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpusharing.api.located import Document, Finding, Mapping, Sequence
from gpusharing.api.problems import Problem, Severity, dotted
from gpusharing.api.yamlscalars import as_key, resolve

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 100_000
MAX_KEY = 1024
MAX_DOCUMENTS = 1000

_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_BREAK = re.compile(r"\r\n|\n|\r")
_KEY_ON_LINE = re.compile(r"""\s*(?:-\s+)*["']?([\w./-]+)["']?\s*:(?:\s|$)""")
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml: 20 times as fast, and go-yaml is its port


def read(text: str, *, first_line: int = 1, exact: bool = True, values_max: int = MAX_VALUES) -> list[Document]:
    """Read every document of a text. `first_line` is where the text begins in its file.

    With `exact=False` (a folded or quoted string inside another file) every line is the first one. `values_max` bounds
    the values of a document, aliases written out, and with them the time: 10,000 take 0.2 s.
    """
    size = len(text.encode(errors="replace"))
    if size > MAX_BYTES:
        problem = Problem("", f"{size} bytes, more than {MAX_BYTES}", "a ConfigMap cannot hold more either")
        return [_unread(first_line, problem)]
    line = _lines_from(first_line, exact)
    documents: list[Document] = []
    for offset, chunk in _chunks(text.removeprefix("\ufeff")):
        if len(documents) >= MAX_DOCUMENTS:
            return [*documents, _unread(line(offset), Problem("", f"more than {MAX_DOCUMENTS} documents"))]
        documents += _Reader(chunk, _lines_from(line(offset), exact), values_max).documents()
    return documents


def _unread(line: int, problem: Problem) -> Document:
    return Document(None, line, whole=False, findings=(Finding(line, problem),))


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the documents' texts and how many lines are before each, split as kubectl does: one broken, others fine."""
    line, start = 0, 0
    for end in [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]:
        chunk = text[start:end]
        if end < len(text) and all(not written.strip() or written[0] in "%#" for written in _BREAK.split(chunk)):
            continue  # nothing but comments and directives: they belong to the document that follows
        yield line, chunk
        line += len(_BREAK.findall(chunk))
        start = end


def _lines_from(first_line: int, exact: bool) -> Callable[[int], int]:
    return (lambda line: first_line + line) if exact else (lambda line: first_line)


class _Broken(Exception):
    """The text cannot be read on from here."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint


@dataclass(slots=True)
class _Frame:
    """A collection that is being read."""

    node: Mapping | Sequence
    anchor: str | None
    # The mapping's pending key, its line, whether it is a merge key; and every key that was written.
    key: str | None = None
    key_line: int = 0
    merges: bool = False
    said: set[str] = field(default_factory=set)
    # How many values it holds, with aliases written out.
    values: int = 1

    @property
    def path(self) -> list[str | int]:
        if isinstance(self.node, Sequence):
            return [len(self.node)]
        return [] if self.key is None else [self.key]


class _Reader:
    """Builds documents from YAML events with a stack of its own: no recursion, whatever the nesting."""

    def __init__(self, text: str, line: Callable[[int], int], values_max: int) -> None:
        self._text, self._line, self._values_max = text, line, values_max
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._findings: list[Finding] = []
        self._data: Any = None
        self._start = line(0)
        self._values = 0
        self._aliased = False

    def documents(self) -> Iterator[Document]:
        """Yield the documents; the last one may be broken."""
        position = 0
        try:
            for event in yaml.parse(self._text, Loader=_LOADER):
                position = _line_of(event)
                if isinstance(event, yaml.DocumentStartEvent):
                    self._begin(position)
                elif isinstance(event, yaml.DocumentEndEvent):
                    yield self._document(whole=True)
                    self._begin(position)
                else:
                    self._take(event)
        except _Broken as broken:
            yield self._break_off(position, broken.message, broken.hint)
        except yaml.YAMLError as error:
            yield self._break_off(*self._explained(error, position))
        except UnicodeError:
            yield self._break_off(position, "not valid YAML: a character that is not Unicode text")

    def _begin(self, line: int) -> None:
        self._stack, self._anchors, self._findings, self._data = [], {}, [], None
        self._values, self._aliased, self._start = 0, False, self._line(line)

    def _document(self, *, whole: bool) -> Document:
        return Document(self._data, self._start, whole, tuple(self._findings))

    def _take(self, event: yaml.Event) -> None:
        line = _line_of(event)
        match event:
            case yaml.MappingStartEvent():
                self._open(Mapping(self._line(line)), event.anchor)
            case yaml.SequenceStartEvent():
                self._open(Sequence(self._line(line)), event.anchor)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(str(event.anchor), line)
            case yaml.ScalarEvent():
                self._scalar(event, line)

    def _open(self, node: Mapping | Sequence, anchor: str | None) -> None:
        if self._awaits_key():
            raise _Broken(
                "a mapping or a list used as a key",
                "braces of a template that was not rendered? quote the value, or render the template first",
            )
        if len(self._stack) >= MAX_DEPTH:
            raise _Broken(f"nested deeper than {MAX_DEPTH} levels")
        self._stack.append(_Frame(node, anchor))

    def _close(self) -> None:
        frame = self._stack.pop()
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.node, frame.values)
        self._add(frame.node, frame.node.line, frame.values, new=1)

    def _alias(self, name: str, line: int) -> None:
        if any(frame.anchor == name for frame in self._stack):
            raise _Broken(f"the anchor &{name} contains itself")
        if name not in self._anchors:
            raise _Broken(f"the alias *{name} has no anchor &{name} before it")
        value, values = self._anchors[name]
        if not self._aliased:
            self._aliased = True
            self._find(line, f"the alias *{name} stands for what is written at &{name}", severity="hint")
        if not (frame := self._awaits_key()):
            self._add(value, self._line(line), values, new=values)
        elif isinstance(value, Mapping | Sequence):
            raise _Broken("a mapping or a list used as a key")
        else:
            self._key(frame, value, str(value), line)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        value = _value(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        if frame := self._awaits_key():
            self._key(frame, value, event.value, line)
            frame.merges = event.value == "<<" and event.implicit[0]
            return
        self._add(value, self._line(line), 1, new=1, block=self._line(line + 1) if event.style == "|" else None)

    def _awaits_key(self) -> _Frame | None:
        frame = self._stack[-1] if self._stack else None
        return frame if frame and isinstance(frame.node, Mapping) and frame.key is None else None

    def _key(self, frame: _Frame, value: Any, written: str, line: int) -> None:
        if value is None:
            raise _Broken("an empty key: keys must be words")
        key = written if isinstance(value, str) else as_key(value)
        if len(key) > MAX_KEY:
            raise _Broken(f"a key of {len(key)} characters")
        frame.key, frame.key_line = key, self._line(line)

    def _add(self, value: Any, line: int, values: int, *, new: int, block: int | None = None) -> None:
        self._values += new
        if self._values > self._values_max:
            raise _Broken(f"more than {self._values_max} values once aliases are written out")
        if not self._stack:
            self._data = value
            return
        frame = self._stack[-1]
        frame.values += values
        if isinstance(frame.node, Sequence):
            frame.node.append(value)
            frame.node.lines.append(line)
        elif frame.merges:
            self._merge(frame.node, value)
        elif frame.key is not None:
            self._set(frame, frame.node, frame.key, value, block)
        frame.key, frame.merges = None, False

    def _set(self, frame: _Frame, node: Mapping, key: str, value: Any, block: int | None) -> None:
        if key in frame.said:
            problem = Problem(self._path(), "the key stands twice; the last one wins", severity="warning")
            self._findings.append(Finding(frame.key_line, problem))
        frame.said.add(key)
        node[key] = value
        node.lines[key] = frame.key_line
        node.blocks.pop(key, None)
        if block is not None:
            node.blocks[key] = block

    def _merge(self, node: Mapping, value: Any) -> None:
        sources = value if isinstance(value, Sequence) else [value]
        for source in reversed(sources):
            if not isinstance(source, Mapping):
                raise _Broken("<<: merges mappings only")
            node.update(source)
            node.lines.update(source.lines)
            node.blocks.update(source.blocks)

    def _path(self, key: str = "") -> str:
        """Return where the reader is; with `key`, the path of that key in the innermost mapping."""
        parts = [part for frame in self._stack for part in frame.path]
        if key and self._stack and isinstance(self._stack[-1].node, Mapping):
            parts = [part for frame in self._stack[:-1] for part in frame.path]
        return dotted([*parts, key] if key else parts)

    def _find(self, line: int, message: str, *, severity: Severity, hint: str = "", key: str = "") -> None:
        self._findings.append(Finding(self._line(line), Problem(self._path(key), message, hint, severity=severity)))

    def _break_off(self, line: int, message: str, hint: str = "", key: str = "") -> Document:
        """Report what broke the text and close what was open, so that the rest can still be looked at."""
        self._find(line, message, hint=hint, key=key if self._stack else "", severity="error")
        while self._stack:
            frame = self._stack.pop()
            if not self._stack:
                self._data = frame.node
                continue
            outer = self._stack[-1]
            if isinstance(outer.node, Sequence):
                outer.node.append(frame.node)
                outer.node.lines.append(frame.node.line)
            elif outer.key is not None and not outer.merges:
                outer.node[outer.key] = frame.node
                outer.node.lines[outer.key] = outer.key_line
        return self._document(whole=False)

    def _explained(self, error: yaml.YAMLError, position: int) -> tuple[int, str, str, str]:
        """Return line, message, hint and key of a syntax error, in words about the text rather than the parser."""
        lines = _BREAK.split(self._text.rstrip())
        mark = getattr(error, "problem_mark", None)
        line = mark.line if mark else position
        if line >= len(lines):  # the end came too early: what was never closed is the mistake
            opened = getattr(error, "context_mark", None)
            line = min(opened.line if opened else line, len(lines) - 1)
        written = lines[line]
        if "\t" in written[: len(written) - len(written.lstrip())]:
            return line, "a tab as indentation, not valid YAML", "indent with blanks", ""
        what = str(getattr(error, "problem", None) or getattr(error, "reason", "") or "unreadable")
        if what.startswith("mapping values are not allowed"):
            hint = "a key that is indented deeper than the one above it, or an unquoted value with a colon in it"
            found = _KEY_ON_LINE.match(written)
            return line, f"not valid YAML: {what}", hint, found[1] if found else ""
        return line, f"not valid YAML: {what}", "", ""


def _line_of(event: yaml.Event) -> int:
    return event.start_mark.line if event.start_mark else 0


def _value(event: yaml.ScalarEvent) -> Any:
    """Return what the scalar means: plain ones by their look, everything else is text."""
    tag = (event.tag or "").removeprefix("tag:yaml.org,2002:")
    plain = tag in {"bool", "int", "float", "null"} or (not tag and event.implicit[0])
    return resolve(event.value) if plain else event.value
