"""Recurring tasks of a link, below /api/v1: list with the results of the last run, run now."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.linktasks import run_task
from console.api.schema import ADDITIONS, operation
from console.api.views import RestView, actor_of, moment
from console.queries import links
from console.queries.linktasks import get_task, list_tasks
from linkengine.domain.linktasks import TaskState

Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField


class LinkTaskFault(serializers.Serializer[Any]):
    """An error of the last run."""

    code = Text()
    message = Text()


class LinkTaskStatus(serializers.Serializer[Any]):
    """A recurring task of a link. A time is null if the event has not occurred."""

    name = Text()
    state = serializers.ChoiceField(choices=list(TaskState))
    errors: Any = LinkTaskFault(many=True, help_text="The first errors of the last run.")
    error_count = Number(help_text="Number of all errors of the last run.")
    summary = Text()
    interval_ms = Number(allow_null=True, help_text="Null if the task is not scheduled by time.")
    started_at = Time(allow_null=True)
    finished_at = Time(allow_null=True)
    succeeded_at = Time(allow_null=True)
    failing_since = Time(allow_null=True)
    next_run_at = Time(allow_null=True)
    requested_at = Time(allow_null=True, help_text="When a run was requested that has not started yet.")
    runs = Number()
    failures = Number(help_text="Number of runs that ended with an error.")
    changes = Number(help_text="Number of changes by all runs: topics created, configs set, offsets committed, ACLs written.")
    can_run = serializers.BooleanField()
    why_not = Text(help_text="Why the task cannot run now; empty if it can.")


class LinkTaskStatusList(serializers.Serializer[Any]):
    """All tasks of a link."""

    data: Any = LinkTaskStatus(many=True)


class LinkTaskListView(RestView):
    """…/links/{link_name}/tasks"""

    @operation("listLinkTasks", summary="List a link's tasks", responses={200: LinkTaskStatusList}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the link's tasks with the results of their last runs."""
        link = links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        return Response({"data": LinkTaskStatus(list_tasks(link=link), many=True).data})


class LinkTaskRunView(RestView):
    """…/links/{link_name}/tasks/{task_name}/run"""

    @operation(
        "runLinkTask",
        summary="Run a task of a link now",
        description="The task runs immediately instead of at its next scheduled time. The response does not wait for the run.",
        responses={202: LinkTaskStatus},
        tag=ADDITIONS,
    )
    def post(self, request: Request, cluster_id: str, link_name: str, task_name: str) -> Response:
        """Request a run of the task."""
        by = actor_of(request)
        link = links.get_link(cluster_id=cluster_id, name=link_name, by=by)
        run_task(link=link, name=task_name, by=by, now=moment())
        return Response(LinkTaskStatus(get_task(link=link, name=task_name)).data, status=202)
