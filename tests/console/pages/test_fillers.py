"""The page of a mirror explains lookups by time if it has fillers with timestamps."""

import pytest
from django.test import Client

from linkengine.domain.states import GapReason
from tests.browser.page_data import PageData


@pytest.mark.parametrize(
    ("reasons", "explained"),
    [([], False), ([GapReason.HEAD], False), ([GapReason.TRANSACTION_MARKER], True), ([GapReason.HEAD, GapReason.LOST], True)],
)
def test_page_explains_lookups_by_time_if_fillers_have_timestamps(
    admin: Client, page_data: PageData, reasons: list[GapReason], explained: bool
) -> None:
    mirror = page_data.mirrors["flights"]
    mirror.gaps.all().delete()
    for number, reason in enumerate(reasons):
        mirror.gaps.create(partition=0, start=number, end=number + 1, filled=1, reason=reason, noted_at=mirror.created_at)

    text = admin.get(page_data.mirror_url("flights", "filled-offsets")).content.decode()

    assert ("linkctl offsets-for-time flights --link" in text) is explained
