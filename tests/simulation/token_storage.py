"""A file system for fsspec that needs a credential in the environment, as S3 does.

The URI is `token://VARIABLE/folder`: the folder can be used where the environment has VARIABLE.
"""

import os
from typing import Any, ClassVar

from fsspec import register_implementation
from fsspec.implementations.local import LocalFileSystem


class TokenFileSystem(LocalFileSystem):
    protocol: ClassVar[str] = "token"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("token://")

    def _local(self, path: str) -> str:
        variable, _, local = path.partition("/")
        if variable not in os.environ:
            raise PermissionError(f"no credential {variable}")
        return f"/{local}"

    def cat_file(self, path: str, **options: Any) -> bytes:
        return super().cat_file(self._local(path), **options)

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        with open(self._local(path), "wb") as file:
            file.write(value)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        os.makedirs(self._local(path), exist_ok=exist_ok)

    def rm_file(self, path: str) -> None:
        os.remove(self._local(path))

    def find(self, path: str, **options: Any) -> list[str]:
        root = self._local(path)
        return [
            path + os.path.join(folder, file).removeprefix(root) for folder, _, files in os.walk(root) for file in files
        ]


register_implementation("token", TokenFileSystem, clobber=True)
