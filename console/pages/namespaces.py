"""The namespaces of a cluster: list, create, reserve, attach to a link, detach, delete."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from console.access import Permission, can
from console.actions import namespaces as actions
from console.actors import Actor
from console.errors import ConsoleError, InvalidInputError
from console.models import Cluster, ClusterLink, Namespace
from console.models.links import LinkMode
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.pages.shell import Crumb
from console.presenters.namespaces import leader_prefix, namespace_row
from console.queries import clusters as cluster_queries
from console.queries import links as link_queries
from console.queries import namespaces as queries


@page("environments")
@require_http_methods(["GET", "POST"])
def namespaces(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Show the namespaces; perform the submitted action and show them again."""
    by = actor_of(request)
    cluster = cluster_queries.get_whole_cluster(cluster_id=cluster_id, by=by)
    if request.method == "GET":
        return _show(request, cluster)
    try:
        message = _act(request, cluster, by=by)
    except ConsoleError as error:
        if error.kind in {"denied", "not_found"}:
            raise
        return _show(
            request, cluster, status=status_of(error), problem=problem_of(error), prefix=request.POST.get("prefix", "")
        )
    return done(request, reverse("pages:cluster-namespaces", args=(cluster.cluster_id,)), message)


def _act(request: HttpRequest, cluster: Cluster, *, by: Actor) -> str:
    """Perform the action of the submitted button; return the message for the user."""
    intent, now = request.POST.get("intent", ""), timezone.now()
    if intent == "create":
        prefix, reserved = request.POST.get("prefix", "").strip(), bool(request.POST.get("reserved"))
        namespace = actions.create_namespace(cluster=cluster, prefix=prefix, reserved=reserved, by=by, now=now)
        return f"Namespace {namespace} created."
    namespace = _namespace(request, cluster)
    if intent == "attach":
        link = link_queries.get_link(cluster_id=cluster.cluster_id, name=request.POST.get("link", ""), by=by)
        actions.attach(namespace=namespace, link=link, leader_prefix=leader_prefix(namespace, link), by=by, now=now)
        return f"Namespace {namespace} attached to link {link.name}."
    if intent == "detach":
        actions.detach(namespace=namespace, by=by, now=now)
        return f"Namespace {namespace} detached from its link. It remains reserved."
    if intent == "delete":
        actions.delete_namespace(namespace=namespace, by=by, now=now)
        return f"Namespace {namespace} is being deleted. Its topics are not deleted."
    reserved = intent == "reserve"
    actions.reserve(namespace=namespace, reserved=reserved, by=by, now=now)
    return f"Namespace {namespace} reserved." if reserved else f"Reservation of namespace {namespace} removed."


def _namespace(request: HttpRequest, cluster: Cluster) -> Namespace:
    number = request.POST.get("namespace", "")
    if not number.isdecimal():
        raise InvalidInputError("The request names no namespace.", field="namespace")
    return queries.get_namespace(cluster=cluster, namespace_id=int(number[:18]))


def _show(request: HttpRequest, cluster: Cluster, *, status: int = 200, **more: object) -> HttpResponse:
    by = actor_of(request)
    environment = cluster.environment
    links = list(ClusterLink.objects.filter(destination=cluster).exclude(mode=LinkMode.SOURCE))
    url = cluster.get_absolute_url()
    context = {
        "cluster": {"name": cluster.name, "url": url},
        "environment_name": environment.name,
        "rows": [namespace_row(summary, links=links) for summary in queries.list_namespaces(cluster=cluster)],
        "may_manage": can(by, Permission.MANAGE_LINK, cluster=cluster) and can(by, Permission.MANAGE_ACLS, cluster=cluster),
        "crumbs": [
            Crumb(label=environment.name, url=environment.get_absolute_url()),
            Crumb(label=cluster.name, url=url),
            Crumb(label="Namespaces"),
        ],
    }
    return reply(request, "environments/namespaces.html", context | more, status=status)
