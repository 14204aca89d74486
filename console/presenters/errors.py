"""What an error code means to a person and what mends it: one row per code, shown wherever the code is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from linkengine.domain.errors import ErrorCode

_E = ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorHelp:
    """Meaning and way out of an error code."""

    code: str
    meaning: str
    fix: str


_ROWS: tuple[tuple[ErrorCode, str, str], ...] = (
    (_E.NO_ERROR, "There is no error.", "Nothing to do."),
    (
        _E.AUTHENTICATION_ERROR,
        "The cluster refused the user name or the password, or expects another SASL mechanism.",
        "Enter the right credentials in the link's configuration; the link is tried again at once.",
    ),
    (
        _E.AUTHORIZATION_ERROR,
        "The link's user is known but may not do this on the cluster.",
        "Grant it READ and DESCRIBE on the topics, DESCRIBE_CONFIGS on them and DESCRIBE on the cluster.",
    ),
    (
        _E.UNRESOLVABLE_BOOTSTRAP_ERROR,
        "No host name of bootstrap.servers can be resolved.",
        "Check the spelling, or use an address that the worker's network knows.",
    ),
    (
        _E.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        "The host name resolves, but no broker accepts connections there.",
        "Check the port, the firewall and that the brokers run; with TLS, that the port is the TLS one.",
    ),
    (
        _E.TIMEOUT_ERROR,
        "The cluster did not answer in time.",
        "Check network and load. It is tried again by itself.",
    ),
    (
        _E.MISCONFIGURATION_ERROR,
        "A setting of the link cannot work as it is.",
        "The message names the setting; correct it in the link's configuration.",
    ),
    (
        _E.UNSUPPORTED_VERSION_ERROR,
        "The brokers are too old for what was asked of them.",
        "Update the brokers to Kafka 3.1 or newer.",
    ),
    (
        _E.CLUSTER_ID_MISMATCH,
        "The brokers that answered belong to another cluster than the link names.",
        "Correct the bootstrap servers, or create the link with the id of the cluster that answers.",
    ),
    (
        _E.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
        "The source has no such topic, or the link's user may not see it.",
        "Check the topic's name and grant DESCRIBE on it.",
    ),
    (
        _E.TOPIC_EXISTS_ERROR,
        "The destination already has a topic of this name, which is no mirror; it is left as it is.",
        "Delete that topic, or create a link with a prefix so that mirror topics get names of their own.",
    ),
    (
        _E.MIRROR_EXISTS_ERROR,
        "The topic of this name is, or was, a mirror topic of a link; the message names it. It is left as it is.",
        "Leave it to that link. For another copy, create a link with a prefix.",
    ),
    (
        _E.INVALID_TOPIC,
        "Kafka does not allow this topic name.",
        "Use letters, digits, dots, underscores and hyphens, at most 249 characters.",
    ),
    (_E.INVALID_REQUEST_ERROR, "The request cannot be carried out as it is.", "Read the message and correct the request."),
    (
        _E.POLICY_VIOLATION_ERROR,
        "A policy of the destination cluster refuses the topic or one of its configs.",
        "Adjust the topic's overrides, or ask the owner of the policy.",
    ),
    (
        _E.TOPIC_DELETION_DISABLED,
        "The cluster deletes no topics: delete.topic.enable is false on its brokers.",
        "Set delete.topic.enable=true on its brokers and controllers and restart them, then try again.",
    ),
    (
        _E.SECURITY_DISABLED_ERROR,
        "The destination has no authorizer, so writes to the mirror cannot be denied.",
        "Enable an authorizer there, or make sure that nobody writes to the mirror.",
    ),
    (
        _E.DESTINATION_UNAVAILABLE,
        "The destination cluster does not answer.",
        "Check its brokers and the network. Copying goes on by itself once one answers.",
    ),
    (
        _E.NOT_ENOUGH_REPLICAS_ERROR,
        "Fewer replicas of the topic are up and in step than min.insync.replicas asks for.",
        "Bring the brokers back that are down. Copying waits for them and goes on by itself.",
    ),
    (
        _E.MALFORMED_RESPONSE_ERROR,
        "A broker or a token endpoint sent bytes that cannot be read; the message names it and the request.",
        "Check bootstrap.servers, security.protocol and what is between: proxies, load balancers. It is retried automatically.",
    ),
    (
        _E.INTERNAL_ERROR,
        "The engine met something it did not expect.",
        "It is tried again by itself. If it stays, report it with the message and the time.",
    ),
    (
        _E.WAITING_FOR_LAG,
        "The promotion waits until every record is copied.",
        "Stop the producers on the source. Fail over if the source will not come back.",
    ),
    (
        _E.WAITING_FOR_CONFIGS,
        "The promotion waits until the topic's configs are equal.",
        "It is tried again by itself; the message names the config.",
    ),
    (
        _E.WAITING_FOR_PARTITIONS,
        "The promotion waits until the mirror has all partitions of the source.",
        "It is tried again by itself.",
    ),
    (
        _E.WAITING_FOR_GROUPS,
        "The promotion waits until offsets of consumer groups are equal.",
        "The message names the group and what to do; the link's Groups page lists all.",
    ),
    (
        _E.CONSUMER_GROUP_IN_USE_ERROR,
        "Consumers on the destination use a group whose offsets shall follow the source.",
        "Stop them until the promotion is done, or exclude the group in consumer.offset.group.filters.",
    ),
    (
        _E.WAITING_FOR_TRANSACTIONS,
        "A transaction has not ended, so the records of the topic are not final yet.",
        "Wait: it ends at its timeout at the latest. To go on sooner, end it at its producer.",
    ),
    (
        _E.WAITING_FOR_OTHER_SIDE,
        "The topic becomes a mirror as soon as the topic on the other side is stopped.",
        "Nothing yet: every reversal passes through this. If it stays, look at the other side; in a disaster, fail over here.",
    ),
    (
        _E.REMOTE_LINK_NOT_FOUND_ERROR,
        "This kind of link has two sides, and the other one has not been created.",
        "Create the link of the same name on the other cluster; the message says how.",
    ),
    (
        _E.REMOTE_MIRROR_NOT_FOUND_ERROR,
        "The mirror topic on the other side is gone.",
        "Fail over to make this topic writable, then mirror it again.",
    ),
    (
        _E.SIDES_DIVERGED,
        "Both sides hold records that the other one lacks.",
        "Decide which side counts: fail over here, or restore this topic, which sets its records aside in a file.",
    ),
    (
        _E.SOURCE_TOPIC_MAY_BE_DELETED,
        "The source topic is gone.",
        "Fail over to keep what was copied as a writable topic, or delete the mirror.",
    ),
    (
        _E.SOURCE_TOPIC_ID_CHANGED,
        "The source topic was deleted and created again: its offsets have begun anew.",
        "Fail over to keep the old records, then mirror the new topic under another name.",
    ),
    (
        _E.SOURCE_PARTITIONS_DECREASED,
        "The source topic has fewer partitions than the mirror.",
        "It was created again. Fail over to keep the old records, or delete the mirror and begin again.",
    ),
    (
        _E.UNEXPECTED_TRUNCATION,
        "The source's log now ends before the mirror's: the source has lost records that were copied.",
        "Decide which side is right before anything else is written. Failing over keeps the longer copy.",
    ),
    (
        _E.UNSUPPORTED_MESSAGE_FORMAT,
        "The source holds records in a format that cannot be copied.",
        "Rewrite the topic with a current client, or mirror it from a later offset. Once the source has removed them, recover.",
    ),
    (
        _E.CORRUPT_RECORDS,
        "Records are not what their checksum says; the message names the first one and the side it was read on.",
        "Make a whole replica lead: stop the broker with the damaged one. Copying then goes on; a FAILED mirror is recovered.",
    ),
    (
        _E.RECORDS_TOO_LARGE,
        "Compressed records are larger than what is decompressed at once; the message names the topic, partition and offset.",
        "To copy them, rewrite them in smaller batches or mirror from a later offset. To verify them, use your own consumer.",
    ),
    (
        _E.KEYLESS_RECORDS,
        "The mirror topic is compacted and does not take records without a key, of which the source holds some.",
        "Nothing to do: its policy is set to delete until they are copied. Leave topic config sync switched on.",
    ),
    (
        _E.FOREIGN_WRITE,
        "Somebody other than this link has written to the mirror topic, so offsets no longer match.",
        "Find the writer in the destination's logs, delete the mirror topic and begin again.",
    ),
    (
        _E.MARKER_OVERRUN,
        "A gap fill that was written late took the place of a record, so offsets no longer match.",
        "Delete the mirror topic and begin again, or fail over to keep it as it is.",
    ),
    (
        _E.TIMESTAMPS_REPLACED,
        "The mirror topic was set to LogAppendTime by somebody, so records were given the broker's time instead of their own.",
        "Set it back to CreateTime and deny others to alter the topic, then delete the mirror topic and begin again.",
    ),
    (
        _E.MIRROR_TOPIC_MISSING,
        "Somebody deleted the mirror topic on the destination; one that has its name by now is somebody else's.",
        "Delete the mirror here and add it again. A topic that is not the mirror's keeps its records and configs.",
    ),
    (
        _E.MIRROR_WAS_STOPPED,
        "The topic was promoted or failed over before, as its log or its configs show, and is here taken for a mirror.",
        "Applications may use it: fail over to keep it as it is. Delete it and begin again only if nobody needs it.",
    ),
    (_E.ILLEGAL_STATE, "The mirror's state does not allow this.", "Choose one of the actions that the state allows."),
)
# Codes of the console itself; their messages say most of it already.
_CONSOLE_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "RECORDS_LOST",
        "Retention removed records on the source before they were copied, or a restore could not set all of them aside.",
        "Raise the source's retention above the longest outage you expect. The message or the gap ledger tells what.",
    ),
    (
        "RECORDS_DIFFER",
        "A comparison read records that are not the same on both sides; the verification lists them.",
        "Look at the offsets named before either topic is changed. Once it is right, verify the whole mirror; that ends this.",
    ),
    (
        "TOMBSTONES_MISSED",
        "The mirror was behind its compacted source for longer than that keeps tombstones, so it may still show deleted keys.",
        "Verify the whole mirror: if all is equal, that ends this. Else delete the keys named at the source once more.",
    ),
    (
        "CONFIGS_REFUSED",
        "The topic is stopped and writable, but the destination refused some of the configs it should have now.",
        "Change the policy or the right that the message names, then retry on the mirror's page; or set the configs by hand.",
    ),
    (
        "DELETION_REFUSED",
        "The destination refused to delete the mirror topic, so it was not deleted and continues as before.",
        "The message says why. Enable the deletion of topics or grant DELETE, then delete it again; or fail over.",
    ),
    (
        "COPY_ENGINE_UNAVAILABLE",
        "Both clusters may be fine, but no copy job can run.",
        "Check Spark and Redis. It is tried again by itself, and nothing is lost meanwhile.",
    ),
    ("WORKER_UNAVAILABLE", "Nobody carries out what the console asks for.", "Start the worker, then try again."),
    ("QUEUE_UNAVAILABLE", "The console cannot reach its work queue.", "Start Redis, then try again."),
    ("LINK_EXISTS", "Names of links are unique on a destination cluster.", "Choose another name."),
    ("LINK_IN_USE", "Mirror topics are attached to the link.", "Promote, fail over or delete them first."),
    ("CLUSTER_EXISTS", "A cluster is registered once.", "Use the registered one, or choose another name."),
    ("INVALID_CONFIG", "A setting has a value that cannot be used.", "The message names it and says what is possible."),
    ("NOT_AUTHORIZED", "None of your roles allows this here.", "Ask for the role that the message names."),
    (
        "SECRET_NEEDED",
        "A stored password or key would be sent to another address, or over another connection.",
        "Enter it again together with the change.",
    ),
)
ERROR_HELP: Mapping[str, ErrorHelp] = MappingProxyType(
    {str(code): ErrorHelp(code=str(code), meaning=meaning, fix=fix) for code, meaning, fix in (*_ROWS, *_CONSOLE_ROWS)}
)


def help_for(code: str) -> ErrorHelp:
    """Answer the help of ``code``; a code nobody described yet is explained by its message alone."""
    return ERROR_HELP.get(code) or ErrorHelp(code=code, meaning="", fix="Read the message; it is tried again by itself.")
