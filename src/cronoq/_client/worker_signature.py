"""The parameters and the result of a typed function as JSON documents."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from cronoq._client.worker_json import JsonFault, dumps, faults, join, loads, make_converter, prepare

JSON = "application/json"

_NAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


@functools.cache
def _converter() -> Any:
    return make_converter()


class TypedSignature:
    """What a function takes and returns. TypeError, with the reason, for a function that has no JSON form."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__qualname__", type(function).__qualname__)
        try:
            self._signature = inspect.signature(function)
            hints = get_type_hints(function, include_extras=True)
        except (NameError, ValueError, TypeError) as error:
            raise TypeError(f"{self._name}: its parameters cannot be read ({error})") from None
        converter = _converter()
        self._read: dict[str, Callable[[Any], Any]] = {}
        self._write: dict[str, Callable[[Any], Any]] = {}
        for parameter in self._signature.parameters.values():
            if parameter.kind not in _NAMED:
                raise TypeError(f"{self._name}: parameter {parameter} has no name of its own in JSON")
            if parameter.name not in hints:
                raise TypeError(f"{self._name}: parameter {parameter.name} has no type")
            kind = hints[parameter.name]
            self._check(f"parameter {parameter.name}", kind)
            self._read[parameter.name] = functools.partial(_apply, converter.get_structure_hook(kind), kind)
            self._write[parameter.name] = converter.get_unstructure_hook(kind)
        returned = hints.get("return", Any)
        self._check("the result", returned)
        self._read_result = functools.partial(_apply, converter.get_structure_hook(returned), returned)
        self._write_result = converter.get_unstructure_hook(returned)

    def _check(self, what: str, kind: Any) -> None:
        try:
            prepare(kind, _converter())
        except TypeError as error:
            raise TypeError(f"{self._name}: {what}: {error}") from None

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Arguments as a document; those that are left out stay out. TypeError for what the function does not take.

        Each is read back as a worker will do it, so that what is wrong is found here.
        """
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._name}: {error}") from None
        document, wrong = {}, []
        for name, value in given.items():
            try:
                document[name] = self._write[name](value)
                self._read[name](document[name])
            except RecursionError:
                wrong.append(f"{name}: nested too deeply")
            except Exception as error:
                wrong += faults(error, name)
        if wrong:
            raise TypeError(f"{self._name}: {join(wrong)}")
        try:
            return dumps(document)
        except JsonFault as fault:
            raise TypeError(f"{self._name}: {fault}") from None

    def bind(self, function: Callable[..., Any], payload: bytes) -> Callable[[], Any]:
        """A call of the function with the arguments of a document. `JsonFault` with the path of each fault."""
        document = loads(payload) if payload else {}
        if type(document) is not dict:
            raise JsonFault("payload: an object with the parameters is needed")
        found, wrong = {}, []
        for name, parameter in self._signature.parameters.items():
            if name in document:
                try:
                    found[name] = self._read[name](document[name])
                except RecursionError:
                    wrong.append(f"payload.{name}: nested too deeply")
                except Exception as error:
                    wrong += faults(error, f"payload.{name}")
            elif parameter.default is parameter.empty:
                wrong.append(f"payload.{name}: is missing")
        wrong += [f"payload.{name}: unknown" for name in document if name not in self._read]
        if wrong:
            raise JsonFault(join(wrong))
        bound = inspect.BoundArguments(self._signature, found)
        return functools.partial(function, *bound.args, **bound.kwargs)

    def encode_result(self, value: Any) -> bytes:
        """What the function returned as a document; None is an empty one. `JsonFault` for what it should not return."""
        if value is None:
            value = self._convert(self._write_result, value)
            return b"" if value is None else dumps(value)
        return dumps(self._convert(self._write_result, value))

    def decode_result(self, output: bytes) -> Any:
        """What the function returned. `JsonFault` for an output of another form."""
        return self._convert(self._read_result, loads(output) if output else None)

    def _convert(self, convert: Callable[[Any], Any], value: Any) -> Any:
        try:
            return convert(value)
        except RecursionError:
            raise JsonFault("result: nested too deeply") from None
        except Exception as error:
            raise JsonFault(join(faults(error, "result"))) from None


def _apply(hook: Callable[[Any, Any], Any], kind: Any, value: Any) -> Any:
    return hook(value, kind)
