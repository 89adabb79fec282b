"""What an API server says, as values."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body of one answer; or none at all."""

    status: int = 200
    raw: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    hangs: bool = False
    cut: bool = False


def says(body: Any, status: int = 200, **headers: str) -> Answer:
    """This object as JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json", **named})


def refuses(
    status: int, word: str = "", message: str = "", causes: list[dict[str, str]] | None = None, **headers: str
) -> Answer:
    """A `Status` as the API server writes it."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    if word:
        body["reason"] = word
    if causes is not None:
        body["details"] = {"causes": causes}
    return says({**body, "code": status}, status, **headers)


HANGS = Answer(hangs=True)
CUTS = Answer(cut=True)
