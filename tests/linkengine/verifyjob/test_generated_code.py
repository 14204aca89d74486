"""The Java code that Spark generates for comparisons, which a JVM has to compile."""

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
    """Yield a session that shows the generated code of its plans; an adaptive plan has none before it runs."""
    session = SparkSession.builder.remote(spark_connect_url).create()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    yield session
    session.stop()


def generated(spark: SparkSession, capsys: pytest.CaptureFixture[str], arguments: dict[str, object]) -> list[str]:
    spark.sql(_sql("digests"), args=arguments, topic=spark.sql(RECORDS)).explain(mode="codegen")
    return re.findall(r"^/\* \d+ \*/.*$", capsys.readouterr().out, flags=re.MULTILINE)


def test_each_comparison_has_a_new_secret_and_the_same_generated_code(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = _digest_arguments(BLOCK_OFFSETS), _digest_arguments(BLOCK_OFFSETS)
    assert first["secret"] != second["secret"]

    code = generated(spark, capsys, first)

    assert len(code) > 100
    assert generated(spark, capsys, second) == code
    assert generated(spark, capsys, {**first, "secret": 5}) != code  # a number would be inlined
