"""The exact wire format of every verb, and what becomes of every answer."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.client import Configuration
from tests.unit.kube.answers import CUTS, HANGS, Answer, refuses, says
from tests.unit.kube.echo import Echo

from gpusharing.core.errors import ApiError, InvalidInput
from gpusharing.kube.client import PAGE, Call, Client, connect, metadata_only, version_of

JSON = "application/json"
NODE = {"metadata": {"name": "gpu-a"}}
STEP = {"op": "remove", "path": "/a"}
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as server:
        yield server


@pytest.fixture
async def client(echo: Echo) -> AsyncIterator[Client]:
    client = echo.client()
    yield client
    await client.close()


async def refusal(request: Awaitable[Any]) -> ApiError:
    """The error that a request ends with."""
    with pytest.raises(ApiError) as caught:
        await request
    return caught.value


# --- the wire


@pytest.mark.parametrize(
    ("verb", "want"),
    [
        pytest.param(lambda c: c.get("/api/v1/a"), ("GET", "/api/v1/a", {}, JSON, None, None), id="get"),
        pytest.param(
            lambda c: c.get("/api/v1/a", accept=metadata_only()),
            ("GET", "/api/v1/a", {}, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", None, None),
            id="get-metadata",
        ),
        pytest.param(
            lambda c: c.list("/api/v1/nodes"), ("GET", "/api/v1/nodes", {"limit": "250"}, JSON, None, None), id="list"
        ),
        pytest.param(
            lambda c: c.list("/api/v1/nodes", field="metadata.name=gpu-a", only_metadata=True),
            (
                "GET",
                "/api/v1/nodes",
                {"limit": "250", "fieldSelector": "metadata.name=gpu-a"},
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                None,
                None,
            ),
            id="list-one-metadata",
        ),
        pytest.param(
            lambda c: c.apply("/api/v1/nodes/gpu-a", NODE, manager="me"),
            (
                "PATCH",
                "/api/v1/nodes/gpu-a",
                {"fieldManager": "me", "force": "false"},
                JSON,
                "application/apply-patch+yaml",
                NODE,
            ),
            id="apply",
        ),
        pytest.param(
            lambda c: c.apply("/api/v1/nodes/gpu-a", NODE, manager="me", force=True, only_metadata=True),
            (
                "PATCH",
                "/api/v1/nodes/gpu-a",
                {"fieldManager": "me", "force": "true"},
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                "application/apply-patch+yaml",
                NODE,
            ),
            id="apply-forced-metadata",
        ),
        pytest.param(
            lambda c: c.merge("/api/v1/e/x", {"count": None}),
            ("PATCH", "/api/v1/e/x", {}, JSON, "application/merge-patch+json", {"count": None}),
            id="merge",
        ),
        pytest.param(
            lambda c: c.change("/api/v1/e/x", (STEP,), only_metadata=True),
            (
                "PATCH",
                "/api/v1/e/x",
                {},
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                "application/json-patch+json",
                [STEP],
            ),
            id="change",
        ),
        pytest.param(lambda c: c.create("/api/v1/e", NODE), ("POST", "/api/v1/e", {}, JSON, JSON, NODE), id="create"),
        pytest.param(
            lambda c: c.replace("/api/v1/e/x", NODE), ("PUT", "/api/v1/e/x", {}, JSON, JSON, NODE), id="replace"
        ),
        pytest.param(lambda c: c.delete("/api/v1/e/x"), ("DELETE", "/api/v1/e/x", {}, JSON, None, None), id="delete"),
    ],
)
async def test_each_verb_is_one_request_of_exactly_this_form(
    echo: Echo, client: Client, verb: Callable[[Client], Awaitable[Any]], want: tuple[Any, ...]
) -> None:
    await verb(client)
    [asked] = echo.asked
    content = asked.headers["Content-Type"] if asked.body is not None else None
    assert (asked.method, asked.path, asked.query, asked.headers["Accept"], content, asked.body) == want
    assert asked.headers["User-Agent"] == "gpu-sharing-operator"
    assert "Authorization" not in asked.headers


async def test_a_label_selector_arrives_as_it_was_written(echo: Echo, client: Client) -> None:
    selector = "nvidia.com/gpu.present=true,team in (a,b),!skip"
    assert [page async for page in client.pages("/api/v1/nodes", selector=selector)]
    assert echo.asked[0].query == {"limit": str(PAGE), "labelSelector": selector}


async def test_an_answer_is_the_object_that_was_sent(echo: Echo, client: Client) -> None:
    echo.answers(says(NODE), says({**NODE, "kind": "Node"}, 201))
    assert await client.get("/x") == NODE
    assert await client.apply("/x", NODE, manager="me") == {**NODE, "kind": "Node"}  # an apply that creates


async def test_an_empty_answer_is_an_empty_object(echo: Echo, client: Client) -> None:
    echo.answers(Answer(200, b""))
    assert await client.create("/x", NODE) == {}


# --- lists


async def test_a_list_is_read_page_by_page_with_the_servers_token(echo: Echo, client: Client) -> None:
    echo.answers(
        says({"metadata": {"resourceVersion": "7", "continue": "t1"}, "items": [{"n": 1}, {"n": 2}]}),
        says({"metadata": {"resourceVersion": "7", "continue": "t2"}, "items": [{"n": 3}]}),
        says({"metadata": {"resourceVersion": "7"}, "items": [{"n": 4}]}),
    )
    pages = [page async for page in client.pages("/api/v1/nodes", selector="a")]
    assert [item["n"] for page in pages for item in page.items] == [1, 2, 3, 4]
    assert {page.version for page in pages} == {7}
    assert [asked.query.get("continue") for asked in echo.asked] == [None, "t1", "t2"]
    assert {asked.query["labelSelector"] for asked in echo.asked} == {"a"}


@pytest.mark.parametrize("body", [{"items": None}, {"items": []}, {"metadata": None}, {}], ids=str)
async def test_an_empty_list_in_any_spelling_is_one_empty_page(
    echo: Echo, client: Client, body: dict[str, Any]
) -> None:
    echo.answers(says(body))
    pages = [page async for page in client.pages("/api/v1/nodes")]
    assert [(page.items, page.version) for page in pages] == [([], 0)]


async def test_a_list_that_breaks_off_is_no_list(echo: Echo, client: Client) -> None:
    echo.answers(says({"metadata": {"continue": "t1"}, "items": [NODE]}), refuses(410, "Expired", "too old"))
    error = await refusal(client.list("/api/v1/nodes"))
    assert (error.status, error.word) == (410, "Expired")


@pytest.mark.parametrize(
    ("metadata", "want"),
    [({"resourceVersion": "12"}, 12), ({"resourceVersion": ""}, 0), ({}, 0), ({"resourceVersion": "abc"}, 0)],
    ids=str,
)
def test_a_resource_version_is_a_number_or_unknown(metadata: dict[str, str], want: int) -> None:
    assert version_of(metadata) == want


# --- refusals


async def test_deleting_what_is_not_there_is_fine(echo: Echo, client: Client) -> None:
    echo.answers(refuses(404, "NotFound", "not found"))
    await client.delete("/x")


async def test_deleting_what_may_not_be_deleted_is_not(echo: Echo, client: Client) -> None:
    echo.answers(refuses(403, "Forbidden", "no"))
    assert (await refusal(client.delete("/x"))).status == 403


async def test_a_refusal_says_verb_path_status_and_the_servers_words(echo: Echo, client: Client) -> None:
    echo.answers(refuses(404, "NotFound", 'nodes "gpu-a" not found'))
    error = await refusal(client.get("/api/v1/nodes/gpu-a"))
    assert error.message == 'get /api/v1/nodes/gpu-a: 404 NotFound: nodes "gpu-a" not found'
    assert (error.status, error.word, error.causes, error.retry_after) == (404, "NotFound", (), 0.0)


async def test_missing_rights_come_with_a_hint(echo: Echo, client: Client) -> None:
    echo.answers(refuses(403, "Forbidden", "no"))
    assert "kubectl auth can-i --list" in (await refusal(client.get("/x"))).hint


async def test_causes_are_kept_word_for_word(echo: Echo, client: Client) -> None:
    cause = {"reason": "FieldManagerConflict", "field": ".metadata.labels.x", "message": 'conflict with "kubectl"'}
    echo.answers(refuses(409, "Conflict", "Apply failed", [cause, {"field": "spec"}]))
    error = await refusal(client.apply("/x", NODE, manager="me"))
    assert error.causes == (
        ("FieldManagerConflict", ".metadata.labels.x", 'conflict with "kubectl"'),
        ("", "spec", ""),
    )


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (refuses(429, "TooManyRequests", "slow", Retry_After="7"), 7.0),
        (says({"details": {"retryAfterSeconds": 3}}, 429), 3.0),
        (says({"details": {"retryAfterSeconds": 3}}, 503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"), 3.0),
        (refuses(503), 0.0),
        (Answer(429, b"Too many requests, please try again later.\n", {"Retry-After": "1"}), 1.0),
    ],
    ids=["header", "details", "a-date-is-not-read", "neither", "plain-text"],
)
async def test_the_server_says_when_to_come_back(echo: Echo, client: Client, answer: Answer, want: float) -> None:
    echo.answers(answer)
    error = await refusal(client.apply("/x", NODE, manager="me"))
    assert error.retry_after == want
    assert error.retry


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(lambda c: c.get("/x"), id="get"),
        pytest.param(lambda c: c.list("/x"), id="list"),
        pytest.param(lambda c: c.apply("/x", NODE, manager="me"), id="apply"),
        pytest.param(lambda c: c.create("/x", NODE), id="create"),
        pytest.param(lambda c: c.replace("/x", NODE), id="replace"),
        pytest.param(lambda c: c.delete("/x"), id="delete"),
    ],
)
async def test_no_verb_asks_twice_by_itself(
    echo: Echo, client: Client, verb: Callable[[Client], Awaitable[Any]], status: int
) -> None:
    echo.answers(refuses(status))
    assert (await refusal(verb(client))).status == status
    assert len(echo.asked) == 1


@pytest.mark.parametrize(
    "body",
    [b"<html>bad gateway</html>", b"[1, 2]", b'"no"', b"null", b'{"details": null}', b'{"details": {"causes": null}}'],
)
async def test_a_refusal_in_any_form_is_a_refusal(echo: Echo, client: Client, body: bytes) -> None:
    echo.answers(Answer(502, body))
    assert (await refusal(client.get("/x"))).status == 502


async def test_the_words_of_something_between_us_are_told(echo: Echo, client: Client) -> None:
    echo.answers(Answer(502, b"<html>bad gateway</html>"))
    assert "<html>bad gateway</html>" in (await refusal(client.get("/x"))).message


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"[1, 2]", b'{"items": [', b"null"])
async def test_a_200_that_is_no_object_is_no_answer(echo: Echo, client: Client, body: bytes) -> None:
    echo.answers(Answer(200, body))
    error = await refusal(client.get("/x"))
    assert error.status == 0
    assert error.retry
    assert repr(body) in error.message


# --- no answer at all


async def test_a_server_that_hangs_is_no_answer_within_the_deadline(echo: Echo) -> None:
    impatient = echo.client(timeout=0.02)
    echo.answers(HANGS)
    error = await refusal(impatient.get("/x"))
    await impatient.close()
    assert (error.status, error.message) == (0, "get /x: TimeoutError")
    assert error.retry


async def test_a_connection_that_breaks_is_no_answer(echo: Echo, client: Client) -> None:
    echo.answers(CUTS)
    error = await refusal(client.create("/x", NODE))
    assert error.status == 0
    assert error.message.startswith("create /x: ServerDisconnectedError")


async def test_nobody_there_is_no_answer() -> None:
    async with Echo() as gone:
        client = gone.client()
    error = await refusal(client.get("/x"))
    await client.close()
    assert error.status == 0
    assert error.message.startswith("get /x: ClientConnectorError")


# --- credentials


def _with_token(echo: Echo, token: Callable[[], str]) -> Client:
    """A client whose credentials are read anew each time they are asked for, as a pod's are each minute."""
    configuration = echo.configuration()

    def read(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"bearer {token()}"

    configuration.refresh_api_key_hook = read
    return Client(configuration)


async def test_a_token_that_was_renewed_is_sent_from_then_on(echo: Echo, tmp_path: Path) -> None:
    file = tmp_path / "token"
    client = _with_token(echo, file.read_text)
    for token in ("first", "second"):
        file.write_text(token)
        await client.get("/x")
    await client.close()
    assert [asked.headers["Authorization"] for asked in echo.asked] == ["bearer first", "bearer second"]


async def test_a_token_that_cannot_be_read_is_no_answer(echo: Echo, tmp_path: Path) -> None:
    client = _with_token(echo, (tmp_path / "gone").read_text)
    error = await refusal(client.get("/x"))
    await client.close()
    assert error.status == 0
    assert "FileNotFoundError" in error.message


PROXIED = """
import asyncio
import sys
from kubernetes.aio.client import Configuration
from gpusharing.kube.client import Client

async def main():
    client = Client(Configuration(host=sys.argv[1]))
    await client.get("/x")
    await client.close()

asyncio.run(main())
"""


async def test_proxies_and_netrc_of_the_environment_are_not_asked(echo: Echo, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    nobody = "http://127.0.0.1:9"
    environment = {"HTTP_PROXY": nobody, "http_proxy": nobody, "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROXIED, echo.url, env={**environment, "PYTHONPATH": str(ROOT / "operator")}
    )
    assert await process.wait() == 0
    [asked] = echo.asked
    assert "Authorization" not in asked.headers


# --- for metrics


async def test_every_request_is_told_with_its_code_and_duration(echo: Echo) -> None:
    calls: list[Call] = []
    client = echo.client(on_call=calls.append)
    echo.answers(says(NODE, 201), refuses(409), CUTS)
    await client.create("/x", NODE)
    await refusal(client.apply("/x", NODE, manager="me"))
    await refusal(client.create("/y", NODE))
    await client.close()
    assert [(call.verb, call.path, call.code) for call in calls] == [
        ("create", "/x", 201),
        ("apply", "/x", 409),
        ("create", "/y", 0),
    ]
    assert all(call.seconds > 0 for call in calls)


# --- connect

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
clusters:
- {{name: c, cluster: {{server: "{url}/"}}}}
users:
- {{name: u, user: {{token: first}}}}
- {{name: w, user: {{token: second}}}}
contexts:
- {{name: one, context: {{cluster: c, user: u}}}}
- {{name: two, context: {{cluster: c, user: w}}}}
"""


@pytest.mark.parametrize(("context", "token"), [("", "first"), ("one", "first"), ("two", "second")])
async def test_a_kubeconfig_and_its_context_say_where_and_who(
    echo: Echo, tmp_path: Path, context: str, token: str
) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG.format(url=echo.url))
    client = await connect(str(file), context)
    await client.get("/api")
    await client.close()
    [asked] = echo.asked
    assert client.server == echo.url
    assert (asked.path, asked.headers["Authorization"]) == ("/api", f"Bearer {token}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "a: [",
        "current-context: x\ncontexts: []\n",
        "\0",
        KUBECONFIG.format(url="x").replace("one", "nobody", 1),
    ],
    ids=["empty", "words", "no-yaml", "no-context", "binary", "unknown-context"],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named_with_a_hint(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=f"the kubeconfig {file} cannot be used: .+") as caught:
        await connect(str(file))
    assert "--kubeconfig" in caught.value.hint


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"the kubeconfig {tmp_path}/none cannot be used: there is no such file"):
        await connect(f"{tmp_path}/none")


# --- watches


def streams(*events: dict[str, Any], rest: bytes = b"") -> Answer:
    """A watch as it comes over the wire."""
    return Answer(raw=b"".join(json.dumps(event).encode() + b"\n" for event in events) + rest)


async def watched(client: Client, **options: Any) -> list[dict[str, Any]]:
    return [event async for event in client.watch("/api/v1/nodes", version=7, **options)]


async def test_a_watch_asks_for_one_object_from_a_version_on_with_bookmarks(echo: Echo, client: Client) -> None:
    changed = {"type": "MODIFIED", "object": NODE}
    echo.answers(streams(changed, {"type": "BOOKMARK", "object": {}}))
    assert await watched(client, field="metadata.name=gpu-a", only_metadata=True, seconds=5) == [
        changed,
        {"type": "BOOKMARK", "object": {}},
    ]
    [asked] = echo.asked
    assert asked.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "5",
        "resourceVersion": "7",
        "fieldSelector": "metadata.name=gpu-a",
    }
    assert asked.headers["Accept"] == metadata_only()


async def test_an_event_may_be_longer_than_any_buffer_and_half_a_one_is_none(echo: Echo, client: Client) -> None:
    big = {"type": "MODIFIED", "object": {"metadata": {"annotations": {"a": "x" * 5_000_000}}}}
    echo.answers(streams(big, rest=b'{"type": "DELE'))
    assert await watched(client) == [big]


@pytest.mark.fault("F31")
async def test_an_error_in_a_watch_is_an_error_and_says_its_code(echo: Echo, client: Client) -> None:
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    echo.answers(streams({"type": "ERROR", "object": expired}))
    error = await refusal(watched(client))
    assert (error.status, error.word) == (410, "Expired")


@pytest.mark.fault("F31")
@pytest.mark.parametrize(
    "answer",
    [HANGS, CUTS, Answer(raw=b"<html>\n"), Answer(raw=b'{"type": "ADDED"}\n'), refuses(403, "Forbidden")],
    ids=["silent", "cut", "no-json", "no-object", "refused"],
)
async def test_a_watch_that_is_silent_cut_or_nonsense_ends_as_an_error(
    echo: Echo, client: Client, answer: Answer
) -> None:
    echo.answers(answer, answer)  # aiohttp sends a GET again whose connection was closed without an answer
    error = await refusal(watched(client, silence=0.1))
    assert error.message.startswith("watch /api/v1/nodes: ")


async def test_a_watch_is_counted_once_when_it_ends(echo: Echo) -> None:
    calls: list[Call] = []
    client = echo.client(on_call=calls.append)
    echo.answers(streams({"type": "BOOKMARK", "object": {}}))
    await watched(client)
    await client.close()
    assert [(call.verb, call.path, call.code) for call in calls] == [("watch", "/api/v1/nodes", 200)]
