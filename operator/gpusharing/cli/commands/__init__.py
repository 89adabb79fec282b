"""One file = one command: a function named after the file; its docstring is the help.

A file may set `USAGE_ERROR` where its command gives exit code 2 a meaning of its own.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield every command's name and module, by name."""
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        yield found.name, importlib.import_module(f"{__name__}.{found.name}")
