"""Message classes by name and by API key. A module is imported when its message is first needed."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message


@cache
def message_class(name: str) -> type[Message]:
    """Return the class `name`, for example "FetchRequest".

    Raises:
        ModuleNotFoundError: There is no such message.
    """
    from odradek.protocol.spec import snake_case

    module = import_module(f"odradek.protocol.messages.{snake_case(name)}")
    found: type[Message] = getattr(module, name)
    return found


@cache
def request_class(api_key: int) -> type[Message]:
    """Return the request class of an API.

    Raises:
        ValueError: There is no such API.
        ModuleNotFoundError: Kafka has removed the API.
    """
    return message_class(f"{_camel_case(ApiKey(api_key).name)}Request")


@cache
def response_class(api_key: int) -> type[Message]:
    """Return the response class of an API, with the errors of `request_class`."""
    return message_class(f"{_camel_case(ApiKey(api_key).name)}Response")


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
