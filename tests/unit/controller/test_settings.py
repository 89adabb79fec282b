"""Flag over environment over file over default, for every setting; and what is said where a value does not fit."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from gpusharing.controller.settings import Settings, read_settings
from gpusharing.core.durations import seconds
from gpusharing.core.errors import InvalidInput

WHAT = "Does what it does."
FIELDS = sorted(Settings.model_fields)
CONFIGS = {
    "one": "version: v1\nflags:\n  migStrategy: mixed\n",
    "other": "version: v1\nflags:\n  migStrategy: single\n",
}


def read(*arguments: str) -> Settings:
    return read_settings(arguments, program="gpusharing controller", what=WHAT)


def refused(*arguments: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(*arguments)
    return str(caught.value)


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables for a while; none of ours beside them."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("GPUSHARING_")]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def _nothing_is_set() -> Iterator[None]:
    with environment():
        yield


def flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def variable(field: str) -> str:
    return f"GPUSHARING_{field.upper()}"


def values_of(field: str) -> tuple[Any, Any]:
    """Two values of a setting, neither of which is its default."""
    default = Settings.model_fields[field].default
    choices = [choice for choice in get_args(Settings.model_fields[field].annotation) if choice != default]
    if field == "shared_default":
        return CONFIGS["one"], CONFIGS["other"]
    if field == "listen":
        return "127.0.0.1:1", "[::1]:65535"
    if isinstance(choices, list) and choices and isinstance(choices[0], str):
        return choices[0], default
    if isinstance(default, bool):
        return not default, default
    if isinstance(default, int):
        return default + 1, default + 2
    if isinstance(default, float):
        return default + 0.25, default + 0.5
    return "one", "other"


def in_file(folder: Path, **values: Any) -> str:
    """A file of settings, spelled as the flags are."""
    file = folder / "settings.yaml"
    file.write_text(yaml.safe_dump({name.replace("_", "-"): value for name, value in values.items()}))
    return f"--config={file}"


# --- sources


@pytest.mark.parametrize("field", FIELDS)
class TestEverySetting:
    def test_is_its_default_where_nothing_says_otherwise(self, field: str) -> None:
        assert getattr(read(), field) == Settings.model_fields[field].default

    def test_is_taken_from_the_file(self, field: str, tmp_path: Path) -> None:
        one, _ = values_of(field)
        assert getattr(read(in_file(tmp_path, **{field: one})), field) == one

    def test_is_taken_from_the_environment_before_the_file(self, field: str, tmp_path: Path) -> None:
        one, other = values_of(field)
        with environment(**{variable(field): str(one)}):
            assert getattr(read(in_file(tmp_path, **{field: other})), field) == one

    def test_is_taken_from_the_flag_before_everything_else(self, field: str, tmp_path: Path) -> None:
        one, other = values_of(field)
        with environment(**{variable(field): str(other)}):
            assert getattr(read(f"{flag(field)}={one}", in_file(tmp_path, **{field: other})), field) == one

    def test_stands_in_the_help_with_description_and_default(
        self, field: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as done:
            read("--help")
        assert done.value.code == 0
        shown = capsys.readouterr().out
        setting = Settings.model_fields[field]
        assert f"  {flag(field)} " in shown
        assert _unbroken(f"{setting.description} (default: {setting.default})") in _unbroken(shown)


def _unbroken(text: str) -> str:
    """The help breaks lines at hyphens, too."""
    return "".join(text.split())


def test_a_flag_may_stand_before_its_value(tmp_path: Path) -> None:
    assert read("--resync", "5m", "--config", in_file(tmp_path, listen=":1").partition("=")[2]).listen == ":1"


def test_the_help_names_the_program_what_it_does_and_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("-h")
    shown = capsys.readouterr().out
    assert shown.startswith("usage: gpusharing controller")
    assert WHAT in shown
    assert "--config" in shown
    assert "YAML file of settings" in shown


def test_the_file_may_be_named_in_the_environment_and_the_flag_comes_first(tmp_path: Path) -> None:
    (tmp_path / "flag").mkdir()
    by_flag = in_file(tmp_path / "flag", listen=":1")
    by_variable = in_file(tmp_path, listen=":2").partition("=")[2]
    with environment(GPUSHARING_CONFIG=by_variable):
        assert read().listen == ":2"
        assert read(by_flag).listen == ":1"


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    assert read(f"--config={tmp_path}/empty").model_dump(exclude={"config"}) == read().model_dump(exclude={"config"})


def test_a_file_may_spell_settings_as_the_code_does(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("workers_max: 3\n")
    assert read(f"--config={tmp_path}/file").workers_max == 3


# --- durations


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("8m", 480),
        ("90s", 90),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("1m30s", 90),
        ("2h", 7200),
        (7, 7),
        ("7", 7),
        (" 7 ", 7),
    ],
    ids=str,
)
def test_a_duration_is_read_as_people_write_it(text: object, want: float) -> None:
    assert seconds(text) == want


@pytest.mark.parametrize("text", ["", "soon", "5 m", "5x", "-5s", "1m 30s", "s", True, None, "1e3", "5M", "1.s"])
def test_anything_else_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write 90s, 8m, 1m30s, 250ms or a number of seconds"):
        seconds(text)


@pytest.mark.parametrize("text", ["-1", ".nan", "-.inf"])
def test_a_duration_in_a_file_is_a_number_from_0(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(f"status-pace: {text}\n")
    assert "setting status-pace" in refused(f"--config={tmp_path}/file")


# --- refusals


def test_a_value_that_does_not_fit_is_named_with_its_setting_and_the_places_it_may_come_from() -> None:
    assert refused("--resync=soon") == (
        "setting resync: 'soon' is not a duration; write 90s, 8m, 1m30s, 250ms or a number of seconds. "
        "hint: it comes from --resync, GPUSHARING_RESYNC or the file of --config"
    )


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_a_refusal_is_the_same_from_every_source(source: str, tmp_path: Path) -> None:
    want = refused("--workers-max=many")
    match source:
        case "environment":
            with environment(GPUSHARING_WORKERS_MAX="many"):
                got = refused()
        case "file":
            got = refused(in_file(tmp_path, workers_max="many"))
        case _:
            got = want
    assert got == want
    assert got.startswith("setting workers-max: 'many'")


@pytest.mark.parametrize(
    ("argument", "part"),
    [
        ("--workers-max=0", "setting workers-max: '0' Input should be greater than or equal to 1"),
        ("--workers-max=97", "less than or equal to 96"),
        ("--resync=0", "setting resync: 0.0 Input should be greater than 0"),
        ("--lease-duration=0s", "setting lease-duration"),
        ("--server-timeout=500ms", "setting server-timeout"),
        ("--layout=both", "'per-node' or 'shared'"),
        ("--log-format=xml", "'json' or 'console'"),
        ("--log-level=info", "'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ("--listen=8080", "setting listen: '8080' is not an address; write host:port or :port"),
        ("--listen=:99999", "is not an address"),
        ("--listen=a b:1", "is not an address"),
        ("--shared-default=version: v2", "setting shared-default: 'version: v2' is not a plugin config"),
    ],
)
def test_each_value_has_its_limits(argument: str, part: str) -> None:
    assert part in refused(argument)


@pytest.mark.parametrize("listen", [":0", ":8080", "0.0.0.0:65535", "[::1]:80", "localhost:1"])
def test_an_address_is_a_host_or_none_and_a_port(listen: str) -> None:
    assert read(f"--listen={listen}").listen == listen


@pytest.mark.parametrize(
    ("shorter", "longer"),
    [
        ("lease-period", "lease-deadline"),
        ("lease-deadline", "lease-duration"),
        ("server-timeout", "inactivity-timeout"),
        ("inactivity-timeout", "watchdog"),
    ],
)
def test_times_that_depend_on_one_another_must_be_in_order(shorter: str, longer: str) -> None:
    high = Settings.model_fields[longer.replace("-", "_")].default
    assert refused(f"--{shorter}={high}") == (
        f"setting {shorter}: {high:g} s must be shorter than {longer}, which is {high:g} s. "
        "hint: `--help` lists all settings and their defaults"
    )


@pytest.mark.parametrize(
    ("argument", "want"),
    [
        ("--resyn=5m", "command line: unknown setting 'resyn'. hint: did you mean resync?"),
        ("--Lease-Duration=5m", "command line: unknown setting 'Lease-Duration'. hint: did you mean lease-duration?"),
        ("--banana", "command line: unknown setting 'banana'. hint: `--help` lists all settings"),
    ],
)
def test_an_unknown_flag_is_refused_with_the_one_that_was_meant(argument: str, want: str) -> None:
    assert refused(argument) == want


def test_an_unknown_setting_in_the_file_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    argument = in_file(tmp_path, node_selektor="a=b")
    assert refused(argument) == (
        f"{tmp_path}/settings.yaml: unknown setting 'node-selektor'. hint: did you mean node-selector?"
    )


def test_the_file_cannot_name_another_file(tmp_path: Path) -> None:
    assert "unknown setting 'config'" in refused(in_file(tmp_path, config="other.yaml"))


@pytest.mark.parametrize("arguments", [["--listen"], ["--config"], ["banana"], ["-x"]], ids=str)
def test_a_command_line_that_cannot_be_read_is_refused(arguments: list[str]) -> None:
    assert "hint: `--help` lists all settings" in refused(*arguments)


@pytest.mark.parametrize(
    ("text", "part"),
    [("- a\n- b\n", "not a mapping"), ("a: [", "must be a YAML mapping"), ("just words", "not a mapping")],
)
def test_a_file_that_is_no_mapping_is_refused_by_its_name(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "file").write_text(text)
    assert f"{tmp_path}/file: " in refused(f"--config={tmp_path}/file")
    assert part in refused(f"--config={tmp_path}/file")


def test_a_file_that_is_not_utf_8_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\xfe")
    assert f"{tmp_path}/file: " in refused(f"--config={tmp_path}/file")


def test_a_file_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    assert refused(f"--config={tmp_path}/none") == (
        f"{tmp_path}/none: No such file or directory. hint: --config names a YAML file of settings"
    )


# --- what follows


def test_in_layout_per_node_there_is_no_shared_configmap() -> None:
    assert read("--target-namespace=gpu-operator").shared_target is None


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], ("gpu-sharing-system", "gpu-sharing-config")),
        (["--namespace=ours"], ("ours", "gpu-sharing-config")),
        (["--target-namespace=gpu-operator", "--target-configmap=configs"], ("gpu-operator", "configs")),
    ],
)
def test_in_layout_shared_it_is_where_the_settings_say(arguments: list[str], want: tuple[str, str]) -> None:
    assert read("--layout=shared", *arguments).shared_target == want
