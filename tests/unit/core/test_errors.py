import pytest

from gpusharing.core.errors import ApiError, GpuSharingError, InvalidInput, first_of

CONFLICT = ("FieldManagerConflict", ".metadata.labels", 'conflict with "kubectl-label" using v1')


def test_an_error_is_a_sentence_and_a_hint() -> None:
    assert str(InvalidInput("no such file", hint="look again")) == "no such file. hint: look again"
    assert str(InvalidInput("no such file")) == "no such file"


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_error_in_task_groups_within_task_groups_is_found(depth: int) -> None:
    error = group = InvalidInput("no token")
    for _ in range(depth):
        group = ExceptionGroup("unhandled errors in a TaskGroup", [group])  # type: ignore[assignment]
    assert isinstance(group, ExceptionGroup)
    assert first_of(group) is error


@pytest.mark.parametrize("kind", [InvalidInput, ApiError])
def test_every_error_has_a_reason(kind: type[GpuSharingError]) -> None:
    assert kind("x").reason


@pytest.mark.parametrize(
    ("status", "message", "retry"),
    [
        (0, "connection refused", True),
        (408, "timeout", True),
        (429, "too many requests", True),
        (500, "etcd is away", True),
        (503, "starting", True),
        (500, "failed to create typed patch object: .spec.x: field not declared in schema", False),
        (400, "bad request", False),
        (403, "forbidden", False),
        (404, "not found", False),
        (409, "conflict", False),
        (422, "invalid", False),
    ],
)
def test_trying_again_helps_only_where_the_server_may_change_its_mind(status: int, message: str, retry: bool) -> None:
    assert ApiError(message, status=status).retry is retry


def test_wrong_input_is_not_tried_again() -> None:
    assert not InvalidInput("x").retry


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (ApiError("not found", status=404), True),
        (ApiError("uid mismatch: no existing object was found", status=409), True),
        (ApiError("the object has been modified", status=409), False),
        (ApiError("uid mismatch in the text of a conflict", status=409, causes=(CONFLICT,)), False),
        (ApiError("invalid", status=422, causes=(("FieldValueInvalid", "metadata.uid", "immutable"),)), True),
        (ApiError("invalid", status=422, causes=(("FieldValueInvalid", "spec.x", "wrong"),)), False),
        (ApiError("forbidden", status=403), False),
    ],
    ids=["404", "uid mismatch", "stale version", "conflict", "created anew", "invalid", "forbidden"],
)
def test_an_object_that_is_gone_or_created_anew_is_told_from_other_refusals(error: ApiError, gone: bool) -> None:
    assert error.gone is gone


def test_a_conflict_names_the_other_managers() -> None:
    error = ApiError("conflict", status=409, causes=(CONFLICT, ("FieldValueInvalid", "spec.x", "wrong")))
    assert error.conflicting_managers == ('conflict with "kubectl-label" using v1',)
