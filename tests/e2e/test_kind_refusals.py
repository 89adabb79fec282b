"""What stands in the way of a kind cluster is said in one sentence, before anything is made. Needs no Docker.

In place of Docker and kind stand scripts that answer as those do; the machine's own are not on the PATH.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.support.cluster import ClusterError
from tests.support.cluster.binaries import bring
from tests.support.cluster.kind.docker import Docker, running_docker
from tests.support.cluster.kind.network import Network
from tests.support.cluster.kind.provider import CONFIG, prepare
from tests.support.cluster.kind.tools import bring_kind
from tests.support.eventually import eventually
from tests.support.install import ROOT

Answering = Callable[..., dict[str, str]]
SCRIPTS = [path for path in (ROOT / "hack/kind").rglob("*") if path.is_file() and os.access(path, os.X_OK)]


@pytest.fixture
def answering(tmp_path: Path) -> Answering:
    """An environment whose PATH has these programs; each answers by the line of shell behind its first words."""

    def make(program: str, answers: Mapping[str, str], **variables: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        cases = "".join(f'  "{words}"*) {line} ;;\n' for words, line in answers.items())
        (folder / program).write_text(f'#!/bin/sh\ncase "$*" in\n{cases}  *) exit 0 ;;\nesac\n')
        (folder / program).chmod(0o755)
        return {"PATH": f"{folder}:/usr/bin:/bin", **variables}

    return make


RUNS = {"info": "echo null"}


def test_a_docker_that_does_not_answer_is_named(answering: Answering, tmp_path: Path) -> None:
    said = "Cannot connect to the Docker daemon at tcp://nowhere:1. Is the docker daemon running?"
    environment = answering("docker", {"info": f"echo {said!r} >&2; exit 1"}, DOCKER_HOST="tcp://nowhere:1")
    with pytest.raises(ClusterError, match=r"DOCKER_HOST does not answer: Cannot connect .* hint: start it, or unset"):
        running_docker(tmp_path, environment)


def test_without_docker_and_root_the_command_says_so_and_exits_2(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    script = (  # imported before: nobody may not read the folders of root's Python
        "import os, sys; from tests.support.cluster.kind.__main__ import main\n"
        "os.setgid(65534); os.setuid(65534); sys.exit(main())"
    )
    environment = {"PATH": "/nonexistent", "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "needs a Docker that runs, or root to start one" in done.stderr


@pytest.mark.parametrize("left", ["ps", "network ls"])
def test_what_a_killed_run_left_is_named_with_what_removes_it(answering: Answering, left: str) -> None:
    environment = answering("docker", {**RUNS, left: "echo 0123456789ab"})
    with pytest.raises(ClusterError, match="kind delete cluster --name gpusharing-e2e; docker network rm"):
        prepare(environment)


def test_a_taken_subnet_is_refused_with_the_network_that_has_it(answering: Answering, tmp_path: Path) -> None:
    inspected = '[{"IPAM": {"Config": [{"Subnet": "10.0.0.0/8"}]}}]'
    answers = {**RUNS, "network ls": "echo 1", "network inspect": f"echo {inspected!r}"}
    environment = answering("docker", answers, GPUSHARING_KIND_SUBNET="10.9.8.0/24")
    with pytest.raises(ClusterError, match=r"10\.9\.8\.0/24, which overlaps 10\.0\.0\.0/8 of another Docker network"):
        Network(Docker(environment, tmp_path), "").subnet()


def test_a_free_subnet_is_found_beside_the_networks_of_others(answering: Answering, tmp_path: Path) -> None:
    inspected = (
        '[{"IPAM": {"Config": [{"Subnet": "172.30.100.0/23"}, {"Subnet": "fd00::/64"}]}}, {"IPAM": {"Config": null}}]'
    )
    answers = {**RUNS, "network ls": "echo 1 2", "network inspect": f"echo {inspected!r}"}
    assert Network(Docker(answering("docker", answers), tmp_path), "").subnet() == "172.30.102.0/24"


def test_where_every_subnet_is_taken_the_setting_is_named(answering: Answering, tmp_path: Path) -> None:
    answers = {
        **RUNS,
        "network ls": "echo 1",
        "network inspect": """echo '[{"IPAM": {"Config": [{"Subnet": "172.16.0.0/12"}]}}]'""",
    }
    with pytest.raises(ClusterError, match="hint: set GPUSHARING_KIND_SUBNET"):
        Network(Docker(answering("docker", answers), tmp_path), "").subnet()


def test_a_docker_without_enough_rights_leaves_no_network(answering: Answering, tmp_path: Path) -> None:
    log = tmp_path / "log"
    answers = {
        "run": "echo 'iptables: Permission denied (you must be root)' >&2; exit 4",
        "network ls": "",
        "network": f'echo "$*" >>{log}',
    }
    with pytest.raises(ClusterError, match=r"may not set packet filter rules.*you must be root.*hint: use a Docker"):
        Network(Docker(answering("docker", answers), tmp_path), "tools").make()
    assert [line.split()[1] for line in log.read_text().splitlines()] == ["create", "rm"]


@pytest.mark.parametrize("version", ["v0.29.0", "v0.9.0", ""])
def test_an_older_kind_on_the_path_is_refused(answering: Answering, version: str) -> None:
    with pytest.raises(ClusterError, match=r"expected v0\.33\.0 or later\. hint: update it, or take it off the PATH"):
        bring_kind(answering("kind", {"version": f"echo {version}"}))


def test_a_newer_kind_on_the_path_is_taken(answering: Answering, tmp_path: Path) -> None:
    assert bring_kind(answering("kind", {"version": "echo v1.2.0"})) == tmp_path / "bin/kind"


# --- the cache


def test_a_cache_that_was_left_half_built_is_built_whole(tmp_path: Path) -> None:
    left = tmp_path / "tool/.part-1/tool"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    made = bring(tmp_path / "tool/tool", "a moment", lambda part: _written(part / "tool", "whole"))
    assert made.read_text() == "whole"
    assert not left.parent.exists()


def test_a_full_disk_is_said_and_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    target = tmp_path / "tool/tool"
    full = rf"{target} cannot be written: No space left on device\. hint: make room"
    with pytest.raises(ClusterError, match=full):
        bring(target, "a moment", lambda part: _written(Path("/dev/full"), "more than there is room for"))
    assert _content(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_build_that_is_cut_off_leaves_nothing_in_the_cache_and_no_compiler(
    answering: Answering, tmp_path: Path, number: signal.Signals
) -> None:
    cache, compiler = tmp_path / "cache", tmp_path / "compiler"
    answering("go", {"build": f"echo $$ >{compiler}.part; mv {compiler}.part {compiler}; exec sleep 1000"})
    environment = answering("docker", RUNS, PYTHONPATH=f"{ROOT}:{ROOT / 'operator'}", GPUSHARING_CACHE=str(cache))
    command = [sys.executable, "-m", "tests.support.cluster.kind"]
    with subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE) as building:
        eventually(lambda: _is_there(compiler), what="the compiler runs")
        os.killpg(building.pid, number)  # as a terminal and a CI system do
        building.communicate()
    assert building.returncode == 128 + number
    assert _content(cache) == []
    assert not Path(f"/proc/{compiler.read_text().strip()}").exists()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_of_the_node_is_well_formed(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_config_of_the_cluster_has_no_trace_of_a_home_made_image() -> None:
    text = CONFIG.read_text()
    assert not {word for word in ("local/", "cgroupfs", "10-container", "bridge.conflist") if word in text}


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _content(folder: Path) -> list[Path]:
    """Its files, but for the locks of the cache."""
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


def _is_there(path: Path) -> None:
    assert path.exists()
