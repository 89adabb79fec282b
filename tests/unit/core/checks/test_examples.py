"""The examples in the docstrings of the checks are true."""

import doctest
import importlib
import pkgutil

import pytest

from gpusharing.core import checks

# Its sentences are those of the API server, which `test_policy.py` and the CEL tests hold together.
WITHOUT_EXAMPLES = {"policy"}
MODULES = sorted(module.name for module in pkgutil.iter_modules(checks.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_family_of_checks_are_true(name: str) -> None:
    done = doctest.testmod(importlib.import_module(f"{checks.__name__}.{name}"))
    assert done.failed == 0
    assert done.attempted > 0 or name in WITHOUT_EXAMPLES, "one example that passes, and one that fails"
