"""Generates every outcome that an S3 client can observe: the answers to the first request and, if the client retries,
to the second; and what the store's contract allows for each.

The error codes are those that the client knows; the statuses are those of HTTP servers and proxies. A service does not
lie: PreconditionFailed means that the object exists, NoSuchKey that it does not. A proxy may answer anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from s3fs.errors import ERROR_CODE_TO_EXCEPTION

from sparklog.errors import ObjectExistsError, ObjectNotFoundError, SparklogError, StorageError
from sparklog.store.s3 import S3Store
from tests.stores.s3_stub import DROP, HONEST, LATE, LATER, NO, RESET, YES, Answer, Step, StubS3

MINE, OTHERS = b"what this caller writes", b"what another one wrote"

_CODES = {
    301: "PermanentRedirect",
    307: "TemporaryRedirect",
    401: "Unauthorized",
    403: "AccessDenied ExpiredToken InvalidAccessKeyId RequestTimeTooSkewed SignatureDoesNotMatch AccountProblem "
    "InvalidObjectState AllAccessDisabled QuotaExceeded",
    404: "NoSuchBucket NoSuchKey NoSuchUpload NoSuchVersion",
    405: "MethodNotAllowed",
    409: "BucketAlreadyExists OperationAborted ConditionalRequestConflict InvalidBucketState",
    411: "MissingContentLength",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown ServiceUnavailable RequestLimitExceeded",
    507: "InsufficientStorage",
}
_STATUS_OF = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""All other codes have status 400."""

STATUSES = (
    *(301, 302, 304, 307, 400, 401, 403, 404, 405, 407, 408, 409, 411, 412, 413, 416, 429, 499),
    *(500, 501, 502, 503, 504, 507, 511, 520, 522, 529),
)

_TRUE_OF_ABSENT = {"NoSuchKey", "NoSuchVersion"}
_TRUE_OF_NEITHER = {"InvalidRange"}


class Operation(NamedTuple):
    """``scripted`` is the request that is answered wrongly while ``call`` runs; it is made ``requests`` times in a call
    without failures. ``present``: the object exists before. ``check(outcome, stub, key)`` asserts the contract; the
    outcome is a result or an error."""

    name: str
    scripted: str
    present: bool
    call: Callable[[S3Store, str], object]
    check: Callable[[object, StubS3, str], None]
    requests: int = 1


class Point(NamedTuple):
    operation: Operation
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        shown = ", then ".join(f"{step.answer} with effect {step.effect}" for step in self.steps)
        return f"{self.operation.name}: {shown}"


def answers() -> Iterator[Answer]:
    """The answers that a request can get instead of the true one."""
    codes = {code for code in ERROR_CODE_TO_EXCEPTION if not code.isdigit()} | set(_STATUS_OF)
    for code in sorted(codes):
        yield Answer("xml", _STATUS_OF.get(code, 400), code)
    for status in STATUSES:
        for form in ("empty", "html", "broken", "cut"):
            yield Answer(form, status)
    yield from (Answer(form, 200) for form in ("html", "broken", "cut"))


def steps(operation: Operation) -> Iterator[Step]:
    """The possible outcomes of one request."""
    for form in (DROP, RESET, LATE):
        yield from (Step(effect, Answer(form)) for effect in (NO, YES, LATER))
    yield Step(YES, Answer(HONEST))
    for answer in answers():
        for effect in (NO, YES):
            if _is_possible(operation, effect, answer):
                yield Step(effect, answer)


def _is_possible(operation: Operation, effect: str, answer: Answer) -> bool:
    if answer.form in ("broken", "cut") and answer.status == 200:
        return effect == YES  # the service's own success, damaged in transit
    present = operation.present
    if effect == YES and operation.scripted in ("put", "complete", "delete"):
        present = operation.scripted != "delete"
    if answer.code == "NoSuchUpload":
        return effect == YES and operation.scripted == "complete"
    return not (
        (says_taken(answer) and not (present and operation.scripted == "put"))
        or (answer.code in _TRUE_OF_ABSENT and (present or operation.scripted == "put"))
        or answer.code in _TRUE_OF_NEITHER
    )


def says_taken(answer: Answer) -> bool:
    """Whether the answer states S3's own failure of the condition."""
    return answer.code == "PreconditionFailed" or (answer.status == 412 and answer.form != "html")


def first_points(operation: Operation) -> list[Point]:
    """Every outcome of the first request; later requests are served honestly."""
    return [Point(operation, (step,)) for step in steps(operation)]


def retried_points(operation: Operation, firsts: list[Point], count: int, seed: int) -> list[Point]:
    """A sample of ``count`` pairs: a first request after which the client retries, and an outcome of the retry."""
    seconds = list(steps(operation))
    pairs = range(len(firsts) * len(seconds))
    chosen = (divmod(pair, len(seconds)) for pair in random.Random(seed).sample(pairs, min(count, len(pairs))))
    return [Point(operation, (*firsts[first].steps, seconds[second])) for first, second in chosen]


def one_of_each_form(firsts: list[Point], seed: int) -> list[Point]:
    """A point of each form of answer, with and without the effect, and of the statuses that say most about an
    object."""
    kinds: dict[tuple[str, str, int], list[Point]] = {}
    for point in firsts:
        step = point.steps[0]
        status = step.answer.status if step.answer.status in (200, 404, 409, 412) else 0
        kinds.setdefault((step.effect, step.answer.form, status), []).append(point)
    return [random.Random(seed).choice(alike) for _, alike in sorted(kinds.items())]


def run(stub: StubS3, store: S3Store, points: list[Point]) -> list[Point]:
    """Run every point, many concurrently, assert the contract for each, and return those where the client retried."""

    def play(number: int, point: Point) -> bool:
        folder = f"{point.operation.name}-{len(stub.requests)}-{number}"
        scripted = f"root/{folder}/" if point.operation.scripted == "list" else f"root/{folder}/key"
        stored = f"root/{folder}/key"
        if point.operation.present:
            stub.objects[stored] = OTHERS
        stub.script(point.operation.scripted, scripted, point.steps)
        outcome: object
        try:
            outcome = point.operation.call(store, f"{folder}/key")
        except SparklogError as error:
            outcome = error
        assert stub.requests[point.operation.scripted, scripted] >= 1, f"{point}: no request was made"
        try:
            if isinstance(outcome, SparklogError):
                assert isinstance(outcome, StorageError), repr(outcome)
                assert not outcome.nothing_written, repr(outcome)
            point.operation.check(outcome, stub, stored)
        except AssertionError as error:
            raise AssertionError(f"{point}: {error}") from error
        return stub.requests[point.operation.scripted, scripted] > point.operation.requests

    with ThreadPoolExecutor(64) as threads:
        retried = list(threads.map(play, range(len(points)), points))
    stub.settle()
    return [point for point, again in zip(points, retried, strict=True) if again]


# -- the contract


def _check_create(outcome: object, stub: StubS3, key: str) -> None:
    stored = stub.objects.get(key)
    if outcome is None:
        assert stored == MINE, f"reported as created, but stored is {stored!r}"
    elif isinstance(outcome, ObjectExistsError):
        assert stored is not None, "reported as existing, but absent"
    else:
        assert not isinstance(outcome, ObjectNotFoundError), repr(outcome)


def _check_create_on_taken(outcome: object, stub: StubS3, key: str) -> None:
    assert outcome is not None, "reported as created, although the key was taken"
    assert not isinstance(outcome, ObjectNotFoundError), repr(outcome)
    assert stub.objects[key] == OTHERS


def _check_write(outcome: object, stub: StubS3, key: str) -> None:
    if outcome is None:
        assert stub.objects.get(key) == MINE, f"reported as written, but stored is {stub.objects.get(key)!r}"
    else:
        assert not isinstance(outcome, (ObjectExistsError, ObjectNotFoundError)), repr(outcome)


def _check_delete(outcome: object, stub: StubS3, key: str) -> None:
    if outcome is None:
        assert key not in stub.objects, "reported as deleted, but present"
    else:
        assert not isinstance(outcome, (ObjectExistsError, ObjectNotFoundError)), repr(outcome)


def _check_read(expected: Callable[[object], bool]) -> Callable[[object, StubS3, str], None]:
    def check(outcome: object, stub: StubS3, key: str) -> None:
        if isinstance(outcome, ObjectNotFoundError):
            assert key not in stub.objects, "reported as absent, but present"
        elif not isinstance(outcome, StorageError):
            assert key in stub.objects or outcome == [], f"read {outcome!r} although the object is absent"
            assert expected(outcome) or key not in stub.objects, f"read {outcome!r}"

    return check


def _stream(store: S3Store, key: str) -> None:
    with store.open_output(key) as file:
        file.write(MINE[:10])
        file.write(MINE[10:])


def _listed(store: S3Store, key: str) -> object:
    folder = key.rpartition("/")[0] + "/"
    return [info.size for info in store.list(folder)]


def _size(store: S3Store, key: str) -> object:
    return store.info(key).size


_IS_WHOLE = _check_read(lambda data: data == OTHERS)
_IS_PART = _check_read(lambda data: data == OTHERS[5:9])
_IS_SIZE = _check_read(lambda size: size == len(OTHERS))
_IS_LISTED = _check_read(lambda sizes: sizes == [len(OTHERS)])

OPERATIONS = (
    Operation("create", "put", False, lambda store, key: store.put_if_absent(key, MINE), _check_create),
    Operation("create-taken", "put", True, lambda store, key: store.put_if_absent(key, MINE), _check_create_on_taken),
    Operation("put", "put", False, lambda store, key: store.put(key, MINE), _check_write),
    Operation("overwrite", "put", True, lambda store, key: store.put(key, MINE), _check_write),
    Operation("delete", "delete", True, lambda store, key: store.delete(key), _check_delete),
    Operation("get", "get", True, lambda store, key: store.get(key), _IS_WHOLE),
    Operation("get-absent", "get", False, lambda store, key: store.get(key), _IS_WHOLE),
    Operation("get-range", "get", True, lambda store, key: store.get_range(key, 5, 4), _IS_PART),
    Operation("info", "head", True, _size, _IS_SIZE),
    Operation("info-absent", "head", False, _size, _IS_SIZE),
    Operation("list", "list", True, _listed, _IS_LISTED),
    Operation("list-empty", "list", False, _listed, _IS_LISTED),
    Operation("stream-begin", "begin", False, _stream, _check_write),
    Operation("stream-part", "part", False, _stream, _check_write, requests=3),
    Operation("stream-complete", "complete", False, _stream, _check_write),
)
