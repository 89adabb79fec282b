"""The file that NeMo Gym's `gym eval submit` takes, as far as it says who needs GPUs.

The key names are those of `nemo_gym/orchestration/api.py`. Everything else in such a file is left unread, so that a
newer release of Gym does not break the reader.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    """Base of what we read of the file: its own key names, unknown ones ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class GymService(_Part):
    """One entry of `services`, or a tier of one."""

    type: str = Field(default="", description="vllm, vllm_pd, ray, router, or a kind that we do not know.")
    node_pool: str | None = Field(default=None, description="The pool it is pinned to.")
    node_pools: list[str] = Field(default_factory=list, description="Ray: the pools that the cluster spans.")
    port: int | None = Field(default=None, description="Where it listens.")
    env: dict[str, str] = Field(default_factory=dict, description="Values with the prefix lit:, host: or runtime:.")
    share_gpus: bool = Field(default=False, description="It takes no GPUs of its own.")
    tensor_parallel_size: Positive = 1
    pipeline_parallel_size: Positive = 1
    number_of_instances: Positive = 1
    use_ray_serve: bool = Field(default=False, description="Ray Serve places the instances.")
    num_gpus: int | None = Field(default=None, description="Ray: 0 = it uses none.")
    kv_role: str | None = Field(default=None, description="Set on a prefill or decode tier that is written by itself.")
    server_per_node: bool = Field(default=False, description="vllm_pd: a server on every node of each tier's pool.")
    # a tier in `vllm_pd`; in `router` the name of the service that is one
    prefill: dict[str, Any] | str | None = None
    decode: dict[str, Any] | str | None = None
    # an endpoint that somebody else serves has an address instead of a container
    base_url: str | None = None


class GymNodePool(_Part):
    """One entry of `node_pools`."""

    nodes: Annotated[int, Field(ge=0)] | Literal["auto"] = 1
    gpus_per_node: int | None = None


class GymCompute(_Part):
    """One entry of `compute`."""

    node_pools: dict[str, GymNodePool] = Field(min_length=1)


class GymDriver(_Part):
    """What runs the benchmarks, on the first node of the first pool."""

    policy_model: str | None = Field(default=None, description="The service that the driver talks to.")


class GymSubmit(_Part):
    """The whole file."""

    services: dict[str, GymService] = Field(min_length=1)
    compute: dict[str, GymCompute] = Field(min_length=1, max_length=1)
    driver: GymDriver = Field(default_factory=GymDriver)
