"""URLs of the pages. They end with a slash, unlike REST URLs; without it they redirect."""

from __future__ import annotations

from django.urls import include, path, re_path, register_converter
from django.urls.converters import StringConverter
from django.views.generic import RedirectView

from console.pages import (
    access,
    approvals,
    audit,
    bulk,
    bulkoperations,
    createlink,
    drills,
    editconfig,
    editlink,
    environments,
    exports,
    failover,
    gates,
    groups,
    guide,
    history,
    links,
    linktasks,
    mirrors,
    namespaces,
    operations,
    profile,
    records,
    reparenting,
    restores,
    secondfactor,
    session,
    sourcetopics,
    stopreports,
    topics,
    users,
)


class MirrorNameConverter(StringConverter):
    """The name of a mirror topic. A topic named "new" has the URL ``mirrors/new/-/``, because ``mirrors/new/`` is a form."""

    def to_url(self, value: str) -> str:
        """Return the name; raise ValueError for "new", after which ``reverse`` uses the other pattern of that name."""
        if value == "new":
            raise ValueError
        return value


register_converter(MirrorNameConverter, "mirror_name")

_CLUSTER = "clusters/<str:cluster_id>/"
_LINK = "links/<str:cluster_id>/<str:link_name>/"
_OPERATION_REPORT = "failover-reports/operations/<int:operation_id>/"
_MIRROR_PAGES = [
    path("", mirrors.detail, name="mirror"),
    path("gaps.csv", exports.gaps, name="mirror-gaps-csv"),
    path("records/", records.records, name="mirror-records"),
    path("verify/", mirrors.verify, name="mirror-verify"),
    path("gate/", gates.run, name="mirror-gate"),
    path("gate/override/", gates.override, name="mirror-gate-override"),
    path("restores/<int:restore_id>/records.jsonl.gz", restores.records, name="mirror-restore-records"),
    path("refused-configs/", stopreports.retry_refused, name="mirror-refused-configs"),
    path("reparent/", reparenting.move, name="mirror-reparent"),
    path("series.json", history.series, name="mirror-series"),
    path("events.json", history.events, name="mirror-events"),
    path("samples.csv", exports.samples, name="mirror-samples-csv"),
    path("samples/", history.samples, name="mirror-samples"),
    path("minute/", history.minute, name="mirror-minute"),
    path("<str:operation>/", operations.operate, name="mirror-operation"),
]

app_name = "pages"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="pages:environments"), name="start"),
    path("sign-in/", session.sign_in, name="sign-in"),
    path("sign-in/code/", secondfactor.code, name="sign-in-code"),
    path("sign-out/", session.sign_out, name="sign-out"),
    path("settings/theme/", session.set_theme, name="theme"),
    path("settings/profile/", profile.profile, name="profile"),
    path("settings/second-factor/", secondfactor.settings_page, name="second-factor"),
    path("settings/sessions/end-others/", profile.end_other_sessions, name="end-other-sessions"),
    path("settings/sessions/<int:session_id>/end/", profile.end_session, name="end-session"),
    path("invitation/<str:token>/", profile.invitation, name="invitation"),
    path("search/", topics.search, name="search"),
    path("help/states/", guide.states, name="states"),
    path("help/first-steps/", guide.steps, name="first-steps"),
    path("environments/", environments.index, name="environments"),
    path("environments/<slug:slug>/", environments.detail, name="environment"),
    path("environments/<slug:slug>/clusters/new/", environments.register, name="register"),
    path(_CLUSTER, environments.cluster, name="cluster"),
    path(f"{_CLUSTER}refresh/", environments.refresh, name="cluster-refresh"),
    path(f"{_CLUSTER}test/", environments.check, name="cluster-test"),
    path(f"{_CLUSTER}topics/", topics.of_cluster, name="cluster-topics"),
    path(f"{_CLUSTER}namespaces/", namespaces.namespaces, name="cluster-namespaces"),
    path("topics/", topics.index, name="topics"),
    path("links/", links.index, name="links"),
    path("links/new/", createlink.start, name="new-link"),
    path("links/new/<int:draft_id>/discard/", createlink.discard, name="new-link-discard"),
    path("links/new/<int:draft_id>/<str:step>/", createlink.step, name="new-link-step"),
    path(_LINK, links.overview, name="link"),
    path(f"{_LINK}configuration/", links.configuration, name="link-configuration"),
    path(f"{_LINK}configuration/edit/", editlink.edit, name="link-edit"),
    path(f"{_LINK}configuration/set/<str:config_name>/", editconfig.edit_config, name="link-config"),
    path(f"{_LINK}topics/", sourcetopics.topics, name="link-topics"),
    path(f"{_LINK}topics/<str:topic_name>/", sourcetopics.topic, name="link-topic"),
    path(f"{_LINK}filters/", sourcetopics.filters, name="link-filters"),
    path(f"{_LINK}tasks/", linktasks.tasks, name="link-tasks"),
    path(f"{_LINK}tasks/<str:task_name>/run/", linktasks.run, name="link-task-run"),
    path(f"{_LINK}groups/", groups.groups, name="link-groups"),
    path(f"{_LINK}groups.csv", exports.groups, name="link-groups-csv"),
    path(f"{_LINK}mirrors.csv", exports.mirrors, name="link-mirrors-csv"),
    path(f"{_LINK}acls/", groups.acls, name="link-acls"),
    path(f"{_LINK}history/", history.history, name="link-history"),
    path(f"{_LINK}history/series.json", history.series, name="link-series"),
    path(f"{_LINK}history/events.json", history.events, name="link-events"),
    path(f"{_LINK}history/samples.csv", exports.samples, name="link-samples-csv"),
    path(f"{_LINK}history/samples/", history.samples, name="link-samples"),
    path(f"{_LINK}history/minute/", history.minute, name="link-minute"),
    path(f"{_LINK}activity/", links.activity, name="link-activity"),
    path(f"{_LINK}failover/", failover.fail_over, name="link-failover"),
    path(f"{_LINK}drills/", drills.drills, name="link-drills"),
    path(f"{_LINK}drills/<int:drill_id>/cancel/", drills.cancel, name="link-drill-cancel"),
    path(f"{_LINK}readiness/", drills.readiness, name="link-readiness"),
    path(f"{_LINK}stops/", stopreports.stops, name="link-stops"),
    path(f"{_LINK}pause/", editlink.pause, name="link-pause"),
    path(f"{_LINK}delete/", editlink.delete, name="link-delete"),
    path(f"{_LINK}bulk/", bulk.operate_many, name="link-bulk"),
    path(f"{_LINK}mirrors/new/", mirrors.create, name="new-mirror"),
    path(f"{_LINK}mirrors/<str:mirror_name>/-/", include(_MIRROR_PAGES)),  # for a topic named "new"
    path(f"{_LINK}mirrors/<mirror_name:mirror_name>/", include(_MIRROR_PAGES)),
    path("failover-reports/", stopreports.index, name="reports"),
    path("failover-reports/<int:report_id>/", stopreports.report, name="report"),
    path("failover-reports/<int:report_id>/report.json", stopreports.report, {"form": "json"}, name="report-json"),
    path("failover-reports/<int:report_id>/report.pdf", stopreports.report, {"form": "pdf"}, name="report-pdf"),
    path(_OPERATION_REPORT, stopreports.operation_report, name="operation-report"),
    path(f"{_OPERATION_REPORT}report.json", stopreports.operation_report, {"form": "json"}, name="operation-report-json"),
    path(f"{_OPERATION_REPORT}report.pdf", stopreports.operation_report, {"form": "pdf"}, name="operation-report-pdf"),
    path("operations/", bulkoperations.index, name="operations"),
    path("operations/<int:operation_id>/", bulkoperations.detail, name="operation"),
    path("operations/<int:operation_id>/cancel/", bulkoperations.cancel, name="operation-cancel"),
    path("operations/<int:operation_id>/retry/", bulkoperations.retry, name="operation-retry"),
    path("access/", access.bindings, name="access"),
    path("access/new/", access.grant, name="grant"),
    path("access/<int:binding_id>/remove/", access.revoke, name="revoke"),
    path("access/explain/", access.explain, name="explain-access"),
    path("access/users/", users.users, name="users"),
    path("access/users/invite/", users.invite, name="invite"),
    path("access/users/service/", users.new_service_account, name="new-service-account"),
    path("access/users/<int:user_id>/<str:verb>/", users.change_account, name="change-account"),
    path("access/groups/", users.groups, name="groups"),
    path("access/groups/new/", users.new_group, name="new-group"),
    path("access/groups/<int:group_id>/", users.group, name="group"),
    path("access/groups/<int:group_id>/delete/", users.delete_group, name="delete-group"),
    path("access/groups/<int:group_id>/members/<int:user_id>/remove/", users.remove_member, name="remove-member"),
    path("access/approvals/", approvals.index, name="approvals"),
    path("access/approvals/new/", approvals.create, name="new-approval"),
    path("access/approvals/environments/<slug:slug>/", approvals.choose_operations, name="approval-operations"),
    path("access/approvals/<int:request_id>/", approvals.detail, name="approval"),
    path("access/approvals/<int:request_id>/<str:verb>/", approvals.decide, name="decide-approval"),
    path("access/roles/", access.roles, name="roles"),
    path("access/me/", access.me, name="me"),
    path("access/password/", session.change_password, name="password"),
    path("access/api-keys/", access.api_keys, name="api-keys"),
    path("access/api-keys/<str:key>/rotate/", access.rotate_api_key, name="rotate-api-key"),
    path("access/api-keys/<str:key>/delete/", access.delete_api_key, name="delete-api-key"),
    path("audit/", audit.index, name="audit"),
    path("audit/events.csv", exports.audit, name="audit-csv"),
    # URLs without the trailing slash. No REST URL starts with these words.
    re_path(
        r"^(?P<rest>(?:environments|clusters|links|topics|failover-reports|operations|access|audit|search|sign-in|help|settings)(?:/[^?]*[^/?])?)$",
        RedirectView.as_view(url="/%(rest)s/", query_string=True),
    ),
]
