"""What is kept over a restart: all of it, or a reason why not."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.strategies import json_values

from gpusharing.core.acceptance import Accepted, ConfigText, accept
from gpusharing.core.checkpoint import Checkpoint, checkpoint_of, decode, encode, restore
from gpusharing.core.devices import Gpu, Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.listing import Entry, Listing, advance
from gpusharing.core.options import Given, Options
from gpusharing.core.resources import resources_of

GPUS = tuple(
    Gpu(n, f"GPU-{n:08d}-0000-0000-0000-000000000000", "NVIDIA L4", n, numa_node=n % 2 or None) for n in range(3)
)
INVENTORY = Inventory(GPUS)
NOTHING, RUNTIME = Options(), "containerd://2.1.4"


def sharing(replicas: int, strategy: str = "timeSlicing", **more: Any) -> str:
    resources = [{"name": "nvidia.com/gpu", "replicas": replicas}]
    return json.dumps({"version": "v1", "sharing": {strategy: {"resources": resources, **more}}})


WHOLE = ConfigText("whole", "version: v1\n", rendered=True)
SHARED = ConfigText("shared", sharing(4), rendered=True)
RENAMED = ConfigText("renamed", sharing(2, renameByDefault=True), rendered=True)
BY_HAND = ConfigText("by-hand", f"flages: {{}}\nflags: {{}}\nsharing: {json.loads(sharing(3))['sharing']}\n")
DEFAULTS = ConfigText()
CONFIGS = [WHOLE, SHARED, RENAMED, BY_HAND, DEFAULTS]


def accepted(source: ConfigText, options: Options = NOTHING) -> Accepted:
    return accept(source, options, RUNTIME)


def listed(*configs: Accepted) -> Listing:
    """The lists after these configs, one a second, with every id held: so those of former ones are retiring."""
    listing, held = Listing(), dict[str, frozenset[str]]()
    for now, config in enumerate(configs):
        wanted = resources_of(config.served, INVENTORY)
        listing = advance(
            listing, wanted, config.served, sick={}, held=held, calls_open=frozenset(), now=float(now), held_at=now
        )
        held = {name: frozenset(entries) for name, entries in listing.lists.items()}
    return listing


def comparable(listing: Listing) -> dict[str, list[tuple[Any, ...]]]:
    """All that counts of the entries, in an order of their own: lists are sets to the kubelet."""

    def of(entry: Entry) -> tuple[Any, ...]:
        config = entry.config
        edits = (config.name, config.config.canonical(), config.driver_root, config.allocation)
        return (entry.device, entry.resource.name, entry.resource.replicas, entry.resource.mps, entry.state, edits)

    return {name: sorted(map(of, entries.values()), key=repr) for name, entries in listing.lists.items()}


def again(config: Accepted | None, listing: Listing, options: Options = NOTHING) -> tuple[Accepted | None, Listing]:
    saved = decode(encode(checkpoint_of(config, listing, RUNTIME)))
    restored, lists, lost = restore(saved, options, 100.0)
    assert lost == ()
    return restored, lists


@given(st.lists(st.sampled_from(CONFIGS), max_size=4))
@settings(deadline=None, max_examples=60)
@pytest.mark.fault("F18")
def test_config_and_lists_come_back_as_they_were(sources: list[ConfigText]) -> None:
    configs = [accepted(source) for source in sources]
    last, listing = (configs[-1] if configs else None), listed(*configs)
    restored, lists = again(last, listing)
    assert restored == last
    assert comparable(lists) == comparable(listing)
    assert all(entry.since == 100.0 and not entry.sick for ids in lists.lists.values() for entry in ids.values())


def test_retiring_ids_keep_the_config_that_they_were_listed_under() -> None:
    old, new = accepted(SHARED), accepted(WHOLE)
    _, lists = again(new, listed(old, new))
    by_state = {
        (entry.state, entry.config.name, entry.resource.replicas) for entry in lists.lists["nvidia.com/gpu"].values()
    }
    assert by_state == {("retiring", "shared", 4), ("withheld", "whole", 1)}


def test_what_is_restored_is_taken_up_without_a_change() -> None:
    config = accepted(SHARED)
    restored, lists = again(config, listed(config))
    assert restored is not None
    assert all(entry.config is restored.served for ids in lists.lists.values() for entry in ids.values())
    wanted = resources_of(restored.served, INVENTORY)
    options: dict[str, Any] = {"sick": {}, "held": {}, "calls_open": frozenset(), "now": 200.0}
    once = advance(lists, wanted, restored.served, **options)
    assert comparable(once) == comparable(lists)
    assert advance(once, wanted, restored.served, **options) is once


def test_a_config_that_needs_cdi_is_good_while_nobody_says_which_runtime_there_is() -> None:
    source = ConfigText("cdi", "version: v1\nflags: {plugin: {deviceListStrategy: [cdi-cri]}}\n", rendered=True)
    config = accepted(source)
    restored, _ = again(config, listed(config))
    assert restored == config


def test_flags_that_are_new_since_then_count() -> None:
    config = accepted(SHARED)
    options = Options({"driver_root": Given("/run/nvidia/driver", "--driver-root")})
    restored, lists = again(config, listed(config), options)
    assert restored is not None
    assert restored.served.driver_root == "/run/nvidia/driver"
    assert {entry.config.driver_root for entry in lists.lists["nvidia.com/gpu"].values()} == {"/run/nvidia/driver"}


def test_a_config_that_new_flags_forbid_is_lost_with_its_ids_and_said_to_be() -> None:
    root = Options({"mps_root": Given("/run/nvidia/mps", "MPS_ROOT")})
    mps, plain = accepted(ConfigText("mps", sharing(4, "mps"), rendered=True), root), accepted(SHARED, root)
    saved = checkpoint_of(mps, listed(plain, mps), RUNTIME)
    restored, lists, lost = restore(saved, NOTHING, 0.0)
    assert restored is None
    assert {entry.config.name for ids in lists.lists.values() for entry in ids.values()} <= {"shared"}
    assert all(said.startswith("config mps: MPS without flags.mpsRoot") for said in lost)
    assert lost


def test_many_ids_take_little_more_room_than_the_ids_themselves() -> None:
    config = accepted(ConfigText("many", sharing(3_000), rendered=True))
    text = encode(checkpoint_of(config, listed(config), RUNTIME))
    assert len(text) < 9_000 * 50
    _, lists, _ = restore(decode(text), NOTHING, 0.0)
    assert len(lists.lists["nvidia.com/gpu"]) == 9_000


# --- what cannot be trusted

CONFIG = accepted(SHARED)
GOOD = encode(checkpoint_of(CONFIG, listed(CONFIG), RUNTIME))


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        decode(text)
    return caught.value.message


@pytest.mark.fault("F18")
@given(st.integers(0, len(GOOD) - 1))
@settings(deadline=None, max_examples=100)
def test_a_truncated_checkpoint_is_refused(length: int) -> None:
    assert refusal(GOOD[:length]) == "not JSON, or cut off"


@pytest.mark.fault("F18")
@given(st.integers(0, len(GOOD) - 1), st.characters(codec="ascii"))
@settings(deadline=None, max_examples=200)
def test_a_checkpoint_with_one_wrong_character_is_refused_or_means_the_same(place: int, character: str) -> None:
    damaged = GOOD[:place] + character + GOOD[place + 1 :]
    try:
        assert decode(damaged) == decode(GOOD)
    except InvalidInput as error:
        assert error.hint  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON, or cut off"),
        ("\0" * 100, "not JSON, or cut off"),
        ("[" * 100_000, "not JSON, or cut off"),
        ("[]", "not a checkpoint of schema 1"),
        ("{}", "not a checkpoint of schema 1"),
        (GOOD.replace('"schema":1', '"schema":2'), "not a checkpoint of schema 1"),
        (GOOD.replace("sha256:", "sha256:0"), "the checksum is wrong"),
        (GOOD.replace("GPU-00000001", "GPU-00000009"), "the checksum is wrong"),
    ],
)
@pytest.mark.fault("F18")
def test_what_is_no_checkpoint_of_ours_is_refused_with_a_reason(text: str, message: str) -> None:
    assert refusal(text) == message


def sealed(body: Any) -> str:
    """A checkpoint with a right checksum, whatever it holds."""
    empty = json.loads(encode(checkpoint_of(None, Listing(), "")))
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**empty, "checkpoint": body, "checksum": f"sha256:{digest}"})


def test_a_list_of_a_config_that_is_not_there_is_refused() -> None:
    body = json.loads(GOOD)["checkpoint"]
    body["configs"] = []
    assert refusal(sealed(body)) == "a list names a config that is not there"


@given(json_values)
@settings(deadline=None, max_examples=100)
def test_no_content_raises_anything_but_a_refusal(body: Any) -> None:
    assert refusal(sealed(body))


def test_an_empty_checkpoint_is_one() -> None:
    empty = checkpoint_of(None, Listing(), "")
    assert decode(encode(empty)) == empty == Checkpoint(served=None, runtime="", configs=[], lists=[])
    assert restore(empty, NOTHING, 0.0) == (None, Listing(), ())
