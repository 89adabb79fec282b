"""ConfigMaps and the values of both charts: what holds the configs may be wrong itself."""

import pytest

from gpusharing.core.checks import chartvalues, configmap, operatorvalues
from gpusharing.core.documents import Kind, kind_of
from gpusharing.core.lint import lint

CONFIG = "version: v1"


def found(text: str) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.config, finding.path) for finding in lint([("f", text)], "per-node")]


CHART = {
    "both sources": ({"name": "x", "map": {"default": CONFIG}}, "error", "config"),
    "no default of two": ({"map": {"a": CONFIG, "b": CONFIG}}, "error", "config.default"),
    "a default that is not there": ({"map": {"a": CONFIG}, "default": "b"}, "error", "config.default"),
    "a default that is no name": ({"map": {"a": CONFIG}, "default": ["a"]}, "error", "config.default"),
    "a default that is a config": ({"map": {"a": CONFIG}, "default": "version: v1\nx: y"}, "error", "config.default"),
    "an unknown value": ({"map": {"a": CONFIG}, "defaults": "a"}, "warning", "config.defaults"),
    "a map that is none": ({"map": ["a"]}, "error", "config.map"),
    "a config that is no text": ({"map": {"a": {"version": "v1"}}}, "error", "config.map.a"),
    "a name that no ConfigMap takes": ({"map": {"a b": CONFIG}}, "error", "config.map.a b"),
    "a name that no label takes": ({"map": {"a" * 64: CONFIG}}, "warning", f"config.map.{'a' * 64}"),
    "a name that ends in a dot": ({"map": {"a.": CONFIG}}, "warning", "config.map.a."),
}


@pytest.mark.parametrize(("config", "severity", "path"), CHART.values(), ids=CHART)
def test_a_trap_of_the_device_plugins_chart_is_named(config: dict[str, object], severity: str, path: str) -> None:
    assert [(problem.severity, problem.path) for problem in chartvalues.check({"config": config})] == [(severity, path)]


@pytest.mark.parametrize(
    "config",
    [
        {"name": "external"},
        {"map": {"default": CONFIG, "b": CONFIG}},
        {"map": {"only": CONFIG}},
        {"map": {"a": CONFIG, "b": CONFIG}, "fallbackStrategies": ["empty"]},
        {"map": {"a": CONFIG, "b": CONFIG}, "default": "b"},
        {"map": {}},
    ],
    ids=str,
)
def test_values_from_which_the_chart_finds_a_default_are_fine(config: dict[str, object]) -> None:
    assert chartvalues.check({"config": config, "migStrategy": "mixed", "nfd": {}, "global": {}}) == []


@pytest.mark.parametrize(
    ("values", "severity", "path"),
    [
        ({"namespace": "gpu"}, "error", "namespace"),
        ({"mixedStrategy": "mixed"}, "warning", "mixedStrategy"),
        ({"failOnInitError": "true"}, "warning", "failOnInitError"),
        ({"deviceListStrategy": ["envvar"]}, "warning", "deviceListStrategy"),
    ],
    ids=str,
)
def test_a_value_that_the_chart_drops_is_named(values: dict[str, object], severity: str, path: str) -> None:
    problems = chartvalues.check({"config": {"map": {"default": CONFIG}}, **values})
    assert [(problem.severity, problem.path) for problem in problems] == [(severity, path)]


def test_the_chart_sets_only_values_of_the_right_type_in_the_environment() -> None:
    values = {"config": {}, "migStrategy": "mixed", "failOnInitError": "false", "compatWithCPUManager": True}
    environment = chartvalues.environment(values)
    assert environment.values == {"migStrategy": "mixed", "plugin.passDeviceSpecs": True, "mpsRoot": None}


OPERATOR = {
    "a default without a ConfigMap": ({"default": "a"}, "warning", "devicePlugin.config.name"),
    "created without a name": ({"create": True, "data": {"a": CONFIG}}, "error", "devicePlugin.config.name"),
    "created from nothing": ({"create": True, "name": "c"}, "error", "devicePlugin.config.data"),
    "data that nothing creates": ({"name": "c", "data": {"a": CONFIG}}, "warning", "devicePlugin.config.data"),
    "a default that is not there": (
        {"create": True, "name": "c", "data": {"a": CONFIG}, "default": "b"},
        "error",
        "devicePlugin.config.default",
    ),
    "an unknown value": ({"name": "c", "map": {"a": CONFIG}}, "warning", "devicePlugin.config.map"),
    "a config that is no text": (
        {"create": True, "name": "c", "data": {"a": {"version": "v1"}}},
        "error",
        "devicePlugin.config.data.a",
    ),
}


@pytest.mark.parametrize(("config", "severity", "path"), OPERATOR.values(), ids=OPERATOR)
def test_a_trap_of_the_gpu_operators_chart_is_named(config: dict[str, object], severity: str, path: str) -> None:
    problems = operatorvalues.check({"devicePlugin": {"config": config}})
    assert [(problem.severity, problem.path) for problem in problems] == [(severity, path)]


def test_a_misspelt_value_of_the_operators_plugin_is_named_and_a_new_one_is_not() -> None:
    values = {"devicePlugin": {"config": {"name": "c"}, "envs": [], "somethingNew": 1}, "mig": {"strategy": "mix"}}
    problems = operatorvalues.check(values)
    assert [(problem.severity, problem.path) for problem in problems] == [
        ("warning", "devicePlugin.envs"),
        ("error", "mig.strategy"),
    ]


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({}, "single"),
        ({"mig": {"strategy": "mixed"}}, "mixed"),
        ({"mig": {"strategy": ""}}, None),
        ({"mig": {}}, "single"),
    ],
    ids=str,
)
def test_the_operator_sets_the_mig_strategy_unless_it_is_left_empty(values: dict[str, object], want: object) -> None:
    environment = operatorvalues.environment({"devicePlugin": {"config": {}}, **values})
    assert environment.values.get("migStrategy") == want


def test_variables_of_the_values_win_over_the_operators_own() -> None:
    env = [{"name": "MIG_STRATEGY", "value": "mixed"}, {"name": "PASS_DEVICE_SPECS", "value": "f"}, {"name": "X"}, 5]
    environment = operatorvalues.environment({"devicePlugin": {"config": {}, "env": env}})
    assert environment.values["migStrategy"] == "mixed"
    assert environment.values["plugin.passDeviceSpecs"] is False


SHARED_MIG = """\
devicePlugin:
  config:
    name: c
    create: true
    data:
      a: |-
        version: v1
        flags:
          migStrategy: mixed
        sharing:
          timeSlicing:
            resources:
            - name: nvidia.com/mig-1g.5gb
              replicas: 2
mig:
  strategy: {strategy}
"""


def test_what_the_operators_values_hide_is_judged_by_what_is_in_force() -> None:
    assert found(SHARED_MIG.format(strategy="single")) == [
        ("warning", "a", "flags.migStrategy"),
        ("warning", "a", "sharing.timeSlicing.resources[0].name"),
    ]
    assert found(SHARED_MIG.format(strategy="mixed")) == [("hint", "a", "flags.migStrategy")]
    assert found(SHARED_MIG.format(strategy='""')) == []


def test_mps_without_feature_discovery_is_told() -> None:
    text = "devicePlugin: {config: {name: c, create: true, data: {a: 'sharing: {mps: {}}'}}}\ngfd: {enabled: false}\n"
    assert ("hint", "", "gfd.enabled") in found(text)


def test_a_config_map_that_nobody_meant_for_the_plugin_is_not_looked_at() -> None:
    assert found("kind: ConfigMap\ndata: {Corefile: '.:53 { errors }'}") == [("hint", "", "data")]
    assert found("kind: ConfigMap\ndata: {c: 'version: v1\n\n\n  mig-configs: {}'}") == [("hint", "", "data")]
    assert found("kind: ConfigMap") == [("hint", "", "data")]
    assert configmap.configs({"data": {"a": "version: v1", "readme": "hello"}})


@pytest.mark.parametrize("data", ["[a]", "{a: {flags: {}}}", "{a: 5}", "text"])
def test_a_config_map_that_the_api_server_refuses_is_an_error(data: str) -> None:
    assert [severity for severity, *_ in found(f"kind: ConfigMap\ndata: {data}\n")] == ["error"]


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ({"kind": "ConfigMap"}, Kind.CONFIGMAP),
        ({"kind": "GpuSharingPolicy"}, Kind.POLICY),
        ({"kind": "List", "items": []}, Kind.LIST),
        ({"kind": "Deployment"}, Kind.OTHER_OBJECT),
        ({"devicePlugin": {"config": {}}}, Kind.OPERATOR_VALUES),
        ({"devicePlugin": {"enabled": True}, "config": {"name": ""}}, Kind.CHART_VALUES),
        ({"config": {"map": {}}}, Kind.CHART_VALUES),
        ({"config": {"flags": {}}}, Kind.PLUGIN_CONFIG),
        ({"kind": 5}, Kind.PLUGIN_CONFIG),
        ({}, Kind.PLUGIN_CONFIG),
        ("text", Kind.PLUGIN_CONFIG),
    ],
    ids=str,
)
def test_a_document_is_told_apart_by_its_own_words(data: object, want: Kind) -> None:
    assert kind_of(data) == want


def test_objects_of_a_list_and_of_a_file_are_looked_at_one_by_one() -> None:
    config_map = "kind: ConfigMap\n  data:\n    a: |\n      flagz: 1\n      sharing: null\n"
    listed = f"kind: List\nitems:\n- {config_map}- kind: Service\n"
    finding, service = lint([("f", listed)], "per-node")
    assert (finding.line, finding.config, finding.path) == (6, "a", "flagz")
    assert (service.line, service.severity) == (8, "hint")
    file = "kind: Service\n---\nversion: v1\n---\n\n---\nkind: ConfigMap\ndata: {a: 'sharing: 5'}\n"
    assert found(file) == [("hint", "", "kind"), ("warning", "", ""), ("error", "a", "sharing")]
