"""Schemas: as PySpark's client makes them."""

import json

import pytest
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.connect.types import pyspark_types_to_proto_types

from onager.scheduler.connect.schemas import schema_message

FIELDS = [
    T.NullType(), T.BinaryType(), T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(),
    T.FloatType(), T.DoubleType(), T.DecimalType(38, 18), T.StringType(), T.StringType("UNICODE_CI"), T.CharType(3),
    T.VarcharType(9), T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.TimeType(6), T.DayTimeIntervalType(0, 3),
    T.DayTimeIntervalType(1, 1), T.YearMonthIntervalType(0, 1), T.YearMonthIntervalType(1, 1), T.VariantType(),
    T.ArrayType(T.LongType(), containsNull=False), T.MapType(T.StringType(), T.ArrayType(T.DateType())),
    T.StructType([T.StructField("x", T.LongType(), nullable=False, metadata={"k": [1, "ü"]})]),
]  # fmt: skip


@pytest.mark.parametrize("data_type", FIELDS, ids=str)
def test_a_schema_is_reported_as_spark_tells_it(data_type):
    schema = T.StructType([T.StructField("f", data_type, nullable=False)])
    found = schema_message(json.dumps(schema.jsonValue()))
    assert found.SerializeToString(deterministic=True) == pyspark_types_to_proto_types(schema).SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("text", ["", "{}", '{"type":"struct","fields":[{"name":"a","type":"new","nullable":true}]}'])
def test_a_type_of_a_later_spark_is_left_to_arrow(text):
    assert schema_message(text) is None
