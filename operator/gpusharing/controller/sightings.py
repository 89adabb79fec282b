"""How old what was seen of the objects of one kind is: lists, watches and answers to writes overtake each other."""

from collections.abc import Mapping
from typing import Any

from gpusharing.kube.client import version_of


class Sightings:
    """The resourceVersion at which each object was last seen, alive or dead.

    Objects are told apart by name; `namespaced` ones by namespace/name.
    """

    def __init__(self, *, namespaced: bool = False) -> None:
        self._namespaced = namespaced
        self._versions: dict[str, int] = {}
        # objects that are gone → how many lists have missed them since
        self._buried: dict[str, int] = {}
        self._newest = 0
        self._asked = 0
        self._listed = 0

    def key(self, metadata: Mapping[str, Any]) -> str:
        """Return what the object is told apart by."""
        name = str(metadata["name"])
        return f"{metadata.get('namespace', '')}/{name}" if self._namespaced else name

    def is_news(self, metadata: Mapping[str, Any]) -> bool:
        """Take in a sighting. Returns whether it is no older than what is known of the object."""
        name, version = self.key(metadata), version_of(metadata)
        if version and version < self._versions.get(name, 0):
            return False
        self._versions[name] = version
        self._newest = max(self._newest, version)
        self._buried.pop(name, None)
        return True

    def knows(self, metadata: Mapping[str, Any]) -> bool:
        """Whether this very version was taken in before, and the object is not gone: then there is nothing to read."""
        name, version = self.key(metadata), version_of(metadata)
        return bool(version) and self._versions.get(name) == version and name not in self._buried

    def bury(self, metadata: Mapping[str, Any]) -> bool:
        """Take in a deletion: nothing that it overtook brings the object back. Returns whether it is news."""
        if not self.is_news(metadata):
            return False
        self._buried[self.key(metadata)] = 0
        return True

    def bury_ours(self, name: str) -> None:
        """Take in a deletion of our own, to which the answer says no version: all that was seen so far is older."""
        self._versions[name] = self._versions.get(name, 0) + 1
        self._buried[name] = 0

    def ask_list(self) -> None:
        """Note that a list is asked for: what it shows is no older than anything seen by now."""
        self._asked = self._newest

    def start_list(self, version: int) -> None:
        """Note that a list begins. One older than it can be is of an etcd that was set back: then all of it is news."""
        if version < self._asked:
            self._versions = dict.fromkeys(self._versions, 0)
            self._newest = version
        self._listed = version

    def missing(self, listed: set[str]) -> list[str]:
        """Return what a complete list no longer has, but for objects that are newer than the list."""
        versions = self._versions
        gone = [name for name, version in versions.items() if name not in listed and version <= self._listed]
        for name in gone:
            if self._buried.get(name, 0):  # for a whole list already: nothing older can still be under way
                del versions[name], self._buried[name]
            else:
                versions[name] = self._listed
                self._buried[name] = 1
        return gone
