"""Values that are written as records of another type, or read with less in them than was written."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, GetCoreSchemaHandler
from pydantic_core import core_schema

from onager.redaction import shown_name

ShownName = Annotated[str, AfterValidator(shown_name)]
"""A name for people, read without secrets."""


class StoredAs(ABC):
    """A value whose record is that of its `to_record`, of the type `record_type`."""

    __slots__ = ()
    record_type: ClassVar[Any]

    @abstractmethod
    def to_record(self) -> Any:
        """Return the value that is written in place of this one; equal values give equal ones."""

    @classmethod
    @abstractmethod
    def of_record(cls, record: Any) -> Self:
        """Return the value of which *record* was written; `ValueError` if there is none."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return how pydantic writes and reads it."""
        del source
        schema = handler.generate_schema(cls.record_type)
        return core_schema.no_info_after_validator_function(
            cls.of_record,
            schema,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda value, write: write(value.to_record()), schema=schema
            ),
        )
