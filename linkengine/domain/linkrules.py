"""Validation of link configs and of the start of a mirror; how a link connects. Problems have messages for users."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from linkengine.domain.acls import parse_acl_filters
from linkengine.domain.addresses import parse_servers
from linkengine.domain.client_properties import TOKEN_URL, protocol_of
from linkengine.domain.configs import check_include
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkconfigs import ALIASES, LINK_CONFIGS, ConfigKind, LinkConfigSpec, is_connection
from linkengine.domain.messages import gettext_lazy, join_messages
from linkengine.domain.names import parse_filters, read_document

# --- start of a mirror ---------------------------------------------------------------------------------------------------
# ``mirror.start.offset.spec`` is ``earliest``, ``latest`` or a time, as ISO 8601 (UTC without a time zone) or as Unix
# milliseconds. A time after the last record, including a time in the future, has the same effect as ``latest``.


CONFIG = "mirror.start.offset.spec"
EARLIEST, LATEST = "earliest", "latest"
LONGEST = 40  # characters that are stored with a mirror
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def start_problem(spec: str) -> str:
    """Return why a text is not a valid start; "" if it is."""
    if len(spec) > LONGEST:
        return gettext_lazy(
            "%(config)s may have up to %(most)s characters, enough for a time in nanoseconds. Remove further digits.",
            config=CONFIG,
            most=LONGEST,
        )
    if spec in (EARLIEST, LATEST) or _MILLISECONDS.fullmatch(spec):
        return ""
    moment = _moment(spec)
    if moment is None:
        return gettext_lazy(
            "%(config)s must be earliest, latest, a time such as 2026-11-21T03:00:00Z, or Unix milliseconds.", config=CONFIG
        )
    return "" if moment >= _EPOCH else gettext_lazy("%(config)s must not lie before 1970.", config=CONFIG)


def check_start(spec: str) -> None:
    """Raise MISCONFIGURATION_ERROR for a text that is not a valid start."""
    problem = start_problem(spec)
    if problem:
        raise LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, problem)


def start_time_ms(spec: str) -> int | None:
    """Return the time in Unix milliseconds, None for earliest and latest. Raise for what ``check_start`` refuses."""
    check_start(spec)
    if spec in (EARLIEST, LATEST):
        return None
    moment = None if _MILLISECONDS.fullmatch(spec) else _moment(spec)
    return int(spec) if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- configs -------------------------------------------------------------------------------------------------------------
# The rules for each value, and for the values together.


AUTO_CREATE, AUTO_CREATE_FILTERS = "auto.create.mirror.topics.enable", "auto.create.mirror.topics.filters"
PAUSED = "cluster.link.paused"
_PAUSED_ELSEWHERE = gettext_lazy(
    "The source side of a link copies nothing, so pausing it would stop nothing. Set %(paused)s to true "
    "on the link of the same name at the destination cluster, which has the mirror topics.",
    paused=PAUSED,
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
        super().__init__(ErrorCode.MISCONFIGURATION_ERROR, join_messages(" ", (problem.message for problem in problems)))
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
        problems.append(
            ("acl.sync.enable", gettext_lazy("ACLs cannot be synced on a link with a prefix. Set only one of the two."))
        )
    if configs.get("consumer.group.prefix.enable") == "true":
        if not prefix:
            problems.append(
                (
                    "consumer.group.prefix.enable",
                    gettext_lazy("Prefixing consumer groups needs cluster.link.prefix. Set it too."),
                )
            )
        if configs.get("link.mode") == "BIDIRECTIONAL":
            problems.append(
                ("consumer.group.prefix.enable", gettext_lazy("Consumer groups cannot be prefixed on a bidirectional link."))
            )
    if configs.get("link.mode") == "SOURCE" and configs.get("connection.mode") == "INBOUND":
        problems.append(
            (
                "connection.mode",
                gettext_lazy("The source side of a link opens the connections itself. Leave connection.mode at OUTBOUND."),
            )
        )
    if configs.get("link.mode") == "SOURCE" and configs.get(PAUSED) == "true":
        problems.append((PAUSED, _PAUSED_ELSEWHERE))
    if configs.get(AUTO_CREATE) == "true" and not configs.get(AUTO_CREATE_FILTERS):
        problems.append(
            (
                AUTO_CREATE,
                gettext_lazy(
                    "Auto-create needs at least one filter. Set %(filters)s too.",
                    filters=AUTO_CREATE_FILTERS,
                ),
            )
        )
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
            message = gettext_lazy(
                "%(alias)s is an alias of %(name)s, and both are given with different values. Give only one of them.",
                alias=alias,
                name=name,
            )
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
    message = gettext_lazy(
        "Switching auto-create off clears its filters. Leave %(filters)s out, or set %(auto_create)s to true.",
        filters=AUTO_CREATE_FILTERS,
        auto_create=AUTO_CREATE,
    )
    return (ConfigProblem(name=AUTO_CREATE_FILTERS, message=message),)


def _problem_of(name: str, value: str | None, *, creating: bool) -> str:
    spec = LINK_CONFIGS.get(name)
    if spec is None:
        return gettext_lazy("%(name)s is not a config of a cluster link. GET the link's configs for a list.", name=name)
    if spec.read_only:
        return gettext_lazy("%(name)s is read-only. %(description)s", name=name, description=gettext_lazy(spec.description))
    if spec.immutable and not creating:
        return gettext_lazy("%(name)s can only be set when the link is created. Create another link to change it.", name=name)
    if spec.refusal and value:
        return gettext_lazy("%(name)s cannot be set. %(refusal)s", name=name, refusal=spec.refusal)
    if not value and (value is None or (spec.kind in _MAY_BE_EMPTY and not spec.choices)):
        return ""
    return _value_problem(spec, value or "")


def _value_problem(spec: LinkConfigSpec, value: str) -> str:
    written = value.upper() if spec.name.endswith("security.protocol") else value  # Kafka accepts it in any case
    if spec.choices and written not in spec.choices:
        return gettext_lazy("%(name)s must be one of %(choices)s.", name=spec.name, choices=", ".join(spec.choices))
    return _BY_KIND[spec.kind](spec, value)


def _text_problem(spec: LinkConfigSpec, value: str) -> str:
    if spec.name == "cluster.link.prefix" and not PREFIX_PATTERN.fullmatch(value):
        return gettext_lazy("%(name)s may have up to 12 letters, digits, dots, underscores and dashes.", name=spec.name)
    return start_problem(value) if spec.name == CONFIG else ""


def _flag_problem(spec: LinkConfigSpec, value: str) -> str:
    return "" if value in ("true", "false") else gettext_lazy("%(name)s must be true or false.", name=spec.name)


def _number_problem(spec: LinkConfigSpec, value: str) -> str:
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        return gettext_lazy("%(name)s must be a whole number.", name=spec.name)
    if spec.lowest is not None and int(value) < spec.lowest:
        return gettext_lazy("%(name)s must be at least %(lowest)s.", name=spec.name, lowest=spec.lowest)
    if not spec.zero and int(value) == 0:
        return gettext_lazy(
            "%(name)s cannot be 0. Set at least 1, or -1 for no limit. To stop a link, pause it.", name=spec.name
        )
    if spec.highest is not None and int(value) > spec.highest:
        return gettext_lazy("%(name)s must be at most %(highest)s.", name=spec.name, highest=spec.highest)
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
                return gettext_lazy('%(name)s must have at least one filter in "aclFilters".', name=name)
        elif key is None:
            read_document(value)
        elif not parse_filters(value, key=key):
            return gettext_lazy('%(name)s must have at least one filter in "%(key)s".', name=name, key=key)
    except ValueError:
        return gettext_lazy("%(name)s must be a JSON document.", name=name)
    except LinkEngineError as error:
        return gettext_lazy("%(name)s cannot be read. %(problem)s", name=name, problem=error.message)
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


# --- connection ----------------------------------------------------------------------------------------------------------
# A link connects to its source with its own credentials or with those of the registered source cluster. Four rules keep stored
# secrets from being used or sent by a user who was not given them:
#
# 1. A link uses the credentials of the registered source only where its row says so (``uses_cluster_credentials``). The
#    decision is made when the link is created or changed, by a user who may use them, and is not derived again when a copy
#    starts.
# 2. Registered credentials are sent to registered addresses only (``registered_properties``).
# 3. A stored secret is sent only to the recipient for which it was entered: a change of the address, of the protocol, or of
#    what the connection trusts requires the secret again (``secrets_to_repeat``).
# 4. The ``local.*`` secrets of a link are sent to the address with which the link's own cluster is registered. A registration
#    that would redirect them is refused while they are stored (``redirected_by``).


LOCAL = "local."
SECRETS = ("sasl.jaas.config", "ssl.keystore.key")
_HOST_NAMES = "ssl.endpoint.identification.algorithm"
# Configs that decide where secrets are sent and how they are protected in transit; all others have no effect on that.
RECIPIENT = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    TOKEN_URL,
    "ssl.truststore.certificates",
    _HOST_NAMES,
)
_IDENTITY = ("sasl.jaas.config", "ssl.keystore.", "ssl.key.")  # prefixes of the configs that identify the client


def own_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the connection to the source out of all properties of a link."""
    return {name: value for name, value in given.items() if is_connection(name) and not name.startswith(LOCAL)}


def local_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the connection to the link's own cluster (``local.*``) out of all properties of a link, without the prefix."""
    return {name.removeprefix(LOCAL): v for name, v in given.items() if is_connection(name) and name.startswith(LOCAL)}


def uses_registered_security(given: Mapping[str, str], registered: Mapping[str, str]) -> bool:
    """Return whether a link with these configs needs the registered cluster's credentials to work.

    True if the link leaves a part out, or if its security cannot work at the listener that it names: Confluent's
    Terraform provider always sends SASL_SSL with PLAIN, whatever the broker speaks. False for another listener, and for other
    credentials with the same protocol and mechanism.
    """
    own = own_properties(given)
    if not is_complete(own):
        return True
    same_listeners = set(_servers(own)) <= set(_servers(registered))
    return same_listeners and _security_of(own) != _security_of(registered)


def registered_properties(given: Mapping[str, str], registered: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which a link reaches its source with the registered cluster's credentials.

    The link may name some of the registered servers; its other properties are ignored. Raises LinkEngineError
    (MISCONFIGURATION_ERROR) if it names another server, which would receive these credentials.
    """
    named = _servers(given)
    others = [server for server in named if server not in _servers(registered)]
    if others:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            gettext_lazy(
                "bootstrap.servers names %(names)s, which is not an address of the registered source cluster, and "
                "the link has no complete security settings. Registered credentials are sent to registered "
                "addresses only. Set security.protocol and sasl.jaas.config as well, or name only addresses with "
                "which the source is registered.",
                names=", ".join(others),
            ),
        )
    return {**registered, "bootstrap.servers": ",".join(named) or registered.get("bootstrap.servers", "")}


def inbound_properties(source_side: Mapping[str, str], registered: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which an INBOUND link reaches its source.

    ``source_side`` are the properties of the link's other side, which is at the source. Its ``local.*`` configs replace the
    registered credentials as a whole: nothing that signs in is taken from the registration as soon as any of them is set.
    """
    local = local_properties(source_side)
    if not local:
        return dict(registered)
    return {**{name: value for name, value in registered.items() if not name.startswith(_IDENTITY)}, **local}


def is_complete(given: Mapping[str, str]) -> bool:
    """Return whether the properties suffice to sign in: servers, a protocol and, with SASL, credentials."""
    protocol = protocol_of(given)
    if not _servers(given) or not protocol:
        return False
    return not protocol.startswith("SASL") or bool(given.get("sasl.jaas.config"))


def differs_in_recipient(before: Mapping[str, str], after: Mapping[str, str], *, prefix: str = "") -> tuple[str, ...]:
    """Return the names, of those that decide where secrets go, whose values differ."""
    names = (prefix + name for name in RECIPIENT)
    return tuple(name for name in names if _value(before, name) != _value(after, name))


def secrets_to_repeat(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return (secret, config) for each stored secret that a change of that config would send elsewhere.

    None as a value stands for the default. A secret that the changes set again, or remove, is not returned. Whether the secret
    is in use does not count: otherwise it could be switched off, redirected and switched on in three harmless steps.
    """
    merged = {**stored, **changes}
    after = {name: value for name, value in merged.items() if value is not None}
    found = []
    for prefix in ("", LOCAL):
        moved = differs_in_recipient(stored, after, prefix=prefix)
        kept = [prefix + name for name in SECRETS if stored.get(prefix + name) and after.get(prefix + name)]
        found += [(name, moved[0]) for name in kept if moved and not changes.get(name)]
    return tuple(found)


def redirected_by(given: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configs through which another registration of a link's own cluster would send its stored secrets elsewhere.

    ``given`` are the properties of the link, ``before`` and ``after`` those of the registration. Properties that the link
    itself sets with ``local.*`` do not change with the registration. Empty if the link stores no ``local.*`` secret.
    """
    if not any(given.get(LOCAL + name) for name in SECRETS):
        return ()
    return differs_in_recipient(inbound_properties(given, before), inbound_properties(given, after))


def _value(properties: Mapping[str, str], name: str) -> str:
    default = "https" if name.endswith(_HOST_NAMES) else ""  # empty means that names are not compared
    return "\n".join(properties.get(name, default).split("\r\n")).strip()


def _servers(properties: Mapping[str, str]) -> list[str]:
    """Return the servers as host:port in lower case; if any cannot be parsed, all as they are written."""
    text = properties.get("bootstrap.servers", "").lower()
    try:
        return list(dict.fromkeys(str(server) for server in parse_servers(text)))
    except LinkEngineError:
        return [part.strip() for part in text.split(",") if part.strip()]


def _security_of(properties: Mapping[str, str]) -> tuple[str, str]:
    protocol = protocol_of(properties) or "PLAINTEXT"
    return protocol, properties.get("sasl.mechanism", "").upper() if protocol.startswith("SASL") else ""
