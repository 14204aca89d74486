"""The descriptions of the link configs, marked for translation; the engine, which defines the configs, does not use Django.

A test compares them with ``linkengine.domain.linkconfigs``. REST returns the descriptions in English.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop

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
