"""The backend that runs blocks in Ray actors; the one package that imports Ray."""

import os

os.environ.update(  # Ray reads some of these when it is imported
    {
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # dead workers and nodes are replaced, or end the run with one line
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # errors of calls other than the one that ends the run
        "RAY_NUM_REDIS_GET_RETRIES": "1",  # with the last setting: a server that is not Ray is detected within 20 s
        # A Ray started here stays on the loopback address; a driver of a cluster uses its node's address anyway.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_py_gcs_connect_timeout_s": "8",
    }
    | os.environ  # the user's settings take precedence
)

from odt_sim.simulation.executors.ray.backend import RayBackend

__all__ = ["RayBackend"]
