import re

import pytest

from gpusharing.api import names

LABEL_KEY = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
KEYS = {
    name: value
    for name, value in vars(names).items()
    if name.endswith(("_LABEL", "_ANNOTATION")) and isinstance(value, str)
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_every_label_and_annotation_is_a_valid_key(key: str) -> None:
    assert re.fullmatch(LABEL_KEY, key)


def test_the_only_label_that_we_write_on_a_node_is_nvidias() -> None:
    assert names.CONFIG_LABEL == "nvidia.com/device-plugin.config"


def test_a_value_that_is_put_back_is_owned_under_another_name_than_ours() -> None:
    assert names.RESTORING_FIELD_MANAGER != names.FIELD_MANAGER
