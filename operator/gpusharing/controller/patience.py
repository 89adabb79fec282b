"""A plugin that restarts has no devices for a moment: only one that has none for long counts as gone."""

from gpusharing.core.progress import Progress, Verdict


class Patience:
    """Since when nodes have had no devices, by the clock of the workers."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def judge(self, node: str, verdict: Verdict, now: float) -> Verdict:
        """Return the verdict; that a node's plugin is gone only once that has lasted."""
        if verdict.progress is not Progress.GONE:
            self.forget(node)
            return verdict
        since = self._since.setdefault(node, now)
        return verdict if now - since >= self._seconds else Verdict(Progress.AWAITING, verdict.detail)

    def ends_in(self, node: str, now: float) -> float | None:
        """Return the seconds until a node without devices counts as without a plugin; None = it has some."""
        since = self._since.get(node)
        return max(0.0, since + self._seconds - now) if since is not None else None

    def forget(self, node: str) -> None:
        """Forget a node."""
        self._since.pop(node, None)
