"""One file = one policy: `NAME`, whether users may name it (`FOR_USERS`), and the functions of `AllocationPolicy`.

A new policy is a new file here; nothing lists them by hand.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from gpusharing.core.allocation.request import AllocationPolicy


def _found() -> dict[str, AllocationPolicy]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = (cast(AllocationPolicy, importlib.import_module(f"{__name__}.{name}")) for name in names)
    return {policy.NAME: policy for policy in modules}


POLICIES: Mapping[str, AllocationPolicy] = MappingProxyType(_found())
