"""Imports of large libraries beside the event loop, so that no kubelet waits for them."""

import asyncio
import importlib


async def import_beside(module: str) -> None:
    """Import a module in a thread; importing it as usual then takes no time.

    The client for the API server takes half a second of CPU, and on a node where pods take all CPU that is a minute:
    too long for a pod that waits for its devices, and for the watchdog.
    """
    await asyncio.to_thread(importlib.import_module, module)
