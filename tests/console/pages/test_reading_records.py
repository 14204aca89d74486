"""What records hold is shown where copies differ, to those who may read records."""

from __future__ import annotations

import pytest
from django.utils import timezone

from console.models import RoleBinding, VerifyRun
from tests.browser.scene import Scene, make_person
from tests.console.pages.conftest import client_of

READS = set(RoleBinding.Role) - {RoleBinding.Role.DEVELOPER_READ}


@pytest.mark.parametrize("role", RoleBinding.Role)
def test_contents_are_shown_by_role(scene: Scene, role: RoleBinding.Role) -> None:
    one = {"partition": 0, "offset": 7, "kind": "value", "source_value": "secret-of-the-source", "mirror_value": "other"}
    VerifyRun.objects.create(
        mirror=scene.mirrors["flights"], status="DIFFERENT", requested_by="amelia", requested_at=timezone.now(),
        differences=1, first_differences=[one],
    )  # fmt: skip
    person = make_person("dora", role, scene.organization, scene.now)

    text = client_of(person).get(scene.mirror_url("flights")).content.decode()

    assert "First differences" in text
    assert ("secret-of-the-source" in text) == (role in READS)
    assert ("What the records hold is not shown" in text) == (role not in READS)
