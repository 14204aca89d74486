"""Whether a recurring task of a link can run now, and if not, why; which tasks a link has on for a topic."""

from __future__ import annotations

from django.utils.translation import gettext, gettext_noop

from console.models import ClusterLink, LinkTask
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TASKS, TaskName, TaskState, is_configured, task_state
from linkengine.domain.names import chooses, known_filters
from linkengine.domain.states import (
    LinkMode,
    LinkState,
)


def state_of_task(link: ClusterLink, name: TaskName, *, row: LinkTask | None, mirrors: bool) -> TaskState:
    """Return the state of a recurring task. ``row`` is the result of its last run; ``mirrors``: some are not stopped."""
    return task_state(
        configured=is_configured(TASKS[name], value_of=link.config, mirrors=mirrors),
        link_state=LinkState(link.state),
        has_run=row is not None and row.finished_at is not None,
        errors=row.error_count if row else 0,
    )


def why_not_run(link: ClusterLink, name: TaskName, *, state: TaskState) -> str:
    """Return why a task in this state cannot run now, "" if it can. In the page's language."""
    if link.deletion_requested_at is not None:
        return gettext("Cluster link '%(link)s' is being deleted. Its tasks do not run any more.") % {"link": link.name}
    if link.mode == LinkMode.SOURCE:
        text = gettext("Cluster link '%(link)s' is the source side; its tasks run on the link of the other cluster.")
        return text % {"link": link.name}
    if state is TaskState.NOT_CONFIGURED:
        needed = TASKS[name].enable_config
        if not needed:
            return gettext("The link has no mirror topic that is mirroring.")
        return gettext("%(task)s is disabled. Set %(config)s to true.") % {"task": name, "config": needed}
    return gettext(_STOPPED_TASKS[state]) % {"link": link.name} if state in _STOPPED_TASKS else ""


_STOPPED_TASKS = {
    TaskState.LINK_PAUSED: gettext_noop("Cluster link '%(link)s' is paused. Set cluster.link.paused to false first."),
    TaskState.LINK_FAILED: gettext_noop(
        "Cluster link '%(link)s' has failed, so its source cannot be read. Correct its configs first."
    ),
    TaskState.LINK_UNAVAILABLE: gettext_noop(
        "Cluster link '%(link)s' cannot reach its source. The task runs automatically once it can."
    ),
}


def auto_creates(link: ClusterLink, source_topic: str) -> bool:
    """Return whether auto-create is enabled and its filters include the topic."""
    return link.config(AUTO_CREATE) == "true" and chooses(known_filters(link.config(AUTO_CREATE_FILTERS)), source_topic)


SYNC_OFFSETS = TASKS[TaskName.CONSUMER_OFFSETS].enable_config


def syncs_offsets(link: ClusterLink) -> bool:
    """Return whether the link syncs consumer offsets."""
    return link.config(SYNC_OFFSETS) == "true"


def is_on(name: str, stored: str | None) -> bool:
    """Return whether a config is "true", by its stored value or else its default, where a query has read only that value."""
    return (stored or LINK_CONFIGS[name].default) == "true"
