"""URLs of the pages. They end with a slash, unlike REST URLs; without it they redirect."""

from __future__ import annotations

from django.urls import include, path, re_path, register_converter
from django.urls.converters import StringConverter
from django.views.generic import RedirectView

from console.access import approval_pages, audit_pages, session_pages, user_pages
from console.access import pages as access_pages
from console.clusters import pages as cluster_pages
from console.clusters import topic_pages as cluster_topic_pages
from console.history import pages as history_pages
from console.links import create_pages, edit_pages, topic_pages
from console.links import pages as link_pages
from console.mirrors import bulk_pages, operation_pages
from console.mirrors import create_pages as mirror_create_pages
from console.mirrors import pages as mirror_pages
from console.verification import failover_pages
from console.verification import pages as verification_pages
from console.web import pages as web_pages


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
    path("", mirror_pages.overview, name="mirror"),
    path("verification/", mirror_pages.verification, name="mirror-verification"),
    path("filled-offsets/", mirror_pages.filled_offsets, name="mirror-filled-offsets"),
    path("lineage/", mirror_pages.lineage, name="mirror-lineage"),
    path("migration-gate/", mirror_pages.gate, name="mirror-migration-gate"),
    path("failover-reports/", mirror_pages.reports, name="mirror-reports"),
    path("restores/", mirror_pages.restores, name="mirror-restores"),
    path("configs/", mirror_pages.configs, name="mirror-configs"),
    path("history/", mirror_pages.history, name="mirror-history"),
    path("gaps/", verification_pages.gaps, name="mirror-gaps"),
    path("records/", verification_pages.records, name="mirror-records"),
    path("verify/", operation_pages.verify, name="mirror-verify"),
    path("gate/", verification_pages.run, name="mirror-gate"),
    path("gate/override/", verification_pages.override, name="mirror-gate-override"),
    path("restores/<int:restore_id>/records.jsonl.gz", operation_pages.records, name="mirror-restore-records"),
    path("refused-configs/", verification_pages.retry_refused, name="mirror-refused-configs"),
    path("reparent/", operation_pages.move, name="mirror-reparent"),
    path("series.json", history_pages.series, name="mirror-series"),
    path("events.json", history_pages.events, name="mirror-events"),
    path("samples/", history_pages.samples, name="mirror-samples"),
    path("minute/", history_pages.minute, name="mirror-minute"),
    path("<str:operation>/", operation_pages.operate, name="mirror-operation"),
]

app_name = "pages"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="pages:environments"), name="start"),
    path("sign-in/", session_pages.sign_in, name="sign-in"),
    path("sign-in/code/", session_pages.sign_in_code, name="sign-in-code"),
    path("sign-out/", session_pages.sign_out, name="sign-out"),
    path("settings/theme/", session_pages.set_theme, name="theme"),
    path("settings/profile/", session_pages.profile, name="profile"),
    path("settings/second-factor/", session_pages.second_factor_page, name="second-factor"),
    path("settings/sessions/end-others/", session_pages.end_other_sessions, name="end-other-sessions"),
    path("settings/sessions/<int:session_id>/end/", session_pages.end_session, name="end-session"),
    path("invitation/<str:token>/", session_pages.invitation, name="invitation"),
    path("search/", web_pages.search, name="search"),
    path("help/states/", web_pages.states, name="states"),
    path("help/first-steps/", web_pages.steps, name="first-steps"),
    path("environments/", cluster_pages.index, name="environments"),
    path("environments/<slug:slug>/", cluster_pages.detail, name="environment"),
    path("environments/<slug:slug>/clusters/new/", cluster_pages.register, name="register"),
    path(_CLUSTER, cluster_pages.cluster, name="cluster"),
    path(f"{_CLUSTER}refresh/", cluster_pages.refresh, name="cluster-refresh"),
    path(f"{_CLUSTER}test/", cluster_pages.check, name="cluster-test"),
    path(f"{_CLUSTER}topics/", cluster_topic_pages.list_of_cluster, name="cluster-topics"),
    path(f"{_CLUSTER}topics/<str:topic_name>/", cluster_topic_pages.detail, name="cluster-topic"),
    path(f"{_CLUSTER}namespaces/", cluster_pages.namespaces, name="cluster-namespaces"),
    path("topics/", cluster_topic_pages.index, name="topics"),
    path("links/", link_pages.index, name="links"),
    path("links/new/", create_pages.start, name="new-link"),
    path("links/new/<int:draft_id>/discard/", create_pages.discard, name="new-link-discard"),
    path("links/new/<int:draft_id>/<str:step>/", create_pages.step, name="new-link-step"),
    path(_LINK, link_pages.overview, name="link"),
    path(f"{_LINK}configuration/", link_pages.configuration, name="link-configuration"),
    path(f"{_LINK}configuration/edit/", edit_pages.edit, name="link-edit"),
    path(f"{_LINK}configuration/set/<str:config_name>/", edit_pages.edit_config, name="link-config"),
    path(f"{_LINK}topics/", topic_pages.topics, name="link-topics"),
    path(f"{_LINK}topics/<str:topic_name>/", topic_pages.topic, name="link-topic"),
    path(f"{_LINK}filters/", topic_pages.filters, name="link-filters"),
    path(f"{_LINK}tasks/", topic_pages.tasks, name="link-tasks"),
    path(f"{_LINK}tasks/<str:task_name>/run/", topic_pages.run_link_task, name="link-task-run"),
    path(f"{_LINK}groups/", topic_pages.groups, name="link-groups"),
    path(f"{_LINK}acls/", topic_pages.acls, name="link-acls"),
    path(f"{_LINK}history/", history_pages.history, name="link-history"),
    path(f"{_LINK}history/series.json", history_pages.series, name="link-series"),
    path(f"{_LINK}history/events.json", history_pages.events, name="link-events"),
    path(f"{_LINK}history/samples/", history_pages.samples, name="link-samples"),
    path(f"{_LINK}history/minute/", history_pages.minute, name="link-minute"),
    path(f"{_LINK}activity/", link_pages.activity, name="link-activity"),
    path(f"{_LINK}failover/", failover_pages.fail_over, name="link-failover"),
    path(f"{_LINK}drills/", failover_pages.drills, name="link-drills"),
    path(f"{_LINK}drills/<int:drill_id>/cancel/", failover_pages.cancel_running_drill, name="link-drill-cancel"),
    path(f"{_LINK}readiness/", failover_pages.readiness, name="link-readiness"),
    path(f"{_LINK}stops/", verification_pages.stops, name="link-stops"),
    path(f"{_LINK}pause/", edit_pages.pause, name="link-pause"),
    path(f"{_LINK}delete/", edit_pages.delete, name="link-delete"),
    path(f"{_LINK}bulk/", bulk_pages.operate_many, name="link-bulk"),
    path(f"{_LINK}mirrors/new/", mirror_create_pages.create, name="new-mirror"),
    path(f"{_LINK}mirrors/<str:mirror_name>/-/", include(_MIRROR_PAGES)),  # for a topic named "new"
    path(f"{_LINK}mirrors/<mirror_name:mirror_name>/", include(_MIRROR_PAGES)),
    path("failover-reports/", verification_pages.index, name="reports"),
    path("failover-reports/<int:report_id>/", verification_pages.report, name="report"),
    path("failover-reports/<int:report_id>/report.json", verification_pages.report, {"form": "json"}, name="report-json"),
    path("failover-reports/<int:report_id>/report.pdf", verification_pages.report, {"form": "pdf"}, name="report-pdf"),
    path(_OPERATION_REPORT, verification_pages.operation_report, name="operation-report"),
    path(
        f"{_OPERATION_REPORT}report.json", verification_pages.operation_report, {"form": "json"}, name="operation-report-json"
    ),
    path(f"{_OPERATION_REPORT}report.pdf", verification_pages.operation_report, {"form": "pdf"}, name="operation-report-pdf"),
    path("operations/", bulk_pages.index, name="operations"),
    path("operations/<int:operation_id>/", bulk_pages.detail, name="operation"),
    path("operations/<int:operation_id>/cancel/", bulk_pages.cancel, name="operation-cancel"),
    path("operations/<int:operation_id>/retry/", bulk_pages.retry, name="operation-retry"),
    path("access/", access_pages.bindings, name="access"),
    path("access/new/", access_pages.grant, name="grant"),
    path("access/<int:binding_id>/remove/", access_pages.revoke, name="revoke"),
    path("access/explain/", access_pages.explain, name="explain-access"),
    path("access/users/", user_pages.users, name="users"),
    path("access/users/invite/", user_pages.invite, name="invite"),
    path("access/users/service/", user_pages.new_service_account, name="new-service-account"),
    path("access/users/<int:user_id>/<str:verb>/", user_pages.change_account, name="change-account"),
    path("access/groups/", user_pages.groups, name="groups"),
    path("access/groups/new/", user_pages.new_group, name="new-group"),
    path("access/groups/<int:group_id>/", user_pages.group, name="group"),
    path("access/groups/<int:group_id>/delete/", user_pages.delete_group, name="delete-group"),
    path("access/groups/<int:group_id>/members/<int:user_id>/remove/", user_pages.remove_member, name="remove-member"),
    path("access/approvals/", approval_pages.index, name="approvals"),
    path("access/approvals/new/", approval_pages.create, name="new-approval"),
    path("access/approvals/environments/<slug:slug>/", approval_pages.choose_operations, name="approval-operations"),
    path("access/approvals/<int:request_id>/", approval_pages.detail, name="approval"),
    path("access/approvals/<int:request_id>/<str:verb>/", approval_pages.decide, name="decide-approval"),
    path("access/roles/", access_pages.roles, name="roles"),
    path("access/me/", access_pages.me, name="me"),
    path("access/password/", session_pages.change_password, name="password"),
    path("access/api-keys/", access_pages.api_keys, name="api-keys"),
    path("access/api-keys/<str:key>/rotate/", access_pages.rotate_api_key, name="rotate-api-key"),
    path("access/api-keys/<str:key>/delete/", access_pages.delete_api_key, name="delete-api-key"),
    path("audit/", audit_pages.index, name="audit"),
    # URLs without the trailing slash. No REST URL starts with these words.
    re_path(
        r"^(?P<rest>(?:environments|clusters|links|topics|failover-reports|operations|access|audit|search|sign-in|help|settings)(?:/[^?]*[^/?])?)$",
        RedirectView.as_view(url="/%(rest)s/", query_string=True),
    ),
]
