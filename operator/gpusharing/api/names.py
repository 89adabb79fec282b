"""Every name that others can see: API group, labels, annotations, field managers, object names."""

GROUP = "gpusharing.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

POLICY_KIND = "GpuSharingPolicy"
POLICIES = "gpusharingpolicies"
POLICIES_CRD = f"{POLICIES}.{GROUP}"
NODE_KIND = "GpuNode"
GPU_NODES = "gpunodes"
PLACEMENT_KIND = "GpuPlacement"
PLACEMENTS = "gpuplacements"
PLACEMENTS_CRD = f"{PLACEMENTS}.{GROUP}"

# --- what we write on a Node: this one label and nothing else
CONFIG_LABEL = "nvidia.com/device-plugin.config"

FIELD_MANAGER = "gpu-sharing-operator"
# An adopted label value is put back under this name, so that the value is not taken for one of ours afterwards.
RESTORING_FIELD_MANAGER = "gpu-sharing-operator-restored"
# `GpuNode.spec.reservations` has an owner of its own, so that no other apply of ours can drop it.
PLACEMENT_FIELD_MANAGER = "gpu-sharing-operator-placement"
COMPONENT = "gpu-sharing-operator"
# The in-node plugin: the account that the fences know, field manager and source of Events.
PLUGIN = "gpu-sharing-device-plugin"

# --- what admins write on a Node
SKIP_LABEL = "gpusharing.io/skip"

# --- what others write on a Node (contract, section 9)
PRODUCT_LABEL = "nvidia.com/gpu.product"
PRESENT_LABEL = "nvidia.com/gpu.present"
PCI_LABEL = "feature.node.kubernetes.io/pci-10de.present"
COUNT_LABEL = "nvidia.com/gpu.count"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
SHARING_STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
MIG_CAPABLE_LABEL = "nvidia.com/mig.capable"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
CLIQUE_LABEL = "nvidia.com/gpu.clique"
VGPU_LABEL = "nvidia.com/vgpu.present"
OPERANDS_LABEL = "nvidia.com/gpu.deploy.operands"
WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"

# --- the record of a node: ConfigMap gpusharing-<node> in the controller's namespace
NAMESPACE = "gpu-sharing-system"
RECORD_PREFIX = "gpusharing-"
MANAGED_LABEL = "gpusharing.io/managed"
NODE_ANNOTATION = "gpusharing.io/node"
POLICY_ANNOTATION = "gpusharing.io/policy"
POLICY_UID_ANNOTATION = "gpusharing.io/policy-uid"
CONFIG_ANNOTATION = "gpusharing.io/config"
PREVIOUS_LABEL_ANNOTATION = "gpusharing.io/previous-label"

# --- the shared ConfigMap (layout `shared`)
SHARED_CONFIGMAP = "gpu-sharing-config"
SHARED_DEFAULT_KEY = "default"
WRITTEN_ANNOTATION = "gpusharing.io/written"
UNREFERENCED_ANNOTATION = "gpusharing.io/unreferenced"

LEASE = "gpu-sharing-operator"

# --- resources
RESOURCE_DOMAIN = "nvidia.com/"
GPU_RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
SHARED_SUFFIX = ".shared"

# --- placements: what people find a pod's service by, and the prefix of a service's own resource
PLACEMENT_LABEL = "gpusharing.io/placement"
SERVICE_LABEL = "gpusharing.io/service"
PLACE_DOMAIN = "place.gpusharing.io/"
RESOURCE_NAME_MAX = 63  # behind the slash
REBALANCE_ANNOTATION = "gpusharing.io/rebalance"

DNS_SUBDOMAIN_MAX = 253
LABEL_VALUE_MAX = 63
