"""Names of topics and links: which are legal, which are internal, and the name of a mirror. ``linkrules`` validates link
prefixes.

Topic rules are those of Kafka's ``Topic`` class (249 characters, ``[a-zA-Z0-9._-]``, not ``.`` or ``..``). Every ``check_…``
raises LinkEngineError with a message that can be shown at the form field.
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
_SCRATCH = re.compile(r"\.clusterlink-drill-[0-9]+$")  # scratch copies of a failover drill (``domain.drills``)


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC if Kafka would refuse ``name``."""
    _check(bool(name), "The topic name is empty.")
    _check(name not in {".", ".."}, f"The topic name cannot be {name!r}.")
    _check(
        len(name) <= MAX_TOPIC_LENGTH,
        f"The topic name has {len(name)} characters, and Kafka allows {MAX_TOPIC_LENGTH}. Use a shorter name.",
    )
    _check(bool(_LEGAL.fullmatch(name)), f"The topic name {name!r} has characters that Kafka refuses. {_CHARACTERS}")


def check_link_name(name: str) -> None:
    """Raise INVALID_REQUEST_ERROR if ``name`` cannot name a link."""
    code = ErrorCode.INVALID_REQUEST_ERROR
    _check(bool(name), "The link name is empty.", code=code)
    # "-" means "all links" in REST; clients remove segments of dots from a URL, so such a link could not be requested
    _check(name not in {".", "..", "-"}, f"The link name cannot be {name!r}.", code=code)
    _check(
        len(name) <= MAX_LINK_LENGTH,
        f"The link name has {len(name)} characters, and {MAX_LINK_LENGTH} are allowed. Use a shorter name.",
        code=code,
    )
    _check(
        bool(_LEGAL.fullmatch(name)), f"The link name {name!r} has characters that are not allowed. {_CHARACTERS}", code=code
    )


def mirror_name(source_topic: str, *, prefix: str = "") -> str:
    """Return the mirror's name; raise INVALID_TOPIC if the prefix makes it too long."""
    name = f"{prefix}{source_topic}"
    check_topic_name(name)
    return name


def is_internal(topic: str) -> bool:
    """Return whether ``topic`` is an internal topic of a cluster, which no filter mirrors."""
    return topic.startswith(_INTERNAL_PREFIXES) or topic in _INTERNAL_NAMES or bool(_SCRATCH.search(topic))


def _check(fine: bool, message: str, *, code: ErrorCode = ErrorCode.INVALID_TOPIC) -> None:  # noqa: FBT001 - an assertion
    if not fine:
        raise LinkEngineError(code, message)
