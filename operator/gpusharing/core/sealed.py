"""The form of what outlives a restart: JSON with a schema number and a checksum.

A text that is cut off, edited or of another schema is not read at all: what it says would be wrong in a way that nobody
sees.
"""

import hashlib
import json
from typing import Any

from gpusharing.core.errors import InvalidInput


def seal(kind: str, schema: int, body: object) -> str:
    """Return the body, JSON values, as text of this kind and schema."""
    return json.dumps({"schema": schema, "checksum": _checksum(body), kind: body}, separators=(",", ":"))


def unseal(text: str, kind: str, schema: int, *, hint: str) -> Any:
    """Return the body of a text. Raises InvalidInput, with this hint, for one that is not whole."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("not JSON, or cut off", hint=hint) from error
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise InvalidInput(f"not a {kind} of schema {schema}", hint=hint)
    body = document.get(kind)
    if document.get("checksum") != _checksum(body):
        raise InvalidInput("the checksum is wrong", hint=hint)
    return body


def _checksum(body: object) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
