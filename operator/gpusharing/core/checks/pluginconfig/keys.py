"""Keys of a plugin config: where each is known, and what is ignored because it is known nowhere.

The models of `api/pluginconfig.py` are the one list of keys. Letter case counts only below `timeSlicing` and `mps`
and in the entries of `resources` (contract 1.2).
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpusharing.api.pluginconfig import (
    Flags,
    GfdSection,
    GpuSharingSection,
    PluginConfig,
    PluginSection,
    ReplicatedResource,
    ReplicatedResources,
    ResourcePattern,
)
from gpusharing.api.problems import Problem, nearest

_CASE_COUNTS: tuple[type[BaseModel], ...] = (ReplicatedResources, ReplicatedResource, ResourcePattern)

# Below these the loader fills a key of `flags` of that name, if it is not set there, with an empty value: not an
# ignored key, but one that breaks another (found in v0.20.0; go-yaml's wrapper allocates what it only wanted to see).
_BELOW_FLAGS: tuple[type[BaseModel], ...] = (PluginSection, GfdSection)
_NEVER_EMPTY = ("migStrategy", "deviceDiscoveryStrategy")

# What people write for a reason; by key in lower case.
_NOTES = {
    "allocationpolicy": "the released name is flags.plugin.sharedDevicesAllocationPolicy",
    "config": "everything inside is ignored and the plugin runs with its defaults: what is inside belongs at the top",
    "devices": "every GPU is shared: the plugin cannot leave some out",
    "id": "every GPU is shared: the plugin cannot leave some out",
    "memorygb": "a fork's own field; NVIDIA's plugin has no memory limit per share",
    "mig": "nothing is shared or renamed by it: list nvidia.com/mig-<profile> under sharing.timeSlicing.resources",
    "mig-configs": "it belongs in the ConfigMap of NVIDIA's MIG manager, which in turn refuses flags and sharing",
    "migs": "the key is resources.mig, and has no effect either",
}


def known_keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return key → field of a section."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def section_of(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model in `X | None` or `list[X] | None`, and whether there is a list of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for inner in get_args(annotation):
        found, listed = section_of(inner)
        if found:
            return found, listed or getattr(annotation, "__origin__", None) is list
    return None, False


def meant(model: type[BaseModel], key: str) -> str:
    """Return the key that the plugin takes this one for, or an empty string where it ignores it."""
    known = known_keys(model)
    if key in known or issubclass(model, _CASE_COUNTS):
        return key if key in known else ""
    return next((name for name in known if name.lower() == key.lower()), "")


def written(section: Any, key: str) -> str:
    """Return how the mapping writes this key, in whatever letter case; the key itself where it has none."""
    if not isinstance(section, Mapping) or key in section:
        return key
    return next((name for name in section if name.lower() == key.lower()), key)


def ignored(
    data: Any, model: type[BaseModel] = PluginConfig, path: str = "", above: Mapping[str, Any] | None = None
) -> Iterator[Problem]:
    """Yield every key that the plugin does not know, at any level, and every key in a letter case of its own."""
    if not isinstance(data, Mapping) or model is GpuSharingSection:
        return
    seen: set[str] = set()
    for key, value in data.items():
        here = f"{path}.{key}" if path else key
        name = meant(model, key)
        if not name:
            yield _unknown(model, path, key, above or {})
            continue
        if name in seen or (name != key and name in data):
            yield Problem(here, f"{name} stands twice, in two letter cases", f"leave one, as {name}", "warning")
        elif name != key:
            yield Problem(here, f"read as {name}", f"write {name}: not every part ignores letter case", "hint")
        seen.add(name)
        section, listed = section_of(known_keys(model)[name].annotation)
        if section and listed:
            for index, item in enumerate(value if isinstance(value, list) else ()):
                yield from ignored(item, section, f"{here}[{index}]")
        elif section:
            yield from ignored(value, section, here, data)


def _unknown(model: type[BaseModel], path: str, key: str, above: Mapping[str, Any]) -> Problem:
    here = f"{path}.{key}" if path else key
    flag = meant(Flags, key) if issubclass(model, _BELOW_FLAGS) else ""
    if flag and above.get(written(above, flag)) is None:
        message = f"not read here, but flags.{flag} is then taken for empty"
        if flag in _NEVER_EMPTY:
            return Problem(here, f"{message}, and the plugin exits", f"write {flag} below flags")
        return Problem(here, message, f"write {flag} below flags", "warning")
    return Problem(here, "unknown key, ignored", _advice(path, key, list(known_keys(model))), "warning")


def _advice(path: str, key: str, known: list[str]) -> str:
    lower = key.lower()
    same = next((name for name in known if name.lower() == lower), "")
    if same:
        return f"letter case counts here: write {same}"
    if lower in _NOTES:
        return _NOTES[lower]
    if places := _PLACES.get(lower):
        strategy = path.split(".")[1] if path.startswith("sharing.") else "timeSlicing"
        place = next((place for place in places if f".{strategy}" in place), places[0])
        return f"it belongs under {place}" if place else "it belongs at the top"
    if name := nearest(key, known):
        return f"did you mean {name}?"
    return f"known here: {', '.join(known)}"


def _places(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str]]:
    for key, field in known_keys(model).items():
        yield key.lower(), path
        section, listed = section_of(field.annotation)
        if section and section is not GpuSharingSection:
            yield from _places(section, f"{path}.{key}{'[]' if listed else ''}".removeprefix("."))


def _by_key() -> dict[str, list[str]]:
    """Return key in lower case → the sections that know it, those of `sharing` first."""
    found: dict[str, list[str]] = {}
    for key, place in sorted(_places(PluginConfig), key=lambda entry: not entry[1].startswith("sharing")):
        found.setdefault(key, []).append(place)
    return found


_PLACES = _by_key()
