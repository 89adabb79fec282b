-- Health of a GpuPlacement in Argo CD; the setting is
-- resource.customizations.health.gpusharing.io_GpuPlacement

local status = obj.status or {}

-- until the operator has seen this generation, the conditions speak of an earlier one
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "Waiting for the operator to observe this generation" }
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is_true(kind)
  return conditions[kind] ~= nil and conditions[kind].status == "True"
end

local message = conditions["Ready"] and conditions["Ready"].message or ""

if is_true("Ready") then
  return { status = "Healthy", message = message }
end

-- only a person can help, or other pods that end: the spec is wrong, nothing is free, a GPU is broken
if is_true("Stalled") or (is_true("Degraded") and not is_true("Reconciling")) then
  return { status = "Degraded", message = message }
end

-- reserved GPUs come in 10 to 25 seconds; a service that lost its node is moved
return { status = "Progressing", message = message }
