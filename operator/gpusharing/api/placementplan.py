"""The document that `place -o json` and `-o yaml` print of a plan, as `--check` reads it back."""

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    """Base of what is compared of a plan document; more keys may have been added to it since."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class SavedAssignment(_Part):
    """The GPUs of one service on one slot."""

    indexes: list[int] = []
    from_env: str = Field(default="", alias="fromEnv")
    shares: int | None = None
    rank: int | None = None
    instances: int | None = None
    first_instance: int | None = Field(default=None, alias="firstInstance")

    def __str__(self) -> str:
        """Return `1,2`, and what else there is to say, as people read it."""
        gpus = f"${self.from_env}" if self.from_env else ",".join(map(str, self.indexes))
        named = {
            "shares": self.shares,
            "rank": self.rank,
            "instances": self.instances,
            "first instance": self.first_instance,
        }
        more = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        return f"{gpus} ({more})" if more else gpus


class SavedSlot(_Part):
    """One slot."""

    node: str = ""
    assigned: dict[str, SavedAssignment]
    exported: list[str]


class SavedPool(_Part):
    """One pool."""

    nodes_resolved: int = Field(default=0, alias="nodesResolved")


class SavedPlan(_Part):
    """A plan document, as `place -o json` or `-o yaml` printed it."""

    lead_slot: str | None = Field(alias="leadSlot")
    sees_all: list[str] = Field(alias="seesAll")
    pools: dict[str, SavedPool]
    slots: dict[str, SavedSlot]
