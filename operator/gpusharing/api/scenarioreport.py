"""What `kubectl gpusharing simulate -o json|yaml` prints: how policies compare, stable across releases."""

from typing import Annotated

from pydantic import Field

from gpusharing.api.meta import Model

Count = Annotated[int, Field(ge=0)]


class SeedValues(Model):
    """A figure of all seeds: each seed is a run, and in a run it is a mean over time."""

    median: float = Field(description="The middle one.")
    lowest: float = Field(description="The lowest one.")
    highest: float = Field(description="The highest one.")


class ResourceResult(Model):
    """What is left of one resource."""

    resource: str = Field(description="The resource's name.")
    stranded: SeedValues = Field(description="Ids that are free on GPUs in use, and so part of no whole GPU.")
    largest: SeedValues = Field(description="Ids of the largest request that one GPU can hold.")


class PolicyResult(Model):
    """What one policy came to."""

    policy: str = Field(description="The policy, with what else is said about it.")
    reference: bool = Field(description="Whether it is NVIDIA's way, for comparison only.")
    free_gpus: SeedValues = Field(description="GPUs of which nothing is held.")
    ideal_free_gpus: SeedValues = Field(
        description=(
            "GPUs that would be free if, at every moment, all pods were packed anew, each on as few GPUs as can hold "
            "it; MIG devices as they are."
        )
    )
    of_ideal: SeedValues | None = Field(
        default=None, description="freeGpus divided by idealFreeGpus; absent where not even ideally one is free."
    )
    could_stay_together: Count = Field(description="Pods with several ids that one GPU could have held, of all seeds.")
    split_needlessly: Count = Field(description="Those of them that got ids of several GPUs.")
    resources: list[ResourceResult] = Field(description="One entry per resource, by name.")
    pods: Count = Field(description="Pods that came, of all seeds.")
    waited: Count = Field(description="Pods that did not start at once.")
    refused: Count = Field(description="Pods that the plugin refused at least once (keepTogether: required).")

    @property
    def split_part(self) -> float | None:
        """Return which part of the pods that one GPU could have held was split; None = there was none."""
        return self.split_needlessly / self.could_stay_together if self.could_stay_together else None


class ScenarioReport(Model):
    """The comparison."""

    scenario: str = Field(description="The name of the file without its ending.")
    gpus: Count = Field(description="GPUs of all nodes.")
    resources: dict[str, int] = Field(description="Resource → ids of all nodes.")
    duration: float = Field(description="How long a run takes, in the scenario's unit.")
    measured_from: float = Field(description="When measuring begins; with arrivals a fifth of the duration.")
    seeds: list[int] = Field(description="The seeds; each is a run of every policy.")
    policies: list[PolicyResult] = Field(description="One entry per policy, in the order of the scenario.")

    def of(self, policy: str) -> PolicyResult:
        """Return what a policy came to, by its name in the report. Raises KeyError."""
        return {result.policy: result for result in self.policies}[policy]
