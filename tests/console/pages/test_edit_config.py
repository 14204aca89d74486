"""Change, validate and reset a config of a link."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from console.links.actions import LinkConfigChange
from console.links.edit_pages import shown_changes
from console.models import LinkConfig
from tests.browser.page_data import PageData
from tests.console.pages.conftest import client_of

NAME = "topic.config.sync.ms"


def test_config_is_saved_and_reset(page_data: PageData, admin: Client) -> None:
    url = f"{page_data.link_url}configuration/set/{NAME}/"
    assert f"configuration/set/{NAME}/" in admin.get(f"{page_data.link_url}configuration/?all=1").content.decode()

    assert "saved." in admin.post(url, {"value": "9000", "intent": "save"}, follow=True).content.decode()
    assert LinkConfig.objects.get(link=page_data.link, name=NAME).value == "9000"
    assert "reset to its default" in admin.post(url, {"intent": "reset"}, follow=True).content.decode()
    assert not LinkConfig.objects.filter(link=page_data.link, name=NAME).exists()


def test_invalid_value_is_kept_in_the_form_with_the_reason(page_data: PageData, admin: Client) -> None:
    response = admin.post(f"{page_data.link_url}configuration/set/{NAME}/", {"value": "5 s", "intent": "validate"})

    assert response.status_code == 422
    text = response.content.decode()
    assert "must be a whole number" in text
    assert 'value="5 s"' in text


@pytest.mark.parametrize("name", ["cluster.link.prefix", "request.timeout.ms", "sasl.jaas.config", "nonsense"])
def test_config_that_cannot_be_edited_here_is_not_found(page_data: PageData, admin: Client, name: str) -> None:
    assert admin.get(f"{page_data.link_url}configuration/set/{name}/").status_code == 404


def test_reader_may_not_edit_configs(page_data: PageData) -> None:
    assert client_of(page_data.reader).get(f"{page_data.link_url}configuration/set/{NAME}/").status_code == 403


def test_configuration_shows_only_what_differs_from_the_defaults_in_peoples_units(page_data: PageData, admin: Client) -> None:
    LinkConfig.objects.create(link=page_data.link, name=NAME, value="90000")

    shown = admin.get(f"{page_data.link_url}configuration/").content.decode()
    form = admin.get(f"{page_data.link_url}configuration/set/{NAME}/").content.decode()

    assert '1 minute 30 seconds <span class="soft">(90000)</span>' in shown
    assert "link.rpo.objective.ms" not in shown
    assert (
        'no objective <span class="soft">(-1)</span>' in admin.get(f"{page_data.link_url}configuration/?all=1").content.decode()
    )
    assert "90000 is 1 minute 30 seconds." in form
    assert '<span class="mono">5000</span> (5 seconds)' in form


def test_reverted_configs_have_peoples_units(page_data: PageData, admin: Client) -> None:
    reverts = page_data.mirrors["flights"].config_reverts
    reverts.create(name="retention.ms", found="-1", restored="604800000", at=page_data.now)
    reverts.create(name="segment.bytes", found=None, restored="1073741824", at=page_data.now)

    text = admin.get(page_data.mirror_url("flights", "configs")).content.decode()

    shown = re.sub("<[^>]+>", "", text[text.index('id="reverted-configs"') :])
    assert "retention.ms was unlimited (-1), reset to 7 days (604800000)" in shown
    assert "segment.bytes was deleted, reset to 1 GiB (1073741824)" in shown


def test_changes_of_a_link_are_shown_in_peoples_units() -> None:
    changes = [
        LinkConfigChange(name="request.timeout.ms", value="30000"),
        LinkConfigChange(name="metadata.max.age.ms", operation="DELETE"),
    ]

    shown = shown_changes(changes, {"metadata.max.age.ms": "300000"})

    assert [(change.before, change.after) for change in shown] == [
        ("not set", "30 seconds (30000)"),
        ("5 minutes (300000)", "not set"),
    ]


def test_mirror_page_shows_the_configs_that_differ_from_the_source_first(page_data: PageData, admin: Client) -> None:
    shown = admin.get(page_data.mirror_url("flights", "configs")).content.decode()
    configs = shown[shown.index('id="configs"') :]

    assert '7 days (604800000) <span class="soft">on the mirror: unlimited (-1)</span>' in configs
    assert configs.index("on the mirror:") < configs.index("equal on both sides") < configs.index("cleanup.policy")
