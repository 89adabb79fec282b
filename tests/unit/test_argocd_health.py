"""The health check for Argo CD, run as Argo CD runs it: Lua 5.1, `obj` and no more."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime, lua_type

from gpusharing.api.policy import PolicyObject

FOLDER = Path(__file__).parents[2] / "argocd/gpusharing.io/GpuSharingPolicy"
CASES = yaml.safe_load((FOLDER / "health_test.yaml").read_text())["tests"]
RUN_ALONE = """
function(source, obj)
  local check = assert(loadstring(source, "health.lua"))
  setfenv(check, {obj = obj, ipairs = ipairs})
  return check()
end
"""


def health(policy: Any) -> dict[str, str]:
    lua = LuaRuntime()
    verdict = lua.eval(RUN_ALONE)((FOLDER / "health.lua").read_text(), lua.table_from(policy, recursive=True))
    assert lua_type(verdict) == "table"
    return dict(verdict.items())


def recorded(name: str) -> Any:
    return yaml.safe_load((FOLDER / "testdata" / f"{name}.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case["inputPath"]).stem)
def test_argo_cd_calls_a_recorded_policy_what_its_condition_says(case: dict[str, Any]) -> None:
    policy = yaml.safe_load((FOLDER / case["inputPath"]).read_text())
    assert health(policy) == case["healthStatus"]


def test_every_recorded_policy_has_its_case() -> None:
    assert {case["inputPath"] for case in CASES} == {f"testdata/{path.name}" for path in FOLDER.glob("testdata/*")}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("testdata/*")), ids=lambda path: path.stem)
def test_a_recorded_policy_is_one_that_the_api_knows(path: Path) -> None:
    PolicyObject.model_validate(recorded(path.stem))


def test_a_status_without_conditions_is_progressing() -> None:
    policy = recorded("applied")
    del policy["status"]["conditions"]
    assert health(policy) == {"status": "Progressing", "message": ""}


def test_a_condition_without_a_message_is_no_error() -> None:
    policy = recorded("conflicting")
    for condition in policy["status"]["conditions"]:
        del condition["message"]
    assert health(policy) == {"status": "Degraded", "message": ""}
