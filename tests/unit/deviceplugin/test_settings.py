"""Flag over environment over default, for every option of NVIDIA's and of ours; and what is said of a mistake."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.core.errors import InvalidInput
from gpusharing.core.options import NVIDIA, Option, boolean, channels, list_strategies, text
from gpusharing.deviceplugin.settings import OURS, Settings, read_settings, refuse_platform

NODE = {"NODE_NAME": "gpu-a"}


def read(*arguments: str, **variables: str) -> Settings:
    return read_settings(arguments, {**NODE, **variables})


def refused(*arguments: str, **variables: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(*arguments, **variables)
    return str(caught.value)


def texts_of(option: Option) -> Iterator[str]:
    """Two texts that an option takes, with different values."""
    for candidate in (
        "true",
        "false",
        "cdi-cri",
        "envvar",
        "0",
        "",
        "7s",
        "9s",
        "a/b",
        "c/d",
        ":1",
        ":2",
        *_WORDS,
        "x",
        "y",
    ):
        try:
            option.read(candidate)
        except ValueError:
            continue
        yield candidate


_WORDS = (
    "none",
    "single",
    "uuid",
    "index",
    "auto",
    "nvml",
    "packed",
    "distributed",
    "json",
    "console",
    "DEBUG",
    "INFO",
)


def two_texts(option: Option) -> tuple[str, str]:
    found: dict[Any, str] = {}
    for candidate in texts_of(option):
        if option.read is not text or candidate in {"x", "y"}:
            found.setdefault(option.read(candidate), candidate)
    # the last two: a default comes first where there is one
    *_, one, other = found.values()
    return one, other


def stated(settings: Settings, option: Option) -> tuple[Any, str]:
    """What is set, and by which flag or variable where that is kept."""
    if option in NVIDIA:
        found = settings.given.given.get(option.field)
        return (found.value, found.by) if found else (None, "")
    return getattr(settings, option.field), ""


# settings that need or exclude others are tried on their own below
ALONE = {"config_file", "config_map", "discovery", "inventory"}
EACH = [option for option in (*NVIDIA, *OURS) if option.field not in ALONE]
SPELLED = [(option, flag) for option in EACH for flag in option.flags]
NAMED = [(option, name) for option in EACH for name in option.variables]


def test_every_setting_is_declared_once_and_no_spelling_twice() -> None:
    assert [option.field for option in OURS] == [each.name for each in fields(Settings) if each.name != "given"]
    everything = (*NVIDIA, *OURS)
    spelled = [
        *(flag for option in everything for flag in option.flags),
        *(o.negation for o in everything if o.negation),
    ]
    variables = [name for option in everything for name in option.variables]
    assert len(set(spelled)) == len(spelled)
    assert len(set(variables)) == len(variables)


def test_nothing_is_given_where_nothing_is_said() -> None:
    assert read() == Settings(node_name="gpu-a")
    assert read().given.given == {}


@pytest.mark.parametrize(("option", "flag"), SPELLED, ids=[flag for _, flag in SPELLED])
def test_every_flag_is_read_in_each_of_its_forms_and_wins_over_the_environment(option: Option, flag: str) -> None:
    one, other = two_texts(option)
    forms = [[f"--{flag}={one}"], [f"-{flag}={one}"], [f"--{flag}={other}", f"--{flag}={one}"]]
    if not option.is_switch:
        forms.append([f"--{flag}", one])
    if option.is_list:
        forms[2] = [f"--{flag}={one}"]
    variable = {option.variables[0]: other}
    for form in forms:
        assert stated(read(*form, **variable), option) == (option.read(one), f"--{flag}" if option in NVIDIA else "")


@pytest.mark.parametrize(("option", "name"), NAMED, ids=[name for _, name in NAMED])
def test_every_variable_is_read(option: Option, name: str) -> None:
    for value in two_texts(option):
        assert stated(read(**{name: value}), option) == (option.read(value), name if option in NVIDIA else "")


@pytest.mark.parametrize("option", [option for option in NVIDIA if option.is_switch], ids=lambda option: option.field)
@pytest.mark.parametrize(
    ("value", "want"),
    [(word, True) for word in ("1", "t", "T", "true", "TRUE", "True")]
    + [(word, False) for word in ("0", "f", "F", "false", "FALSE", "False", "")],
)
def test_nvidias_booleans_are_gos_and_count_even_when_empty(option: Option, value: str, want: bool) -> None:
    found = read(**{option.variables[0]: value}).given.given[option.field]
    assert (found.value, found.by) == (want, option.variables[0])


def test_a_switch_takes_no_word_that_follows_it() -> None:
    assert read("--fail-on-init-error").given.given["fail_on_init_error"].value is True
    assert "unexpected argument" in refused("--fail-on-init-error", "false")


def test_lists_are_separated_by_commas_or_repeated() -> None:
    for form in (
        ["--device-list-strategy=envvar, cdi-cri"],
        ["--device-list-strategy=envvar", "--device-list-strategy", "cdi-cri"],
    ):
        assert read(*form).given.given["device_list_strategies"].value == ("envvar", "cdi-cri")
    assert list_strategies("volume-mounts") == ("volume-mounts",)
    assert [channels(value) for value in ("", "0", "[]", "[0]")] == [(), (0,), (), (0,)]


def test_the_first_of_two_variables_counts() -> None:
    found = read(NVIDIA_CTK_PATH="/old", NVIDIA_CDI_HOOK_PATH="/new").given.given["nvidia_ctk_path"]
    assert (found.value, found.by) == ("/new", "NVIDIA_CDI_HOOK_PATH")


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], True),
        (["--report"], True),
        (["--no-report"], False),
        (["--report=false"], False),
        (["--no-report", "--report"], True),
    ],
)
def test_reports_are_switched_off_by_name(arguments: list[str], want: bool) -> None:
    assert read(*arguments).report is want


def test_an_empty_variable_of_ours_counts_where_empty_means_something_and_else_is_not_there() -> None:
    assert read(KUBELET_SOCKET="").kubelet_socket == ""
    assert read(GPUSHARING_DISCOVERY="", GPUSHARING_REPORT="", GPUSHARING_CONFIG_POLL="") == read()


# --- mistakes


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["--mig-stratgy=mixed"], {}, 'unknown flag "--mig-stratgy". hint: did you mean --mig-strategy?'),
        (["--pass-device-spec"], {}, "hint: did you mean --pass-device-specs?"),
        (["--zzz"], {}, 'unknown flag "--zzz". hint: `--help` lists all settings'),
        (["serve"], {}, 'unexpected argument "serve"'),
        (["-"], {}, 'unknown flag "-"'),
        (["--node-name"], {}, "--node-name: its value is missing. hint: write --node-name=VALUE"),
        (["--no-report=true"], {}, "--no-report takes no value"),
        (["--mig-strategy=mixd"], {}, '--mig-strategy: "mixd" is not known; did you mean mixed?'),
        ([], {"MIG_STRATEGY": ""}, 'MIG_STRATEGY: "" is not one of none, single, mixed'),
        ([], {"FAIL_ON_INIT_ERROR": "yes"}, 'FAIL_ON_INIT_ERROR: "yes" is not a boolean; write true or false'),
        ([], {"DEVICE_LIST_STRATEGY": "envvar,cdi"}, 'DEVICE_LIST_STRATEGY: "envvar,cdi" is not'),
        ([], {"IMEX_CHANNEL_IDS": "0,1"}, 'IMEX_CHANNEL_IDS: "0,1" is refused; only channel 0 is accepted, or none'),
        (["--http-address=9402"], {}, '--http-address: "9402" is not an address; write host:port or :port'),
        (["--http-address=:99999"], {}, "is not an address"),
        (["--config-map=gpu"], {}, '--config-map: "gpu" does not name a ConfigMap; write namespace/name'),
        (["--config-poll=0"], {}, '--config-poll: "0" must be longer than nothing'),
        (["--change-spacing=soon"], {}, "is not a duration; write 90s"),
        (["--config-file=/c", "--config-map=a/b"], {}, "both --config-file and --config-map"),
        ([], {"NODE_NAME": ""}, "no node name. hint: set NODE_NAME from the downward API's spec.nodeName"),
        (["--discovery=simulated"], {}, "--discovery=simulated without --inventory"),
        (["--inventory=/i"], {}, "--inventory without --discovery=simulated"),
        (["--device-discovery-strategy=tegra"], {}, "GPUs of Tegra are not served"),
    ],
)
def test_a_mistake_is_refused_with_a_sentence_and_a_hint(
    arguments: list[str], variables: dict[str, str], message: str
) -> None:
    said = refused(*arguments, **variables)
    assert message in said
    assert ". hint: " in said


def test_a_config_file_needs_no_node() -> None:
    assert read("--config-file=/c", NODE_NAME="").config_file == "/c"


def test_simulated_gpus_come_from_an_inventory() -> None:
    assert read("--discovery=simulated", "--inventory=/i").inventory == "/i"


words = st.sampled_from([f"--{flag}" for option in (*NVIDIA, *OURS) for flag in option.flags]) | st.text(max_size=12)


@given(st.lists(st.tuples(words, st.none() | st.text(max_size=8)), max_size=4))
@settings(deadline=None, max_examples=200)
def test_no_command_line_raises_anything_but_a_refusal(line: list[tuple[str, str | None]]) -> None:
    arguments = [word if value is None else f"{word}={value}" for word, value in line]
    said = ""
    try:
        read(*(word for word in arguments if word.lstrip("-").partition("=")[0] not in {"h", "help"}))
    except InvalidInput as error:
        said = error.message
    assert "\n" not in said


# --- help


def test_the_help_shows_every_flag_variable_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        read("--help")
    assert done.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for option in (*NVIDIA, *OURS):
        spelled = [f"--{flag}" for flag in option.flags] + ([f"--{option.negation}"] if option.negation else [])
        assert f"{', '.join([*spelled, *option.variables])} {option.help} (default: " in shown
    assert "(default: 30s)" in shown
    assert "(default: true)" in shown


# --- machines that are not served


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("etc/nv_tegra_release", "# R36", "Tegra"),
        ("sys/devices/soc0/family", "Tegra\n", "Tegra"),
        ("dev/dxg", "", "WSL"),
    ],
)
def test_tegra_and_wsl_are_refused_with_a_sentence(tmp_path: Path, file: str, content: str, said: str) -> None:
    refuse_platform(tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    with pytest.raises(InvalidInput, match=f"this machine is .*{said}, whose GPUs are not served"):
        refuse_platform(tmp_path)


def test_another_family_of_chips_is_fine(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/soc0").mkdir(parents=True)
    (tmp_path / "sys/devices/soc0/family").write_text("i.MX\n")
    refuse_platform(tmp_path)


# --- memory (decision 33)


def test_reading_the_settings_does_not_bring_in_what_is_dear() -> None:
    code = (
        "import sys; from gpusharing.deviceplugin.settings import read_settings; read_settings([], {'NODE_NAME': 'a'});"
        "print([name for name in ('pydantic_settings', 'argparse', 'kubernetes', 'aiohttp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_booleans_are_told_from_other_words() -> None:
    with pytest.raises(ValueError, match="is not a boolean"):
        boolean("on")
