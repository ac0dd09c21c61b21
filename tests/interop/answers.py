"""What tools ask in these tests: types of answers, by which authors write forms."""

from pydantic import BaseModel


class Name(BaseModel):
    name: str


class Consent(BaseModel):
    confirm: bool
