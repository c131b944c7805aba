"""What all records share: a schema with a version; strict when written, lenient to later additions."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError

from trackside.records.errors import TracksideError, encodable
from trackside.records.migrations import migrated

__all__ = ["Part", "Record", "RecordStatus"]

RecordStatus = Literal["running", "done", "failed"]


class Part(BaseModel):
    """A model nested in a record. Unknown fields are refused: a misspelt name fails where it is written."""

    # NaN and infinity have no JSON form; they become null.
    model_config = ConfigDict(extra="forbid", populate_by_name=True, ser_json_inf_nan="null")


class Record(Part):
    """A document that is written once and rendered many times.

    A subclass narrows the schema, which makes the name part of its JSON schema:

        class CompareRecord(Record):
            schema_: Literal["trackside.compare/1"] = Field("trackside.compare/1", alias="schema")
    """

    schema_: str = Field(alias="schema")
    """`trackside.NAME/VERSION`. The version counts up when a field is removed or changes its meaning."""

    run_id: str | None = None
    """The store's id; None for a document that was never stored."""

    status: RecordStatus = "done"
    """A `running` record may be replaced by a final one, once; a final one stays as it is."""

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON values, under the names that users see (`schema`, not `schema_`)."""
        # By way of the text, since model_dump leaves NaN in place, which JSON cannot hold.
        try:
            data: str | bytes = self.model_dump_json(by_alias=True)
        except PydanticSerializationError:
            # A path or a name in it is no text.
            data = orjson.dumps(encodable(self.model_dump(mode="json", by_alias=True)))
        document: dict[str, Any] = orjson.loads(data)
        return document

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Reads a stored record, also of an older release; fields that this one does not know are left out.

        Raises:
            TracksideError: kind `store`, when the schema is another or a newer one, or a field has an
                impossible value.
        """
        data = migrated(data)
        wanted = cls.model_fields["schema_"].default
        found = data.get("schema")
        if isinstance(wanted, str) and found != wanted:
            raise TracksideError(
                "store",
                f"the record has schema {found!r}, and {wanted!r} is needed",
                "read it with the release of Trackside that wrote it, or run the command again",
            )
        try:
            return cls.model_validate(dict(data), extra="ignore")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"])
            raise TracksideError(
                "store",
                f"the record is not a valid {wanted or cls.__name__}: {place}: {first['msg']} "
                f"({error.error_count()} problem(s) in all)",
                "it may have been edited by hand: run the command again to get a fresh record",
            ) from error
