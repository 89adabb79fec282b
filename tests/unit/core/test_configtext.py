"""What the plugin makes of a config's text: ours strictly, everybody else's as NVIDIA's plugin reads it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.strategies import json_values, specs

from gpusharing.api.pluginconfig import MAX_BYTES, PluginConfig
from gpusharing.api.policy import PolicySpec
from gpusharing.api.yamltext import read
from gpusharing.core.checks import chartvalues, configmap, operatorvalues
from gpusharing.core.checks.pluginconfig import check_content
from gpusharing.core.configtext import VALUES_MAX, read_foreign, read_rendered
from gpusharing.core.desired_state import render
from gpusharing.core.documents import Kind, kind_of
from gpusharing.core.effective import serve
from gpusharing.core.errors import InvalidInput
from gpusharing.core.options import Given, Options

CONFIGS = Path(__file__).resolve().parents[2] / "vectors" / "configs"
EXPECT = json.loads((CONFIGS / "expect.json").read_text())["files"]
# flags.mpsRoot is what a chart or our DaemonSet gives; a config need not say it
MPS_ROOT = Options({"mps_root": Given("/run/nvidia/mps", "MPS_ROOT")})
SHARED = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"


def texts(file: str) -> dict[str, str]:
    """The plugin configs in a file, by name."""
    text = (CONFIGS / file).read_bytes().decode()
    found: dict[str, str] = {}
    for document in read(text):
        match kind_of(document.data):
            case Kind.CONFIGMAP:
                embedded = configmap.configs(document.data)
            case Kind.CHART_VALUES:
                embedded = chartvalues.configs(document.data)
            case Kind.OPERATOR_VALUES:
                embedded = operatorvalues.configs(document.data)
            case _:
                return found or {"": text}
        found |= {config.name: config.text for config in embedded}
    return found


def refused_by_the_plugin(file: str) -> set[str]:
    """The configs of a file with a finding that is neither a warning nor about something else than the config."""
    entry = EXPECT[file]
    if entry["verdict"] != "error":
        return set()
    wrong: set[str] = set()
    for finding in entry["findings"]:
        name, _, said = finding.removeprefix("[").partition("] ") if finding[0] == "[" else ("", "", finding)
        harmless = any(word in said for word in ("ignored", "unknown key", "the same resource", "at the top level"))
        if not harmless and not said.startswith("config.default"):
            wrong.add(name)
    return wrong


def is_refused(text: str) -> bool:
    try:
        serve(read_foreign(text).config, "x", MPS_ROOT)
    except InvalidInput:
        return True
    return False


def refusal(text: str, *, rendered: bool = False) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_rendered(text) if rendered else read_foreign(text)
    return str(caught.value)


def outcomes(text: str) -> list[str]:
    """What is said where either way of reading refuses the text; anything else that it raises fails the test."""
    said = []
    for read_text in (read_rendered, read_foreign):
        try:
            read_text(text)
        except InvalidInput as error:
            said.append(str(error))
    return said


# --- configs as people write them


@pytest.mark.fault("F18")
@pytest.mark.parametrize("file", sorted(EXPECT))
def test_a_config_is_refused_exactly_where_nvidias_plugin_refuses_it(file: str) -> None:
    want = refused_by_the_plugin(file)
    assert {name for name, text in texts(file).items() if is_refused(text)} == want


@pytest.mark.parametrize(
    ("file", "name", "keys"),
    [
        ("02", "any", ["flags.renameByDefault", "flags.failRequestsGreaterThanOne"]),
        ("10", "", ["sharing.timeSlicing.resources[0].id"]),
        ("13", "config.yaml", ["mig-configs"]),
        ("22", "slice-10", ["flages", "sharing.timeSlicing.failRequestGreaterThanOne"]),
        ("23", "config.yaml", ["sharing.mig"]),
        ("33", "", ["config"]),
        ("35", "H100", ["devices"]),
    ],
)
def test_every_unknown_key_is_named_by_its_path(file: str, name: str, keys: list[str]) -> None:
    [path] = CONFIGS.glob(f"{file}-*")
    assert list(read_foreign(texts(path.name)[name]).unknown_keys) == keys


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (
            "version: v1\na: &x {b: 1}\nc: *x\n",
            "c: the alias *x stands for what is written at &x",
        ),
        ("version: v1\nversion: v1\n", "version: the key stands twice; the last one wins"),
        ("version: v1\n---\nversion: v1\n", "only the first document counts. hint: leave out what follows it"),
        (
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, devices: [0]}]}}",
            "sharing.timeSlicing.resources[0].devices: read, then reset to all: every GPU is shared. "
            "hint: leave it out",
        ),
    ],
)
def test_what_is_taken_otherwise_than_it_seems_is_named(text: str, remark: str) -> None:
    assert remark in read_foreign(text).remarks


# --- as NVIDIA takes it


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("# nothing\n", {}),
        ("null", {}),
        ("version: ''\n", {}),
        ("flags: null\nsharing: null\n", {}),
        ("FLAGS: {MIGSTRATEGY: mixed}\n", {"flags": {"migStrategy": "mixed"}}),
        ("flags: {migStrategy: single}\nflags: {migStrategy: mixed}\n", {"flags": {"migStrategy": "mixed"}}),
        ("flags: {plugin: {deviceListStrategy: cdi-cri}}", {"flags": {"plugin": {"deviceListStrategy": ["cdi-cri"]}}}),
        # one level too deep: not read there, and the one above is emptied (v0.20.0)
        ("flags: {plugin: {failOnInitError: true}}", {"flags": {"failOnInitError": False}}),
        ("flags: {gfd: {mpsRoot: /x}}", {"flags": {"mpsRoot": ""}}),
        ("flags: {mpsRoot: /y, plugin: {mpsRoot: /x}}", {"flags": {"mpsRoot": "/y"}}),
        ("flags: {gfd: {sleepInterval: 60, oneshot: true}, useNodeFeatureAPI: true}", {}),
        ("resources: {gpus: [{pattern: '*', name: gpu}]}", {}),
        ("imex: {channelIDs: [null], required: true}", {"imex": {"channelIDs": [0], "required": True}}),
        ("{version: v1, flags: {mpsRoot: &r /run}, x: *r}", {"flags": {"mpsRoot": "/run"}}),
    ],
)
def test_a_foreign_config_means_what_nvidias_plugin_takes_it_for(text: str, want: dict[str, Any]) -> None:
    config = read_foreign(text).config.canonical()
    assert config == {"version": "v1", **want}


def test_resource_names_and_replicas_are_normalised() -> None:
    text = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4.0, rename: gpu.x}]}}"
    config = read_foreign(text).config
    assert config.sharing is not None
    assert config.sharing.time_slicing is not None
    [resource] = config.sharing.time_slicing.resources
    assert (resource.name, resource.replicas, resource.rename) == ("nvidia.com/gpu", 4, None)


def test_mps_goes_with_a_mixed_strategy_that_is_given_otherwise() -> None:
    text = "flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
    assert "MPS with migStrategy: mixed" in refusal(text)
    assert read_foreign(text, "none").config.sharing is not None


def test_our_own_key_is_read_strictly_even_in_a_foreign_config() -> None:
    assert "gpusharing.allocation.polizy" in refusal("gpusharing: {allocation: {polizy: packed}}")


@given(json_values)
@settings(deadline=None, max_examples=150)
def test_whatever_passes_the_checks_is_taken_and_whatever_does_not_is_refused(data: Any) -> None:
    text = yaml.safe_dump(data, allow_unicode=True)
    document = next(iter(read(text)), None)
    if document is None or (document.whole and not _errors(document.data)):
        assert read_foreign(text).config.version == "v1"
    else:
        assert refusal(text)


sections = st.fixed_dictionaries(
    {},
    optional={
        "version": st.sampled_from(["v1", "", None]),
        "flags": st.dictionaries(
            st.sampled_from(["migStrategy", "MigStrategy", "mpsRoot", "failOnInitError", "gfd", "plugin", "typo"]),
            st.sampled_from(
                [None, "none", True, {"passDeviceSpecs": True, "mpsRoot": "x"}, {"deviceIDStrategy": "uuid"}]
            ),
        ),
        "sharing": st.dictionaries(
            st.sampled_from(["timeSlicing", "mps", "timeslicing", "mig"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "renameByDefault": st.sampled_from([True, None, "true"]),
                    "resources": st.lists(
                        st.fixed_dictionaries(
                            {
                                "name": st.sampled_from(["gpu", "nvidia.com/gpu"]),
                                "replicas": st.sampled_from([2, 4.0, 1]),
                            },
                            optional={"devices": st.sampled_from(["all", 1, [0], {}]), "rename": st.just("gpu-x")},
                        ),
                        max_size=2,
                    ),
                },
            ),
        ),
        "imex": st.fixed_dictionaries({}, optional={"channelIDs": st.sampled_from([[], [0], [None], [1], None])}),
    },
)


@given(sections)
@settings(deadline=None, max_examples=200)
def test_configs_that_are_nearly_right_are_taken_or_refused_and_nothing_else(data: dict[str, Any]) -> None:
    text = yaml.safe_dump(data)
    assert is_refused(text) == bool(_errors(data))


def _errors(data: Any) -> list[Any]:
    return [problem for problem in check_content(data) if problem.severity == "error"]


# --- ours


@given(specs)
@settings(deadline=None, max_examples=60)
def test_what_our_controller_renders_is_read_back_equal(spec: dict[str, Any]) -> None:
    rendered = render(PolicySpec.model_validate(spec), "per-node")
    assert read_rendered(rendered.text).digest() == rendered.digest
    assert read_foreign(rendered.text).config.digest() == rendered.digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "null is not a mapping"),
        ("version: v1\nx: 1\n", "x: unknown field"),
        ("version: v2\n", 'version: "v2" is not one of'),
        ("version: v1\nflags: {migStrategie: mixed}\n", "did you mean migStrategy?"),
        ("version: v1\nversion: v1\n", "version: the key stands twice"),
        ("version: v1\nflags: &a {}\nimex: *a\n", "the alias *a"),
        ("version: v1\n---\nversion: v1\n", "a second document"),
        ("version: v1\nflags: {failOnInitError: 'true'}\n", "flags.failOnInitError"),
        (SHARED.replace("4", "1"), "must be at least 2"),
        (SHARED.replace("replicas: 4", ""), "sharing.timeSlicing.resources[0].replicas: missing"),
        ("version: v1\nsharing:\n  timeSlicing: {resources: [", "not valid YAML"),
    ],
)
@pytest.mark.fault("F18")
def test_a_rendered_config_is_refused_for_anything_that_we_do_not_write(text: str, said: str) -> None:
    assert said in refusal(text, rendered=True)


# --- limits (F19)

BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + depth)}: &{chr(98 + depth)} [{','.join(['*' + chr(97 + depth)] * 10)}]\n" for depth in range(8)
)


@pytest.mark.fault("F19")
@pytest.mark.parametrize("rendered", [True, False], ids=["ours", "foreign"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * (MAX_BYTES + 1), f"{MAX_BYTES + 1} bytes, more than {MAX_BYTES}"),
        (BOMB, f"more than {VALUES_MAX} values"),
        ("a: " + "[" * 100 + "]" * 100, "nested deeper than 64 levels"),
        ("a:\n" + "- 1\n" * (VALUES_MAX + 1), f"more than {VALUES_MAX} values"),
        ("\udcff\udcfe", "not Unicode text"),
        ("a: \x00", "not valid YAML"),
        ("&a [*a]", "the anchor &a contains itself"),
        ("[1, 2]", "where a mapping is expected"),
    ],
    ids=["1-MiB", "bomb", "deep", "many", "not-utf-8", "nul", "itself", "a-list"],
)
def test_a_text_beyond_the_limits_is_refused_in_a_sentence(text: str, said: str, rendered: bool) -> None:
    if rendered and said == "where a mapping is expected":
        said = "is not a mapping"
    assert said in refusal(text, rendered=rendered)


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    "text",
    [
        "a: " + "x" * (MAX_BYTES - 10),
        "".join(f"key{number}: {number}\n" for number in range(9_000)),
        "# " + "c" * (MAX_BYTES - 10),
        "---\na: 1\n" * 900,
        f"flags: {{plugin: {{deviceListStrategy: [{','.join(['x'] * 9_000)}]}}}}",
        f"sharing: {{timeSlicing: {{resources: [{','.join(['{name: gpu, replicas: 2}'] * 3_000)}]}}}}",
    ],
    ids=["one-value", "keys", "comment", "documents", "strategies", "resources"],
)
def test_of_the_biggest_texts_within_the_limits_little_is_said(text: str) -> None:
    for said in outcomes(text):
        assert len(said) < 1000


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode(errors="surrogateescape")))
@settings(deadline=None, max_examples=200)
def test_no_text_raises_anything_but_a_refusal(text: str) -> None:
    outcomes(text)


def test_what_is_refused_is_counted_and_never_said_to_end_the_plugin() -> None:
    said = refusal("version: v3\nflags: {migStrategy: mixd}\nsharing: []\n")
    assert said == ('version: "v3" is an unknown version (and 2 more). hint: write v1, or leave it out')


def test_a_config_read_twice_is_the_same() -> None:
    assert read_foreign(SHARED).config == read_rendered(SHARED) == PluginConfig.model_validate(yaml.safe_load(SHARED))
