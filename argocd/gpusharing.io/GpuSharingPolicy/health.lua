-- Health of a GpuSharingPolicy in Argo CD; the setting is
-- resource.customizations.health.gpusharing.io_GpuSharingPolicy

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

local function message(kind)
  return conditions[kind] and conditions[kind].message or ""
end

-- only a person can help
if is_true("Stalled") then
  return { status = "Degraded", message = message("Stalled") }
end

-- Ready stays once it was reached for a generation, so that nodes that come and go do not make an app flap;
-- what is wrong by now is told, but does not change the verdict
if is_true("Ready") then
  if is_true("Degraded") then
    return { status = "Healthy", message = message("Ready") .. " " .. message("Degraded") }
  end
  return { status = "Healthy", message = message("Ready") }
end

return { status = "Progressing", message = message("Ready") }
