"""A kubelet as far as a device plugin can see it: a real gRPC peer on unix sockets, the rest a model.

What it does is written in the kubelet's contract, and held to the kubelet's own code by the device manager oracle.

::

    async with KubeletDouble(folder) as kubelet:
        ...                                            # a plugin registers in `folder`
        await kubelet.settled("nvidia.com/gpu")
        held = await kubelet.admit(Pod("trainer", limits={"nvidia.com/gpu": 2}))
        await kubelet.restart()                        # kill -9 and a new start

`python -m tests.support.kubeletdouble FOLDER` runs it as a process of its own.
"""

from tests.support.kubeletdouble.admission import AdmissionFailed, Container, KubeletCrashed, Pod
from tests.support.kubeletdouble.devices import DeviceManager, Endpoint, RegisterRefused
from tests.support.kubeletdouble.kubelet import Behaviour, KubeletDouble

__all__ = [
    "AdmissionFailed",
    "Behaviour",
    "Container",
    "DeviceManager",
    "Endpoint",
    "KubeletCrashed",
    "KubeletDouble",
    "Pod",
    "RegisterRefused",
]
