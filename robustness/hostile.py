"""Valid requests of every kind, and hostile ones made of them: broken lines, headers, lengths, chunks and bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from robustness import samples
from robustness.containers import mutate_image
from robustness.mutate import mutate, mutate_json
from robustness.service import AUTHORIZATION
from robustness.small import NAMES, task_files

_BOUNDARY = "frontier"
_NUMBERS = ("0", "1", "-1", "+7", "1e3", "0x10", "007", "99999999999999999999", "", " ", "7, 7", "7;8", "\u0661", "NaN")
_TYPES = (
    "image/png", "image/*", "application/json", "application/octet-stream", "multipart/form-data", "text/plain", "",
    "multipart/form-data; boundary=", f"multipart/form-data; boundary={'b' * 300}", "application/json; charset=utf-16",
    'multipart/form-data; boundary="fron\\"tier"', f"Multipart/Form-Data; BOUNDARY={_BOUNDARY}", "image/png, image/png",
)  # fmt: skip
_NAMES = (
    "",
    ".",
    "..",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "%00",
    "%ff",
    "a" * 3000,
    "é",
    "digits%0d%0ax:%20y",
    "*",
    "~",
)


@dataclass(frozen=True)
class Message:
    """A request, part by part; path: with the query."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def encode(self) -> bytes:
        """As it goes over the wire, its length as it is."""
        return self.head((("content-length", str(len(self.body))),)) + self.body

    def head(self, more: Sequence[tuple[str, str]]) -> bytes:
        """The part before the body."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "host: service"]
        lines += [f"{name}: {value}" for name, value in (*self.headers, *more)]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("utf-8", "replace")


@dataclass(frozen=True)
class Hostile:
    """Bytes to be sent; parsed: whether they are whole HTTP that must be answered."""

    data: bytes
    parsed: bool


def messages() -> tuple[Message, ...]:
    """A valid one of every kind: all ways to send images, all kinds of tensors, and changes of tasks."""
    pictures = samples.pictures()
    classify = [f"/v1/tasks/{task}/classify" for task in NAMES]
    form = b"".join(_part(picture) for picture in pictures[:2]) + f"--{_BOUNDARY}--\r\n".encode()
    image, document = _type("image/png"), _type("application/json")
    key = tuple(AUTHORIZATION.items())
    return (
        *(Message("POST", classify[0], image, picture) for picture in pictures),
        Message("POST", f"{classify[1]}?top_k=3&outputs=logits&tokens=full", image, pictures[0]),
        Message("POST", f"/v1/classify?tasks={','.join(NAMES)}", _type("application/octet-stream"), pictures[8]),
        Message("POST", classify[0], _type(f"multipart/form-data; boundary={_BOUNDARY}"), form),
        *(Message("POST", classify[0], document, body) for body in samples.image_documents()),
        Message("POST", "/v1/tasks/digits/explain", image, pictures[0]),
        *(_inference(data) for data in samples.inferences()),
        Message("PUT", "/v1/tasks/digits", key, task_files()["digits"]),
        *(Message(*line, key, b"") for line in _CHANGES),
        *(Message("GET", path, (), b"") for path in _READ),
    )


_CHANGES = (
    ("POST", "/v1/tasks/fashion-mnist/unload"),
    ("POST", "/v1/tasks/fashion-mnist/load"),
    ("DELETE", "/v1/tasks/none"),
    ("POST", "/v2/repository/models/digits/load"),
)
_READ = ("/v1/tasks", "/v1/tasks/digits", "/v2/models/digits/config", "/metrics", "/readyz", "/v1/savings", "/v2")


def hostile(random: Random, message: Message) -> Hostile:
    """One attack on a valid request."""
    attack: Callable[[Random, Message], Hostile] = random.choice(_ATTACKS)
    return attack(random, message)


def _body(random: Random, message: Message) -> Hostile:
    """Another body, whose length is as announced."""
    body = message.body
    if message.headers == _type("application/json") and random.random() < 0.7:
        body = mutate_json(random, body.decode()).encode("utf-8", "replace")
    elif message.headers == _type("image/png"):
        body = mutate_image(random, body, [body])
    else:
        body = mutate(random, body, [body])
    return Hostile(replace(message, body=body).encode(), parsed=True)


def _type_or_number(random: Random, message: Message) -> Hostile:
    """A header of the application's with another value."""
    name = random.choice(("content-type", "inference-header-content-length", "x-deadline-ms", "content-encoding"))
    value = random.choice(_TYPES if name == "content-type" else (*_NUMBERS, "gzip", "deflate", "br", "identity"))
    headers = (*((key, old) for key, old in message.headers if key != name), (name, value))
    return Hostile(replace(message, headers=headers).encode(), parsed=True)


def _path(random: Random, message: Message) -> Hostile:
    """Another name, or another query."""
    path, _, query = message.path.partition("?")
    if random.random() < 0.5:
        path = path.replace(random.choice(NAMES), random.choice(_NAMES))
    else:
        key = random.choice(("top_k", "tokens", "outputs", "tasks", "format", "x", ""))
        query = f"{query}&{key}={random.choice((*_NUMBERS, *_NAMES)).replace(' ', '+')}"
    path = f"{path}?{query}".encode().decode("latin-1")  # what is no ASCII goes as its bytes
    return Hostile(replace(message, path=path).encode(), parsed=path.isascii())


def _length(random: Random, message: Message) -> Hostile:
    """A length that is not the body's, or two of them."""
    lengths = [("content-length", random.choice((*_NUMBERS, str(len(message.body) + 9), str(len(message.body) // 2))))]
    if random.random() < 0.3:
        lengths.append(("content-length", str(len(message.body))))
    return Hostile(message.head(lengths) + message.body, parsed=False)


def _chunks(random: Random, message: Message) -> Hostile:
    """The body in chunks, some of them broken."""
    parts, body = [], message.body
    while body:
        size = random.randrange(1, len(body) + 1)
        parts.append(b"%x\r\n" % size + body[:size] + b"\r\n")
        body = body[size:]
    encoded = b"".join(parts) + b"0\r\n\r\n"
    whole = random.random() < 0.3
    head = message.head((("transfer-encoding", "chunked"),))
    return Hostile(head + (encoded if whole else mutate(random, encoded, [encoded])), parsed=whole)


def _headers(random: Random, message: Message) -> Hostile:
    """Too many headers, too long ones, or broken ones."""
    many = tuple((f"x-{i}", "y") for i in range(random.choice((50, 500, 5000))))
    long = (("x-long", "y" * random.choice((1000, 20_000, 100_000))),)
    odd = (
        random.choice((("x y", "z"), ("", "z"), ("x", "y\0z"), ("x", "y\rz"), (" x", "y"), ("expect", "100-continue"))),
    )
    more = random.choice((many, long, odd))
    return Hostile(replace(message, headers=(*message.headers, *more)).encode(), parsed=False)


def _anything(random: Random, message: Message) -> Hostile:
    """Changes anywhere in the bytes."""
    data = message.encode()
    return Hostile(mutate(random, data, [data]), parsed=False)


def _cut(random: Random, message: Message) -> Hostile:
    """The end does not come."""
    data = message.encode()
    return Hostile(data[: random.randrange(len(data))], parsed=False)


def _form(random: Random, message: Message) -> Hostile:
    """The body as a form whose parts or boundaries are odd."""
    form = _part(message.body) * random.choice((1, 2, 70)) + f"--{_BOUNDARY}--\r\n".encode()
    headers = _type(f"multipart/form-data; boundary={_BOUNDARY}")
    message = replace(message, headers=(*headers, *AUTHORIZATION.items()), body=mutate(random, form, [form]))
    return Hostile(message.encode(), parsed=True)


def _valid(random: Random, message: Message) -> Hostile:  # noqa: ARG001
    return Hostile(message.encode(), parsed=True)


def _inference(data: bytes) -> Message:
    length, encoding, body = data.split(b"\n", 2)
    values = {"inference-header-content-length": length.decode(), "content-encoding": encoding.decode()}
    headers = tuple((name, value) for name, value in values.items() if value)
    return Message("POST", "/v2/models/digits/infer", headers, body)


def _part(data: bytes) -> bytes:
    head = f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="image"; filename="x"\r\n\r\n'
    return head.encode() + data + b"\r\n"


def _type(value: str) -> tuple[tuple[str, str], ...]:
    return (("content-type", value),)


_ATTACKS = (
    _body, _body, _body, _type_or_number, _path, _length, _chunks, _headers, _anything, _cut, _form, _valid
)  # fmt: skip
