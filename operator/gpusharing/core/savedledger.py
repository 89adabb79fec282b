"""The ledger as text: the only truth on the node about which GPU belongs to whom (placement guide, 8.2)."""

from types import MappingProxyType
from typing import Literal

from gpusharing.api.meta import Model
from gpusharing.api.problems import parse
from gpusharing.core.errors import InvalidInput
from gpusharing.core.ledger import Claim, Ledger
from gpusharing.core.sealed import seal, unseal

KIND, SCHEMA = "ledger", 1
_HINT = "it is made anew from what pods hold, once the API server says what is reserved"


class SavedClaim(Model):
    """What an owner has of one GPU."""

    gpu: str
    state: Literal["withdrawing", "reserved", "releasing"]
    owner: str
    names: list[str]


class SavedLedger(Model):
    """Everything that is kept."""

    claims: list[SavedClaim]
    conflicts: dict[str, str]
    generation: int | None


def encode(ledger: Ledger) -> str:
    """Return the ledger as text."""
    claims = [
        SavedClaim(gpu=gpu, state=claim.state, owner=claim.owner, names=list(claim.names))
        for gpu, claim in ledger.claims.items()
    ]
    saved = SavedLedger(claims=claims, conflicts=dict(ledger.conflicts), generation=ledger.generation)
    return seal(KIND, SCHEMA, saved.model_dump(mode="json", by_alias=True))


def decode(text: str) -> Ledger:
    """Read a ledger. Raises InvalidInput with what is wrong with it."""
    saved, problems = parse(SavedLedger, unseal(text, KIND, SCHEMA, hint=_HINT))
    if saved is None:
        raise InvalidInput(str(problems[0]), hint=_HINT)
    claims = {each.gpu: Claim(each.state, each.owner, tuple(each.names)) for each in saved.claims}
    return Ledger(MappingProxyType(claims), MappingProxyType(saved.conflicts), saved.generation)
