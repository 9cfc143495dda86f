"""Message classes by name and by API key, each module imported when its message is first wanted."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.spec import snake_case


@cache
def message_class(name: str) -> type[Message]:
    """The class called `name`, "FetchRequest"; raises ModuleNotFoundError when there is none."""
    module = import_module(f"odradek.protocol.messages.{snake_case(name)}")
    found: type[Message] = getattr(module, name)
    return found


@cache
def request_class(api_key: int) -> type[Message]:
    """The request of an API; raises ValueError when there is no such API, ModuleNotFoundError when
    Kafka has removed it."""
    return message_class(f"{_camel_case(ApiKey(api_key).name)}Request")


@cache
def response_class(api_key: int) -> type[Message]:
    """The response of an API; raises as `request_class`."""
    return message_class(f"{_camel_case(ApiKey(api_key).name)}Response")


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
