"""What a worker can be asked to look at: a key without payload, of one kind."""

from typing import Literal

Key = tuple[Literal["node", "policy", "shared", "placements"], str]
SHARED_KEY: Key = ("shared", "")
# one for all of them: they are planned one after the other, by one worker
PLACEMENTS_KEY: Key = ("placements", "")
