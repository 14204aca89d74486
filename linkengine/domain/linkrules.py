"""Validation of link configs: the rules for each value, and for the values together. Every problem has a message for users."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from linkengine.domain.aclfilters import parse_acl_filters
from linkengine.domain.configs import check_include
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.filters import parse_filters, read_document
from linkengine.domain.linkconfigs import ALIASES, LINK_CONFIGS, ConfigKind, LinkConfigSpec
from linkengine.domain.startspec import CONFIG as START_SPEC
from linkengine.domain.startspec import start_problem

AUTO_CREATE, AUTO_CREATE_FILTERS = "auto.create.mirror.topics.enable", "auto.create.mirror.topics.filters"
PAUSED = "cluster.link.paused"
_PAUSED_ELSEWHERE = (
    f"The source side of a link copies nothing, so pausing it would stop nothing. Set {PAUSED} to true on the link of the same "
    "name at the destination cluster, which has the mirror topics."
)
_FILTER_KEYS = {AUTO_CREATE_FILTERS: "topicFilters", "consumer.offset.group.filters": "groupFilters"}
_MAY_BE_EMPTY = {ConfigKind.TEXT, ConfigKind.NAMES, ConfigKind.FILTERS}
PREFIX_PATTERN = re.compile(r"[A-Za-z0-9._-]{0,12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """Why a value is not accepted: what, why, what to do."""

    name: str
    message: str


class LinkConfigError(LinkEngineError):
    """One or more configs are not accepted; ``name`` is the first of them."""

    def __init__(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__(ErrorCode.MISCONFIGURATION_ERROR, " ".join(problem.message for problem in problems))
        self.problems = problems
        self.name = problems[0].name


def find_problems(configs: Mapping[str, str | None], *, creating: bool = True) -> tuple[ConfigProblem, ...]:
    """Return the problems of single values that are to be set; None stands for "reset to the default"."""
    problems = [
        ConfigProblem(name=name, message=message)
        for name, value in configs.items()
        if (message := _problem_of(name, value, creating=creating))
    ]
    return tuple(problems)


def find_conflicts(configs: Mapping[str, str | None]) -> tuple[ConfigProblem, ...]:
    """Return the conflicts between the values that a link would have together."""
    prefix, problems = configs.get("cluster.link.prefix"), []
    if prefix and configs.get("acl.sync.enable") == "true":
        problems.append(("acl.sync.enable", "ACLs cannot be synced on a link with a prefix. Set only one of the two."))
    if configs.get("consumer.group.prefix.enable") == "true":
        if not prefix:
            problems.append(
                ("consumer.group.prefix.enable", "Prefixing consumer groups needs cluster.link.prefix. Set it too.")
            )
        if configs.get("link.mode") == "BIDIRECTIONAL":
            problems.append(("consumer.group.prefix.enable", "Consumer groups cannot be prefixed on a bidirectional link."))
    if configs.get("link.mode") == "SOURCE" and configs.get("connection.mode") == "INBOUND":
        problems.append(
            ("connection.mode", "The source side of a link opens the connections itself. Leave connection.mode at OUTBOUND.")
        )
    if configs.get("link.mode") == "SOURCE" and configs.get(PAUSED) == "true":
        problems.append((PAUSED, _PAUSED_ELSEWHERE))
    if configs.get(AUTO_CREATE) == "true" and not configs.get(AUTO_CREATE_FILTERS):
        problems.append((AUTO_CREATE, f"Auto-create needs at least one filter. Set {AUTO_CREATE_FILTERS} too."))
    return tuple(ConfigProblem(name=name, message=message) for name, message in problems)


def with_consequences(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the configs with changes that follow from them: switching auto-create off clears its filters."""
    switched_off = AUTO_CREATE in configs and configs[AUTO_CREATE] != "true"
    return {**configs, AUTO_CREATE_FILTERS: None} if switched_off else dict(configs)


def with_canonical_names(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """Replace aliases that documents use (``link.prefix``); raise LinkConfigError if both names are given and differ."""
    found = {name: value for name, value in configs.items() if name not in ALIASES}
    for alias, name in ALIASES.items():
        if alias not in configs:
            continue
        if found.setdefault(name, configs[alias]) != configs[alias]:
            message = f"{alias} is an alias of {name}, and both are given with different values. Give only one of them."
            raise LinkConfigError((ConfigProblem(name=alias, message=message),))
    return found


def check_configs(configs: Mapping[str, str | None], *, present: Mapping[str, str | None] | None = None) -> None:
    """Raise LinkConfigError unless ``configs`` can be set; ``present`` holds an existing link's values, None while creating."""
    problems = (
        find_problems(configs, creating=present is None)
        or _contradictions(configs)
        or find_conflicts({**(present or {}), **with_consequences(configs)})
    )
    if problems:
        raise LinkConfigError(problems)


def _contradictions(configs: Mapping[str, str | None]) -> tuple[ConfigProblem, ...]:
    if AUTO_CREATE not in configs or configs[AUTO_CREATE] == "true" or not configs.get(AUTO_CREATE_FILTERS):
        return ()
    message = f"Switching auto-create off clears its filters. Leave {AUTO_CREATE_FILTERS} out, or set {AUTO_CREATE} to true."
    return (ConfigProblem(name=AUTO_CREATE_FILTERS, message=message),)


def _problem_of(name: str, value: str | None, *, creating: bool) -> str:
    spec = LINK_CONFIGS.get(name)
    if spec is None:
        return f"{name} is not a config of a cluster link. GET the link's configs for a list."
    if spec.read_only:
        return f"{name} is read-only. {spec.description}"
    if spec.immutable and not creating:
        return f"{name} can only be set when the link is created. Create another link to change it."
    if spec.refusal and value:
        return f"{name} cannot be set. {spec.refusal}"
    if not value and (value is None or (spec.kind in _MAY_BE_EMPTY and not spec.choices)):
        return ""
    return _value_problem(spec, value or "")


def _value_problem(spec: LinkConfigSpec, value: str) -> str:
    written = value.upper() if spec.name.endswith("security.protocol") else value  # Kafka accepts it in any case
    if spec.choices and written not in spec.choices:
        return f"{spec.name} must be one of {', '.join(spec.choices)}."
    return _BY_KIND[spec.kind](spec, value)


def _text_problem(spec: LinkConfigSpec, value: str) -> str:
    if spec.name == "cluster.link.prefix" and not PREFIX_PATTERN.fullmatch(value):
        return f"{spec.name} may have up to 12 letters, digits, dots, underscores and dashes."
    return start_problem(value) if spec.name == START_SPEC else ""


def _flag_problem(spec: LinkConfigSpec, value: str) -> str:
    return "" if value in ("true", "false") else f"{spec.name} must be true or false."


def _number_problem(spec: LinkConfigSpec, value: str) -> str:
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        return f"{spec.name} must be a whole number."
    if spec.lowest is not None and int(value) < spec.lowest:
        return f"{spec.name} must be at least {spec.lowest}."
    if not spec.zero and int(value) == 0:
        return f"{spec.name} cannot be 0. Set at least 1, or -1 for no limit. To stop a link, pause it."
    if spec.highest is not None and int(value) > spec.highest:
        return f"{spec.name} must be at most {spec.highest}."
    return ""


def _names_problem(_spec: LinkConfigSpec, value: str) -> str:
    try:
        check_include([name.strip() for name in value.split(",") if name.strip()])
    except LinkEngineError as error:
        return error.message
    return ""


def _filters_problem(spec: LinkConfigSpec, value: str) -> str:
    name, key = spec.name, _FILTER_KEYS.get(spec.name)
    try:
        if name == "acl.filters":
            if not parse_acl_filters(value):
                return f'{name} must have at least one filter in "aclFilters".'
        elif key is None:
            read_document(value)
        elif not parse_filters(value, key=key):
            return f'{name} must have at least one filter in "{key}".'
    except ValueError:
        return f"{name} must be a JSON document."
    except LinkEngineError as error:
        return f"{name} cannot be read. {error.message}"
    return ""


_BY_KIND: Mapping[ConfigKind, Callable[[LinkConfigSpec, str], str]] = MappingProxyType(
    {
        ConfigKind.TEXT: _text_problem,
        ConfigKind.NUMBER: _number_problem,
        ConfigKind.FLAG: _flag_problem,
        ConfigKind.NAMES: _names_problem,
        ConfigKind.FILTERS: _filters_problem,
    }
)
