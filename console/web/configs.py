"""Configs for people: values in their units ("7 days" for 604800000, beside the value itself), and translated descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.utils.translation import gettext, gettext_noop, ngettext

from console.web import numbers
from console.web.numbers import Moment, moment
from linkengine.domain.linkconfigs import RPO_OBJECTIVE

if TYPE_CHECKING:
    from console.mirrors.queries import FollowedConfig
    from console.models import ConfigRevert

_LONG_MAX = 2**63 - 1  # Kafka's "never" or "no limit" for times, sizes and counts
_NEVER: Mapping[str, str] = MappingProxyType(  # -1
    {
        "retention.ms": gettext_noop("unlimited"),
        "retention.bytes": gettext_noop("unlimited"),
        RPO_OBJECTIVE: gettext_noop("no objective"),
        "link.throughput.limit.bytes.per.second": gettext_noop("no limit"),
        "replica.socket.receive.buffer.bytes": gettext_noop("chosen by the operating system"),
    }
)
_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedConfigRow:
    """A synced topic config of a mirror."""

    name: str
    source: str
    mirror: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertRow:
    """A local change of a topic config that was reverted."""

    name: str
    found: str | None  # None: the config had been deleted
    restored: str
    at: Moment | None


def readable_config(name: str, value: str) -> str:
    """Return a value with its meaning, for example ``7 days (604800000)``; the value alone if it needs no explanation."""
    words = config_words(name, value)
    return f"{words} ({value})" if words else value


def config_words(name: str, value: str) -> str:
    """Return the meaning of a numeric value in people's units; "" if the value needs no explanation."""
    try:
        number = int(value)
    except ValueError:
        return ""
    if number < 0:
        return gettext(_NEVER[name]) if number == -1 and name in _NEVER else ""
    return gettext("unlimited") if number == _LONG_MAX else _measured(name, number)


def _measured(name: str, number: int) -> str:
    if name.endswith(".ms"):
        return _duration(number)
    if name.endswith(".bytes"):
        return _size(number)
    if name.endswith(".bytes.per.second"):
        return f"{_size(number) or f'{number} B'}/s"
    return f"{number:,}" if number >= 10_000 else ""


def synced_config_rows(configs: Sequence[FollowedConfig]) -> list[SyncedConfigRow]:
    """Return the rows of synced configs."""
    return [
        SyncedConfigRow(
            name=config.name,
            source=readable_config(config.name, config.source_value),
            mirror=readable_config(config.name, config.mirror_value),
            differs=config.mirror_value != config.source_value,
        )
        for config in configs
    ]


def revert_row(revert: ConfigRevert, *, now: datetime) -> RevertRow:
    """Create the row of a reverted change."""
    return RevertRow(
        name=revert.name,
        found=None if revert.found is None else readable_config(revert.name, revert.found),
        restored=readable_config(revert.name, revert.restored),
        at=moment(revert.at, now=now),
    )


def _duration(number_ms: int) -> str:
    """Return a duration exactly, in as many units as it takes."""
    days, rest = divmod(number_ms, _DAY_MS)
    hours, rest = divmod(rest, _HOUR_MS)
    minutes, rest = divmod(rest, _MINUTE_MS)
    seconds, rest = divmod(rest, _SECOND_MS)
    parts = (
        (days, ngettext("%(count)s day", "%(count)s days", days)),
        (hours, ngettext("%(count)s hour", "%(count)s hours", hours)),
        (minutes, ngettext("%(count)s minute", "%(count)s minutes", minutes)),
        (seconds, ngettext("%(count)s second", "%(count)s seconds", seconds)),
    )
    words = [text % {"count": numbers.count(number)} for number, text in parts if number]
    if rest or not words:
        words.append(gettext("%(number)s ms") % {"number": rest})
    return " ".join(words)


def _size(number: int) -> str:
    """Return a size in the largest unit; "about" if it is rounded, "" for less than 1 KiB."""
    for length, unit in _SIZES:
        if number >= length:
            exact = number % length == 0
            return f"{number // length:,} {unit}" if exact else gettext("about %(size)s") % {"size": numbers.size(number)}
    return ""


# --- descriptions of the link configs ---------------------------------------------------------------------------------
#
# The engine, which defines the configs, does not use Django, so its descriptions are marked for translation here. A test
# compares them with ``linkengine.domain.linkconfigs``. REST returns the descriptions in English.


CONFIG_DESCRIPTIONS = (
    gettext_noop("Which ACLs to sync."),
    gettext_noop("Sync ACLs from the source."),
    gettext_noop("How often ACLs are synced."),
    gettext_noop("Auto-create mirror topics for source topics that match the filters; switching it off clears the filters."),
    gettext_noop('Which source topics to mirror: {"topicFilters": [{"name", "patternType", "filterType"}]}; EXCLUDE wins.'),
    gettext_noop("Brokers of the source to connect to first: host:port, separated by commas; [address]:port for IPv6."),
    gettext_noop("Accepted without effect: all addresses of a name are always tried."),
    gettext_noop(
        "Stops copying on the whole link; its mirrors stay read-only. Set it where the mirror topics are: the source side "
        "refuses it, and each side of a bidirectional link pauses its own mirrors."
    ),
    gettext_noop("Prefix of the names of all mirror topics; up to 12 characters."),
    gettext_noop("How long a missing source topic, missing rights or corrupt records are retried before a mirror is FAILED."),
    gettext_noop("Which side opens connections. INBOUND connects to the source with the settings of its registered cluster."),
    gettext_noop("Time after which idle connections are closed. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Prefix the names of consumer groups too. Groups that were synced before keep their names."),
    gettext_noop("Which consumer groups to sync."),
    gettext_noop("Sync committed offsets of consumer groups."),
    gettext_noop("How often consumer offsets are synced."),
    gettext_noop("Role of this side of the link."),
    gettext_noop(
        "Time lag in milliseconds beyond which the health of a mirror is Degraded; -1: no objective. Has no effect on "
        "copying. Not a Confluent config."
    ),
    gettext_noop("Bytes per second, as stored, that all mirrors of the link may copy; -1: no limit. Not a Confluent config."),
    gettext_noop(
        "User name and password for the local cluster, as JAAS text; with OAUTHBEARER clientId, clientSecret and scope."
    ),
    gettext_noop("OAuthBearerLoginCallbackHandler with OAUTHBEARER for the local cluster. No other class is supported."),
    gettext_noop("SASL mechanism for the local cluster."),
    gettext_noop("Token endpoint for the local cluster; OAUTHBEARER only."),
    gettext_noop("Security protocol for the local cluster."),
    gettext_noop("Cipher suites: OpenSSL's defaults; restrict them at the brokers, for the local cluster."),
    gettext_noop("TLS versions; restrict them at the brokers, for the local cluster."),
    gettext_noop("How the broker's host name is verified against its certificate; empty: not verified, for the local cluster."),
    gettext_noop("Password of the private key, for the local cluster."),
    gettext_noop("Client certificate chain (PEM), for the local cluster."),
    gettext_noop("Private key of the client (PEM), for the local cluster."),
    gettext_noop("Format of the key store; PEM is used in any case, for the local cluster."),
    gettext_noop("Preferred TLS version, for the local cluster."),
    gettext_noop("Trusted certificates (PEM), for the local cluster."),
    gettext_noop("Format of the trust store; PEM is used in any case, for the local cluster."),
    gettext_noop("How often mirrors of new source topics are created. Each run lists the topics of both sides."),
    gettext_noop("Promote a mirror only if its migration gate has passed, or was overridden by a user with a reason."),
    gettext_noop("How long a passed gate stays open."),
    gettext_noop("Where new mirror topics start: earliest, latest, a time (ISO 8601) or Unix milliseconds."),
    gettext_noop("Fetchers per broker. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Which side opens connections, as configured on the other side of a bidirectional link."),
    gettext_noop("Wait after a failed fetch. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Maximum bytes per partition and fetch. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Minimum bytes per fetch."),
    gettext_noop("Maximum bytes per fetch. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Maximum wait of a fetch without data."),
    gettext_noop("Receive buffer. Accepted without effect: the operating system's own choice was measured to be faster."),
    gettext_noop("Maximum wait for a socket. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Maximum wait for a response. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Wait before a request is repeated. Listed for clients; the engine uses a value of its own."),
    gettext_noop("User name and password for the source, as JAAS text; with OAUTHBEARER clientId, clientSecret and scope."),
    gettext_noop("OAuthBearerLoginCallbackHandler with OAUTHBEARER for the source. No other class is supported."),
    gettext_noop("SASL mechanism for the source."),
    gettext_noop("Token endpoint for the source; OAUTHBEARER only."),
    gettext_noop("Security protocol for the source."),
    gettext_noop("Largest timeout of a connection attempt. Listed for clients; the engine uses a value of its own."),
    gettext_noop("First timeout of a connection attempt. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Cipher suites: OpenSSL's defaults; restrict them at the brokers, for the source."),
    gettext_noop("TLS versions; restrict them at the brokers, for the source."),
    gettext_noop("How the broker's host name is verified against its certificate; empty: not verified, for the source."),
    gettext_noop("Password of the private key, for the source."),
    gettext_noop("Client certificate chain (PEM), for the source."),
    gettext_noop("Private key of the client (PEM), for the source."),
    gettext_noop("Format of the key store; PEM is used in any case, for the source."),
    gettext_noop("Preferred TLS version, for the source."),
    gettext_noop("Trusted certificates (PEM), for the source."),
    gettext_noop("Format of the trust store; PEM is used in any case, for the source."),
    gettext_noop(
        "Which configs of the source topic are synced besides those that always are; empty: the default list. Any topic "
        "config can be named. Without both retention configs in it, mirrors have their own retention and log start "
        "offset."
    ),
    gettext_noop("How often topic configs are synced."),
    gettext_noop("Verify new records of the mirrors against the source, some at a time."),
    gettext_noop("Pause between two verification runs of a mirror; after a slow run, four times its duration."),
    gettext_noop("Maximum number of offsets of a mirror that one verification run compares."),
)
