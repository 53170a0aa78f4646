"""Run a command as `ray job submit --working-dir FOLDER` does, but without Ray's job server.

    python submitted.py ADDRESS FOLDER COMMAND ...

An actor with FOLDER as its working folder, like a job's supervisor, starts COMMAND with the job's runtime environment. This
process exits with the command's exit code and error output.
"""

import json
import os
import subprocess
import sys

import ray


@ray.remote(num_cpus=0)
class Supervisor:
    def run(self, command: list[str], address: str) -> tuple[int, str]:
        folder = ray.get_runtime_context().runtime_env["working_dir"]
        job = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"working_dir": folder}})}
        done = subprocess.run(
            command, env={**os.environ, **job, "RAY_ADDRESS": address}, capture_output=True, text=True
        )
        return done.returncode, done.stderr


def main(address: str, folder: str, *command: str) -> None:
    ray.init(address, log_to_driver=False, runtime_env={"working_dir": folder})
    code, error = ray.get(Supervisor.remote().run.remote(list(command), address))
    print(error, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
