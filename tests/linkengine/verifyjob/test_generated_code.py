"""What a JVM has to compile: the Java code that Spark generates for comparisons."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.sql.connect.session import SparkSession

from linkengine.verifyjob.job import _digest_arguments, _sql

pytestmark = pytest.mark.spark

BLOCK_OFFSETS = 1024
RECORDS = """
    SELECT
        CAST(id AS int) AS partition, id AS offset, id AS timestamp_ms, CAST(id AS int) AS timestampType,
        CAST(CAST(id AS string) AS binary) AS key, CAST(CAST(id AS string) AS binary) AS value,
        array(struct(CAST(id AS string) AS key, CAST(CAST(id AS string) AS binary) AS value)) AS headers
    FROM range(4)
"""


@pytest.fixture
def spark(spark_connect_url: str) -> Iterator[SparkSession]:
    """A session that tells the code of its plans; an adaptive plan has none before it runs."""
    session = SparkSession.builder.remote(spark_connect_url).create()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    yield session
    session.stop()


def generated(spark: SparkSession, capsys: pytest.CaptureFixture[str], arguments: dict[str, object]) -> list[str]:
    spark.sql(_sql("digests"), args=arguments, topic=spark.sql(RECORDS)).explain(mode="codegen")
    return re.findall(r"^/\* \d+ \*/.*$", capsys.readouterr().out, flags=re.MULTILINE)


def test_each_comparison_has_a_secret_of_its_own_and_the_code_of_all_others(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = _digest_arguments(BLOCK_OFFSETS), _digest_arguments(BLOCK_OFFSETS)
    assert one["secret"] != other["secret"]

    code = generated(spark, capsys, one)

    assert len(code) > 100
    assert generated(spark, capsys, other) == code
    assert generated(spark, capsys, {**one, "secret": 5}) != code  # a number would show
