"""Few Events: counted up, spaced, and never worth a failure."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gpusharing.api.reasons import Reason
from gpusharing.core import events
from gpusharing.core.errors import ApiError
from gpusharing.core.events import Event
from gpusharing.kube.events import BURST, REMEMBERED, EventRecorder

COLLECTION = "/api/v1/namespaces/default/events"
MINUTE = 60.0


@dataclass
class Posts:
    """What reaches the API server, and what does not; the clock is set by hand."""

    now: float = 1000.0
    created: list[dict[str, Any]] = field(default_factory=list)
    merged: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    errors: list[ApiError] = field(default_factory=list)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        self._fail()
        self.created.append(body)
        return body

    async def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._fail()
        self.merged.append((path, body))
        return body

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def recorder(self) -> EventRecorder:
        client: Any = self
        return EventRecorder(client, clock=lambda: self.now, on_drop=self.dropped.append)


def released(node: str = "gpu-a", before: str = "config-1", uid: str = "") -> Event:
    return events.released(node, uid or f"uid-{node}", before, "")


def contested(node: str = "gpu-a") -> Event:
    return events.label_contested(node, f"uid-{node}", "argocd")


async def test_an_event_of_a_namespaced_object_is_in_its_namespace_and_counted_up_there() -> None:
    posts = Posts()
    recorder = posts.recorder()
    for message in ("one", "other"):
        await recorder.post(events.placement_news("team-a", "p", "u", Reason.ACTIVE, message))
    [body] = posts.created
    assert body["metadata"]["namespace"] == body["involvedObject"]["namespace"] == "team-a"
    assert body["involvedObject"]["kind"] == "GpuPlacement"
    [(path, _)] = posts.merged
    assert path == f"/api/v1/namespaces/team-a/events/{body['metadata']['name']}"


async def test_a_new_event_is_one_that_kubectl_describe_shows() -> None:
    posts = Posts()
    await posts.recorder().post(contested())
    [body] = posts.created
    assert body["metadata"]["namespace"] == "default"
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "gpu-a", "uid": "uid-gpu-a"}
    assert (body["type"], body["reason"], body["count"]) == ("Warning", "LabelContested", 1)
    assert body["message"] == contested().message
    assert body["firstTimestamp"] == body["lastTimestamp"]
    assert body["source"] == {"component": "gpu-sharing-operator"}
    assert posts.dropped == []


async def test_another_component_of_ours_posts_under_its_own_name() -> None:
    posts = Posts()
    client: Any = posts
    await EventRecorder(client, component="gpu-sharing-device-plugin").post(contested())
    [body] = posts.created
    assert body["source"] == {"component": "gpu-sharing-device-plugin"}
    assert body["reportingComponent"] == "gpu-sharing-device-plugin"


async def test_an_event_of_a_policy_names_its_own_group() -> None:
    posts = Posts()
    await posts.recorder().post(events.assigned("pack", "uid-pack", "packed-4x-12345678", 3))
    assert posts.created[0]["involvedObject"]["apiVersion"] == "gpusharing.io/v1alpha1"
    assert posts.created[0]["involvedObject"]["kind"] == "GpuSharingPolicy"


@pytest.mark.parametrize("node", ["a", "n" * 253, "-".join(["n" * 49] * 4) + ".b", "n" * 199 + ".b"])
async def test_an_events_name_is_unique_and_one_that_the_server_takes(node: str) -> None:
    posts = Posts()
    recorder = posts.recorder()
    await recorder.post(released(node))
    await recorder.post(contested(node))
    first, second = (body["metadata"]["name"] for body in posts.created)
    assert first != second
    assert len(first) <= 253
    stem, _, unique = first.rpartition(".")
    assert node.startswith(stem)
    assert stem[-1].isalnum()
    assert unique.isalnum()


async def test_the_same_reason_on_the_same_object_is_counted_up() -> None:
    posts = Posts()
    recorder = posts.recorder()
    for number in range(1, 4):
        await recorder.post(released(before=f"config-{number}"))
    name = posts.created[0]["metadata"]["name"]
    assert len(posts.created) == 1
    assert [(path, body["count"]) for path, body in posts.merged] == [
        (f"{COLLECTION}/{name}", 2),
        (f"{COLLECTION}/{name}", 3),
    ]
    assert posts.merged[-1][1]["message"] == released(before="config-3").message
    assert posts.merged[-1][1]["type"] == "Normal"


@pytest.mark.parametrize(
    "other", [contested(), released("gpu-b"), released(uid="uid-of-the-next-one")], ids=["reason", "object", "uid"]
)
async def test_another_reason_or_object_is_an_event_of_its_own(other: Event) -> None:
    posts = Posts()
    recorder = posts.recorder()
    await recorder.post(released())
    await recorder.post(other)
    assert len(posts.created) == 2
    assert posts.merged == []


async def test_the_same_words_are_not_repeated_within_five_minutes() -> None:
    posts = Posts()
    recorder = posts.recorder()
    for _ in range(10):
        await recorder.post(released())
        posts.now += 0.5 * MINUTE - 1
    assert (len(posts.created), len(posts.merged)) == (1, 0)
    assert posts.dropped == []  # nothing is lost: it was said
    posts.now += MINUTE
    await recorder.post(released())
    assert len(posts.merged) == 1


async def test_an_object_gets_25_at_once_and_then_one_in_five_minutes() -> None:
    posts = Posts()
    recorder = posts.recorder()
    count = 0

    async def post_some(number: int) -> int:
        nonlocal count
        before = len(posts.created) + len(posts.merged)
        for _ in range(number):
            count += 1
            await recorder.post(released(before=f"config-{count}"))
        return len(posts.created) + len(posts.merged) - before

    assert await post_some(40) == BURST == 25
    assert posts.dropped == ["rate"] * 15
    posts.now += 5 * MINUTE - 1
    assert await post_some(3) == 0
    posts.now += 1
    assert await post_some(3) == 1
    posts.now += 50 * MINUTE
    assert await post_some(20) == 10
    posts.now += 24 * 60 * MINUTE
    assert await post_some(40) == 25


async def test_one_objects_flood_leaves_others_their_share() -> None:
    posts = Posts()
    recorder = posts.recorder()
    for number in range(100):
        await recorder.post(released(before=f"config-{number}"))
    await recorder.post(released("gpu-b"))
    assert posts.created[-1]["involvedObject"]["name"] == "gpu-b"


@pytest.mark.parametrize("status", [0, 403, 429, 500])
async def test_a_post_that_fails_is_dropped_and_the_next_is_made_anew(status: int) -> None:
    posts = Posts(errors=[ApiError("no", status=status)])
    recorder = posts.recorder()
    await recorder.post(released())
    assert posts.dropped == ["no"]
    await recorder.post(released())
    assert [body["count"] for body in posts.created] == [1]


async def test_a_count_that_fails_is_dropped_and_the_next_is_made_anew() -> None:
    posts = Posts()
    recorder = posts.recorder()
    await recorder.post(released())
    posts.errors = [ApiError("503", status=503)]
    await recorder.post(released(before="config-2"))
    await recorder.post(released(before="config-3"))
    assert posts.dropped == ["503"]
    assert [body["message"] for body in posts.created] == [
        released(before="config-1").message,
        released(before="config-3").message,
    ]


async def test_an_event_that_expired_at_the_server_is_made_anew_at_once() -> None:
    posts = Posts()
    recorder = posts.recorder()
    await recorder.post(released())
    posts.now += 120 * MINUTE
    posts.errors = [ApiError("not found", status=404)]
    await recorder.post(released(before="config-2"))
    assert posts.dropped == []
    assert [(body["count"], body["message"]) for body in posts.created[1:]] == [
        (1, released(before="config-2").message)
    ]
    await recorder.post(released(before="config-3"))
    assert [body["count"] for _, body in posts.merged] == [2]


async def test_memory_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    posts = Posts()
    recorder = posts.recorder()
    for number in range(REMEMBERED + 1):
        await recorder.post(released(f"node-{number}"))
    before = len(posts.created)
    await recorder.post(released("node-0", before="config-2"))
    await recorder.post(released(f"node-{REMEMBERED}", before="config-2"))
    assert [body["involvedObject"]["name"] for body in posts.created[before:]] == ["node-0"]
    assert len(posts.merged) == 1


def _sizes(recorder: EventRecorder) -> list[int]:
    return [len(value) for value in vars(recorder).values() if isinstance(value, dict)]


async def test_no_number_of_objects_makes_it_grow() -> None:
    posts = Posts()
    recorder = posts.recorder()
    for number in range(3 * REMEMBERED):
        await recorder.post(released(f"node-{number}"))
    assert set(_sizes(recorder)) == {REMEMBERED}
