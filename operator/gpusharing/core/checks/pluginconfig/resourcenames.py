"""Resource names as the plugin reads them: `nvidia.com/` is put before whatever does not begin with it."""

import re
from collections.abc import Iterator
from typing import Any

from gpusharing.api import names
from gpusharing.api.problems import Problem, quoted

NAME_MAX = 63
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def full_name(written: str) -> str:
    """Return the name that the plugin makes of it."""
    return written if written.startswith(names.RESOURCE_DOMAIN) else f"{names.RESOURCE_DOMAIN}{written}"


def check_name(path: str, value: Any) -> Iterator[Problem]:
    """Yield why the plugin refuses the name; and a hint where it reads another one."""
    if not isinstance(value, str):
        yield Problem(path, f"{quoted(value)} is not a resource name, the plugin exits", _EXAMPLES)
        return
    name = full_name(value)
    short = name.removeprefix(names.RESOURCE_DOMAIN)
    if "/" in short:
        message = (
            f"{quoted(value)} is of another domain: the plugin reads {quoted(name)}, refuses the two slashes and exits"
        )
        yield Problem(path, message, _EXAMPLES)
    elif len(name) > NAME_MAX:
        yield Problem(path, f"{quoted(name)} has {len(name)} characters, at most {NAME_MAX} are allowed")
    elif not _SUBDOMAIN.fullmatch(short):
        hint = (
            f"in resource names + is written as a dot: {quoted(name.replace('+', '.'))}" if "+" in short else _EXAMPLES
        )
        yield Problem(path, f"{quoted(value)} is not a resource name, the plugin exits", hint)
    elif name != value:
        yield Problem(path, f"read as {name}", f"write {name}", "hint")


_EXAMPLES = "write nvidia.com/gpu, or nvidia.com/mig-<profile> such as nvidia.com/mig-1g.10gb"
