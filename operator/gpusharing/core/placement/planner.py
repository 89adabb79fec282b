"""`place`: a request and an inventory in, a plan or everything that is wrong out. Pure, total, deterministic."""

from gpusharing.api.placement import Inventory
from gpusharing.core.placement.plan import Outcome
from gpusharing.core.placement.request import Request


def place(request: Request, inventory: Inventory | None = None) -> Outcome:
    """Plan every pool of the request (guide, section 6); None = offline, on nodes as the pools describe them."""
    raise NotImplementedError
