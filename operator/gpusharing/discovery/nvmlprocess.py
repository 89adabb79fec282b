"""The process that asks NVML: `python -I -m gpusharing.discovery.nvmlprocess <driver root> <sysfs> <seconds>`.

A driver that hangs must not hang the plugin, so NVML is called here, and `worker.py` kills this process when a call
does not end. Requests come on stdin, answers and events go to stdout, each a line of JSON; an empty line says that work
goes on. The seconds are how long to wait before NVML is initialised anew because a GPU is lost.
"""

import contextlib
import json
import os
import select
import sys

from gpusharing.discovery.nvml import Nvml, answer

# seconds
_EVENTS_EVERY = 0.5


def main(driver_root: str, sysfs: str, reopen_after: str) -> None:
    """Serve until stdin ends."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever the library prints is no answer

    def write(line: bytes) -> None:
        while line:
            line = line[os.write(out, line) :]

    nvml = Nvml(driver_root, sysfs, float(reopen_after), alive=lambda: write(b"\n"))
    pending = b""
    while True:
        if select.select([0], [], [], _EVENTS_EVERY)[0]:
            read = os.read(0, 65536)
            if not read:
                return
            *lines, pending = (pending + read).split(b"\n")
            for request in map(json.loads, lines):
                reply = {"id": request["id"], **answer(nvml, request["call"])}
                write(json.dumps(reply).encode() + b"\n")
        if events := nvml.events():
            write(json.dumps({"events": events}).encode() + b"\n")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        main(*sys.argv[1:4])
