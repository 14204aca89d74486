"""Change, validate and reset a config of a link."""

from __future__ import annotations

import pytest
from django.test import Client

from console.models import LinkConfig
from tests.browser.page_data import Scene
from tests.console.pages.conftest import client_of

NAME = "topic.config.sync.ms"


def test_config_is_saved_and_reset(scene: Scene, admin: Client) -> None:
    url = f"{scene.link_url}configuration/set/{NAME}/"
    assert f"configuration/set/{NAME}/" in admin.get(f"{scene.link_url}configuration/?all=1").content.decode()

    assert "saved." in admin.post(url, {"value": "9000", "intent": "save"}, follow=True).content.decode()
    assert LinkConfig.objects.get(link=scene.link, name=NAME).value == "9000"
    assert "reset to its default" in admin.post(url, {"intent": "reset"}, follow=True).content.decode()
    assert not LinkConfig.objects.filter(link=scene.link, name=NAME).exists()


def test_invalid_value_is_kept_in_the_form_with_the_reason(scene: Scene, admin: Client) -> None:
    answer = admin.post(f"{scene.link_url}configuration/set/{NAME}/", {"value": "5 s", "intent": "validate"})

    assert answer.status_code == 422
    text = answer.content.decode()
    assert "must be a whole number" in text
    assert 'value="5 s"' in text


@pytest.mark.parametrize("name", ["cluster.link.prefix", "request.timeout.ms", "sasl.jaas.config", "nonsense"])
def test_config_that_cannot_be_edited_here_is_not_found(scene: Scene, admin: Client, name: str) -> None:
    assert admin.get(f"{scene.link_url}configuration/set/{name}/").status_code == 404


def test_reader_may_not_edit_configs(scene: Scene) -> None:
    assert client_of(scene.reader).get(f"{scene.link_url}configuration/set/{NAME}/").status_code == 403
