"""The tasks of a link below /api/v1: what each did last, and "run now"."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.linktasks import run_task
from console.api.schema import OURS, operation
from console.api.views import RestView, actor_of, moment
from console.queries import links
from console.queries.linktasks import get_task, list_tasks
from linkengine.domain.linktasks import TaskState

Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField


class LinkTaskFault(serializers.Serializer[Any]):
    """One thing the last run could not do."""

    code = Text()
    message = Text()


class LinkTaskStatus(serializers.Serializer[Any]):
    """A task of a link. Times are null where there was no such moment."""

    name = Text()
    state = serializers.ChoiceField(choices=list(TaskState))
    errors: Any = LinkTaskFault(many=True, help_text="The first of what the last run left undone.")
    error_count = Number(help_text="All of it.")
    summary = Text()
    interval_ms = Number(allow_null=True, help_text="Null: not run by the clock.")
    started_at = Time(allow_null=True)
    finished_at = Time(allow_null=True)
    succeeded_at = Time(allow_null=True)
    failing_since = Time(allow_null=True)
    next_run_at = Time(allow_null=True)
    requested_at = Time(allow_null=True, help_text="Somebody waits for a run since.")
    runs = Number()
    failures = Number(help_text="Runs that ended with an error.")
    changes = Number(help_text="What all runs changed: topics created, configs set, offsets committed, ACLs written.")
    can_run = serializers.BooleanField()
    why_not = Text(help_text="Why it cannot run now; empty: it can.")


class LinkTaskStatusList(serializers.Serializer[Any]):
    """All tasks of a link."""

    data: Any = LinkTaskStatus(many=True)


class LinkTaskListView(RestView):
    """…/links/{link_name}/tasks"""

    @operation("listLinkTasks", summary="List a link's tasks", answers={200: LinkTaskStatusList}, tag=OURS)
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """List what the link's tasks did last."""
        link = links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        return Response({"data": LinkTaskStatus(list_tasks(link=link), many=True).data})


class LinkTaskRunView(RestView):
    """…/links/{link_name}/tasks/{task_name}/run"""

    @operation(
        "runLinkTask",
        summary="Run a task of a link now",
        description="The task runs at once instead of at its time; the answer does not wait for it.",
        answers={202: LinkTaskStatus},
        tag=OURS,
    )
    def post(self, request: Request, cluster_id: str, link_name: str, task_name: str) -> Response:
        """Run the task."""
        by = actor_of(request)
        link = links.get_link(cluster_id=cluster_id, name=link_name, by=by)
        run_task(link=link, name=task_name, by=by, now=moment())
        return Response(LinkTaskStatus(get_task(link=link, name=task_name)).data, status=202)
