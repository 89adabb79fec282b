import hashlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import json_values

from gpusharing.api.pluginconfig import MAX_BYTES, InvalidPluginConfig, PluginConfig, load
from gpusharing.api.problems import Problem

FULL: dict[str, Any] = {
    "version": "v1",
    "flags": {
        "migStrategy": "mixed",
        "failOnInitError": False,
        "plugin": {
            "passDeviceSpecs": True,
            "deviceListStrategy": ["envvar"],
            "deviceIDStrategy": "uuid",
            "sharedDevicesAllocationPolicy": "packed",
        },
    },
    "sharing": {
        "timeSlicing": {
            "renameByDefault": True,
            "failRequestsGreaterThanOne": False,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
        }
    },
    "gpusharing": {"allocation": {"policy": "packed", "keepTogether": "preferred"}},
}

_KEYS = st.sampled_from(["on", "replicas", "1", "deviceIDStrategy"])


def reordered(value: Any) -> Any:
    """The same mapping, its keys in the opposite order at every level."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def problems_of(text: str) -> list[str]:
    with pytest.raises(InvalidPluginConfig) as caught:
        load(text)
    return [str(problem) for problem in caught.value.problems]


class TestCanonicalDump:
    def test_it_holds_what_was_said_and_nothing_else(self) -> None:
        assert load(yaml.safe_dump(FULL)).canonical() == FULL

    def test_of_nothing_it_is_the_version_alone(self) -> None:
        assert PluginConfig().canonical() == {"version": "v1"}

    def test_sections_that_say_nothing_are_left_out(self) -> None:
        text = "{flags: {plugin: {}, gfd: {}}, sharing: {}, resources: {}, imex: {}}"
        assert load(text).canonical() == {"version": "v1"}

    def test_a_value_equal_to_the_default_of_our_own_section_counts_as_not_said(self) -> None:
        text = "gpusharing: {allocation: {policy: distributed, keepTogether: none, topology: none}}"
        assert load(text).canonical() == {"version": "v1"}

    def test_null_counts_as_not_said(self) -> None:
        assert load("flags: {migStrategy: null, plugin: null}").canonical() == {"version": "v1"}

    def test_a_flag_that_is_false_is_said(self) -> None:
        assert load("flags: {failOnInitError: false}").canonical()["flags"] == {"failOnInitError": False}

    def test_one_strategy_and_a_list_of_one_are_the_same(self) -> None:
        one, listed = (f"flags: {{plugin: {{deviceListStrategy: {form}}}}}" for form in ("envvar", "[envvar]"))
        assert load(one).digest() == load(listed).digest()

    def test_it_is_read_back_as_the_same_config(self) -> None:
        config = load(yaml.safe_dump(FULL))
        assert load(config.to_yaml()) == config

    def test_its_text_does_not_depend_on_the_order_in_which_it_was_written(self) -> None:
        one, other = (load(yaml.safe_dump(form, sort_keys=False)) for form in (FULL, reordered(FULL)))
        assert one.to_yaml() == other.to_yaml()

    @given(
        st.dictionaries(
            _KEYS,
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(st.characters(min_codepoint=32, max_codepoint=126)),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
                max_leaves=8,
            ),
            max_size=4,
        )
    )
    def test_it_is_the_same_text_with_and_without_libyaml(self, node: Any) -> None:
        pure, fast = (
            yaml.dump(node, Dumper=dumper, sort_keys=True, default_flow_style=False, width=120)
            for dumper in (yaml.SafeDumper, yaml.CSafeDumper)
        )
        assert pure == fast


class TestDigest:
    def test_it_is_the_sha256_of_the_canonical_json(self) -> None:
        text = json.dumps(FULL, sort_keys=True, separators=(",", ":"))
        assert load(yaml.safe_dump(FULL)).digest() == hashlib.sha256(text.encode()).hexdigest()

    def test_the_order_of_keys_does_not_count(self) -> None:
        one, other = (load(yaml.safe_dump(form, sort_keys=False)) for form in (FULL, reordered(FULL)))
        assert one.digest() == other.digest()

    @pytest.mark.parametrize(
        "other",
        [
            {**FULL, "sharing": {"mps": FULL["sharing"]["timeSlicing"]}},
            {**FULL, "gpusharing": {"allocation": {"policy": "packed"}}},
            {key: value for key, value in FULL.items() if key != "flags"},
        ],
        ids=["strategy", "allocation", "flags"],
    )
    def test_another_content_has_another(self, other: dict[str, Any]) -> None:
        assert load(yaml.safe_dump(other)).digest() != load(yaml.safe_dump(FULL)).digest()


NO_CONFIGS = {
    "nothing": ("", "null is not a mapping"),
    "a list": ("[]", "[] is not a mapping"),
    "not YAML": ("a: [", "not valid YAML"),
    "a tab": ("flags:\n\tmigStrategy: none", "not valid YAML"),
    "two documents": ("version: v1\n---\nversion: v1", "not valid YAML"),
    "deep": ("[" * 400, "not valid YAML"),
    "an impossible date": ("version: 2026-99-99", "not valid YAML"),
    "an impossible boolean": ("version: !!bool x", "not valid YAML"),
    "an impossible time": ("version: !!timestamp x", "not valid YAML"),
    "a Python object": ("version: !!python/object:os.system {}", "not valid YAML"),
    "a loop": ("version: &a [*a]", "an alias"),
    "an alias": ("flags: &f {}\nsharing: *f", "an alias"),
    "a list as key": ("? [a]\n: b", "not valid YAML"),
}


class TestStrictLoad:
    def test_everything_that_is_wrong_is_said_at_once(self) -> None:
        text = """
version: v1
flags:
  migStrategie: mixed
  plugin: {deviceListStrategy: envvars, passDeviceSpecs: 1}
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: "4"}], renameByDefaults: true}
gpusharing: {allocation: {keepTogether: always}}
"""
        assert problems_of(text) == [
            "flags.migStrategie: unknown field. hint: did you mean migStrategy?",
            "flags.plugin.deviceListStrategy[0]: \"envvars\" is not one of 'envvar', 'volume-mounts', "
            "'cdi-annotations' or 'cdi-cri'",
            "flags.plugin.passDeviceSpecs: 1: must be a valid boolean",
            'sharing.timeSlicing.resources[0].replicas: "4": must be a valid integer',
            "sharing.timeSlicing.renameByDefaults: unknown field. hint: did you mean renameByDefault?",
            "gpusharing.allocation.keepTogether: \"always\" is not one of 'none', 'preferred' or 'required'",
        ]

    def test_the_problems_are_in_the_exception_s_text_too(self) -> None:
        with pytest.raises(InvalidPluginConfig, match=r"version: \"v2\" is not one of 'v1'"):
            load("version: v2")

    @pytest.mark.parametrize(("text", "want"), NO_CONFIGS.values(), ids=NO_CONFIGS.keys())
    def test_what_is_no_config_is_a_problem_and_no_crash(self, text: str, want: str) -> None:
        (problem,) = problems_of(text)
        assert want in problem
        assert "\n" not in problem

    def test_a_text_of_a_few_lines_cannot_expand_without_end(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
        assert "an alias" in problems_of("\n".join([*lines, "version: *a11"]))[0]

    def test_more_bytes_than_a_configmap_holds_are_not_even_read(self) -> None:
        assert problems_of("é" * (MAX_BYTES // 2 + 1)) == [f"{MAX_BYTES + 2} bytes, more than {MAX_BYTES}"]

    @given(st.text(max_size=60) | json_values.map(yaml.safe_dump))
    def test_any_text_is_a_config_or_a_problem(self, text: str) -> None:
        problems: list[Problem] = []
        config = PluginConfig()
        try:
            config = load(text)
        except InvalidPluginConfig as refused:
            problems = refused.problems
        assert problems or load(config.to_yaml()).digest() == config.digest()
