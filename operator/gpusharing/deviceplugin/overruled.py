"""What to tell of the kubelet's choices that were not the preferred ones: few, for each container may be one (F50)."""

import asyncio

from gpusharing.observability.logs import logger

log = logger(__name__)

# seconds from one that is told of to the next
SPACING = 300.0


class Overruled:
    """The last such choice that is told of, as a sentence; empty = there was none."""

    def __init__(self) -> None:
        self._not_before = float("-inf")
        self.sentence = ""

    def note(self, sentence: str) -> None:
        """Tell of this one, unless another one was told of a short while ago."""
        now = asyncio.get_running_loop().time()
        if now >= self._not_before:
            self._not_before, self.sentence = now + SPACING, sentence
            log.warning("the kubelet did not take the preferred devices", what=sentence)
