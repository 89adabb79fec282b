"""`gpusharing leave-node`: removes what the plugin keeps on its host. `gpusharing cleanup` runs it on each node.

Only files of ours go, and a folder only once it is empty: whoever else uses one keeps it. A plugin that ends does not
do this by itself, for it does not know whether another one follows, which goes on from these files.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gpusharing.core.edits import CDI_VENDOR
from gpusharing.deviceplugin.statefile import CHECKPOINT, LEDGER

WHAT = "Removes what the device plugin keeps on its host, once it has ended for good."
_KEPT = "|".join(rf"{file.kind}\.json|\.{file.kind}-[0-9a-f]+" for file in (CHECKPOINT, LEDGER))
STATE_FILES = re.compile(rf"{_KEPT}|lock")
CDI_FILES = re.compile(rf"\.?{re.escape(CDI_VENDOR)}-[a-z-]+\.json(\.\d+)?")


def main(arguments: Sequence[str]) -> int:
    """Run `gpusharing leave-node`. Returns 0, or 1 where something could not be removed."""
    parser = argparse.ArgumentParser(prog="gpusharing leave-node", description=WHAT)
    parser.add_argument("--state-dir", type=Path, help="Where the plugin's --state-dir is for this process.")
    parser.add_argument("--cdi-dir", type=Path, help="Where the CDI specs are for this process.")
    given = parser.parse_args(arguments)
    problems = [*_leave(given.state_dir, STATE_FILES), *_leave(given.cdi_dir, CDI_FILES)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _leave(path: Path | None, ours: re.Pattern[str]) -> Iterator[str]:
    """Remove these files from a folder, and the folder if it is empty then. Yields what went wrong."""
    if path is None:
        return
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        yield f"{path} cannot be opened: {error.strerror}"
        return
    try:
        for name in sorted(filter(ours.fullmatch, os.listdir(folder))):
            try:
                os.unlink(name, dir_fd=folder)
            except OSError as error:
                yield f"{path / name} cannot be removed: {error.strerror}"
    finally:
        os.close(folder)
    with suppress(OSError):  # somebody else uses it
        path.rmdir()
