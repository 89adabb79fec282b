"""What is read of the cluster, from an echo server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.kube.answers import Answer, refuses, says
from tests.unit.kube.echo import Echo

from gpusharing.core.errors import ApiError
from gpusharing.kube.client import Client
from gpusharing.kube.read import CrdState, read_crd, read_node_object, read_shared_object, read_version

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpusharingpolicies.gpusharing.io"


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as server:
        yield server


@pytest.fixture
async def client(echo: Echo) -> AsyncIterator[Client]:
    client = echo.client()
    yield client
    await client.close()


@pytest.mark.parametrize(("major", "minor"), [("1", "30"), ("1", "34"), ("1", "31+"), ("2", "0")])
async def test_a_new_enough_server_is_taken_by_its_full_name(
    echo: Echo, client: Client, major: str, minor: str
) -> None:
    echo.answers(says({"major": major, "minor": minor, "gitVersion": "v1.34.4-eks"}))
    assert await read_version(client) == "v1.34.4-eks"
    assert echo.asked[0].path == "/version"


@pytest.mark.parametrize("body", [{"major": "1", "minor": "29+", "gitVersion": "v1.29.7"}, {"minor": ""}, {}], ids=str)
async def test_an_older_server_is_refused_with_a_sentence_and_why(
    echo: Echo, client: Client, body: dict[str, str]
) -> None:
    echo.answers(says(body))
    with pytest.raises(Exception, match=r"Kubernetes .*; 1\.30 or newer is needed") as caught:
        await read_version(client)
    assert "ValidatingAdmissionPolicy" in str(caught.value)


async def test_one_node_is_read_by_a_list_of_one_for_there_is_no_right_to_get_nodes(echo: Echo, client: Client) -> None:
    echo.answers(says({"items": [{"metadata": {"name": "gpu-a"}}]}), says({"items": None}))
    assert await read_node_object(client, "gpu-a", full=False) == {"metadata": {"name": "gpu-a"}}
    assert await read_node_object(client, "gpu-a", full=True) is None
    assert [asked.query["fieldSelector"] for asked in echo.asked] == ["metadata.name=gpu-a"] * 2
    assert ["PartialObjectMetadataList" in asked.headers["Accept"] for asked in echo.asked] == [True, False]


async def test_in_layout_per_node_no_shared_configmap_is_read(echo: Echo, client: Client) -> None:
    assert await read_shared_object(client, None) is None
    assert echo.asked == []


async def test_the_shared_configmap_is_read_in_its_own_namespace(echo: Echo, client: Client) -> None:
    echo.answers(says({"data": {}}), refuses(404, "NotFound"))
    assert await read_shared_object(client, ("gpu-operator", "configs")) == {"data": {}}
    assert await read_shared_object(client, ("gpu-operator", "configs")) is None
    assert echo.asked[0].path == "/api/v1/namespaces/gpu-operator/configmaps/configs"


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (
            says({"metadata": {"creationTimestamp": "2026-11-30T12:00:00Z"}}),
            CrdState(True, datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ),
        (
            says({"metadata": {"creationTimestamp": "2026-11-30T12:00:00Z", "deletionTimestamp": "x"}}),
            CrdState(False, datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ),
        (refuses(404, "NotFound"), CrdState(False)),
    ],
    ids=["there", "being-deleted", "gone"],
)
async def test_the_crd_is_there_or_gone_and_since_when(
    echo: Echo, client: Client, answer: Answer, want: CrdState
) -> None:
    echo.answers(answer)
    assert await read_crd(client) == want
    assert echo.asked[0].path == CRD
    assert "PartialObjectMetadata" in echo.asked[0].headers["Accept"]


@pytest.mark.parametrize("status", [403, 500, 503])
@pytest.mark.parametrize(
    "read",
    [
        pytest.param(read_crd, id="crd"),
        pytest.param(read_version, id="version"),
        pytest.param(lambda c: read_shared_object(c, ("a", "b")), id="shared"),
        pytest.param(lambda c: read_node_object(c, "gpu-a", full=True), id="node"),
    ],
)
async def test_what_cannot_be_read_is_unknown_never_gone(
    echo: Echo, client: Client, read: Callable[[Client], Awaitable[Any]], status: int
) -> None:
    echo.answers(refuses(status))
    with pytest.raises(ApiError) as caught:
        await read(client)
    assert caught.value.status == status
