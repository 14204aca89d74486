"""Addresses of the pages: with a trailing slash, unlike REST; the address without one leads here."""

from __future__ import annotations

from django.urls import path, re_path
from django.views.generic import RedirectView

from console.pages import (
    access,
    audit,
    createlink,
    drills,
    editconfig,
    editlink,
    environments,
    gates,
    groups,
    guide,
    history,
    links,
    linktasks,
    mirrors,
    namespaces,
    operations,
    reparenting,
    restores,
    session,
    sourcetopics,
    stopreports,
    topics,
)

_LINK = "links/<str:cluster_id>/<str:link_name>/"
_MIRROR = f"{_LINK}mirrors/<str:mirror_name>/"

app_name = "pages"
urlpatterns = [
    path("", RedirectView.as_view(url="/environments/"), name="start"),
    path("sign-in/", session.sign_in, name="sign-in"),
    path("sign-out/", session.sign_out, name="sign-out"),
    path("settings/theme/", session.set_theme, name="theme"),
    path("search/", topics.search, name="search"),
    path("help/states/", guide.states, name="states"),
    path("environments/", environments.index, name="environments"),
    path("environments/<slug:slug>/", environments.detail, name="environment"),
    path("environments/<slug:slug>/clusters/new/", environments.register, name="register"),
    path("clusters/<str:cluster_id>/", environments.cluster),
    path("clusters/<str:cluster_id>/refresh/", environments.refresh),
    path("clusters/<str:cluster_id>/namespaces/", namespaces.namespaces),
    path("topics/", topics.index, name="topics"),
    path("links/", links.index, name="links"),
    path("links/new/", createlink.create, name="new-link"),
    path(_LINK, links.overview),
    path(f"{_LINK}configuration/", links.configuration),
    path(f"{_LINK}configuration/edit/", editlink.edit),
    path(f"{_LINK}configuration/set/<str:config_name>/", editconfig.edit_config),
    path(f"{_LINK}topics/", sourcetopics.topics),
    path(f"{_LINK}topics/<str:topic_name>/", sourcetopics.topic),
    path(f"{_LINK}filters/", sourcetopics.filters),
    path(f"{_LINK}tasks/", linktasks.tasks),
    path(f"{_LINK}tasks/<str:task_name>/run/", linktasks.run),
    path(f"{_LINK}groups/", groups.groups),
    path(f"{_LINK}acls/", groups.acls),
    path(f"{_LINK}history/", history.history),
    path(f"{_LINK}activity/", links.activity),
    path(f"{_LINK}drills/", drills.drills),
    path(f"{_LINK}stops/", stopreports.stops),
    path(f"{_LINK}delete/", editlink.delete),
    path(f"{_LINK}bulk/", operations.operate_many),
    path(f"{_LINK}mirrors/new/", mirrors.create),
    path(f"{_MIRROR}-/", mirrors.detail),  # where a topic is called "new"
    path(f"{_MIRROR}-/verify/", mirrors.verify),
    path(f"{_MIRROR}-/gate/", gates.run),
    path(f"{_MIRROR}-/gate/override/", gates.override),
    path(f"{_MIRROR}-/restores/<int:restore_id>/records.jsonl.gz", restores.records),
    path(f"{_MIRROR}-/reparent/", reparenting.move),
    path(f"{_MIRROR}-/<str:operation>/", operations.operate),
    path(_MIRROR, mirrors.detail),
    path(f"{_MIRROR}verify/", mirrors.verify),
    path(f"{_MIRROR}gate/", gates.run),
    path(f"{_MIRROR}gate/override/", gates.override),
    path(f"{_MIRROR}restores/<int:restore_id>/records.jsonl.gz", restores.records),
    path(f"{_MIRROR}reparent/", reparenting.move),
    path(f"{_MIRROR}<str:operation>/", operations.operate),
    path("access/", access.bindings, name="access"),
    path("access/new/", access.grant, name="grant"),
    path("access/<int:binding_id>/remove/", access.revoke, name="revoke"),
    path("access/roles/", access.roles, name="roles"),
    path("access/me/", access.me, name="me"),
    path("access/api-keys/", access.api_keys, name="api-keys"),
    path("access/api-keys/<str:key>/delete/", access.delete_api_key, name="delete-api-key"),
    path("audit/", audit.index, name="audit"),
    # Addresses typed without the slash; nothing of REST begins with these words.
    re_path(
        r"^(?P<rest>(?:environments|clusters|links|topics|access|audit|search|sign-in|help)(?:/[^?]*[^/?])?)$",
        RedirectView.as_view(url="/%(rest)s/", query_string=True),
    ),
]
