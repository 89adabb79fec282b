"""An API server in memory for what watches one object each."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gpusharing.core.errors import ApiError
from gpusharing.kube.client import Page

DOWN = ApiError("refused")


class ApiDouble:
    """Collections of which one object each is watched; `fail` breaks open watches and refuses until `heal`."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any] | None] = {}
        self.lists: list[float] = []
        self._errors: dict[str, ApiError] = {}
        self._changed = asyncio.Event()

    def put(self, collection: str, obj: dict[str, Any] | None) -> None:
        self.objects[collection] = obj
        self._stir()

    def fail(self, error: ApiError = DOWN, *, collection: str = "") -> None:
        self._errors[collection] = error
        self._stir()

    def heal(self) -> None:
        self._errors.clear()

    def _refuse(self, collection: str) -> None:
        if error := self._errors.get("") or self._errors.get(collection):
            raise error

    def _stir(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def pages(self, path: str, *, field: str, only_metadata: bool = False) -> AsyncIterator[Page]:
        self.lists.append(asyncio.get_running_loop().time())
        self._refuse(path)
        found = self.objects.get(path)
        yield Page([found] if found and field == f"metadata.name={found['metadata']['name']}" else [], 1)

    async def watch(
        self, path: str, *, version: int, field: str, only_metadata: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        seen = self.objects.get(path)
        while True:
            self._refuse(path)
            found = self.objects.get(path)
            if found is not seen:
                yield {"type": "MODIFIED" if found else "DELETED", "object": found or seen}
                seen = found
            else:
                await self._changed.wait()
