"""The pages outside of sections: the search, the first steps of an installation, and the help on states and error codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_GET

from console.access import Permission, can
from console.actors import Actor
from console.clusters.presenters import link_args, listed_mirror
from console.clusters.queries import FirstSteps, find, first_steps
from console.links.presenters import endpoints_of
from console.mirrors.operation_presenters import VERBS
from console.models import ClusterLink
from console.web.badges import GAP_BADGES, LINK_BADGES, MIRROR_BADGES, link_badge, row_url
from console.web.errors import CONSOLE_HELP, ERROR_HELP
from console.web.health_presenters import HEALTH_BADGES
from console.web.request_handling import actor_of, page, reply
from linkengine.domain.states import BIDIRECTIONAL_ONLY, allowed_operations

# --- search -----------------------------------------------------------------------------------------------------------


MAX_RESULTS = 50


@page("")
@require_GET
def search(request: HttpRequest) -> HttpResponse:
    """Search links, mirror topics, clusters, topics, consumer groups and users by a part of the name."""
    query = request.GET.get("q", "").strip()
    found = find(query, by=actor_of(request), limit=MAX_RESULTS)
    context = {
        "query": query,
        "found": found,
        "links": [_found_link(link) for link in found.links],
        "mirrors": [listed_mirror(row) for row in found.mirrors],
        "source_topics": [
            row | {"url": row_url("pages:link-topic", *link_args(row), row["name"])} for row in found.source_topics
        ],
        "topics": [row | {"url": row_url("pages:cluster-topic", row["listed_on"], row["name"])} for row in found.topics],
        "groups": [
            row | {"url": reverse("pages:link-groups", args=link_args(row), query={"q": row["name"]})} for row in found.groups
        ],
        "users": [{"name": name, "url": reverse("pages:access", query={"q": name})} for name in found.users],
    }
    return reply(request, "search.html", context)


def _found_link(link: ClusterLink) -> dict[str, Any]:
    (source, _), (destination, _) = endpoints_of(link)
    badge = link_badge(link.state)
    return {"name": link.name, "url": link.get_absolute_url(), "source": source, "destination": destination, "badge": badge}


# --- help -------------------------------------------------------------------------------------------------------------


@page("")
@require_GET
def states(request: HttpRequest) -> HttpResponse:
    """List the values of health, the states, the reasons of filled offsets and the error codes."""
    mirrors = [
        {
            "badge": badge,
            "verbs": [gettext(VERBS[event].label) for event in allowed_operations(state) if event not in BIDIRECTIONAL_ONLY],
        }
        for state, badge in MIRROR_BADGES.items()
    ]
    context = {
        "health": list(HEALTH_BADGES.values()),
        "mirrors": mirrors,
        "links": list(LINK_BADGES.values()),
        "gaps": list(GAP_BADGES.values()),
        "errors": [row for code, row in {**ERROR_HELP, **CONSOLE_HELP}.items() if code != "NO_ERROR"],
    }
    return reply(request, "guide/states.html", context)


# --- first steps ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step on the way from an empty installation to a verified mirror. Without ``url`` the user may not do it."""

    title: str
    explains: str
    done: bool
    url: str = ""
    action: str = ""
    needs: str = ""  # what the user lacks to do it


@page("")
@require_GET
def steps(request: HttpRequest) -> HttpResponse:
    """Show the first steps of an installation: which are done, and where the next is done."""
    by = actor_of(request)
    found = first_steps(by=by)
    listed = [_environment_step(found, by=by), *_cluster_steps(found, by=by), *_mirror_steps(found, by=by)]
    current = next((number for number, step in enumerate(listed) if not step.done), None)
    return reply(request, "guide/first_steps.html", {"steps": listed, "current": current})


def _environment_step(found: FirstSteps, *, by: Actor) -> Step:
    return Step(
        title=gettext("Create an organization and an environment"),
        explains=gettext("An environment groups clusters, for example production. Both are created in the administration."),
        done=found.environment is not None,
        url=reverse("admin:console_environment_add") if by.may_do_all else "",
        action=gettext("Create environment"),
        needs=gettext("An administrator of this installation does this."),
    )


def _cluster_steps(found: FirstSteps, *, by: Actor) -> list[Step]:
    environment = found.environment
    may_register = environment is not None and can(by, Permission.MANAGE_CLUSTER, environment=environment)
    may_link = found.cluster is not None and can(by, Permission.MANAGE_LINK, cluster=found.cluster)
    return [
        Step(
            title=gettext("Register two clusters"),
            explains=gettext(
                "The cluster to mirror from and the cluster to mirror to. Registering checks address and credentials."
            ),
            done=found.clusters > 1,
            url=reverse("pages:register", args=(environment.slug,)) if environment is not None and may_register else "",
            action=gettext("Register cluster"),
            needs=gettext("This needs the role EnvironmentAdmin in the environment."),
        ),
        Step(
            title=gettext("Create a cluster link"),
            explains=gettext("A link connects the two clusters. It is created on the cluster to mirror to."),
            done=found.link is not None,
            url=reverse("pages:new-link") if may_link else "",
            action=gettext("Create cluster link"),
            needs=gettext("This needs the role CloudClusterAdmin on the cluster to mirror to."),
        ),
    ]


def _mirror_steps(found: FirstSteps, *, by: Actor) -> list[Step]:
    link, mirror = found.link, found.mirror
    may_add = link is not None and can(by, Permission.MANAGE_MIRROR, link=link)
    mirror_url = mirror.get_absolute_url() if mirror is not None else ""
    place = (link.destination.cluster_id, link.name) if link is not None else ()
    return [
        Step(
            title=gettext("Add a mirror topic"),
            explains=gettext("The topic is created on the destination and becomes read-only there."),
            done=mirror is not None,
            url=reverse("pages:new-mirror", args=place) if may_add else "",
            action=gettext("Add mirror topic"),
            needs=gettext("This needs the role DeveloperManage on the link or the topic."),
        ),
        Step(
            title=gettext("Wait until it is active"),
            explains=gettext("Setting up takes seconds. If it takes longer, the page of the mirror topic shows the reason."),
            done=found.set_up,
            url=mirror_url,
            action=gettext("Open mirror topic"),
        ),
        Step(
            title=gettext("Verify it"),
            explains=gettext("A verification run compares all records of the mirror topic with those of the source."),
            done=found.verified,
            url=mirror_url,
            action=gettext("Open mirror topic"),
        ),
    ]
