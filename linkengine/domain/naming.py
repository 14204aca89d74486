"""Names of topics and links: what is legal, what is internal, what a mirror is called. ``linkrules`` has those of a prefix.

Topic rules are those of Kafka's ``Topic`` class (249 characters, ``[a-zA-Z0-9._-]``, not ``.`` or ``..``). Every ``check_…``
raises LinkEngineError with a sentence that can be shown beside the field.
"""

from __future__ import annotations

import re

from linkengine.domain.errors import ErrorCode, LinkEngineError

MAX_TOPIC_LENGTH = 249
MAX_LINK_LENGTH = 200
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_CHARACTERS = "Use only letters, digits, '.', '_' and '-'."
_INTERNAL_PREFIXES = ("__", "_confluent")
_INTERNAL_NAMES = frozenset({"_schemas", "confluent-audit-log-events"})
_SCRATCH = re.compile(r"\.clusterlink-drill-[0-9]+$")  # scratch copies of a rehearsed failover (``domain.drills``)


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC if Kafka would refuse ``name``."""
    _check(bool(name), "The topic name is empty.")
    _check(name not in {".", ".."}, f"The topic name cannot be {name!r}.")
    _check(
        len(name) <= MAX_TOPIC_LENGTH,
        f"The topic name has {len(name)} characters; Kafka allows {MAX_TOPIC_LENGTH}.",
    )
    _check(bool(_LEGAL.fullmatch(name)), f"The topic name {name!r} has characters that Kafka refuses. {_CHARACTERS}")


def check_link_name(name: str) -> None:
    """Raise INVALID_REQUEST_ERROR if ``name`` cannot name a link."""
    code = ErrorCode.INVALID_REQUEST_ERROR
    _check(bool(name), "The link name is empty.", code=code)
    # "-" means "all links" in REST; dots alone are taken out of an address before it is sent, so nobody could ask for the link
    _check(name not in {".", "..", "-"}, f"The link name cannot be {name!r}.", code=code)
    _check(
        len(name) <= MAX_LINK_LENGTH,
        f"The link name has {len(name)} characters; {MAX_LINK_LENGTH} are allowed.",
        code=code,
    )
    _check(
        bool(_LEGAL.fullmatch(name)), f"The link name {name!r} has characters that are not allowed. {_CHARACTERS}", code=code
    )


def mirror_name(source_topic: str, *, prefix: str = "") -> str:
    """Answer the mirror's name; raise INVALID_TOPIC if the prefix makes it too long."""
    name = f"{prefix}{source_topic}"
    check_topic_name(name)
    return name


def is_internal(topic: str) -> bool:
    """Tell whether ``topic`` belongs to a cluster's own machinery and is never mirrored by a filter."""
    return topic.startswith(_INTERNAL_PREFIXES) or topic in _INTERNAL_NAMES or bool(_SCRATCH.search(topic))


def _check(fine: bool, message: str, *, code: ErrorCode = ErrorCode.INVALID_TOPIC) -> None:  # noqa: FBT001 - an assertion
    if not fine:
        raise LinkEngineError(code, message)
