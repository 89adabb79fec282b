"""`kubectl gpusharing prefer`: the questions of a file, the answers of the policies, and whether they are right."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusharing.api.allocationcases import AlignedAnswer, AlignedCase, CaseFile, GreedyAnswer, GreedyCase, LinkMatrix
from gpusharing.api.problems import Problem, parse
from gpusharing.api.sharing import Allocation
from gpusharing.core.allocation.explain import SENTENCES, explain
from gpusharing.core.allocation.prefer import Preferences, prefer, preferences
from gpusharing.core.allocation.request import AllocationRequest, Choice, load
from gpusharing.core.devices import Gpu, Inventory, Link, base_of, share_id
from gpusharing.core.errors import InvalidInput
from gpusharing.core.resources import Device, Resource

Case = GreedyCase | AlignedCase
Answer = GreedyAnswer | AlignedAnswer

RESOURCE = "nvidia.com/gpu"
MAX_CHARACTERS = 1 << 24
_SHARES_MAX = 100_000
_PROBLEMS_SHOWN = 5
# What the kinds 1 to 6 say of the PCIe path: NVML's level of the common ancestor (contract 5.4).
_ANCESTORS = {1: 50, 2: 40, 3: 30, 4: 20, 5: 10, 6: 0}
# A pair of which nothing is said about PCIe: farther than any, so worth nothing.
_NO_PCIE = 60


def read_cases(text: str, file: str) -> list[Case]:
    """Return the cases of a file. Raises InvalidInput with what is wrong in it."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(f"{file} has more than {MAX_CHARACTERS} characters", hint="split it")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} is not valid JSON: {error}") from error
    content, problems = parse(CaseFile, data)
    cases: list[Case] = []
    for at, one in enumerate(content.cases if content else []):
        case, found = _read_case(one, f"cases[{at}]")
        problems += found
        if case is not None:
            cases.append(case)
    if problems:
        shown = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:_PROBLEMS_SHOWN])
        more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
        raise InvalidInput(f"{file}: {shown}{more}", hint="docs/reference/cli.md, section prefer, has the format")
    return cases


def _read_case(data: Mapping[str, object], at: str) -> tuple[Case | None, list[Problem]]:
    case: Case | None
    if "replicas" in data or "links" not in data:
        case, problems = parse(GreedyCase, data, at=at)
        problems += _wrong_counts(case, at) if isinstance(case, GreedyCase) else []
    else:
        case, problems = parse(AlignedCase, data, at=at)
        problems += _wrong_places(case, at) if isinstance(case, AlignedCase) else []
    return case, problems


def _wrong_counts(case: GreedyCase, at: str) -> Iterator[Problem]:
    for key, counts in _counts_of(case).items():
        for gpu in counts:
            if gpu not in case.replicas:
                yield Problem(f"{at}.{key}.{gpu}", "is not a GPU of replicas")
    for gpu, total in case.replicas.items():
        available, required = case.available.get(gpu, 0), case.required.get(gpu, 0)
        if required > available:
            yield Problem(f"{at}.required.{gpu}", f"{required} of which only {available} are available")
        if available + case.unhealthy.get(gpu, 0) > total:
            yield Problem(
                f"{at}.available.{gpu}", f"more available and unhealthy shares than the {total} that there are"
            )
    if sum(case.replicas.values()) > _SHARES_MAX:
        yield Problem(f"{at}.replicas", f"more than {_SHARES_MAX} shares")
    if case.links is not None:
        yield from _wrong_links(case.links, len(case.replicas), at)
    if case.topology == "preferred" and case.links is None:
        yield Problem(f"{at}.links", "missing: topology: preferred needs them")


def _counts_of(case: GreedyCase) -> dict[str, Mapping[str, int]]:
    return {
        "available": case.available,
        "required": case.required,
        "unhealthy": case.unhealthy,
        "otherLoad": case.other_load,
    }


def _wrong_places(case: AlignedCase, at: str) -> Iterator[Problem]:
    yield from _wrong_links(case.links, len(case.links), at)
    places = {"available": case.available, "required": case.required, "unhealthy": case.unhealthy}
    for key, listed in places.items():
        for place in listed:
            if place >= len(case.links):
                yield Problem(f"{at}.{key}", f"{place} is not one of the {len(case.links)} GPUs of links")


def _wrong_links(links: LinkMatrix, gpus: int, at: str) -> Iterator[Problem]:
    if [len(row) for row in links] != [gpus] * gpus:
        yield Problem(f"{at}.links", f"must be {gpus} rows of {gpus}")


@dataclass(frozen=True, slots=True)
class Question:
    """A case as the plugin would see it."""

    request: AllocationRequest
    preferences: Preferences


def question_of(case: Case) -> Question:
    """Return the request with its devices."""
    return _greedy_question(case) if isinstance(case, GreedyCase) else _aligned_question(case)


def _greedy_question(case: GreedyCase) -> Question:
    names = sorted(case.replicas, key=_natural)
    inventory = _inventory(names, case.links)
    devices = tuple(Device(share_id(gpu, replica), gpu, gpu) for gpu in names for replica in range(case.replicas[gpu]))
    allocation = Allocation(policy=case.policy, keep_together=case.keep_together, topology=case.topology)
    request = AllocationRequest(
        tuple(_first_shares(case.available)),
        case.size,
        tuple(_first_shares(case.required)),
        sick=frozenset(_last_shares(case.replicas, case.unhealthy)),
        other_load={gpu: load(ids=count) for gpu, count in case.other_load.items()},
    )
    return Question(request, preferences(Resource(RESOURCE, devices, replicas=2), inventory, allocation))


def _natural(name: str) -> tuple[str, int, str]:
    """Order GPU-10 behind GPU-9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name


def _first_shares(counts: Mapping[str, int]) -> Iterator[str]:
    return (share_id(gpu, replica) for gpu, count in counts.items() for replica in range(count))


def _last_shares(replicas: Mapping[str, int], counts: Mapping[str, int]) -> Iterator[str]:
    return (share_id(gpu, replicas[gpu] - 1 - at) for gpu, count in counts.items() for at in range(count))


def _aligned_question(case: AlignedCase) -> Question:
    names = [f"GPU-{at}" for at in range(len(case.links))]
    devices = tuple(Device(name, name, name) for name in names)
    request = AllocationRequest(
        tuple(names[at] for at in case.available),
        case.size,
        tuple(names[at] for at in case.required),
        sick=frozenset(names[at] for at in case.unhealthy),
    )
    return Question(request, preferences(Resource(RESOURCE, devices), _inventory(names, case.links), Allocation()))


def _inventory(names: Sequence[str], links: LinkMatrix | None) -> Inventory:
    gpus = tuple(Gpu(index=at, uuid=name, model="", minor=at) for at, name in enumerate(names))
    return Inventory(
        gpus=gpus,
        links={
            (names[one], names[other]): _link(kinds)
            for one, row in enumerate(links or [])
            for other, kinds in enumerate(row)
            if one < other and kinds
        },
    )


def _link(kinds: Sequence[int]) -> Link:
    return Link(
        common_ancestor=min((_ANCESTORS[kind] for kind in kinds if kind in _ANCESTORS), default=_NO_PCIE),
        nvlinks=sum(kind - 6 for kind in kinds if kind > 6),
    )


def answer(number: int, case: Case, *, explained: bool = False) -> Answer:
    """Return what the policy says to a case."""
    question = question_of(case)
    choice = prefer(question.request, question.preferences)
    why = explain(question.request, question.preferences) if explained else None
    error = SENTENCES[choice.refusal] if choice.refusal else None
    if isinstance(case, GreedyCase):
        return GreedyAnswer(case=number, counts=_counts(choice), error=error, explain=why)
    table = question.preferences.table
    gpus = sorted(table.gpu_of[each] for each in choice.ids)
    return AlignedAnswer(case=number, choice=gpus, score=table.links.score(gpus), error=error, explain=why)


def _counts(choice: Choice) -> dict[str, int]:
    counts = Counter(map(base_of, choice.ids))
    return {gpu: counts[gpu] for gpu in sorted(counts, key=_natural)}


def difference(case: Case, answer: Answer) -> str:
    """Return in which way the answer is not the recorded one; empty = it is right, or nothing is recorded."""
    if isinstance(case, GreedyCase) and isinstance(answer, GreedyAnswer):
        if case.error:
            return f"{answer.counts}, recorded is a refusal" if answer.counts else ""
        if case.outcomes is not None and answer.counts not in case.outcomes:
            return f"{answer.counts or 'a refusal'}, recorded are {case.outcomes[:3]}"
    if isinstance(case, AlignedCase) and isinstance(answer, AlignedAnswer) and case.chosen is not None:
        if len(answer.choice) != len(case.chosen):
            return f"{answer.choice}, recorded is {case.chosen}"
        if case.set_score is not None and answer.score < case.set_score:
            return f"{answer.choice} with a score of {answer.score}, recorded is {case.chosen} with {case.set_score}"
    return ""
