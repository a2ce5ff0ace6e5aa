"""An MCP server for the conformance suite, with the tools, resources and prompts that it asks for.

It runs in a sandbox, with the standard library alone: `python3 fixture_server.py PORT`.
"""

import base64
import json
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
Send = Callable[[Message], None]

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ANSWER_SECONDS = 30.0
PAUSE_SECONDS = 0.05
# One red pixel, and no sound at all.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAA"
    "AABJRU5ErkJggg=="
)
WAV = base64.b64encode(
    b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\0\0\0\0"
).decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


class RefusedError(Exception):
    """An error of JSON-RPC."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Conversation:
    """One client."""

    version: str
    capabilities: Message
    level: str = "info"
    subscribed: set[str] = field(default_factory=set)
    # What the client answers to the server's requests, by their ids.
    answers: dict[str, "queue.Queue[Message]"] = field(default_factory=dict)
    # What streams that were closed early still have to say.
    kept: dict[str, "queue.Queue[Message]"] = field(default_factory=dict)

    def ask(self, send: Send, capability: str, method: str, params: Message) -> Message:
        """The client's answer to a request of the server."""
        if capability not in self.capabilities:
            raise ValueError(f"the client has no {capability}")
        called = secrets.token_hex(8)
        answers = self.answers[called] = queue.Queue()
        send({"jsonrpc": "2.0", "id": called, "method": method, "params": params})
        answer = answers.get(timeout=ANSWER_SECONDS)
        if "result" not in answer:
            raise ValueError(f"the client refuses: {answer.get('error')}")
        result: Message = answer["result"]
        return result


def text(said: str) -> Message:
    return {"type": "text", "text": said}


def resource(uri: str, kind: str, content: str) -> Message:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": content}}


def enumeration(*values: str, **others: Any) -> Message:
    return {"type": "string", "enum": list(values), **others}


def titled(**titles: str) -> list[Message]:
    return [{"const": value, "title": title} for value, title in titles.items()]


def form(**properties: Message) -> Message:
    return {"type": "object", "properties": properties, "required": []}


DEFAULTS = form(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status=enumeration("active", "inactive", "pending", default="active"),
    verified={"type": "boolean", "default": True},
)
CHOICES = form(
    untitledSingle=enumeration("option1", "option2", "option3"),
    titledSingle={
        "type": "string",
        "oneOf": titled(value1="First Option", value2="Second Option", value3="Third Option"),
    },
    legacyEnum=enumeration(
        "opt1", "opt2", "opt3", enumNames=["Option One", "Option Two", "Option Three"]
    ),
    untitledMulti={"type": "array", "items": enumeration("option1", "option2", "option3")},
    titledMulti={
        "type": "array",
        "items": {
            "anyOf": titled(value1="First Choice", value2="Second Choice", value3="Third Choice")
        },
    },
)
USER = {
    **form(username={"type": "string"}, email={"type": "string"}),
    "required": ["username", "email"],
}


@dataclass
class Call:
    """A call of a tool."""

    conversation: Conversation
    send: Send
    params: Message

    def argument(self, name: str) -> str:
        return str(self.params.get("arguments", {})[name])

    def notify(self, method: str, params: Message) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def elicit(self, said: str, schema: Message) -> Message:
        params = {"message": said, "requestedSchema": schema}
        return self.conversation.ask(self.send, "elicitation", "elicitation/create", params)


def with_logging(call: Call) -> list[Message]:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        if LEVELS.index("info") >= LEVELS.index(call.conversation.level):
            call.notify("notifications/message", {"level": "info", "data": said})
        time.sleep(PAUSE_SECONDS)
    return [text("logged")]


def with_progress(call: Call) -> list[Message]:
    token = call.params.get("_meta", {}).get("progressToken")
    for progress in (0, 50, 100):
        if token is not None:
            params = {"progressToken": token, "progress": progress, "total": 100}
            call.notify("notifications/progress", params)
        time.sleep(PAUSE_SECONDS)
    return [text("done")]


def failing(_call: Call) -> list[Message]:
    raise ValueError("This tool intentionally returns an error for testing")


def sampling(call: Call) -> list[Message]:
    message = {"role": "user", "content": text(call.argument("prompt"))}
    params = {"messages": [message], "maxTokens": 100}
    said = call.conversation.ask(call.send, "sampling", "sampling/createMessage", params)
    return [text(f"LLM response: {said['content'].get('text')}")]


def elicitation(call: Call) -> list[Message]:
    answer = call.elicit(call.argument("message"), USER)
    return [text(f"User response: {json.dumps(answer)}")]


def chosen(schema: Message) -> Callable[[Call], list[Message]]:
    def run(call: Call) -> list[Message]:
        answer = call.elicit("Please choose", schema)
        content = json.dumps(answer.get("content"))
        return [text(f"Elicitation completed: action={answer['action']}, content={content}")]

    return run


def reconnection(_call: Call) -> list[Message]:
    time.sleep(PAUSE_SECONDS)
    return [text("read on after the break")]


NOTHING: Message = {"type": "object", "properties": {}}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
MIXED = [
    text("Multiple content types test:"),
    IMAGE,
    resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
]
EMBEDDED = resource(
    "test://embedded-resource", "text/plain", "This is an embedded resource content."
)
TOOLS: dict[str, tuple[Message, Callable[[Call], list[Message]]]] = {
    "test_simple_text": (
        NOTHING,
        lambda _call: [text("This is a simple text response for testing.")],
    ),
    "test_image_content": (NOTHING, lambda _call: [IMAGE]),
    "test_audio_content": (
        NOTHING,
        lambda _call: [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    ),
    "test_embedded_resource": (NOTHING, lambda _call: [EMBEDDED]),
    "test_multiple_content_types": (NOTHING, lambda _call: MIXED),
    "test_tool_with_logging": (NOTHING, with_logging),
    "test_tool_with_progress": (NOTHING, with_progress),
    "test_error_handling": (NOTHING, failing),
    "test_sampling": (form(prompt={"type": "string"}), sampling),
    "test_elicitation": (form(message={"type": "string"}), elicitation),
    "test_elicitation_sep1034_defaults": (NOTHING, chosen(DEFAULTS)),
    "test_elicitation_sep1330_enums": (NOTHING, chosen(CHOICES)),
    "test_reconnection": (NOTHING, reconnection),
    "json_schema_2020_12_tool": (SCHEMA_2020, lambda _call: [text("valid")]),
}
RESOURCES: dict[str, Message] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}
TEMPLATE = ("test://template/", "/data")
PROMPTS: dict[str, tuple[tuple[str, ...], Callable[[Message], list[Message]]]] = {
    "test_simple_prompt": ((), lambda _given: [text("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        ("arg1", "arg2"),
        lambda given: [
            text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")
        ],
    ),
    "test_prompt_with_embedded_resource": (
        ("resourceUri",),
        lambda given: [
            resource(given["resourceUri"], "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": (
        (),
        lambda _given: [IMAGE, text("Please analyze the image above.")],
    ),
}


def call_tool(call: Call) -> Message:
    _, run = TOOLS[call.params["name"]]
    try:
        return {"content": run(call)}
    except (ValueError, KeyError, queue.Empty) as error:
        return {"content": [text(str(error) or "no answer")], "isError": True}


def read(params: Message) -> Message:
    uri = params["uri"]
    if uri in RESOURCES:
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    before, after = TEMPLATE
    if not (uri.startswith(before) and uri.endswith(after)):
        raise RefusedError(-32002, f"there is no resource {uri}")
    called = uri.removeprefix(before).removesuffix(after)
    data = {"id": called, "templateTest": True, "data": f"Data for ID: {called}"}
    content = {"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}
    return {"contents": [content]}


def prompt(params: Message) -> Message:
    _, make = PROMPTS[params["name"]]
    contents = make(params.get("arguments", {}))
    return {"messages": [{"role": "user", "content": each} for each in contents]}


def prompts() -> list[Message]:
    return [
        {
            "name": name,
            "description": f"The prompt {name}",
            "arguments": [{"name": each, "required": True} for each in arguments],
        }
        for name, (arguments, _) in PROMPTS.items()
    ]


def result_of(conversation: Conversation, method: str, params: Message, send: Send) -> Message:
    match method:
        case "ping":
            return {}
        case "tools/list":
            tools = [
                {"name": name, "description": f"The tool {name}", "inputSchema": schema}
                for name, (schema, _) in TOOLS.items()
            ]
            return {"tools": tools}
        case "tools/call":
            return call_tool(Call(conversation, send, params))
        case "resources/list":
            listed = [{"uri": uri, "name": uri, "description": uri} for uri in RESOURCES]
            return {"resources": listed}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "{id}".join(TEMPLATE), "name": "data"}]}
        case "resources/read":
            return read(params)
        case "resources/subscribe":
            conversation.subscribed.add(params["uri"])
            return {}
        case "resources/unsubscribe":
            conversation.subscribed.discard(params["uri"])
            return {}
        case "prompts/list":
            return {"prompts": prompts()}
        case "prompts/get":
            return prompt(params)
        case "completion/complete":
            return {"completion": {"values": [], "total": 0, "hasMore": False}}
        case "logging/setLevel":
            conversation.level = params["level"]
            return {}
    raise RefusedError(-32601, f"there is no method {method}")


class Handler(BaseHTTPRequestHandler):
    """The streamable HTTP transport; each answer ends with its connection."""

    conversations: dict[str, Conversation] = {}

    def log_message(self, *_args: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        if not self._is_local():
            self._answer(HTTPStatus.FORBIDDEN)
            return
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if message.get("method") == "initialize":
            self._initialize(message)
            return
        conversation = self.conversations.get(self.headers.get("Mcp-Session-Id", ""))
        if conversation is None:
            self._answer(HTTPStatus.NOT_FOUND)
        elif "id" not in message or "method" not in message:
            if message.get("id") in conversation.answers:
                conversation.answers.pop(message["id"]).put(message)
            self._answer(HTTPStatus.ACCEPTED)
        else:
            self._perform(conversation, message)

    def do_GET(self) -> None:
        conversation = self.conversations.get(self.headers.get("Mcp-Session-Id", ""))
        kept = None if conversation is None else self._kept(conversation)
        if kept is None:
            # It says nothing but in answers.
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED)
            return
        self._begin_stream()
        self._event(kept.get(timeout=ANSWER_SECONDS))

    def do_DELETE(self) -> None:
        self.conversations.pop(self.headers.get("Mcp-Session-Id", ""), None)
        self._answer(HTTPStatus.NO_CONTENT)

    def _is_local(self) -> bool:
        """Whether no page of another site asks."""
        origin = self.headers.get("Origin")
        name = (origin or "").partition("://")[2].rpartition(":")[0]
        return origin is None or name in ("localhost", "127.0.0.1", "[::1]")

    def _kept(self, conversation: Conversation) -> "queue.Queue[Message] | None":
        stream = self.headers.get("Last-Event-ID", "").partition("/")[0]
        return conversation.kept.pop(stream, None)

    def _initialize(self, message: Message) -> None:
        params = message["params"]
        wanted = params.get("protocolVersion")
        version = wanted if wanted in VERSIONS else VERSIONS[0]
        called = secrets.token_hex(16)
        self.conversations[called] = Conversation(version, params.get("capabilities", {}))
        features: Message = {"tools": {}, "prompts": {}, "logging": {}, "completions": {}}
        result = {
            "protocolVersion": version,
            "capabilities": {**features, "resources": {"subscribe": True}},
            "serverInfo": {"name": "fixtures", "version": "1"},
        }
        self._answer(
            HTTPStatus.OK,
            {"jsonrpc": "2.0", "id": message.get("id"), "result": result},
            called,
        )

    def _perform(self, conversation: Conversation, message: Message) -> None:
        params = message.get("params", {})
        stream = secrets.token_hex(8)
        breaks = message["method"] == "tools/call" and params.get("name") == "test_reconnection"
        if breaks:
            conversation.kept[stream] = queue.Queue()
        self._begin_stream()
        if conversation.version >= "2025-11-25":
            self.wfile.write(f"id: {stream}/0\nretry: 100\ndata: \n\n".encode())
            self.wfile.flush()
        if breaks:
            later = conversation.kept[stream]
            threading.Thread(
                target=lambda: later.put(self._answer_to(conversation, message, later.put)),
                daemon=True,
            ).start()
            return
        self._event(self._answer_to(conversation, message, self._event))

    def _answer_to(self, conversation: Conversation, message: Message, send: Send) -> Message:
        called: Message = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = result_of(conversation, message["method"], message.get("params", {}), send)
        except RefusedError as error:
            return {**called, "error": {"code": error.code, "message": str(error)}}
        except KeyError as error:
            return {**called, "error": {"code": -32602, "message": f"{error} is not known"}}
        return {**called, "result": result}

    def _answer(self, status: HTTPStatus, message: Message | None = None, called: str = "") -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        if message is not None:
            self.send_header("Content-Type", "application/json")
        if called:
            self.send_header("Mcp-Session-Id", called)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin_stream(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()

    def _event(self, message: Message) -> None:
        self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        self.wfile.flush()


def main() -> None:
    """Serves until it is ended."""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
