"""The backend that runs blocks in Ray actors, on one machine or on a cluster: the one package that imports Ray."""

import os

os.environ.update(  # Ray reads some of these when it is imported
    {
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # what Ray tells of workers and nodes: we replace them, or end with one line
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of the calls that fail beside the one that ends the run
        "RAY_NUM_REDIS_GET_RETRIES": "1",  # with the next: what listens at an address but is no Ray fails within 20 s
        # Keeps a Ray that is started here on the loopback address; joining a cluster takes the address of its node.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_py_gcs_connect_timeout_s": "8",
    }
    | os.environ  # what the user has set stays
)

from odt_sim.simulation.ray.backend import RayBackend

__all__ = ["RayBackend"]
