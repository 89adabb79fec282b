"""Rules of a `GpuPlacement` over more than one field (placement guide, 5.3): the sentences, and the CEL of the CRD.

The planner has the same rules for files and says them in the same sentences, which are therefore here: a word in braces
is what the planner formats in, and what CEL adds. (Where CEL would cost too much, the planner says more behind them.)
Whatever needs arithmetic or the cluster is the planner's alone.
"""

import json
from string import Formatter
from typing import Any

from gpusharing.api.meta import VALUES_MESSAGE, values_fit

OF_SERVICE = "service '{service}': {sentence}"
OF_POOL = "pool '{pool}': {sentence}"

# --- one service
EXCLUDE_EACH_OTHER = "{one} and {other} exclude each other"
ONE_NEED = "only one of {needs} may be set"
NEEDS_PARALLELISM = "{word} needs parallelism"
EVENLY_BY_INDEX = "distribute: evenly needs visibleDevices by index, which count on every node"
SHARE_WITH_PIN = "service '{service}' sets both share and visibleDevices; remove one"
# --- one pool
MAX_NODES_NEEDS_AUTO = "maxNodes needs nodes: auto"
ONE_SIZE = EXCLUDE_EACH_OTHER.format(one="gpusPerNode", other="gpusByNode")
SELECTOR_VALUES = f"nodeSelector: {VALUES_MESSAGE}"
LENGTH_DIFFERS = "pool '{pool}' lists gpusByNode for {count} node(s) but has nodes: {nodes}"
LENGTH_WITH_AUTO = "pool '{pool}' has nodes: auto, so gpusByNode cannot be used; give gpusPerNode"
# --- the services and pools of a placement
POOL_REQUIRED = "service '{service}' names no pool and the placement has {count} ({pools})"
UNKNOWN_POOL = "service '{service}' names pool '{pool}', which is not a pool of this placement ({pools})"
UNKNOWN_LEAD = "lead '{lead}' is not a deployed service of this placement"
UNKNOWN_TARGET = "service '{service}' shares with '{target}', which is not a deployed service of this placement"
TARGET_WITHOUT_GPUS = "service '{service}' shares with '{target}', which has no GPUs of its own"
TARGET_ELSEWHERE = "service '{service}' shares with '{target}', which is in another pool"
FRACTION_NEEDS_SHARES = "fraction needs sharing.replicas of at least 2 on its pool '{pool}'"
# Only in a cluster: what sees every GPU of a node cannot be kept to GPUs of its own.
SHARE_UNDER_RESERVE = "share: true needs enforcement: env; use shareWith"
# --- the object
NAME = "a name of at most 63 lower-case letters, digits and -"
NAME_EXPECTED = f"expected {NAME}: the names of its services' resources are made from it"

# What a service asks for, and where its GPUs come from: one of the former, at least one of the latter.
NEEDS = ("gpus", "parallelism", "leftover")
SOURCES = (*NEEDS, "visibleDevices", "visibleDevicesFromEnv", "share", "shareWith")
ONE_SOURCE = f"one of {', '.join(SOURCES)} must be set"
# A pin beside `share` has a code of its own.
EXCLUSIONS = (
    ("visibleDevices", "visibleDevicesFromEnv"),
    ("share", "shareWith"),
    ("share", "visibleDevicesFromEnv"),
    ("shareWith", "visibleDevices"),
    ("shareWith", "visibleDevicesFromEnv"),
    ("leftover", "visibleDevices"),
    ("leftover", "visibleDevicesFromEnv"),
    ("distribute", "split"),
    ("distribute", "exclusiveNodes"),
    ("distribute", "span: tail"),
    ("split", "exclusiveNodes"),
    ("split", "span: tail"),
    ("split", "visibleDevices"),
    ("split", "visibleDevicesFromEnv"),
    ("fraction", "leftover"),
    ("fraction", "exclusiveNodes"),
    ("fraction", "visibleDevicesFromEnv"),
)
NEED_PARALLELISM = ("distribute", "split")

Rule = dict[str, str]
# Fields that are never absent, because they have a default.
_IN_CEL = {"share": "self.share", "exclusiveNodes": "self.exclusiveNodes", "span: tail": "self.span == 'tail'"}


def _said(word: str) -> str:
    """Return the CEL test whether a service says the word."""
    return _IN_CEL.get(word, f"has(self.{word})")


def _text(sentence: str, values: dict[str, str]) -> str:
    """Return the CEL expression of a sentence, with CEL expressions for the words in braces.

    The API server must know how long each can get at most: it does of fields and of parts of literals, and neither of
    what `map`, `join` or `string` return.
    """
    parts = []
    for literal, word, _, _ in Formatter().parse(sentence):
        parts += [json.dumps(literal)] if literal else []
        parts += [values[word]] if word else []
    return " + ".join(parts)


def _number(value: str) -> str:
    """Return the CEL expression of a number from 0 to 999 in digits."""
    hundreds, tens, ones = (f"{value} / {unit} % 10" for unit in (100, 10, 1))
    digits = [f"'0123456789'.substring({digit}, {digit} + 1)" for digit in (hundreds, tens, ones)]
    return f"({value} > 99 ? {digits[0]} : '') + ({value} > 9 ? {digits[1]} : '') + {digits[2]}"


def _rule(holds: str, sentence: str, said: str, **more: str) -> Rule:
    """Return the rule, which says `said`; the sentence with its words in brackets is for those who read the CRD."""
    words = {word: f"<{word}>" for _, word, _, _ in Formatter().parse(sentence) if word}
    return {"rule": holds, "message": sentence.format(**words), "messageExpression": said, **more}


def _of_service(holds: str, sentence: str, **values: str) -> Rule:
    """Return a rule about one service that is deployed; `self` is the service."""
    return _rule(f"!self.deploy || {holds}", sentence, _text(sentence, {"service": "self.name", **values}))


def _of_pool(holds: str, sentence: str, **values: str) -> Rule:
    return _rule(holds, sentence, _text(sentence, {"pool": "self.name", **values}))


def _of_services(wrong: str, sentence: str, **values: str) -> Rule:
    """Return a rule about the deployed services `s` of a placement; it says the `{first}` of which `wrong` holds."""
    found = f"s.deploy && {wrong}"
    first = f"self.services[self.services.map(s, {found}).indexOf(true)]"
    words = {word: value.format(first=first) for word, value in {"service": "{first}.name", **values}.items()}
    return _rule(f"!self.services.exists(s, {found})", sentence, _text(sentence, words), fieldPath=".services")


def _in(frame: str, sentence: str) -> str:
    """Return the sentence behind `service 'a': ` or `pool 'gpu': `."""
    return frame.replace("{sentence}", sentence)


def _rules(*rules: Rule) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}


_POOLS_MAX = 8


def _is_known(service: str) -> str:
    """Return the CEL test whether a service names a pool that there is."""
    return f"(has({service}.pool) && self.pools.exists(p, p.name == {service}.pool))"


_ALL_POOLS = " + ".join(
    [
        "self.pools[0].name",
        *(f"(size(self.pools) > {n} ? ', ' + self.pools[{n}].name : '')" for n in range(1, _POOLS_MAX)),
    ]
)
_OWN_POOL = "(has(s.pool) ? p.name == s.pool : size(self.pools) == 1)"
_IS_TARGET = "t.deploy && t.name == s.shareWith"
_IS_OWNER = (
    "(!t.share && !has(t.shareWith) && (has(t.leftover) || has(t.visibleDevices) || has(t.parallelism) || "
    "(has(t.gpus) ? t.gpus > 0 : has(t.visibleDevicesFromEnv))))"
)

SERVICE_RULES = _rules(
    _of_service(
        f"[{', '.join(map(_said, NEEDS))}].filter(x, x).size() < 2",
        _in(OF_SERVICE, ONE_NEED),
        needs=(
            "(!has(self.gpus) ? 'parallelism, leftover' : !has(self.parallelism) ? 'gpus, leftover' : "
            "!has(self.leftover) ? 'gpus, parallelism' : 'gpus, parallelism, leftover')"
        ),
    ),
    *(
        _of_service(
            f"!({_said(one)} && {_said(other)})",
            _in(OF_SERVICE, EXCLUDE_EACH_OTHER.format(one=one, other=other)),
        )
        for one, other in EXCLUSIONS
    ),
    _of_service(" || ".join(map(_said, SOURCES)), _in(OF_SERVICE, ONE_SOURCE)),
    *(
        _of_service(f"!{_said(word)} || {_said('parallelism')}", _in(OF_SERVICE, NEEDS_PARALLELISM.format(word=word)))
        for word in NEED_PARALLELISM
    ),
    _of_service(
        "!has(self.distribute) || !has(self.visibleDevices) || !self.visibleDevices.startsWith('GPU-')",
        _in(OF_SERVICE, EVENLY_BY_INDEX),
    ),
    _of_service("!self.share || !has(self.visibleDevices)", SHARE_WITH_PIN),
)
POOL_RULES = _rules(
    _of_pool("!has(self.maxNodes) || self.nodes == 'auto'", _in(OF_POOL, MAX_NODES_NEEDS_AUTO)),
    _of_pool("!has(self.gpusPerNode) || !has(self.gpusByNode)", _in(OF_POOL, ONE_SIZE)),
    _of_pool(f"!has(self.nodeSelector) || {values_fit('self.nodeSelector')}", _in(OF_POOL, SELECTOR_VALUES)),
    _of_pool("!has(self.gpusByNode) || self.nodes != 'auto'", LENGTH_WITH_AUTO),
    _of_pool(
        "!has(self.gpusByNode) || self.nodes == 'auto' || size(self.gpusByNode) == self.nodes",
        LENGTH_DIFFERS,
        count=_number("size(self.gpusByNode)"),
        nodes=_number("int(self.nodes)"),
    ),
)
SPEC_RULES = _rules(
    _of_services(
        "!has(s.pool) && size(self.pools) > 1", POOL_REQUIRED, count=_number("size(self.pools)"), pools=_ALL_POOLS
    ),
    _of_services(f"has(s.pool) && !{_is_known('s')}", UNKNOWN_POOL, pool="{first}.pool", pools=_ALL_POOLS),
    _rule(
        "!has(self.lead) || self.services.exists(s, s.deploy && s.name == self.lead)",
        UNKNOWN_LEAD,
        _text(UNKNOWN_LEAD, {"lead": "self.lead"}),
        fieldPath=".lead",
    ),
    _of_services(
        f"has(s.shareWith) && !self.services.exists(t, {_IS_TARGET})", UNKNOWN_TARGET, target="{first}.shareWith"
    ),
    _of_services(
        f"has(s.shareWith) && self.services.exists(t, {_IS_TARGET} && !{_IS_OWNER})",
        TARGET_WITHOUT_GPUS,
        target="{first}.shareWith",
    ),
    _of_services(
        f"has(s.shareWith) && {_is_known('s')} && "
        f"self.services.exists(t, {_IS_TARGET} && {_IS_OWNER} && {_is_known('t')} && t.pool != s.pool)",
        TARGET_ELSEWHERE,
        target="{first}.shareWith",
    ),
    _of_services(
        f"has(s.fraction) && self.pools.exists(p, {_OWN_POOL} && p.sharing.replicas < 2)",
        _in(OF_SERVICE, FRACTION_NEEDS_SHARES),
        pool="(has({first}.pool) ? {first}.pool : self.pools[0].name)",
    ),
    _of_services("s.share && self.enforcement == 'reserve'", _in(OF_SERVICE, SHARE_UNDER_RESERVE)),
)
OBJECT_RULES = _rules(
    {
        "rule": "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        "message": f"metadata.name: {NAME_EXPECTED}",
    }
)
