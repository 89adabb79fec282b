from tests.support.hardware import make_hardware

from gpusharing.core.inventoryreport import gpu_report


def test_a_gpu_is_reported_with_its_mig_devices() -> None:
    hardware = make_hardware(1).mig(0, "1g.10gb+me").change(0, link_group=3).build()
    assert gpu_report(hardware.gpus[0], healthy=False).to_wire() == {
        "index": 0,
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "model": "NVIDIA A100-SXM4-80GB",
        "memoryMiB": 81920,
        "numaNode": 0,
        "linkGroup": 3,
        "healthy": False,
        "migMode": True,
        "migDevices": [{"uuid": "MIG-00000000-0000-0000-0000-000000000000", "profile": "1g.10gb+me"}],
    }


def test_what_is_not_known_is_left_out() -> None:
    hardware = make_hardware(1).change(0, numa_node=None, memory_mib=0).build()
    wire = gpu_report(hardware.gpus[0], healthy=True).to_wire()
    assert "numaNode" not in wire
    assert "linkGroup" not in wire
    assert wire["memoryMiB"] == 0


def test_outside_mig_mode_no_mig_devices_are_shown() -> None:
    hardware = make_hardware(1).mig(0, "1g.10gb").change(0, mig_mode=False).build()
    assert gpu_report(hardware.gpus[0], healthy=True).mig_devices == []
