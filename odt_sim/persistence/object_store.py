"""Storage at a URI such as `s3://bucket/run-1`, through fsspec."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from odt_sim._support.files import missing
from odt_sim.errors import ConfigurationError, FileError


@dataclass(frozen=True)
class ObjectStore:
    """Objects below a URI; every write puts a whole object, which is durable immediately.

    Attributes:
        uri: The URI, without a trailing slash.
    """

    uri: str

    def __post_init__(self) -> None:
        """Check that fsspec supports the URI; no request is made.

        Raises:
            ConfigurationError: A package is missing, or the scheme is unknown.
        """
        _ = self._place

    def locked(self, on_warning: Callable[[str], object]) -> AbstractContextManager[None]:
        """Do nothing: object stores have no locks that are released when a process exits."""
        return nullcontext()

    def where(self, name: str) -> str:
        """Return the object's URI."""
        return f"{self.uri}/{name}"

    def read(self, name: str) -> bytes:
        """Get an object."""
        system, root = self._place
        try:
            with self._explained(name, "read", FileNotFoundError):
                return bytes(system.cat_file(f"{root}/{name}"))
        except FileNotFoundError as error:
            raise missing(self.where(name)) from error

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Put an object."""
        system, root = self._place
        path = f"{root}/{name}"
        with self._explained(name, "write"):
            try:
                system.pipe_file(path, content)
            except FileNotFoundError:  # file systems with folders
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
                system.pipe_file(path, content)

    def add(self, name: str, content: bytes) -> None:
        """Put an object."""
        self.replace(name, content)

    def sync(self) -> None:
        """Do nothing: objects are durable."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects."""
        system, root = self._place
        for name in names:
            with self._explained(name, "remove"), suppress(FileNotFoundError):
                system.rm_file(f"{root}/{name}")

    def names(self) -> list[str]:
        """List the objects below the URI."""
        system, root = self._place
        system.invalidate_cache()
        with self._explained("", "list"):
            try:
                return [path.removeprefix(f"{root}/") for path in system.find(root)]
            except FileNotFoundError:  # such as a bucket that the first write creates
                return []

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """The fsspec file system, and the path in it."""
        try:
            from fsspec.core import url_to_fs
            from fsspec.registry import known_implementations
        except ImportError as error:
            raise ConfigurationError(
                f"run.storage: {self.uri} needs fsspec; install it: pip install 'odt_sim[storage]', or choose a folder"
            ) from error
        try:
            system, root = url_to_fs(self.uri)
        except ImportError as error:
            package = known_implementations[self.uri.partition("://")[0]]["class"].partition(".")[0]
            raise ConfigurationError(
                f"run.storage: {self.uri} needs a package ({_first_line(error)}); on every node, run: pip install {package}"
            ) from error
        except Exception as error:
            raise ConfigurationError(
                f"run.storage: cannot use {self.uri} ({_first_line(error)}); "
                "give a folder or a URI such as s3://bucket/run-1"
            ) from error
        return system, root.rstrip("/")

    @contextmanager
    def _explained(self, name: str, action: str, *passes: type[Exception]) -> Iterator[None]:
        """Turn whatever an fsspec package raises into a `FileError`, except the errors in `passes`."""
        try:
            yield
        except passes:
            raise
        except Exception as error:
            raise FileError(
                f"{self.where(name)}: cannot {action} it ({_first_line(error)}); check the address and the credentials"
            ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
