"""Hypothesis strategies for policies and for what people write instead of them."""

from typing import Any

from hypothesis import strategies as st

from gpusharing.api import names

PRODUCTS = ["NVIDIA-L4", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H20-3e"]
PROFILES = ["nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-7g.80gb"]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)

selectors: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(
            st.sampled_from([names.PRODUCT_LABEL, "team"]), st.sampled_from([*PRODUCTS, "x"]), max_size=2
        ),
        "matchExpressions": st.lists(
            st.one_of(
                st.fixed_dictionaries(
                    {
                        "key": st.sampled_from([names.PRODUCT_LABEL, "team"]),
                        "operator": st.sampled_from(["In", "NotIn"]),
                        "values": st.lists(st.sampled_from([*PRODUCTS, "x"]), min_size=1, max_size=2),
                    }
                ),
                st.fixed_dictionaries(
                    {"key": st.just("team"), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
                ),
            ),
            max_size=2,
        ),
    },
)

allocations: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.sampled_from(["packed", "distributed", "spread"]),
        "keepTogether": st.sampled_from(["none", "preferred", "required"]),
        "topology": st.sampled_from(["none", "preferred"]),
    },
)

sharings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["time-slicing", "mps"]),
        "resources": st.dictionaries(
            st.sampled_from([names.GPU_RESOURCE, *PROFILES]), st.integers(2, 2048), min_size=1
        ).map(lambda listed: [{"name": name, "replicas": replicas} for name, replicas in listed.items()]),
    },
    optional={"renameByDefault": st.booleans(), "failRequestsGreaterThanOne": st.booleans()},
)

plugins: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "deviceListStrategy": st.lists(
            st.sampled_from(["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]), min_size=1, unique=True
        ),
        "deviceIDStrategy": st.sampled_from(["uuid", "index"]),
        "passDeviceSpecs": st.booleans(),
        "failOnInitError": st.booleans(),
    },
)


def _consistent(spec: dict[str, Any]) -> dict[str, Any]:
    """Drop what contradicts the rest: filtering would throw most examples away."""
    allocation, sharing = dict(spec.get("allocation", {})), spec.get("sharing")
    if allocation.get("policy") == "spread":
        allocation.pop("keepTogether", None)
    elif allocation.get("keepTogether", "none") == "none":
        allocation.pop("topology", None)
    spec = {**spec, "allocation": allocation} if "allocation" in spec else spec
    if sharing is None:
        return spec
    resources = sharing["resources"]
    if sharing["strategy"] == "mps":
        resources = [{"name": names.GPU_RESOURCE, "replicas": min(resource["replicas"], 48)} for resource in resources]
        return {**spec, "migStrategy": "none", "sharing": {**sharing, "resources": resources[:1]}}
    if any(resource["name"] != names.GPU_RESOURCE for resource in resources):
        return {**spec, "migStrategy": "mixed"}
    return spec


specs: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"nodeSelector": selectors},
    optional={
        "priority": st.integers(-3, 3),
        "mode": st.sampled_from(["enforce", "dry-run"]),
        "migStrategy": st.sampled_from(["none", "single", "mixed"]),
        "allocation": allocations,
        "sharing": sharings,
        "adoptManual": st.booleans(),
        "plugin": plugins,
    },
).map(_consistent)
"""Specs that the API server takes, as users write them."""
