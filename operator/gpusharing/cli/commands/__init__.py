"""One file = one command: a function named after the file; its docstring is the help.

A file may set `USAGE_ERROR` where its command gives exit code 2 a meaning of its own.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def names() -> list[str]:
    """Return every command's name, in order, without importing any."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__))


def module(name: str) -> ModuleType:
    """Return a command's module."""
    return importlib.import_module(f"{__name__}.{name}")


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield every command's name and module, by name."""
    for name in names():
        yield name, module(name)
