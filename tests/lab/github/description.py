"""GitHub's OpenAPI description (npm @octokit/openapi), asked about one exchange at a time."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from openapi_schema_validator import (
    OAS30ReadValidator,
    OAS30WriteValidator,
    oas30_format_checker,
)
from referencing import Registry
from referencing.jsonschema import DRAFT4

from tests.lab.github.npm import package_file

_URI = "github:description"


@dataclass(frozen=True)
class Exchange:
    """A request and its answer; `path` with its query, `body` and `data` as JSON values."""

    method: str
    path: str
    body: Any
    status: int
    headers: Mapping[str, str] = field(repr=False)
    data: Any = field(repr=False)


@cache
def description() -> "Description":
    return Description(package_file("OPENAPI", "generated/api.github.com.json"))


class Description:
    """What GitHub says of its REST API."""

    def __init__(self, path: Path) -> None:
        self.document: dict[str, Any] = json.loads(path.read_bytes())
        resource = DRAFT4.create_resource(self.document)
        self._registry: Registry[Any] = Registry().with_resource(_URI, resource)

    def route(self, method: str, path: str) -> str:
        """The `METHOD /path/{template}` of a request; LookupError for one that is not described."""
        plain = urlsplit(path).path
        for template, pattern in self._patterns:
            if method.lower() in self.document["paths"][template] and pattern.fullmatch(plain):
                return f"{method} {template}"
        raise LookupError(f"{method} {plain}")

    def described(self, route: str) -> set[int]:
        """The statuses that a route may answer with."""
        return {int(status) for status in self._operation(route)["responses"]}

    def answer_faults(self, exchange: Exchange) -> list[str]:
        """What is wrong with an answer; its status must be one that is described."""
        route = self.route(exchange.method, exchange.path)
        pointer = f"{self._pointer(route)}/responses/{exchange.status}"
        response = self._at(pointer)
        if "content" not in response:
            return [] if exchange.data is None else ["a body where none is described"]
        media = next(name for name in response["content"] if name.endswith("json"))
        at = f"{self._home(pointer)}/content/{_escaped(media)}/schema"
        return self.schema_faults(f"#{at}", exchange.data)

    def schema_faults(self, pointer: str, value: Any) -> list[str]:
        """What is wrong with a value by the schema at `#/...`."""
        return list(self._errors(OAS30ReadValidator, pointer, value))

    def invented(self, exchange: Exchange) -> set[str]:
        """The keys of an answer that GitHub's has not, where it names any at all."""
        pointer = f"{self._pointer(self.route(exchange.method, exchange.path))}/responses"
        response = self._at(f"{pointer}/{exchange.status}")
        media = next((name for name in response.get("content", ()) if name.endswith("json")), None)
        if media is None:
            return set()
        return set(self._unnamed([response["content"][media]["schema"]], exchange.data, ""))

    def _unnamed(self, schemas: list[dict[str, Any]], value: Any, at: str) -> Iterator[str]:
        flat = list(self._flat(schemas))
        if isinstance(value, list):
            items = [one["items"] for one in flat if "items" in one]
            for item in value:
                yield from self._unnamed(items, item, f"{at}/*")
        named = [one["properties"] for one in flat if "properties" in one]
        if not isinstance(value, dict) or not named:
            return
        for key, inner in value.items():
            reported = [properties[key] for properties in named if key in properties]
            if not reported:
                yield f"{at}/{key}"
            yield from self._unnamed(reported, inner, f"{at}/{key}")

    def _flat(self, schemas: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The schemas behind references and combinations."""
        for schema in schemas:
            if "$ref" in schema:
                yield from self._flat([self._raw(schema["$ref"][1:])])
            yield schema
            for joint in ("allOf", "anyOf", "oneOf"):
                yield from self._flat(schema.get(joint, []))

    def request_faults(self, exchange: Exchange) -> list[str]:
        """What is wrong with a request: its query and its body."""
        route = self.route(exchange.method, exchange.path)
        parts = urlsplit(exchange.path)
        known = dict(self._parameters(route))
        query = dict(parse_qsl(parts.query))
        faults = [f"?{name} is not described" for name in query if name not in known]
        for name, text in query.items():
            if name in known:
                faults += self._errors(OAS30WriteValidator, known[name], _typed(text))
        at = f"{self._pointer(route)}/requestBody"
        if "requestBody" not in self._operation(route):
            return [*faults, *(["a body where none is described"] if exchange.body else [])]
        if exchange.body is None and not self._at(at).get("required"):
            return faults
        schema = f"#{self._home(at)}/content/{_escaped('application/json')}/schema"
        return [*faults, *self._errors(OAS30WriteValidator, schema, exchange.body)]

    def _errors(self, validator: Any, pointer: str, value: Any) -> Iterator[str]:
        check = validator(
            {"$ref": f"{_URI}{pointer}"},
            registry=self._registry,
            format_checker=oas30_format_checker,
        )
        for error in check.iter_errors(value):
            where = "/".join("*" if isinstance(part, int) else part for part in error.path)
            yield f"{where}: {error.message}"

    @cached_property
    def _patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        """Templates with the fewest variables first, so that words go before variables."""
        templates = sorted(self.document["paths"], key=lambda path: path.count("{"))
        return [
            (template, re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))))
            for template in templates
        ]

    def _operation(self, route: str) -> dict[str, Any]:
        found: dict[str, Any] = self._at(self._pointer(route))
        return found

    @staticmethod
    def _pointer(route: str) -> str:
        method, _, path = route.partition(" ")
        return f"/paths/{_escaped(path)}/{method.lower()}"

    def _parameters(self, route: str) -> Iterator[tuple[str, str]]:
        """Name and schema of each parameter in the query."""
        at = f"{self._pointer(route)}/parameters"
        for index, _ in enumerate(self._operation(route).get("parameters", ())):
            home = self._home(f"{at}/{index}")
            parameter = self._at(home)
            if parameter["in"] == "query":
                yield parameter["name"], f"#{home}/schema"

    def _home(self, pointer: str) -> str:
        """Where what stands there really stands, if it is a reference."""
        found = self._raw(pointer)
        return found["$ref"][1:] if "$ref" in found else pointer

    def _at(self, pointer: str) -> Any:
        return self._raw(self._home(pointer))

    def _raw(self, pointer: str) -> Any:
        found: Any = self.document
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found[name]
        return found


def _escaped(name: str) -> str:
    # A pointer in a URI: RFC 6901, section 6; braces stay readable there.
    return name.replace("~", "~0").replace("/", "~1")


def _typed(text: str) -> Any:
    return int(text) if text.isdigit() else text
