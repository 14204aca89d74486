"""A form that was opened before another user saved is rejected; a form without changes stores nothing."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from console.models import Cluster, ClusterLink, LinkConfig
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import properties_of
from tests.browser.page_data import SECRET, PageData
from tests.console.pages.conftest import hidden_in

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PAUSED = "cluster.link.paused"
ENABLED = "auto.create.mirror.topics.enable"
FILTERS = "auto.create.mirror.topics.filters"


def sent_by_browser(text: str) -> dict[str, str]:
    """Return what a browser submits for the connection form as it is shown."""
    values = dict(re.findall(r'<input type="(?:text|url)" name="([^"]+)" value="([^"]*)"', text))
    values |= dict(re.findall(r'<select name="([^"]+)".*?<option value="([^"]*)" selected>', text, re.S))
    values["ca_pem"] = re.findall(r'<textarea name="ca_pem"[^>]*>\n?(.*?)</textarea>', text, re.S)[0].replace("\n", "\r\n")
    return {name: html.unescape(value) for name, value in values.items()} | {"intent": "save"}


def test_stale_edit_form_does_not_resume_a_paused_link(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.link_url}configuration/edit/"
    opened = admin.get(address)
    LinkConfig.objects.create(link=page_data.link, name=PAUSED, value="true")

    response = admin.post(address, hidden_in(opened) | sent_by_browser(opened.content.decode()))

    text = response.content.decode()
    assert response.status_code == 409
    assert "changed after you opened this form" in text
    assert re.search(r'name="paused"[^>]*checked', text)
    assert LinkConfig.objects.get(link=page_data.link, name=PAUSED).value == "true"
    again = admin.post(address, hidden_in(response) | sent_by_browser(text) | {"paused": "on"})
    assert again.status_code == 302


def test_stale_edit_form_does_not_restore_old_servers(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.link_url}configuration/edit/"
    opened = admin.get(address)
    moved = page_data.link.properties | {"bootstrap.servers": "moved.example:9092"}
    ClusterLink.objects.filter(pk=page_data.link.pk).update(properties=moved)

    response = admin.post(address, hidden_in(opened) | sent_by_browser(opened.content.decode()) | {"paused": "on"})

    assert response.status_code == 409
    assert 'value="moved.example:9092"' in response.content.decode()
    page_data.link.refresh_from_db()
    assert page_data.link.properties == moved


def test_stale_filters_form_does_not_replace_newer_filters(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.link_url}filters/"
    opened = admin.get(address)
    saved = '{"topicFilters":[{"name":"kept","patternType":"LITERAL","filterType":"INCLUDE"}]}'
    for name, value in ((ENABLED, "true"), (FILTERS, saved)):
        LinkConfig.objects.create(link=page_data.link, name=name, value=value)

    row = {"enabled": "true", "name": "other", "pattern": "LITERAL", "kind": "INCLUDE", "intent": "save"}
    response = admin.post(address, hidden_in(opened) | row)

    assert response.status_code == 409
    assert 'value="kept"' in response.content.decode()
    assert LinkConfig.objects.get(link=page_data.link, name=FILTERS).value == saved


@pytest.fixture
def borrower(page_data: PageData) -> PageData:
    """The link uses the registered connection of its source: TLS with a private certificate authority."""
    servers = page_data.west.bootstrap_servers
    own = ClusterAddress(
        bootstrap_servers=servers,
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="link",
        sasl_password=SECRET,
        ssl_ca_pem=PEM,
    )
    Cluster.objects.filter(pk=page_data.west.pk).update(properties=properties_of(own))
    ClusterLink.objects.filter(pk=page_data.link.pk).update(properties={}, uses_cluster_credentials=True)
    return page_data


@pytest.mark.parametrize("fragment", [{}, {"ssl.truststore.certificates": PEM}])
def test_pausing_a_link_does_not_store_registered_security_configs(
    borrower: PageData, admin: Client, fragment: dict[str, str]
) -> None:
    ClusterLink.objects.filter(pk=borrower.link.pk).update(properties=fragment)
    address = f"{borrower.link_url}configuration/edit/"
    opened = admin.get(address)
    shown = sent_by_browser(opened.content.decode())

    response = admin.post(address, hidden_in(opened) | shown | {"paused": "on"})

    assert (shown["security_protocol"], shown["username"]) == ("SASL_SSL", "link")
    assert response.status_code == 302
    borrower.link.refresh_from_db()
    assert borrower.link.properties == fragment
    assert LinkConfig.objects.get(link=borrower.link, name=PAUSED).value == "true"
