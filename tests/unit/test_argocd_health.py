"""The health checks for Argo CD, run as Argo CD runs them: Lua 5.1, `obj` and no more."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime, lua_type
from pydantic import BaseModel

from gpusharing.api.placementobject import PlacementObject
from gpusharing.api.policy import PolicyObject
from gpusharing.api.reasons import BY_WORD

FOLDER = Path(__file__).parents[2] / "argocd/gpusharing.io"
MODELS: dict[str, type[BaseModel]] = {"GpuSharingPolicy": PolicyObject, "GpuPlacement": PlacementObject}
CASES = [
    (kind, case)
    for kind in MODELS
    for case in yaml.safe_load((FOLDER / kind / "health_test.yaml").read_text())["tests"]
]
RUN_ALONE = """
function(source, obj)
  local check = assert(loadstring(source, "health.lua"))
  setfenv(check, {obj = obj, ipairs = ipairs})
  return check()
end
"""


def health(obj: Any) -> dict[str, str]:
    lua = LuaRuntime()
    check = (FOLDER / obj["kind"] / "health.lua").read_text()
    verdict = lua.eval(RUN_ALONE)(check, lua.table_from(obj, recursive=True))
    assert lua_type(verdict) == "table"
    return dict(verdict.items())


def recorded(kind: str, name: str) -> Any:
    return yaml.safe_load((FOLDER / kind / "testdata" / f"{name}.yaml").read_text())


@pytest.mark.parametrize(
    ("kind", "case"), CASES, ids=[f"{kind}-{Path(case['inputPath']).stem}" for kind, case in CASES]
)
def test_argo_cd_calls_a_recorded_object_what_its_condition_says(kind: str, case: dict[str, Any]) -> None:
    assert health(yaml.safe_load((FOLDER / kind / case["inputPath"]).read_text())) == case["healthStatus"]


@pytest.mark.parametrize("kind", MODELS)
def test_every_recorded_object_has_its_case_and_is_one_that_the_api_knows(kind: str) -> None:
    files = sorted(FOLDER.glob(f"{kind}/testdata/*"))
    assert {case["inputPath"] for of, case in CASES if of == kind} == {f"testdata/{path.name}" for path in files}
    for path in files:
        obj = yaml.safe_load(path.read_text())
        MODELS[kind].model_validate(obj)
        assert {each["reason"] for each in obj.get("status", {}).get("conditions", ())} <= BY_WORD.keys()


@pytest.mark.parametrize(("kind", "name"), [("GpuSharingPolicy", "applied"), ("GpuPlacement", "active")])
def test_a_status_without_conditions_is_progressing(kind: str, name: str) -> None:
    obj = recorded(kind, name)
    del obj["status"]["conditions"]
    assert health(obj) == {"status": "Progressing", "message": ""}


@pytest.mark.parametrize(("kind", "name"), [("GpuSharingPolicy", "conflicting"), ("GpuPlacement", "unplaceable")])
def test_a_condition_without_a_message_is_no_error(kind: str, name: str) -> None:
    obj = recorded(kind, name)
    for condition in obj["status"]["conditions"]:
        del condition["message"]
    assert health(obj) == {"status": "Degraded", "message": ""}
