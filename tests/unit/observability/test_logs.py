"""One line is one record, whatever it says and whoever wrote it. Logging is a process's, so each format has one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

SPEAKER = r"""
import logging, sys
from gpusharing.observability.logs import configure_logs, logger

log = logger("gpusharing.test")  # before the configuration, as modules do
configure_logs(sys.argv[1], sys.argv[2])
log.info("node written", node="gpu-a", count=3)
log.warning("try again later", error="first line\nsecond line\r\x1b[31mred", hint='say "please"')
log.debug("too quiet")
logging.getLogger("kopf.reactor").warning("stream of %s broke\nand more", "nodes")
logging.getLogger("kopf.objects").info("Handler 'node' succeeded.")
logging.getLogger("aiohttp.access").info("GET /livez")
try:
    raise ValueError("what was it\nagain")
except ValueError:
    log.exception("reconcile failed", name="gpu-a")
print("data", flush=True)
"""


def spoken(log_format: str, level: str = "INFO") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SPEAKER, log_format, level],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT / "operator")},
    )


@pytest.fixture(scope="module")
def as_json() -> subprocess.CompletedProcess[str]:
    return spoken("json")


@pytest.fixture(scope="module")
def records(as_json: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in as_json.stderr.splitlines()]


@pytest.fixture(scope="module")
def on_a_console() -> list[str]:
    return spoken("console", "WARNING").stderr.splitlines()


def test_every_line_is_a_record_with_time_level_logger_and_message(records: list[dict[str, Any]]) -> None:
    assert [record["event"] for record in records] == [
        "node written",
        "try again later",
        "stream of nodes broke\nand more",
        "reconcile failed",
    ]
    for record in records:
        assert record["timestamp"].endswith("Z")
        assert record["level"] in {"info", "warning", "error"}
        assert record["logger"] in {"gpusharing.test", "kopf.reactor"}


def test_what_goes_with_a_message_stands_beside_it(records: list[dict[str, Any]]) -> None:
    assert (records[0]["node"], records[0]["count"]) == ("gpu-a", 3)


def test_strings_of_users_cannot_begin_a_line_of_their_own(
    as_json: subprocess.CompletedProcess[str], records: list[dict[str, Any]]
) -> None:
    assert records[1]["error"] == "first line\nsecond line\r\x1b[31mred"
    assert records[1]["hint"] == 'say "please"'
    assert "\x1b" not in as_json.stderr
    assert "\r" not in as_json.stderr


def test_records_of_other_libraries_come_out_alike(records: list[dict[str, Any]]) -> None:
    assert (records[2]["logger"], records[2]["level"]) == ("kopf.reactor", "warning")


def test_an_exception_is_one_record_with_its_traceback(records: list[dict[str, Any]]) -> None:
    assert records[3]["level"] == "error"
    assert records[3]["exception"].startswith("Traceback (most recent call last):")
    assert records[3]["exception"].endswith("ValueError: what was it\nagain")


def test_one_line_per_watch_event_or_probe_is_not_written(as_json: subprocess.CompletedProcess[str]) -> None:
    assert "Handler" not in as_json.stderr
    assert "/livez" not in as_json.stderr


def test_logs_leave_standard_output_alone(as_json: subprocess.CompletedProcess[str]) -> None:
    assert as_json.stdout == "data\n"


def test_only_the_level_asked_for_is_written(on_a_console: list[str]) -> None:
    assert "node written" not in "\n".join(on_a_console)
    assert "too quiet" in spoken("json", "DEBUG").stderr


def test_a_console_shows_key_and_value_on_the_messages_own_line(on_a_console: list[str]) -> None:
    assert "try again later" in on_a_console[0]
    assert r"error='first line\nsecond line\r\x1b[31mred'" in on_a_console[0]


def test_a_console_that_is_no_terminal_gets_no_colours(on_a_console: list[str]) -> None:
    assert "\x1b" not in "\n".join(on_a_console)
