"""What a link's jobs are doing, for ``include_tasks``: the interface's own four and our two.

A job that was never asked for, or that this version does not do whatever its config says, is NOT_CONFIGURED.
"""

from __future__ import annotations

from typing import Any

from console.api.kafka.render import transition_error
from console.models import ClusterLink, MirrorTopic, StateTransitionError, VerifyRun
from linkengine.domain.states import WRITABLE, LinkState

COPY, VERIFY = "MirrorTopicCopy", "MirrorTopicVerify"
TOPIC_CONFIGS = "TopicConfigsSync"
LATER = ("AutoCreateMirror", "ConsumerOffsetSync", "AclSync")  # stored configs that nothing acts upon yet
ERRORS_SHOWN = 50  # a broken source breaks every topic; the mirrors themselves list the rest
_LINK_STATES = {
    LinkState.PAUSED: "LINK_PAUSED",
    LinkState.FAILED: "LINK_FAILED",
    LinkState.UNAVAILABLE: "LINK_UNAVAILABLE",
}
Json = dict[str, Any]


def link_tasks(link: ClusterLink) -> list[Json]:
    """Answer one row per job; three queries."""
    copying = MirrorTopic.objects.filter(link=link).exclude(state__in=WRITABLE).exists()
    errors = [] if not copying else _copy_errors(link)
    return [
        _task(COPY, state=_state(link, wanted=copying, errors=errors), errors=errors),
        _verify_task(link),
        _task(TOPIC_CONFIGS, state=_state(link, wanted=copying, errors=[])),
        *(_task(name, state="NOT_CONFIGURED") for name in LATER),
    ]


def _copy_errors(link: ClusterLink) -> list[Json]:
    failed = MirrorTopic.objects.filter(link=link).exclude(state__in=WRITABLE).exclude(error_code="")
    permanent = failed.values_list("name", "error_code", "error_message")[:ERRORS_SHOWN]
    pending = StateTransitionError.objects.filter(mirror__link=link)[:ERRORS_SHOWN]
    rows = [{"error_code": code, "error_message": f"{name}: {message}"} for name, code, message in permanent]
    rows += [transition_error(one) for one in pending]
    if link.engine_error:
        rows.append({"error_code": "INTERNAL_ERROR", "error_message": link.engine_error})
    return rows


def _verify_task(link: ClusterLink) -> Json:
    latest = VerifyRun.objects.filter(mirror__link=link).select_related("mirror").order_by("mirror", "-requested_at", "-id")
    newest = {run.mirror_id: run for run in reversed(latest[:1000])}
    errors = [
        _verify_error(run) for run in newest.values() if run.status in {VerifyRun.Status.DIFFERENT, VerifyRun.Status.ERROR}
    ]
    state = "IN_ERROR" if errors else "ACTIVE" if newest else "NOT_CONFIGURED"
    return _task(VERIFY, state=state, errors=errors[:ERRORS_SHOWN])


def _verify_error(run: VerifyRun) -> Json:
    if run.status == VerifyRun.Status.ERROR:
        return {"error_code": "INTERNAL_ERROR", "error_message": f"{run.mirror.name}: {run.error_message}"}
    return {"error_code": "RECORDS_DIFFER", "error_message": f"{run.mirror.name}: {run.differences} records differ."}


def _state(link: ClusterLink, *, wanted: bool, errors: list[Json]) -> str:
    if not wanted:
        return "NOT_CONFIGURED"
    broken = _LINK_STATES.get(LinkState(link.state))
    return broken or ("IN_ERROR" if errors else "ACTIVE")


def _task(name: str, *, state: str, errors: list[Json] | None = None) -> Json:
    return {"task_name": name, "state": state, "errors": errors or []}
