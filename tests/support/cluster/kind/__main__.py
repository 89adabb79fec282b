"""``python -m tests.support.cluster.kind`` brings what a kind cluster needs, or says why none can be had."""

import os
import signal
import sys

from tests.support.cluster import ClusterError
from tests.support.cluster.kind.provider import prepare


def main() -> int:
    """Bring everything; 2 and one sentence when a cluster would not start."""
    # so that a cancelled build ends its compiler too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        prepare(os.environ)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
