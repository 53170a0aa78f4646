"""Storage that a URI names, such as `s3://bucket/run-1`: whatever fsspec has a package for."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from odt_sim.errors import ConfigurationError, FileError
from odt_sim.persistence.files import missing

Result = TypeVar("Result")


@dataclass(frozen=True)
class ObjectStore:
    """Objects below a URI; every write puts a whole object, which lasts at once: that is what object stores offer.

    Attributes:
        uri: Where, without a slash at its end.
    """

    uri: str

    def __post_init__(self) -> None:
        """Checks that fsspec can reach such a place; asks nothing of it yet.

        Raises:
            ConfigurationError: A package is missing, or the scheme is unknown.
        """
        _ = self._place

    def locked(self, on_warning: Callable[[str], object]) -> AbstractContextManager[None]:
        """Does nothing: object stores have no locks that end with their process."""
        return nullcontext()

    def where(self, name: str) -> str:
        """Returns the object's URI."""
        return f"{self.uri}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        system, root = self._place
        system.invalidate_cache()
        return self._asked(name, lambda: bool(system.exists(f"{root}/{name}")))

    def read(self, name: str) -> bytes:
        """Gets an object."""
        system, root = self._place
        return self._asked(name, lambda: bytes(system.cat_file(f"{root}/{name}")))

    def replace(self, name: str, content: bytes) -> None:
        """Puts an object."""
        system, root = self._place
        path = f"{root}/{name}"
        try:
            try:
                system.pipe_file(path, content)
            except FileNotFoundError:  # where there are folders
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
                system.pipe_file(path, content)
        except Exception as error:
            raise FileError(f"{self.where(name)}: cannot write it ({_told(error)}); see who may do so") from error

    def add(self, name: str, content: bytes) -> None:
        """Puts an object."""
        self.replace(name, content)

    def sync(self) -> None:
        """Does nothing: what was put lasts."""

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects."""
        system, root = self._place
        for name in names:
            try:
                with suppress(FileNotFoundError):
                    system.rm_file(f"{root}/{name}")
            except Exception as error:
                raise FileError(f"{self.where(name)}: cannot remove it ({_told(error)}); see who may do so") from error

    def names(self) -> list[str]:
        """Lists the objects below the URI."""
        system, root = self._place
        system.invalidate_cache()
        return [path.removeprefix(f"{root}/") for path in self._asked("", lambda: _found(system, root))]

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """What fsspec calls a file system, and the path there."""
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ConfigurationError(
                f"run.storage: {self.uri} needs fsspec; install it: pip install 'odt_sim[storage]', or choose a folder"
            ) from error
        try:
            system, root = url_to_fs(self.uri)
        except ImportError as error:
            raise ConfigurationError(
                f"run.storage: {self.uri} needs a package ({_told(error)}); install it on every node: "
                f"pip install {_package(self.uri)}"
            ) from error
        except Exception as error:
            raise ConfigurationError(
                f"run.storage: cannot use {self.uri} ({_told(error)}); give a folder or a URI such as s3://bucket/run-1"
            ) from error
        return system, root.rstrip("/")

    def _asked(self, name: str, question: Callable[[], Result]) -> Result:
        try:
            return question()
        except FileNotFoundError as error:
            raise missing(self.where(name)) from error
        except Exception as error:
            raise FileError(
                f"{self.where(name)}: cannot be read ({_told(error)}); see that it can be reached, and who may do so"
            ) from error


def _found(system: Any, root: str) -> list[str]:
    try:
        return list(system.find(root))
    except FileNotFoundError:  # such as a bucket that is made by the first write
        return []


def _package(uri: str) -> str:
    """Returns the package that fsspec's own table names for a URI's scheme."""
    from fsspec.registry import known_implementations

    return str(known_implementations[uri.partition("://")[0]]["class"]).partition(".")[0]


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
