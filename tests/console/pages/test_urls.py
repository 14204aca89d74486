"""URLs are built by name: no module or template of the console contains a path of a page or of the REST API."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, resolve, reverse

from tests.browser import addresses

ROOT = Path(__file__).resolve().parents[3]
PAGES = get_resolver("console.web.urls")
# Paths that are no URLs of a request, or that must not depend on the URL configuration.
EXEMPT = {
    "console/urls.py",
    "console/web/urls.py",
    "console/api/urls.py",
    "console/http/middleware.py",  # health probes are recognized before a URL is resolved
    "console/api/schema.py",  # edits the paths of the OpenAPI document
    "console/api/views.py",  # below the prefix of the request; reverse() would percent-encode twice
}
# Actions of forms, downloads and redirects. The page that removes a role binding needs the key of a row. That of an invitation
# needs its token, and those of the second factor a setting: test_accessibility opens them.
NO_PAGES = {
    "cluster-refresh",
    "cluster-test",
    "decide-approval",
    "end-other-sessions",
    "end-session",
    "invitation",
    "link-drill-cancel",
    "link-task-run",
    "mirror-gate",
    "mirror-gate-override",
    "mirror-refused-configs",
    "mirror-reparent",
    "mirror-restore-records",
    "mirror-verify",
    "new-link-discard",
    "operation-cancel",
    "operation-retry",
    "remove-member",
    "revoke",
    "second-factor",
    "sign-in-code",
    "sign-out",
    "start",
    "theme",
}
FILES = ("-json", "-pdf", "-series", "-events")
REFUSED = [address for address, _ in addresses.REFUSALS if address.startswith("/links/")]
EXAMPLES = {
    "slug": "production",
    **dict.fromkeys(("restore_id", "binding_id", "operation_id", "report_id", "drill_id", "draft_id"), 7),
    **dict.fromkeys(("session_id", "user_id", "group_id", "request_id"), 7),
}


def patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Yield every pattern below a resolver, with its route."""
    for entry in resolver.url_patterns:
        route = f"{prefix}{entry.pattern}"
        if isinstance(entry, URLResolver):
            yield from patterns(entry, route)
        else:
            yield route, entry


def segments(route: str) -> list[str]:
    """Return the fixed segments of a route, without the ending of a file name."""
    return [part.partition(".")[0] for part in route.split("/") if re.fullmatch(r"[a-z-]{2,}(\.[a-z.]+)?", part)]


NAMED = [(route, pattern) for route, pattern in patterns(PAGES) if pattern.name]
FIRST = {segments(route)[0] for route, _ in NAMED if segments(route)} | {"kafka", "v3", "api", "admin"}
LATER = {segment for route, _ in NAMED for segment in segments(route)[1:]}
ABSOLUTE = re.compile(rf"/({'|'.join(sorted(FIRST))})(/\S*)?(\?\S*)?")
APPENDED = re.compile(rf"\0({'|'.join(sorted(LATER))})(/|\.csv|\.json)\S*")  # \0 stands for a value
URL_TAG = re.compile(r"\{% url '([\w:-]+)'([^%]*)%\}")
ATTRIBUTE = re.compile(r"""\b(?:href|action|hx-get|hx-post|url)=["'](/[a-z]|(?:\{\{[^"'{}]*\}\}|\{%[^"%]*%\})[a-z])""")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that are no docstrings. In formatted strings, NUL stands for each value."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def paths_in_module(source: str) -> list[int]:
    """Return the lines of a module with a path of a page or of the REST API."""
    return sorted(line for line, text in texts(source) if ABSOLUTE.fullmatch(text) or APPENDED.fullmatch(text))


def paths_in_template(source: str) -> list[int]:
    """Return the lines of a template with such a path in an attribute or argument."""
    return [number for number, line in enumerate(source.splitlines(), start=1) if ATTRIBUTE.search(line)]


def test_no_module_builds_a_path_from_strings() -> None:
    modules = [path for path in sorted((ROOT / "console").rglob("*.py")) if "migrations" not in path.parts]
    names = {path.relative_to(ROOT).as_posix(): path for path in modules}

    found = [
        f"{name}:{line}" for name, path in names.items() if name not in EXEMPT for line in paths_in_module(path.read_text())
    ]

    assert set(names) >= EXEMPT
    assert not found, f"Name the URL pattern and use reverse() or get_absolute_url(): {found}"


def test_no_template_builds_a_path_from_strings() -> None:
    templates = sorted((ROOT / "templates").rglob("*.html"))

    found = [f"{path.relative_to(ROOT)}:{line}" for path in templates for line in paths_in_template(path.read_text())]

    assert len(templates) > 50
    assert not found, f"Name the URL pattern and use {{% url %}}: {found}"


def test_every_url_tag_names_a_pattern_with_as_many_arguments() -> None:
    tags = {tag for path in (ROOT / "templates").rglob("*.html") for tag in URL_TAG.findall(path.read_text())}

    for name, arguments in tags:
        values = [argument for argument in arguments.partition(" as ")[0].split() if argument]
        assert reverse(name, args=["7"] * len(values)), (name, values)  # "7" suits every converter
    assert len({name for name, _ in tags}) > 40


@pytest.mark.parametrize(
    "source",
    [
        'url = "/links/"',
        'url = "/environments/?tab=links"',
        'url = f"/clusters/{cluster_id}/"',
        'url = f"/kafka/v3/clusters/{cluster_id}/links/{name}/mirrors"',
        'url = f"{link_url}configuration/edit/"',
        'url = f"{url}samples.csv?{query}"',
    ],
)
def test_path_in_a_module_is_found(source: str) -> None:
    assert paths_in_module(source) == [1]


@pytest.mark.parametrize(
    "source",
    [
        'url = reverse("pages:links")',
        '"""/links/"""',
        'resource = f"{path}/link/{name}"',
        'text = "/api/v1/tokens creates a token"',
        'url = f"{url}?at={minute}"',
    ],
)
def test_other_text_of_a_module_is_no_path(source: str) -> None:
    assert paths_in_module(source) == []


@pytest.mark.parametrize(
    "source",
    [
        '<a href="/access/">',
        '{% include "parts/empty.html" with url="/links/new/" action="Create" %}',
        '<form action="{{ link.url }}bulk/">',
        "<a href=\"{% url 'pages:audit' %}events.csv\">",
    ],
)
def test_path_in_a_template_is_found(source: str) -> None:
    assert paths_in_template(source) == [1]


@pytest.mark.parametrize(
    "source",
    ['<a href="{{ link.url }}">', "<a href=\"{% url 'pages:audit' %}?q={{ query }}\">", '<a href="{{ url }}#gate">'],
)
def test_named_url_in_a_template_is_no_path(source: str) -> None:
    assert paths_in_template(source) == []


def test_every_page_has_a_name() -> None:
    unnamed = [route for route, pattern in patterns(PAGES) if not pattern.name]

    assert len(unnamed) == 1  # the redirect to the path with a slash
    assert "?P<rest>" in unnamed[0]


def test_every_page_is_tested_for_accessibility_and_queries() -> None:
    """A new page belongs in ``tests/browser/addresses.py``; a URL that shows no page of its own belongs in ``NO_PAGES``."""
    names = {pattern.name for _, pattern in NAMED if pattern.name and not pattern.name.endswith(FILES)}
    tested = {resolve(address.split("?")[0]).url_name for address in (*addresses.PAGES, *addresses.OPEN, *REFUSED)}

    assert names - tested == NO_PAGES


@pytest.mark.parametrize("name", sorted({pattern.name for _, pattern in NAMED if pattern.name}))
def test_url_of_a_name_leads_to_its_view(name: str) -> None:
    views = {pattern.callback for _, pattern in NAMED if pattern.name == name}
    parameters = {converter for _, pattern in NAMED if pattern.name == name for converter in pattern.pattern.converters}
    above = re.findall(r"<\w+:(\w+)>", next(route for route, pattern in NAMED if pattern.name == name))

    url = reverse(f"pages:{name}", kwargs={key: EXAMPLES.get(key, "example") for key in {*above, *parameters}})

    assert resolve(url).func in views


@pytest.mark.parametrize(
    ("name", "more", "end"),
    [("mirror", (), ""), ("mirror-records", (), "records/"), ("mirror-operation", ("pause",), "pause/")],
)
def test_topic_named_new_has_urls_of_its_own(name: str, more: tuple[str, ...], end: str) -> None:
    url = reverse(f"pages:{name}", args=("east", "backup", "new", *more))

    assert url == f"/links/east/backup/mirrors/new/-/{end}"
    assert resolve(url).kwargs["mirror_name"] == "new"
    assert reverse(f"pages:{name}", args=("east", "backup", "news", *more)) == f"/links/east/backup/mirrors/news/{end}"


def test_rest_urls_of_a_name_are_below_the_full_prefix() -> None:
    assert reverse("kafka:mirrors", args=("east", "backup")) == "/kafka/v3/clusters/east/links/backup/mirrors"
