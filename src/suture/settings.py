"""What all that is said in files and on the command line has in common."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Settings refuse unknown keys: a misspelt one must not silently do nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)
