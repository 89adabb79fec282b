"""Every trap of a plugin config: where it is named, how bad it is, and what is said.

Each row was run through the loader and the flag validation of NVIDIA's plugin v0.20.0: `error` rows end it (but for
our own key, "both strategies", MPS limits and MPS on MIG, which end it later or change it), all others load.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.api.yamltext import read
from gpusharing.core.checks import pluginconfig
from gpusharing.core.checks.pluginconfig.keys import known_keys, section_of
from gpusharing.core.pluginenv import Environment

UUID = "b1028956-cfa2-0990-bf4a-5da9abb51763"


def findings(text: str, environment: Environment | None = None) -> list[tuple[str, str]]:
    """Everything that is said of a config, as severity and path."""
    [document] = read(text) or [None]
    problems = pluginconfig.check(document.data if document else None, environment)
    return [(problem.severity, problem.path) for problem in problems]


def entry(fields: str) -> str:
    return f"sharing: {{timeSlicing: {{resources: [{{{fields}}}]}}}}"


ENTRY = "sharing.timeSlicing.resources[0]"

TRAPS = {
    # --- the document
    "not a mapping": ("[]", "error", ""),
    "a text": ("no sharing here", "error", ""),
    "wrong version": ("version: v2", "error", "version"),
    "version in capitals": ("version: V1", "error", "version"),
    "version as a number": ("version: 1", "error", "version"),
    # --- keys
    "unknown at the top": ("flagz: {}", "warning", "flagz"),
    "letter case at the top": ("Version: v1", "hint", "Version"),
    "letter case of a flag": ("flags: {MigStrategy: none}", "hint", "flags.MigStrategy"),
    "one key in two letter cases": ("version: v1\nVersion: v1", "warning", "Version"),
    "letter case below a strategy": (
        "sharing: {timeSlicing: {RenameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
        "warning",
        "sharing.timeSlicing.RenameByDefault",
    ),
    "letter case in an entry": (
        entry("name: nvidia.com/gpu, replicas: 2, Devices: all"),
        "warning",
        f"{ENTRY}.Devices",
    ),
    "a flag of the plugin one level up": ("flags: {deviceIDStrategy: uuid}", "warning", "flags.deviceIDStrategy"),
    "the strategy one level down": ("flags: {plugin: {migStrategy: mixed}}", "error", "flags.plugin.migStrategy"),
    "a flag one level down": ("flags: {plugin: {failOnInitError: true}}", "warning", "flags.plugin.failOnInitError"),
    "a flag below gfd": ("flags: {gfd: {nvidiaDriverRoot: /}}", "warning", "flags.gfd.nvidiaDriverRoot"),
    # --- flags
    "flags as a list": ("flags: []", "error", "flags"),
    "a section as a word": ("flags: {plugin: yes}", "error", "flags.plugin"),
    "unknown MIG strategy": ("flags: {migStrategy: mix}", "error", "flags.migStrategy"),
    "empty MIG strategy": ("flags: {migStrategy: ''}", "error", "flags.migStrategy"),
    "MIG strategy no": ("flags: {migStrategy: no}", "error", "flags.migStrategy"),
    "a boolean in quotes": ("flags: {failOnInitError: 'true'}", "error", "flags.failOnInitError"),
    "a boolean as a number": ("flags: {gdsEnabled: 1}", "error", "flags.gdsEnabled"),
    "a path as a number": ("flags: {mpsRoot: 5}", "error", "flags.mpsRoot"),
    "discovery of GFD only": ("flags: {deviceDiscoveryStrategy: vfio}", "error", "flags.deviceDiscoveryStrategy"),
    "unknown id strategy": ("flags: {plugin: {deviceIDStrategy: guid}}", "error", "flags.plugin.deviceIDStrategy"),
    "a comma list": (
        "flags: {plugin: {deviceListStrategy: 'envvar,cdi-cri'}}",
        "error",
        "flags.plugin.deviceListStrategy",
    ),
    "one wrong list strategy": (
        "flags: {plugin: {deviceListStrategy: [envvar, cdi]}}",
        "error",
        "flags.plugin.deviceListStrategy[1]",
    ),
    "no list strategy": ("flags: {plugin: {deviceListStrategy: []}}", "warning", "flags.plugin.deviceListStrategy"),
    "a list strategy of null": (
        "flags: {plugin: {deviceListStrategy: [null]}}",
        "error",
        "flags.plugin.deviceListStrategy[0]",
    ),
    "an allocation policy of ours": (
        "flags: {plugin: {sharedDevicesAllocationPolicy: spread}}",
        "error",
        "flags.plugin.sharedDevicesAllocationPolicy",
    ),
    "packed on an old plugin": (
        "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}",
        "hint",
        "flags.plugin.sharedDevicesAllocationPolicy",
    ),
    "an interval in nanoseconds": ("flags: {gfd: {sleepInterval: 60}}", "warning", "flags.gfd.sleepInterval"),
    "an interval in words": ("flags: {gfd: {sleepInterval: 1 hour}}", "error", "flags.gfd.sleepInterval"),
    "an interval of yes": ("flags: {gfd: {sleepInterval: yes}}", "error", "flags.gfd.sleepInterval"),
    "MIG strategy that the GPU operator hides": ("flags: {migStrategy: mixed}", "hint", "flags.migStrategy"),
    # --- resources, imex, our own key
    "resources as a list": ("resources: [{name: nvidia.com/gpu}]", "error", "resources"),
    "patterns": ("resources: {gpus: [{pattern: '*', name: gpu}]}", "warning", "resources.gpus"),
    "patterns as a mapping": ("resources: {gpus: {}}", "error", "resources.gpus"),
    "a pattern without a name": ("resources: {mig: [{pattern: x}]}", "error", "resources.mig[0].name"),
    "a pattern that is a word": ("resources: {mig: [x]}", "error", "resources.mig[0]"),
    "a pattern with a bad name": ("resources: {mig: [{pattern: x, name: A}]}", "error", "resources.mig[0].name"),
    "a channel": ("imex: {channelIDs: [1]}", "error", "imex.channelIDs"),
    "channels twice": ("imex: {channelIDs: [0, 0]}", "error", "imex.channelIDs"),
    "a channel in quotes": ("imex: {channelIDs: ['0']}", "error", "imex.channelIDs"),
    "a channel of false": ("imex: {channelIDs: [false]}", "error", "imex.channelIDs"),
    "required in quotes": ("imex: {required: 'yes'}", "error", "imex.required"),
    "our allocation, misspelt": ("gpusharing: {allocation: {policy: pack}}", "error", "gpusharing.allocation.policy"),
    # --- sharing
    "sharing as a list": ("sharing: [timeSlicing]", "error", "sharing"),
    "both strategies": (
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}, mps: {resources: [{name: gpu, replicas: 2}]}}",
        "error",
        "sharing",
    ),
    "a strategy of null": ("sharing: {timeSlicing: null}", "error", "sharing.timeSlicing.resources"),
    "a strategy as a list": ("sharing: {timeSlicing: []}", "error", "sharing.timeSlicing"),
    "an empty strategy": ("sharing: {mps: {}}", "error", "sharing.mps.resources"),
    "no resources": ("sharing: {timeSlicing: {resources: []}}", "error", "sharing.timeSlicing.resources"),
    "resources as a mapping": (
        "sharing: {timeSlicing: {resources: {name: gpu}}}",
        "error",
        "sharing.timeSlicing.resources",
    ),
    "an entry of null": ("sharing: {timeSlicing: {resources: [null]}}", "error", ENTRY),
    "rename in quotes": (
        "sharing: {timeSlicing: {renameByDefault: 'no', resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
        "error",
        "sharing.timeSlicing.renameByDefault",
    ),
    # --- names
    "no name": (entry("replicas: 2"), "error", f"{ENTRY}.name"),
    "a name of null": (entry("name: null, replicas: 2"), "error", f"{ENTRY}.name"),
    "a name as a number": (entry("name: 5, replicas: 2"), "error", f"{ENTRY}.name"),
    "another domain": (entry("name: amd.com/gpu, replicas: 2"), "error", f"{ENTRY}.name"),
    "capitals": (entry("name: nvidia.com/GPU, replicas: 2"), "error", f"{ENTRY}.name"),
    "a profile with a plus": (entry("name: nvidia.com/mig-1g.5gb+me, replicas: 2"), "error", f"{ENTRY}.name"),
    "a name of 64": (entry(f"name: nvidia.com/{'a' * 53}, replicas: 2"), "error", f"{ENTRY}.name"),
    "a name that no device has": (entry("name: nvidia.com/gpu.shared, replicas: 2"), "warning", f"{ENTRY}.name"),
    "MIG without mixed": (entry("name: nvidia.com/mig-1g.5gb, replicas: 2"), "warning", f"{ENTRY}.name"),
    "a bare name": (entry("name: gpu, replicas: 2"), "hint", f"{ENTRY}.name"),
    "one name twice": (
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}, {name: gpu, replicas: 4}]}}",
        "warning",
        "sharing.timeSlicing.resources[1]",
    ),
    # --- replicas
    "no replicas": (entry("name: nvidia.com/gpu"), "error", f"{ENTRY}.replicas"),
    "one replica": (entry("name: nvidia.com/gpu, replicas: 1"), "error", f"{ENTRY}.replicas"),
    "no replica": (entry("name: nvidia.com/gpu, replicas: 0"), "error", f"{ENTRY}.replicas"),
    "negative replicas": (entry("name: nvidia.com/gpu, replicas: -1"), "error", f"{ENTRY}.replicas"),
    "replicas of null": (entry("name: nvidia.com/gpu, replicas: null"), "error", f"{ENTRY}.replicas"),
    "replicas of true": (entry("name: nvidia.com/gpu, replicas: true"), "error", f"{ENTRY}.replicas"),
    "replicas in quotes": (entry("name: nvidia.com/gpu, replicas: '4'"), "error", f"{ENTRY}.replicas"),
    "half a replica": (entry("name: nvidia.com/gpu, replicas: 2.5"), "error", f"{ENTRY}.replicas"),
    "infinite replicas": (entry("name: nvidia.com/gpu, replicas: .inf"), "error", f"{ENTRY}.replicas"),
    "one replica more than a number holds": (
        entry(f"name: nvidia.com/gpu, replicas: {2**63}"),
        "error",
        f"{ENTRY}.replicas",
    ),
    "as many replicas as a number holds": (
        entry(f"name: nvidia.com/gpu, replicas: {2**63 - 1}"),
        "hint",
        f"{ENTRY}.replicas",
    ),
    "more replicas than any number holds": (
        entry(f"name: nvidia.com/gpu, replicas: 1{'0' * 20}"),
        "error",
        f"{ENTRY}.replicas",
    ),
    "replicas as a fraction": (entry("name: nvidia.com/gpu, replicas: 4.0"), "hint", f"{ENTRY}.replicas"),
    "replicas without end": (entry("name: nvidia.com/gpu, replicas: 4096"), "hint", f"{ENTRY}.replicas"),
    # --- what is read and then dropped
    "a rename": (entry("name: nvidia.com/gpu, replicas: 2, rename: nvidia.com/x"), "warning", f"{ENTRY}.rename"),
    "an empty rename": (entry("name: nvidia.com/gpu, replicas: 2, rename: ''"), "error", f"{ENTRY}.rename"),
    "a rename of another domain": (
        entry("name: nvidia.com/gpu, replicas: 2, rename: a.b/c"),
        "error",
        f"{ENTRY}.rename",
    ),
    "a count of devices": (entry("name: nvidia.com/gpu, replicas: 2, devices: 1"), "warning", f"{ENTRY}.devices"),
    "a list of devices": (
        entry(f"name: nvidia.com/gpu, replicas: 2, devices: [0, '1', '0:1', GPU-{UUID}, MIG-GPU-{UUID}/1/0]"),
        "warning",
        f"{ENTRY}.devices",
    ),
    "devices of null": (entry("name: nvidia.com/gpu, replicas: 2, devices: null"), "error", f"{ENTRY}.devices"),
    "no device": (entry("name: nvidia.com/gpu, replicas: 2, devices: 0"), "error", f"{ENTRY}.devices"),
    "devices by a word": (entry("name: nvidia.com/gpu, replicas: 2, devices: any"), "error", f"{ENTRY}.devices"),
    "devices by model": (entry("name: nvidia.com/gpu, replicas: 2, devices: [T4]"), "error", f"{ENTRY}.devices"),
    "a UUID that is none": (entry("name: nvidia.com/gpu, replicas: 2, devices: [GPU-1]"), "error", f"{ENTRY}.devices"),
    "a MIG device of no GPU": (
        entry(f"name: nvidia.com/gpu, replicas: 2, devices: [MIG-{UUID}/1/0]"),
        "error",
        f"{ENTRY}.devices",
    ),
    "a negative index": (entry("name: nvidia.com/gpu, replicas: 2, devices: [-1]"), "error", f"{ENTRY}.devices"),
    # --- MPS
    "MPS with mixed": (
        "flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
        "error",
        "flags.migStrategy",
    ),
    "MPS with single": (
        "flags: {migStrategy: single}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
        "hint",
        "flags.migStrategy",
    ),
    "MPS on MIG devices": (
        "sharing: {mps: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}",
        "error",
        "sharing.mps.resources[0].name",
    ),
    "49 clients of MPS": (
        "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 49}]}}",
        "error",
        "sharing.mps.resources[0].replicas",
    ),
    "17 clients of MPS": (
        "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 17}]}}",
        "hint",
        "sharing.mps.resources[0].replicas",
    ),
    "MPS refuses two shares": (
        "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
        "hint",
        "sharing.mps.failRequestsGreaterThanOne",
    ),
    "MPS allows two shares": (
        "sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
        "hint",
        "sharing.mps.failRequestsGreaterThanOne",
    ),
}


@pytest.mark.parametrize(("text", "severity", "path"), TRAPS.values(), ids=TRAPS)
def test_a_trap_is_named_at_its_place(text: str, severity: str, path: str) -> None:
    got = findings(text)
    assert (severity, path) in got
    others = [other for level, other in got if level != "hint" and (level, other) != (severity, path)]
    assert all(path.startswith(f"{other}[") for other in others), "nothing is wrong with anything else"


FINE = {
    "nothing at all": "",
    "null": "null",
    "just the version": "version: v1",
    "an empty version": "version: ''",
    "flags of null": "flags: null\nsharing: null\nresources: null\nimex: null",
    "each flag of null": "flags: {migStrategy: null, gdsEnabled: null, plugin: {deviceListStrategy: null}, gfd: null}",
    "every flag": (
        "flags: {migStrategy: none, failOnInitError: false, mpsRoot: /m, nvidiaDriverRoot: /, nvidiaDevRoot: /, "
        "gdrcopyEnabled: false, gdsEnabled: yes, mofedEnabled: off, useNodeFeatureAPI: true, "
        "deviceDiscoveryStrategy: nvml, plugin: {passDeviceSpecs: true, deviceListStrategy: [envvar, cdi-cri], "
        "deviceIDStrategy: index, cdiAnnotationPrefix: a, nvidiaCTKPath: /c, containerDriverRoot: /d, "
        "sharedDevicesAllocationPolicy: distributed}, gfd: {oneshot: false, noTimestamp: true, "
        "sleepInterval: 1h2m3.5s, outputFile: '', machineTypeFile: /f}}"
    ),
    "MPS of null": "sharing: {mps: null, timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
    "renamed by default": (
        "sharing: {timeSlicing: {renameByDefault: true, resources: "
        "[{name: nvidia.com/gpu, replicas: 2, rename: nvidia.com/gpu.shared, devices: all}]}}"
    ),
    "no patterns": "resources: {gpus: [], mig: null}",
    "the one channel": "imex: {channelIDs: [0], required: true}",
    "our own key": "gpusharing: {allocation: {policy: packed, keepTogether: preferred}}",
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_what_the_plugin_takes_as_written_is_left_alone(text: str) -> None:
    assert findings(text) == []


def test_all_problems_are_named_at_once() -> None:
    text = (
        "version: v2\nflags: {migStrategy: x, failOnInitError: 'y', zzz: 1}\n"
        "sharing: {timeSlicing: {resources: [{replicas: 1}, {name: A, replicas: '2'}]}}"
    )
    assert {path for severity, path in findings(text) if severity == "error"} == {
        "version",
        "flags.migStrategy",
        "flags.failOnInitError",
        f"{ENTRY}.name",
        f"{ENTRY}.replicas",
        "sharing.timeSlicing.resources[1].name",
        "sharing.timeSlicing.resources[1].replicas",
    }


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("flagz: {}", "did you mean flags?"),
        ("timeSlicing: {}", "it belongs under sharing"),
        ("flags: {renameByDefault: true}", "it belongs under sharing.timeSlicing"),
        ("flags: {passDeviceSpecs: true}", "it belongs under flags.plugin"),
        ("sharing: {mps: {replicas: 2, resources: [{name: nvidia.com/gpu, replicas: 2}]}}", "resources[]"),
        ("sharing: {version: v1}", "it belongs at the top"),
        ("resources: {migs: []}", "the key is resources.mig"),
        ("allocationPolicy: packed", "sharedDevicesAllocationPolicy"),
        ("mig-configs: {}", "MIG manager"),
        ("qqqqqq: 1", "known here: version, flags, resources, sharing, imex"),
    ],
    ids=lambda value: str(value)[:32],
)
def test_an_unknown_key_is_named_with_what_was_meant(text: str, hint: str) -> None:
    [document] = read(text)
    assert any(hint in problem.hint for problem in pluginconfig.check(document.data)), pluginconfig.check(document.data)


def test_a_flag_below_plugin_beside_the_real_one_is_only_ignored() -> None:
    text = "flags: {migStrategy: none, plugin: {migStrategy: mixed}}"
    assert findings(text) == [("warning", "flags.plugin.migStrategy")]


OPERATOR = Environment({"migStrategy": "single", "failOnInitError": True, "mpsRoot": None}, "the GPU operator")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("flags: {failOnInitError: true}", [("hint", "flags.failOnInitError")]),
        ("flags: {failOnInitError: false}", [("warning", "flags.failOnInitError")]),
        ("flags: {migStrategy: none}", [("hint", "flags.migStrategy")]),
        ("flags: {migStrategy: mixed}", [("warning", "flags.migStrategy")]),
        ("flags: {mpsRoot: /x}", [("hint", "flags.mpsRoot")]),
        ("flags: {MIGStrategy: mixed}", [("hint", "flags.MIGStrategy"), ("warning", "flags.MIGStrategy")]),
        ("flags: []", [("error", "flags")]),
    ],
    ids=str,
)
def test_what_the_environment_hides_is_told(text: str, want: list[tuple[str, str]]) -> None:
    assert findings(text, OPERATOR) == want


def test_the_environments_mig_strategy_is_the_one_in_force() -> None:
    text = entry("name: nvidia.com/mig-1g.5gb, replicas: 2")
    assert findings(text, Environment({"migStrategy": "mixed"}, "the chart")) == []
    assert findings(text, OPERATOR) == [("warning", f"{ENTRY}.name")]


def sections(model: type = PluginConfig, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every mapping of a config that NVIDIA's plugin reads, by its path."""
    found = [path]
    for key, field in known_keys(model).items():
        section, listed = section_of(field.annotation)
        if section and key != "gpusharing" and not listed:
            found += sections(section, (*path, key))
    return found


@given(path=st.sampled_from(sections()), key=st.from_regex(r"[a-zA-Z][a-zA-Z0-9-]{0,20}", fullmatch=True))
def test_an_unknown_key_is_named_in_every_section(path: tuple[str, ...], key: str) -> None:
    model: type = PluginConfig
    config: dict[str, object] = {}
    here = config
    for part in path:
        model, _ = section_of(known_keys(model)[part].annotation)  # type: ignore[assignment]
        here[part] = {}
        here = here[part]  # type: ignore[assignment]
    if key.lower() in {known.lower() for known in known_keys(model)}:
        return
    here[key] = {}
    where = ".".join((*path, key))
    assert where in {problem.path for problem in pluginconfig.check(config) if problem.severity != "hint"}


KEYS = (
    *("version", "flags", "migStrategy", "plugin", "deviceListStrategy", "gfd", "imex", "channelIDs", "gpusharing"),
    *("sharing", "timeSlicing", "mps", "resources", "name", "replicas", "devices", "rename"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["v1", "mixed"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_data_at_all_is_looked_at_without_a_crash(config: object) -> None:
    environment = Environment({"migStrategy": "mixed", "plugin.deviceListStrategy": None}, "a test")
    for problem in (*pluginconfig.check(config), *pluginconfig.check(config, environment)):
        assert problem.message
