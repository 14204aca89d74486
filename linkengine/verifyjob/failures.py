"""Translate a failed Spark query into a LinkEngineError, by the Kafka exception in its stack trace.

The stack trace itself is not shown: it does not help on a page, and exceptions about settings may quote secrets.
"""

from __future__ import annotations

import re

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan
from linkengine.verifyjob.reading import TOO_FAR

_CAUSES = (
    ("UnknownTopicOrPartitionException", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "a topic or partition does not exist"),
    ("TopicAuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials may not read a topic"),
    ("GroupAuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials may not use a consumer group"),
    ("AuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials lack a right"),
    ("SaslAuthenticationException", ErrorCode.AUTHENTICATION_ERROR, "a cluster refuses the credentials"),
    ("SslAuthenticationException", ErrorCode.AUTHENTICATION_ERROR, "the TLS handshake failed"),
    ("No resolvable bootstrap urls", ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, "a bootstrap server's name has no address"),
    ("TimeoutException", ErrorCode.TIMEOUT_ERROR, "a cluster does not respond in time"),
    (TOO_FAR, ErrorCode.INTERNAL_ERROR, "a record has a time that Spark's own type does not hold"),
    ("header whose name is not UTF-8", ErrorCode.INTERNAL_ERROR, "besides such times, a header has a name that is not UTF-8"),
    ("OutOfMemoryError", ErrorCode.RECORDS_TOO_LARGE, "its records are larger than Spark's memory allows"),
    ("OPERATION_CANCELED", ErrorCode.ILLEGAL_STATE, "it was cancelled, or took too long"),
)
_OWN_ERROR = re.compile(rf"Error: (?P<code>{'|'.join(ErrorCode)}): (?P<message>.+)")


def failure_of(error: Exception, *, plan: VerifyPlan) -> LinkEngineError:
    """Return the error for the cause in Spark's stack trace; INTERNAL_ERROR for an unknown cause."""
    trace = str(error)
    own_error = _OWN_ERROR.search(trace)
    if own_error is not None:  # raised by this engine in Spark's Python workers
        return LinkEngineError(ErrorCode(own_error["code"]), f"{_what(plan)} could not be compared: {own_error['message']}")
    for word, code, cause in _CAUSES:
        if word in trace:
            return LinkEngineError(code, f"{_what(plan)} could not be compared: {cause}. Correct that and verify again.")
    return LinkEngineError(
        ErrorCode.INTERNAL_ERROR,
        f"{_what(plan)} could not be compared ({type(error).__name__}). See the log of the Spark server for the cause.",
    )


def _what(plan: VerifyPlan) -> str:
    return f"Source topic {plan.source_topic} and mirror topic {plan.mirror_topic}"
