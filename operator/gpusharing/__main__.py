"""The processes of the product, `gpusharing COMMAND`; each is imported only when it was chosen."""

import sys
from collections.abc import Callable, Sequence

from gpusharing import __version__

USAGE = """\
usage: gpusharing COMMAND [--help]

  controller              turns GpuSharingPolicies into per-node device-plugin configs
  device-plugin           serves a node's GPUs to its kubelet, and reports what is true
  mps-daemon              keeps the MPS control daemons of a node in step with its config
  cleanup                 releases everything and ends the device plugins; run it before you uninstall
  remove-stale-resources  takes resources that nothing serves any more from the Nodes
  leave-node              removes what the device plugin keeps on its host; cleanup runs it on each node
  version                 prints the version

The kubectl plugin is a program of its own: kubectl gpusharing --help
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen command and exit: 0 fine, 1 failed, 2 usage."""
    from gpusharing.core.errors import GpuSharingError, InvalidInput

    given = list(sys.argv[1:] if arguments is None else arguments)
    command, rest = (given[0] if given else ""), given[1:]
    if command in {"-h", "--help"}:
        print(USAGE, end="")
        raise SystemExit(0)
    if command in {"version", "--version"}:
        print(__version__)
        raise SystemExit(0)
    run = _command(command)
    if run is None:
        print(f"unknown command {command!r}\n\n{USAGE}" if command else USAGE, end="", file=sys.stderr)
        raise SystemExit(2)
    try:
        raise SystemExit(run(rest))
    except GpuSharingError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, InvalidInput) else 1) from None


def _command(name: str) -> Callable[[Sequence[str]], int] | None:
    if name == "controller":
        from gpusharing.controller import app

        return app.main
    if name == "device-plugin":
        from gpusharing.deviceplugin import app as device_plugin

        return device_plugin.main
    if name == "mps-daemon":
        from gpusharing.deviceplugin import mps

        return mps.main
    if name == "cleanup":
        from gpusharing.controller import cleanup

        return cleanup.main
    if name == "leave-node":
        from gpusharing.deviceplugin import leave

        return leave.main
    if name == "remove-stale-resources":
        from gpusharing.controller import staleresources

        return staleresources.main
    return None


if __name__ == "__main__":
    main()
