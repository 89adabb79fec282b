"""The exceptions that cross layers.

GpuSharingError        reason, hint; `retry` says whether trying again may help
├── InvalidInput       a file, an argument or an object is not what it should be
└── ApiError           the API server refused a request, or cannot be reached
"""

from gpusharing.api.reasons import Reason


class GpuSharingError(Exception):
    """An error that people see: one sentence, and a hint."""

    reason = Reason.INVALID_INPUT
    retry = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the sentence, and the hint behind it."""
        return f"{self.message}. hint: {self.hint}" if self.hint else self.message


class InvalidInput(GpuSharingError):
    """A file, an argument or an object is not what it should be."""


class ApiError(GpuSharingError):
    """The API server refused a request (status, reason, causes), or cannot be reached (status 0)."""

    reason = Reason.API_UNREACHABLE

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        word: str = "",
        causes: tuple[tuple[str, str, str], ...] = (),
        retry_after: float = 0.0,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.word = word
        self.causes = causes
        self.retry_after = retry_after

    @property
    def retry(self) -> bool:  # type: ignore[override]
        """Whether trying again may help; an SSA that does not fit the schema is a 500 without a reason, and final."""
        if self.status == 500:
            return "typed patch object" not in self.message
        return self.status in {0, 408, 429} or self.status > 500

    @property
    def conflicting_managers(self) -> tuple[str, ...]:
        """Return the messages that name the other field managers of a server-side apply conflict."""
        return tuple(message for reason, _, message in self.causes if reason == "FieldManagerConflict")

    @property
    def gone(self) -> bool:
        """Whether the object that the body names by uid is gone or was created anew."""
        if self.status == 404:
            return True
        if self.status == 409 and not self.causes:
            return "uid mismatch" in self.message
        return self.status == 422 and any(field == "metadata.uid" for _, field, _ in self.causes)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, however deep: task groups are inside of one another."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
